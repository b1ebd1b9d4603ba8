//! Stored rows: events, long and hostile texts, masked credentials.

use super::*;
use crate::activity::current_step;

pub(super) async fn events_are_numbered_and_read_in_parts(stage: &TestStore) {
    let store = stage.open().await;
    let new = new_job("p");
    store.submit(&new).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    let events: Vec<NewEvent> = (1..=1001)
        .map(|n| NewEvent {
            kind: "item".to_owned(),
            data: json!({"n": n, "text": HOSTILE}).to_string(),
        })
        .collect();
    for some in events.chunks(450) {
        let appended = store.append(&claimed.claim, some).await.unwrap();
        assert_eq!(appended, AppendOutcome::Done { dropped: 0 });
    }
    let appended = store.append(&claimed.claim, &[]).await.unwrap();
    assert_eq!(appended, AppendOutcome::Done { dropped: 0 });
    let all = store.events(&new.id, 0, 5000).await.unwrap();
    assert!(all.iter().map(|event| event.sequence).eq(1..=1001));
    assert!(all.iter().zip(&events).all(|(a, b)| a.data == b.data));
    let part = store.events(&new.id, 999, 1).await.unwrap();
    assert_eq!(part, [all[999].clone()]);
    assert_eq!(store.events(&new.id, 1001, 9).await.unwrap(), []);
    assert_eq!(store.tail(&new.id, 3).await.unwrap(), all[998..]);
    assert_eq!(store.tail(&new_job("").id, 3).await.unwrap(), []);
}

