//! What comes of turns, and what is told of it.

use codex_mcp_protocol::codex::{FileChange, FileChangeApproval, FileChangeKind, UserInputRequest};

use super::*;
use crate::events::{PollOptions, Rank, ResponseMode};

const MODES: [ResponseMode; 3] = [
    ResponseMode::Minimal,
    ResponseMode::DeltaCompact,
    ResponseMode::Full,
];

fn poll(cursor: Option<u64>) -> Poll {
    Poll {
        cursor,
        max_events: 100,
        mode: ResponseMode::Full,
        options: PollOptions::default(),
    }
}

fn outcome(world: &World) -> &Outcome {
    &world.session.outcome().unwrap().1
}

#[test]
fn the_outcome_of_a_completed_turn_is_its_last_whole_message() {
    let mut world = World::running();
    world.hear_message("a", "first");
    world.hear_delta("b", "sec");
    assert_eq!(world.session.partial_text(), "first\n\nsec");
    world.hear_message("b", "second");
    world.apply(Event::Completed);
    assert_eq!(outcome(&world).ending, Ending::Completed);
    assert_eq!(outcome(&world).text, "second");
}

#[test]
fn the_outcome_of_an_interrupted_turn_is_all_that_was_said() {
    let mut world = World::running();
    world.hear_message("a", "first");
    world.hear_delta("b", "sec");
    world.apply(Event::InterruptedByCodex);
    assert_eq!(outcome(&world).text, "first\n\nsec");
}

#[test]
fn a_turn_that_ends_before_its_prompt_is_answered_stays_ended() {
    let mut world = World::after(&[Event::Prompt, Event::Started, Event::Completed]);
    world.apply(Event::Accepted);
    assert_eq!(world.session.state(), State::Idle);
    assert!(world.session.outcome().is_some());
}

#[test]
fn an_end_that_comes_before_the_answer_to_the_prompt_counts_for_its_own_turn_only() {
    let mut world = World::after(&[
        Event::Prompt,
        Event::Message,
        Event::Completed,
        Event::Accepted,
    ]);
    assert_eq!(outcome(&world).text, "whole");
    for event in [Event::Prompt, Event::OtherTurnCompleted, Event::Accepted] {
        world.apply(event);
    }
    assert_eq!(world.session.state(), State::Running);
}

#[test]
fn a_question_about_files_says_which() {
    let mut world = World::running();
    let change = FileChange {
        path: "a.txt".into(),
        kind: FileChangeKind::Add,
        diff: "hello".into(),
    };
    let item = json!({"type": "fileChange", "id": "c", "changes": [change]});
    world.hear_item("item/started", &item);
    for (item, expected) in [("c", vec![change]), ("another", Vec::new())] {
        world.ask(Ask::FileChange(FileChangeApproval {
            item_id: item.into(),
            ..FileChangeApproval::default()
        }));
        let Ask::FileChange(asked) = &world.session.actions().last().unwrap().ask else {
            panic!("about files");
        };
        assert_eq!(asked.changes, expected);
    }
}

#[test]
fn partial_text_is_bounded() {
    let mut world = World::running();
    let chunk = "x".repeat(100_000);
    for _ in 0..20 {
        world.hear_delta("m", &chunk);
    }
    let partial = world.session.partial_text();
    assert!(partial.len() < PARTIAL_TEXT_LIMIT + 100);
    assert!(partial.ends_with("[… cut here]"));
}

#[test]
fn a_result_holds_the_whole_final_message_in_every_mode() {
    let message = "ß".repeat(PARTIAL_TEXT_LIMIT);
    let mut world = World::running();
    world.hear_message("m", &message);
    assert_eq!(world.session.result(ResponseMode::Full), None);
    world.apply(Event::Completed);
    for mode in MODES {
        let result = world.session.result(mode).unwrap();
        assert!(result["output"] == message.as_str(), "{mode:?}");
        assert_eq!(result["status"], "completed");
        assert_eq!(result["turnId"], "turn-1");
        assert_eq!(result.get("turn").is_some(), mode == ResponseMode::Full);
    }
}

