//! Instructions to the workers of running jobs.

use super::*;

fn instruction(question: Option<&str>) -> NewInstruction {
    NewInstruction {
        id: uuid::Uuid::new_v4(),
        question: question.map(str::to_owned),
        data: HOSTILE.concat(),
    }
}

/// An answer is taken again: it cannot be given twice.
pub(super) async fn message_that_may_have_arrived_is_not_sent_again(stage: &TestStore) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    store.set_questions(&claim, &[asked("q")]).await.unwrap();
    let (message, answer, late) = (instruction(None), instruction(Some("q")), instruction(None));
    for new in [&message, &answer] {
        store.instruct(&claim.job, new).await.unwrap();
    }
    assert_eq!(store.take_instructions(&claim).await.unwrap().len(), 2);
    store.instruct(&claim.job, &late).await.unwrap();
    let concluded = store.conclude_taken_messages(&claim, "perhaps").await;
    assert_eq!(concluded.unwrap(), WriteOutcome::Done);
    let perhaps = InstructionProgress::Concluded("perhaps".to_owned());
    assert_eq!(store.progress(&message).await.unwrap(), perhaps);
    let taken = store.take_instructions(&claim).await.unwrap();
    let ids: HashSet<String> = taken.into_iter().map(|one| one.id).collect();
    assert_eq!(ids, [&answer, &late].map(|new| new.id.to_string()).into());
}

pub(super) async fn instruction_is_taken_by_its_attempt_until_it_is_concluded(stage: &TestStore) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let new = instruction(None);
    for _ in 0..2 {
        let given = store.instruct(&claim.job, &new).await.unwrap();
        assert_eq!(given, Some(InstructOutcome::Given));
    }
    assert_eq!(
        store.progress(&new).await.unwrap(),
        InstructionProgress::Waiting
    );
    let called = store.jobs_with_instructions(&claim.worker).await.unwrap();
    assert_eq!(called, std::slice::from_ref(&claim.job));
    assert_eq!(
        store
            .jobs_with_instructions(&new_worker_id())
            .await
            .unwrap(),
        []
    );
    let taken = store.take_instructions(&claim).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].data, new.data.replace('\0', "\u{fffd}"));
    // The worker asks again if the answer with them was lost.
    assert_eq!(store.take_instructions(&claim).await.unwrap(), taken);
    let of_another = Claim {
        attempt: claim.attempt + 1,
        ..claim.clone()
    };
    assert_eq!(store.take_instructions(&of_another).await.unwrap(), []);
    assert_eq!(
        store.jobs_with_instructions(&claim.worker).await.unwrap(),
        []
    );
    assert_eq!(
        store.progress(&new).await.unwrap(),
        InstructionProgress::Taken
    );
    assert_eq!(store.withdraw(&new).await.unwrap(), WriteOutcome::Lost);
    let concluded = store.conclude(&claim, &taken[0].id, "no").await.unwrap();
    assert_eq!(concluded, WriteOutcome::Done);
    assert_eq!(store.take_instructions(&claim).await.unwrap(), []);
    let no = InstructionProgress::Concluded("no".to_owned());
    assert_eq!(store.progress(&new).await.unwrap(), no);

    let withdrawn = instruction(None);
    store.instruct(&claim.job, &withdrawn).await.unwrap();
    assert_eq!(
        store.withdraw(&withdrawn).await.unwrap(),
        WriteOutcome::Done
    );
    assert_eq!(store.take_instructions(&claim).await.unwrap(), []);

    // The outcome can be read after the end of the job; an instruction that was not taken is gone.
    let late = instruction(None);
    store.instruct(&claim.job, &late).await.unwrap();
    store
        .finish(&claim, &finished(Ending::Completed))
        .await
        .unwrap();
    assert_eq!(store.progress(&new).await.unwrap(), no);
    assert_eq!(
        store.progress(&late).await.unwrap(),
        InstructionProgress::Gone
    );
    let again = store.instruct(&claim.job, &new).await.unwrap();
    assert_eq!(again, Some(InstructOutcome::Given));
    let ended = store.instruct(&claim.job, &instruction(None)).await;
    let completed = InstructOutcome::NotRunning(JobState::Completed);
    assert_eq!(ended.unwrap(), Some(completed));
    let nobody = new_job("p").id;
    assert_eq!(
        store.instruct(&nobody, &instruction(None)).await.unwrap(),
        None
    );
}