/// The events are longer than what is in memory at a time.
pub(super) async fn long_events_are_passed_one_after_the_other(stage: &TestStore) {
    let store = stage.open().await;
    let new = new_job("p");
    store.submit(&new).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    let events = [1, 3, 6, 1, 2].map(|mib| NewEvent {
        kind: "item".to_owned(),
        data: "x".repeat(mib << 20),
    });
    store.append(&claimed.claim, &events).await.unwrap();
    for most in [0, 1, 4, 9] {
        let mut passed = Vec::new();
        let each = store.each_of_tail(&new.id, most, |event| passed.push(event));
        each.await.unwrap();
        let tail = store.tail(&new.id, most).await.unwrap();
        // The events are too long for a message of `assert_eq!`.
        assert!(passed == tail, "{most}");
    }
    let mut paged: Vec<StoredEvent> = Vec::new();
    loop {
        let read = paged.last().map_or(0, |event| event.sequence);
        let page = store.events(&new.id, read, 200).await.unwrap();
        let length: usize = page.iter().map(|event| event.data.len()).sum();
        assert!(page.len() <= 1 || length <= 4 << 20, "{length}");
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert!(paged == store.tail(&new.id, 9).await.unwrap());
}

pub(super) async fn current_step_has_the_number_of_the_last_event(stage: &TestStore) {
    let store = stage.open().await;
    let new = new_job("p");
    store.submit(&new).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    let step = async || {
        current_step(&store, &new.id, SystemTime::now())
            .await
            .unwrap()
    };
    assert_eq!(step().await, None);
    let item = json!({ "type": "command_execution", "id": "1", "command": "cargo test" });
    let events = [
        json!({ "type": "turn.started" }),
        json!({ "type": "item.started", "item": item }),
    ];
    let events = events.map(|data| NewEvent {
        kind: "item".to_owned(),
        data: data.to_string(),
    });
    store.append(&claimed.claim, &events).await.unwrap();
    let step = step().await.unwrap();
    assert_eq!((step.number, &*step.words), (2, "running cargo test"));
}

/// Others can write any event. The next one has to follow it, so its number is not skipped.
pub(super) async fn malformed_event_is_left_out_of_the_tail(stage: &TestStore) {
    let store = stage.open().await;
    let new = new_job("p");
    store.submit(&new).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    assert_eq!(store.latest_event(&new.id).await.unwrap(), 0);
    let event = NewEvent {
        kind: "item".to_owned(),
        data: "{}".to_owned(),
    };
    store.append(&claimed.claim, &[event]).await.unwrap();
    assert_eq!(store.latest_event(&new.id).await.unwrap(), 1);
    let good = store.tail(&new.id, 9).await.unwrap();
    let long = format!("4, 0, 'k', {}", too_long(stage));
    let mut malformed = vec!["1099511627776, 0, 'k', '{}'", &long];
    let mut shown = malformed.len();
    // SQLite alone stores values of any type in a column.
    if stage.location.path().is_some() {
        malformed.extend(["2, 0, 'k', X'ff'", "3, 0, 'k', X'ff'"]);
        shown = malformed.len();
        malformed.push("2.5, 0, 'k', '{}'");
    }
    let spoil = async |connection: &mut Connection| {
        for values in &malformed {
            let sql = format!(
                "INSERT INTO codex_events (job, sequence, at, kind, data) \
                 SELECT seq, {values} FROM codex_jobs"
            );
            assert_eq!(connection.run(&sql, Vec::new()).await?, 1, "{sql}");
        }
        Ok(())
    };
    writing!(store, spoil).unwrap();
    assert_eq!(store.tail(&new.id, 9).await.unwrap(), good);
    let mut passed = Vec::new();
    let each = store.each_of_tail(&new.id, 9, |event| passed.push(event));
    each.await.unwrap();
    assert_eq!(passed, good);
    let mut read = 1;
    let mut count = 0;
    loop {
        let events = store.events(&new.id, read, 9).await.unwrap();
        let Some(last) = events.last() else {
            break;
        };
        read = last.sequence;
        count += events.len();
        let mut kinds = events.iter().map(|event| event.kind.as_str());
        assert!(
            kinds.all(|kind| kind == "codex-mcp/unreadable"),
            "{events:?}"
        );
    }
    assert_eq!(count, shown);
    let error = store.latest_event(&new.id).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
}

/// A worker repeats a call whose answer was lost.
pub(super) async fn events_appended_again_are_stored_once(stage: &TestStore) {
    let store = stage.open().await;
    let new = new_job("p");
    store.submit(&new).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    let events: Vec<NewEvent> = (1..=6)
        .map(|n| NewEvent {
            kind: "item".to_owned(),
            data: n.to_string(),
        })
        .collect();
    // The last one has a later number, as after events that the store has lost.
    for (first, some) in [
        (1, &events[..3]),
        (1, &events[..3]),
        (2, &events[1..5]),
        (9, &events[5..]),
    ] {
        let appended = store.append_from(&claimed.claim, first, some).await;
        assert_eq!(appended.unwrap(), AppendOutcome::Done { dropped: 0 });
    }
    let stored = store.events(&new.id, 0, 9).await.unwrap();
    assert!(stored.iter().map(|event| event.sequence).eq(1..=6));
    assert!(stored.iter().zip(&events).all(|(a, b)| a.data == b.data));
    let stale = Claim {
        attempt: 7,
        ..claimed.claim
    };
    let appended = store.append_from(&stale, 1, &events).await;
    assert_eq!(appended.unwrap(), AppendOutcome::Lost);
}

pub(super) async fn hostile_text_is_stored_as_text(stage: &TestStore) {
    let store = stage.open().await;
    let harmless = new_job("harmless");
    store.submit(&harmless).await.unwrap();
    for text in HOSTILE {
        let mut new = new_job(text);
        new.request.tool_name = text.to_owned();
        new.request.cwd = text.to_owned();
        new.request.submitted_by = Some(text.to_owned());
        store.submit(&new).await.unwrap();
        let filter = JobFilter {
            status: None,
            tool_name: Some(text.to_owned()),
            cwd: Some(text.to_owned()),
        };
        let listed = store.list(&filter, 100).await.unwrap();
        assert_eq!((listed.jobs.len(), listed.total), (1, 1), "{text}");
        let kept = store.latest_of(text).await.unwrap().unwrap();
        assert_eq!(kept.summary.id, new.id);
        assert_eq!(kept.request.prompt, text.replace('\0', "\u{fffd}"));
    }
    let total = store.list(&JobFilter::default(), 1).await.unwrap().total;
    assert_eq!(total, 1 + HOSTILE.len() as u64);
    assert!(store.get(&harmless.id).await.unwrap().is_some());
}

/// Each process that lists jobs would have it in memory otherwise.
pub(super) async fn text_of_others_that_is_too_long_is_not_read(stage: &TestStore) {
    let store = stage.open().await;
    let id = store.submit(&new_job("p")).await.unwrap();
    let long = too_long(stage);
    let change = format!("task_name = {long}, error = {long}, result = {long}");
    queue::change_row(&store, &id, &change).await;
    let listed = store.list(&JobFilter::default(), 9).await.unwrap();
    let [listed] = &listed.jobs[..] else {
        panic!("{} jobs", listed.jobs.len())
    };
    assert_eq!(listed.task_name, "(too long)");
    assert_eq!(listed.error.as_deref(), Some("(too long)"));
    let unreadable = store.get(&id).await.map(drop).unwrap_err();
    assert!(
        matches!(unreadable, StoreError::Unreadable { .. }),
        "{unreadable}"
    );
    // The beginning of a long error is shown.
    let change = format!("error = '{}'", "e".repeat(1 << 20));
    queue::change_row(&store, &id, &change).await;
    let listed = store.summary(&id).await.unwrap().unwrap();
    assert_eq!(listed.error.unwrap().len(), 16 << 10);
}

pub(super) async fn text_that_is_too_long_is_refused(stage: &TestStore) {
    let store = stage.open().await;
    let long = "x".repeat(LONGEST_TEXT + 1);
    let refused = store.submit(&new_job(&long)).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLong { .. }), "{refused}");
    let mut unnamed = new_job("p");
    unnamed.request.model_override = Some("x".repeat((16 << 10) + 1));
    let refused = store.submit(&unnamed).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLong { .. }), "{refused}");
    let new = new_job(&long[1..]);
    store.submit(&new).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    assert_eq!(claimed.job.request.prompt.len(), LONGEST_TEXT);
    let how = FinishedJob {
        result: Some(json!(long)),
        ..finished(Ending::Completed)
    };
    store.finish(&claimed.claim, &how).await.unwrap_err();
    let how = finished(Ending::Completed);
    let written = store.finish(&claimed.claim, &how).await.unwrap();
    assert_eq!(written, WriteOutcome::Done);
}