#[test]
fn a_result_tells_what_the_turn_did() {
    let mut world = World::running();
    let change = |path: &str, kind: Value, status: &str| {
        json!({"type": "fileChange", "id": "c", "status": status,
            "changes": [{"path": path, "kind": kind, "diff": ""}]})
    };
    let (add, update) = (json!({"type": "add"}), json!({"type": "update"}));
    for item in [
        change("a", add, "completed"),
        change("b", update.clone(), "declined"),
        change("a", update, "completed"),
        change(
            "c",
            json!({"type": "update", "move_path": "d"}),
            "completed",
        ),
    ] {
        world.hear_item("item/completed", &item);
    }
    let plan = json!([{"step": "s", "status": "pending"}]);
    world.hear(
        "turn/plan/updated",
        json!({"threadId": "t", "turnId": "turn-1", "plan": plan}),
    );
    let diff = json!({"threadId": "t", "turnId": "turn-1", "diff": "d".repeat(10_000)});
    world.hear("turn/diff/updated", diff);
    let count = json!({"totalTokens": 3, "inputTokens": 1, "cachedInputTokens": 0,
        "outputTokens": 2, "reasoningOutputTokens": 0});
    let usage = json!({"last": count, "total": count});
    world.hear(
        "thread/tokenUsage/updated",
        json!({"threadId": "t", "turnId": "turn-1", "tokenUsage": usage}),
    );
    world.apply(Event::Completed);

    let result = world.session.result(ResponseMode::Minimal).unwrap();
    let files = json!([
        {"path": "a", "kind": "add"},
        {"path": "c", "kind": "update", "movePath": "d"},
    ]);
    assert_eq!(result["changedFiles"], files);
    assert_eq!(result["plan"], json!({ "plan": plan }));
    assert_eq!(result["usage"], usage);
    assert_eq!(result["diffTruncated"], true);
    let result = world.session.result(ResponseMode::Full).unwrap();
    assert_eq!(result["diff"], "d".repeat(10_000));
}

#[test]
fn a_final_message_after_a_schema_is_read() {
    for (message, expected) in [(r#"{"a":1}"#, Some(json!({"a": 1}))), ("words", None)] {
        let mut world = World::new();
        world.session.prompt(Form::Structured, world.now).unwrap();
        world.apply(Event::Accepted);
        world.hear_message("m", message);
        world.apply(Event::Completed);
        assert_eq!(outcome(&world).structured, expected);
    }
}

#[test]
fn a_failed_turn_leaves_an_idle_session() {
    let mut world = World::running();
    let error = json!({"message": "too much", "codexErrorInfo": "usageLimitExceeded"});
    let turn = json!({"id": "turn-1", "status": "failed", "error": error});
    world.hear("turn/completed", json!({"threadId": "t", "turn": turn}));
    assert_eq!(world.session.state(), State::Idle);
    let result = world.session.result(ResponseMode::Minimal).unwrap();
    assert_eq!(result["status"], "failed");
    assert_eq!(result["error"], "too much");
    assert_eq!(result["turnError"], error);
    let told = world.told("result");
    assert_eq!(told.len(), 1);
    assert_eq!(told.first().unwrap()["status"], "failed");
    assert_eq!(told.first().unwrap()["error"], "too much");
}

#[test]
fn a_lost_session_says_how_and_takes_the_next_prompt() {
    let world = World::after(&[Event::Lost]);
    let result = world.session.result(ResponseMode::Minimal);
    assert_eq!(result, Some(json!({"status": "error", "error": "killed"})));
    assert_eq!(world.told("error").len(), 1);

    let mut world = World::after(&[Event::Prompt, Event::Accepted, Event::Message, Event::Lost]);
    let result = world.session.result(ResponseMode::Minimal).unwrap();
    assert_eq!(result["status"], "error");
    assert_eq!(result["error"], "killed");
    assert_eq!(result["output"], "whole");
    world.apply(Event::Prompt);
    assert_eq!(world.session.state(), State::Running);
    assert_eq!(world.session.result(ResponseMode::Minimal), None);
}

#[test]
fn a_cancelled_session_says_why() {
    let mut world = World::running();
    world.apply(Event::Cancel);
    let result = world.session.result(ResponseMode::Full).unwrap();
    assert_eq!(result["status"], "cancelled");
    assert_eq!(result["reason"], "not wanted");
    assert_eq!(result["turnId"], "turn-1");
    for event in [Event::Delta, Event::InterruptedByCodex, Event::Lost] {
        world.wait(Duration::from_secs(1));
        world.apply(event);
        assert_eq!(
            world.session.result(ResponseMode::Full).as_ref(),
            Some(&result)
        );
    }
    assert_eq!(world.told("result").len(), 1);
    assert_eq!(world.told("error"), Vec::<Value>::new());
}

#[test]
fn what_codex_tries_again_is_progress() {
    let mut world = World::running();
    let error = json!({"message": "Reconnecting... 2/5"});
    let params = json!({"threadId": "t", "turnId": "turn-1", "error": error, "willRetry": true});
    world.hear("error", params);
    let told = world.told("progress");
    let told = told.last().unwrap();
    assert_eq!(told["method"], "codex-mcp/reconnect");
    assert_eq!(
        (&told["retryCount"], &told["maxRetries"]),
        (&json!(2), &json!(5))
    );
    assert_eq!(world.told("error"), Vec::<Value>::new());
}

#[test]
fn answers_are_told_with_what_was_said() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.ask(Ask::UserInput(UserInputRequest::default()));
    world.apply(Event::Asked);
    let Value::Object(answers) = json!({"q": {"answers": ["yes"]}}) else {
        panic!("an object");
    };
    for (id, decision, note) in [
        ("req_1", Decision::Decline, Some("too risky")),
        ("req_2", Decision::Submit(answers), None),
    ] {
        let id = ActionId(id.into());
        world
            .session
            .decide(&id, &decision, note, world.now)
            .unwrap();
    }
    world.apply(Event::TimePasses);
    let expected = [
        json!({"requestId": "req_1", "kind": "command", "itemId": "", "decision": "decline",
            "denyMessage": "too risky"}),
        json!({"requestId": "req_2", "kind": "user_input", "itemId": "", "decision": "accept",
            "answers": {"q": {"answers": ["yes"]}}}),
        json!({"requestId": "req_3", "kind": "command", "itemId": "", "decision": "decline",
            "timeout": true, "message": "nobody answered in time, so it was declined"}),
    ];
    assert_eq!(world.told("approval_result"), expected);
}

