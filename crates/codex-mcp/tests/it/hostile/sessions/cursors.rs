//! The positions of readers in the events, and gaps.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan};
use testkit::wait::wait_for;

use super::super::serve::{turn, turns};
use super::{Sessions, decision, gated, join};

/// How many transient events a log keeps.
const SOFT: u64 = 1000;

fn ids(look: &Value) -> Vec<u64> {
    let events = look["events"].as_array().unwrap();
    events
        .iter()
        .map(|event| event["id"].as_u64().unwrap())
        .collect()
}

fn next(look: &Value) -> u64 {
    look["nextCursor"].as_u64().unwrap()
}

/// Notifications without content, one event each.
fn noise(count: u64) -> Vec<Action> {
    let one = |number| Action::Notify {
        method: "test/noise".to_owned(),
        params: json!({"number": number}),
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn future_cursor_is_refused_and_answers_nothing() {
    let plan = turns([Action::ask_approval("touch x")]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    let end = next(&sessions.poll(&session, json!({"maxEvents": 1000})).await);
    for beyond in [end + 1, 9_007_199_254_740_991] {
        let poll = json!({"action": "poll", "sessionId": session});
        let input = json!({"action": "respond_user_input", "sessionId": session,
            "requestId": question["requestId"], "answers": {}});
        for arguments in [poll, decision(&session, &question, "accept"), input] {
            let arguments = join(arguments, json!({"cursor": beyond}));
            let refusal = sessions.refused("codex_check", arguments.clone()).await;
            assert_eq!(refusal.code, "INVALID_ARGUMENT", "{arguments}");
            assert!(refusal.message.contains("cursor"), "{}", refusal.message);
            assert!(
                refusal.message.contains(&beyond.to_string()),
                "{}",
                refusal.message
            );
        }
    }
    assert_eq!(sessions.serve.answers(), Vec::<Value>::new());
    assert_eq!(sessions.state(&session).await["actions"][0], question);
    // Nothing has been skipped.
    assert_eq!(next(&sessions.poll(&session, json!({})).await), end);

    // A reader can wait at the end itself.
    let at_the_end = join(
        decision(&session, &question, "accept"),
        json!({"cursor": end}),
    );
    sessions.call("codex_check", at_the_end).await;
    assert_eq!(sessions.result(&session).await["output"], "done");
    let rest = sessions.poll(&session, json!({"maxEvents": 1000})).await;
    assert_eq!(ids(&rest)[0], end);
    sessions.finish().await;
}

#[tokio::test]
async fn old_cursor_rereads_without_moving_the_position() {
    let mut sessions = Sessions::new(&turns(noise(10))).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    let first = sessions
        .poll(&session, json!({"maxEvents": 3, "responseMode": "full"}))
        .await;
    assert_eq!(ids(&first), [0, 1, 2]);
    let again = json!({"cursor": 0, "maxEvents": 2, "responseMode": "full"});
    let again = sessions.poll(&session, again).await;
    assert_eq!(ids(&again), [0, 1]);
    assert_eq!(again["nextCursor"], 2);
    assert_eq!(again["events"][0], first["events"][0]);
    assert_eq!(again["events"][1], first["events"][1]);
    let on = sessions.poll(&session, json!({"maxEvents": 1})).await;
    assert_eq!(ids(&on), [3]);

    // A later cursor moves it.
    let ahead = sessions
        .poll(&session, json!({"cursor": 5, "maxEvents": 1}))
        .await;
    assert_eq!(ids(&ahead), [5]);
    let on = sessions.poll(&session, json!({"maxEvents": 1})).await;
    assert_eq!(ids(&on), [6]);
    sessions.finish().await;
}

#[tokio::test]
async fn poll_with_limit_zero_returns_one_event() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    for (more, expected) in [
        (json!({}), 0),
        (json!({"maxEvents": 0}), 1),
        (json!({"maxEvents": 1}), 2),
    ] {
        let look = sessions.poll(&session, more).await;
        assert_eq!(ids(&look), [expected]);
        assert_eq!(next(&look), expected + 1);
    }
    sessions.finish().await;
}

#[tokio::test]
async fn answer_returns_requested_events_once() {
    let question = Action::ask_approval;
    let plan = turns([question("one"), question("two"), question("three")]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;

    let open = sessions.question(&session).await;
    let answered = sessions
        .call("codex_check", decision(&session, &open, "accept"))
        .await;
    assert_eq!(answered["events"], json!([]));
    assert_eq!(answered["nextCursor"], 0);
    let first = sessions.poll(&session, json!({"maxEvents": 2})).await;
    assert_eq!(ids(&first), [0, 1]);

    // An answer with an old cursor continues at the last read event.
    let open = sessions.question(&session).await;
    let more = json!({"cursor": 0, "maxEvents": 1});
    let answered = sessions
        .call(
            "codex_check",
            join(decision(&session, &open, "accept"), more),
        )
        .await;
    assert_eq!(ids(&answered), [2]);
    assert_eq!(next(&answered), 3);

    let open = sessions.question(&session).await;
    let more = json!({"maxEvents": 1000});
    let answered = sessions
        .call(
            "codex_check",
            join(decision(&session, &open, "accept"), more),
        )
        .await;
    assert_eq!(ids(&answered)[0], 3);
    let last = answered["events"].as_array().unwrap().last().unwrap();
    assert_eq!(last["type"], "approval_result");
    sessions.finish().await;
}

#[tokio::test]
async fn reader_far_behind_gets_the_next_available_cursor() {
    let plan = Plan::new().on("turn/start", turn(noise(SOFT + 500)));
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    let look = sessions
        .poll(&session, json!({"maxEvents": 5000, "responseMode": "full"}))
        .await;
    let there = ids(&look);
    let reset = look["cursorResetTo"].as_u64().unwrap();
    assert!(reset > 500, "{reset}");
    assert_eq!(there[0], reset);
    assert_eq!(u64::try_from(there.len()).unwrap(), SOFT);
    assert!(
        there.is_sorted_by(|one, other| one + 1 == *other),
        "{there:?}"
    );
    assert_eq!(look.get("dropped"), None);
    let events = look["events"].as_array().unwrap();
    assert_eq!(events.last().unwrap()["type"], "result");
    // The remaining noise is the latest, in order.
    let numbers: Vec<u64> = events
        .iter()
        .filter_map(|event| event["data"]["number"].as_u64())
        .collect();
    assert_eq!(*numbers.last().unwrap(), SOFT + 499);
    assert!(numbers.is_sorted_by(|one, other| one + 1 == *other));

    // A cursor at the first remaining event reports no gap.
    let look = sessions.poll(&session, json!({"cursor": reset})).await;
    assert_eq!(look.get("cursorResetTo"), None);
    assert_eq!(ids(&look), [reset]);
    // A cursor at the last dropped event reports the gap.
    let look = sessions.poll(&session, json!({"cursor": reset - 1})).await;
    assert_eq!(look["cursorResetTo"], reset);
    assert_eq!(next(&look), reset + 1);
    sessions.finish().await;
}

#[tokio::test]
async fn question_outlives_noise_and_gaps_are_counted() {
    let mut actions = vec![Action::ask_approval("touch x")];
    actions.extend(noise(SOFT + 500));
    let plan = Plan::new().on("turn/start", turn(actions));
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    sessions
        .call("codex_check", decision(&session, &question, "accept"))
        .await;
    sessions.result(&session).await;
    let look = sessions
        .poll(&session, json!({"maxEvents": 5000, "responseMode": "full"}))
        .await;
    let events = look["events"].as_array().unwrap();
    // What came before the question went first, so the reader starts there.
    assert_eq!(events[0]["type"], "approval_request");
    assert_eq!(events[1]["type"], "approval_result");
    assert_eq!(look["cursorResetTo"], events[0]["id"]);
    let there = ids(&look);
    let gone = there.last().unwrap() - there[0] + 1 - u64::try_from(there.len()).unwrap();
    assert!(gone >= 500, "{gone}");
    assert_eq!(look["dropped"], gone);
    sessions.finish().await;
}

#[tokio::test]
async fn reply_drops_the_end_of_the_previous_turn() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let session = sessions.start(json!({})).await;
    sessions.result(&session).await;
    let before = sessions.events(&session).await;
    assert_eq!(before.last().unwrap()["type"], "result");
    let result = before.last().unwrap()["id"].as_u64().unwrap();
    sessions.reply(&session).await;
    sessions.result(&session).await;

    let look = sessions
        .poll(&session, json!({"cursor": 0, "maxEvents": 5000}))
        .await;
    let there = ids(&look);
    assert!(!there.contains(&result), "{there:?}");
    assert!(
        there.contains(&(result - 1)) && there.contains(&(result + 1)),
        "{there:?}"
    );
    assert_eq!(look["dropped"], 1);
    assert_eq!(look.get("cursorResetTo"), None);
    let results: Vec<&Value> = look["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "result")
        .collect();
    assert_eq!(results.len(), 1);

    // A reader right at the gap gets the cursor after it.
    let look = sessions.poll(&session, json!({"cursor": result})).await;
    assert_eq!(look["cursorResetTo"], result + 1);
    sessions.finish().await;
}

#[tokio::test]
async fn read_events_never_change() {
    let delta = |text: &str| Action::Notify {
        method: "item/agentMessage/delta".to_owned(),
        params: json!({"itemId": "m", "delta": text}),
    };
    let plan = Plan::new().on(
        "turn/start",
        [
            vec![
                Action::Answer,
                Action::StartTurn,
                delta("one "),
                delta("two "),
                Action::gate("read"),
            ],
            vec![delta("three "), delta("four ")],
            gated("go").split_off(2),
        ]
        .concat(),
    );
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let whole = json!({"maxEvents": 1000, "responseMode": "full", "waitMs": 20_000});
    let mut before = Vec::new();
    let grown = |events: &[Value]| {
        let deltas = events
            .iter()
            .filter_map(|event| event["data"]["delta"].as_str());
        deltas.collect::<String>()
    };
    wait_for("the second part", async || {
        let look = sessions.poll(&session, whole.clone()).await;
        before.extend(look["events"].as_array().unwrap().clone());
        grown(&before).ends_with("two ").then_some(())
    })
    .await;
    sessions.serve.fake.open_gate("read");
    let mut after = Vec::new();
    wait_for("the fourth part", async || {
        let look = sessions.poll(&session, whole.clone()).await;
        after.extend(look["events"].as_array().unwrap().clone());
        grown(&after).ends_with("four ").then_some(())
    })
    .await;
    assert_eq!(grown(&before), "one two ");
    assert_eq!(grown(&after), "three four ");
    assert_eq!(sessions.events(&session).await[..before.len()], before);
    sessions.serve.fake.open_gate("go");
    sessions.result(&session).await;
    sessions.finish().await;
}