pub(super) async fn question_has_one_answer(stage: &TestStore) {
    let store = Arc::new(stage.open().await);
    let claim = running(&store, LONG).await;
    let give = async |id: &str| {
        let given = store.instruct(&claim.job, &instruction(Some(id))).await;
        given.unwrap().unwrap()
    };
    assert_eq!(give("a").await, InstructOutcome::NoQuestion);
    let open = [asked("a"), asked("b")];
    store.set_questions(&claim, &open).await.unwrap();
    let all = (0..16).map(|_| {
        let (store, job) = (Arc::clone(&store), claim.job.clone());
        tokio::spawn(async move { store.instruct(&job, &instruction(Some("a"))).await })
    });
    let mut given = 0;
    for one in futures::future::join_all(all).await {
        match one.unwrap().unwrap().unwrap() {
            InstructOutcome::Given => given += 1,
            other => assert!(matches!(other, InstructOutcome::Answered(_)), "{other:?}"),
        }
    }
    assert_eq!(given, 1);
    let taken = store.take_instructions(&claim).await.unwrap();
    assert_eq!(taken.len(), 1);
    // A refused answer leaves the question open, a used one does not.
    store.conclude(&claim, &taken[0].id, "no").await.unwrap();
    assert_eq!(give("a").await, InstructOutcome::Given);
    let taken = store.take_instructions(&claim).await.unwrap();
    store.conclude(&claim, &taken[0].id, DONE).await.unwrap();
    let second = give("a").await;
    assert!(
        matches!(second, InstructOutcome::Answered(Some(_))),
        "{second:?}"
    );
    assert_eq!(give("b").await, InstructOutcome::Given);
}

pub(super) async fn instruction_of_another_host_is_unproven(stage: &TestStore) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let state = tempfile::tempdir().unwrap();
    let access = Access::of(state.path());
    let other = JobStore::open(&stage.location, &access).await.unwrap();
    if stage.location.path().is_none() {
        let refused = other.instruct(&claim.job, &instruction(None)).await;
        assert!(matches!(refused, Err(StoreError::OfOthers { .. })));
    }
    let managing = Access {
        others: OthersJobs::Manage,
        ..access
    };
    let other = JobStore::open(&stage.location, &managing).await.unwrap();
    let given = other.instruct(&claim.job, &instruction(None)).await;
    assert_eq!(given.unwrap(), Some(InstructOutcome::Given));
    let taken = store.take_instructions(&claim).await.unwrap();
    assert_eq!(taken[0].origin, Origin::Unproven);
    store.set_questions(&claim, &[asked("a")]).await.unwrap();
    let seen = other.questions(&claim.job).await.unwrap();
    assert_eq!(seen[0].origin, Origin::Unproven);
}

/// SQLite alone stores values of any type in a column.
pub(super) async fn malformed_rows_of_a_dialog_are_left_out(stage: &TestStore) {
    if stage.location.path().is_none() {
        return;
    }
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    store.set_questions(&claim, &[asked("a")]).await.unwrap();
    store
        .instruct(&claim.job, &instruction(None))
        .await
        .unwrap();
    let spoil = async |connection: &mut Connection| {
        for sql in [
            "UPDATE codex_questions SET id = X'ff'",
            "UPDATE codex_instructions SET data = X'ff'",
        ] {
            assert_eq!(connection.run(sql, Vec::new()).await?, 1, "{sql}");
        }
        Ok(())
    };
    writing!(store, spoil).unwrap();
    let good = instruction(None);
    store.instruct(&claim.job, &good).await.unwrap();
    let taken = store.take_instructions(&claim).await.unwrap();
    let ids: Vec<&str> = taken.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, [good.id.to_string()]);
    let set = store.set_questions(&claim, &[asked("b")]).await.unwrap();
    assert_eq!(set, WriteOutcome::Done);
    let open = store.questions(&claim.job).await.unwrap();
    let ids: Vec<&str> = open.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["b"]);
}