pub(super) async fn job_survives_reopening(stage: &TestStore) {
    let new = new_job("p");
    stage.open().await.submit(&new).await.unwrap();
    let again = stage.open().await;
    assert!(again.get(&new.id).await.unwrap().is_some());
}

/// A file that only this user can write to needs no signature. The last change leaves a row as older
/// programs have written it.
pub(super) async fn changed_session_is_unproven(stage: &TestStore) {
    let store = stage.open().await;
    let proven = async |claim: &Claim| {
        let job = store.get(&claim.job).await.unwrap().unwrap();
        job.proven_session().map(str::to_owned)
    };
    let other = running(&store, LONG).await;
    store.note_session(&other, "a session").await.unwrap();
    let of_other = format!(
        "(SELECT session_signature FROM codex_jobs WHERE id = '{}')",
        other.job
    );
    for change in [
        "session_id = 'of others'".to_owned(),
        format!("session_signature = {of_other}"),
        "session_signature = NULL".to_owned(),
    ] {
        let claim = running(&store, LONG).await;
        store.note_session(&claim, "a session").await.unwrap();
        assert_eq!(proven(&claim).await.as_deref(), Some("a session"));
        let sql = format!("UPDATE codex_jobs SET {change} WHERE id = $1");
        let change = async |connection: &mut Connection| {
            let values = vec![claim.job.as_str().into()];
            connection.run(&sql, values).await
        };
        writing!(store, change).unwrap();
        let is_file = stage.location.path().is_some();
        assert_eq!(proven(&claim).await.is_some(), is_file, "{sql}");
        // The worker signs the thread with which it ends the job.
        let how = FinishedJob {
            session_id: Some("a later session".to_owned()),
            ..finished(Ending::Completed)
        };
        store.finish(&claim, &how).await.unwrap();
        assert_eq!(proven(&claim).await.as_deref(), Some("a later session"));
    }
    let how = finished(Ending::Completed);
    store.finish(&other, &how).await.unwrap();
    assert_eq!(proven(&other).await.as_deref(), Some("a session"));
}