#[test]
fn a_question_matters_less_once_it_is_answered() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.apply(Event::Asked);
    world.apply(Event::Accept);
    let events = world.session.log().page(0, usize::MAX).events;
    let questions = events
        .iter()
        .filter(|event| event.data.kind() == EventType::ApprovalRequest);
    let ranks: Vec<Rank> = questions.map(|event| event.data.rank()).collect();
    assert_eq!(ranks, [Rank::Settled, Rank::Kept]);
}

#[test]
fn a_look_shows_news_questions_and_the_result() {
    let mut world = World::running();
    world.apply(Event::Asked);
    let shown = world.session.poll(&poll(None), world.now).unwrap();
    assert_eq!(shown.events.len(), 2);
    let names: Vec<&Value> = shown
        .actions
        .iter()
        .map(|action| &action["requestId"])
        .collect();
    assert_eq!(names, ["req_1"]);
    assert_eq!(shown.result, None);

    world.apply(Event::Completed);
    let shown = world.session.poll(&poll(None), world.now).unwrap();
    let kinds: Vec<&Value> = shown.events.iter().map(|event| &event["type"]).collect();
    assert_eq!(kinds, ["approval_result", "result"]);
    assert_eq!(shown.actions, Vec::<Value>::new());
    assert_eq!(shown.result, world.session.result(ResponseMode::Full));
}

#[test]
fn a_cursor_from_the_future_is_refused_and_skips_nothing() {
    let mut world = World::running();
    let next = world.session.log().next_id();
    let refusal = world
        .session
        .poll(&poll(Some(next + 1)), world.now)
        .unwrap_err();
    assert_eq!(
        refusal,
        BeyondTheEnd {
            cursor: next + 1,
            next
        }
    );
    world
        .session
        .poll(&poll(Some(u64::MAX)), world.now)
        .unwrap_err();
    let shown = world.session.poll(&poll(Some(next)), world.now).unwrap();
    assert_eq!((shown.events.len(), shown.next_cursor), (0, next));
    let shown = world.session.poll(&poll(None), world.now).unwrap();
    assert_eq!(shown.events.len(), 1);
}