/// Credentials are masked however the job ends; a job that runs again keeps its prompt.
pub(super) async fn credentials_are_masked_when_a_job_ends(stage: &TestStore) {
    const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ";
    const HOOK: &str = "hooks.slack.com/services/";
    let store = stage.open().await;
    let worker = new_worker_id();
    let prompt = format!("push with {TOKEN}");
    let submit = async |retry| {
        let mut new = new_job(&prompt);
        new.request.retry = retry;
        let notifier = format!("webhook:https://{HOOK}T0/B0/x");
        let spec = json!({"task": prompt, "n": 0.1, "notify": [notifier]});
        new.request.run = Some(json!({"order": spec, "x": [1e300]}));
        store.submit(&new).await.unwrap();
        new.id
    };
    let get = async |id| store.get(&id).await.unwrap().unwrap();
    let finish = submit(0).await;
    let waiting = get(finish.clone()).await;
    assert_eq!(waiting.request.prompt, prompt);
    assert_eq!(waiting.prompt, PromptText::Whole);
    assert_eq!(waiting.origin, Origin::ThisMachine);
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(claimed.job.request.prompt, prompt);
    let how = finished(Ending::Completed);
    store.finish(&claimed.claim, &how).await.unwrap();

    let give_up = submit(0).await;
    let claimed = claim(&store, &worker).await.unwrap();
    store.give_up(&claimed.claim, "why").await.unwrap();

    let cancel = submit(0).await;
    store.request_cancel(&cancel).await.unwrap();

    let lost = submit(0).await;
    store.claim(&worker, "here", NONE).await.unwrap().unwrap();
    // The notification of its end needs the job as it was.
    let ended = reap_one(&store).await.ended.unwrap();
    assert_eq!(ended.summary.state, JobState::Failed);
    assert_eq!(ended.summary.error.as_deref(), Some(WORKER_LOST));
    assert_eq!(ended.request.prompt, prompt);
    assert_eq!(ended.origin, Origin::ThisMachine);

    let again = submit(1).await;
    store.claim(&worker, "here", NONE).await.unwrap().unwrap();
    assert_eq!(reap_one(&store).await.ended, None);
    let again = get(again).await;
    assert_eq!(again.summary.state, JobState::Queued);
    assert_eq!(
        (&again.request.prompt, again.prompt),
        (&prompt, PromptText::Whole)
    );

    for id in [finish, give_up, cancel, lost] {
        let ended = get(id).await;
        assert!(ended.summary.state.has_ended());
        assert_eq!(ended.request.prompt, "push with [masked]");
        let notifier = format!("webhook:https://{HOOK}[masked]");
        let spec = json!({"task": "push with [masked]", "n": 0.1, "notify": [notifier]});
        assert_eq!(
            ended.request.run,
            Some(json!({"order": spec, "x": [1e300]}))
        );
        assert_eq!(ended.prompt, PromptText::Masked);
        // The masked row still has a valid signature.
        assert_eq!(ended.origin, Origin::ThisMachine);
    }
    if let Some(path) = stage.location.path() {
        store.request_cancel(&again.summary.id).await.unwrap();
        drop(store);
        // The last connection to close writes the log into the file. If two close at the same
        // time, neither is the last, and the next connection to close does it.
        let log = path.with_file_name("jobs.db-wal");
        wait_for("the end of the write-ahead log", async || {
            if !log.exists() {
                return Some(());
            }
            drop(stage.open().await);
            None
        })
        .await;
        let bytes = std::fs::read(path).unwrap();
        let found = bytes.windows(TOKEN.len()).any(|at| at == TOKEN.as_bytes());
        assert!(!found, "the token is still in a free page");
    }
}
