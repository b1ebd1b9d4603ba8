//! What comes of turns, and what is told of it.

use super::*;
use crate::logic::events::{PollOptions, ResponseMode};

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

fn result(world: &World) -> Value {
    world.session.result(ResponseMode::Full).unwrap()
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
fn review_is_interrupted_by_one_name_and_ends_under_another() {
    let mut world = World::after(&[Event::Prompt, Event::Accepted]);
    let turn = json!({"threadId": "t", "turn": {"id": "inner", "status": "inProgress"}});
    world.hear("turn/started", turn);
    assert_eq!(world.session.turn_id(), Some(&TurnId("inner".into())));
    world.hear_message("m", "reviewed");
    world.apply(Event::Completed);
    assert_eq!(outcome(&world).text, "reviewed");
}

#[test]
fn review_without_an_answer_has_failed() {
    let interrupted = "Review was interrupted. Please re-run /review and wait for it to complete.";
    for (message, is_missing) in [(interrupted, true), ("", true), ("Fine.", false)] {
        let mut world = World::new();
        world.session.prompt(Form::Review, world.now).unwrap();
        assert!(world.session.sending(1));
        world.apply(Event::Accepted);
        world.hear_message("m", message);
        world.apply(Event::Completed);
        let failed = matches!(outcome(&world).ending, Ending::Failed(_));
        assert_eq!(failed, is_missing, "{message}");
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
        assert_eq!(result["turn"]["id"], "turn-1", "{mode:?}");
    }
}

#[test]
fn turn_in_a_small_result_does_not_repeat_the_message() {
    let mut world = World::running();
    let message = json!({"type": "agentMessage", "id": "m", "text": "done"});
    let turn = json!({"id": "turn-1", "status": "completed", "items": [message],
        "itemsView": "summary", "durationMs": 7});
    world.hear("turn/completed", json!({"threadId": "t", "turn": turn}));
    for mode in MODES {
        let result = world.session.result(mode).unwrap();
        if mode == ResponseMode::Full {
            assert_eq!(result["turn"], turn);
        } else {
            let small = json!({"id": "turn-1", "status": "completed", "items": [],
                "itemsView": "notLoaded", "durationMs": 7});
            assert_eq!(result["turn"], small, "{mode:?}");
        }
    }
}

#[test]
fn events_of_agent_messages_are_output() {
    let mut world = World::running();
    world.hear_item(
        "item/started",
        &json!({"type": "agentMessage", "id": "m", "text": ""}),
    );
    world.hear_message("m", "whole");
    world.hear_item(
        "item/started",
        &json!({"type": "commandExecution", "id": "c", "command": "ls"}),
    );
    let of_items = |kind: &str| {
        let told = world.told(kind).into_iter();
        let told = told.filter(|data| data.get("item").is_some());
        told.map(|data| (data["method"].clone(), data["itemType"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of_items("output"),
        [
            (json!("item/started"), json!("agentMessage")),
            (json!("item/completed"), json!("agentMessage")),
        ]
    );
    let command = (json!("item/started"), json!("commandExecution"));
    assert_eq!(of_items("progress"), [command]);
}

#[test]
fn title_of_an_event_is_true_once_its_step_has_ended() {
    let mut world = World::running();
    let step = |status: &str, code: Option<i32>| {
        json!({"type": "commandExecution", "id": "c", "command": "bash -lc 'cargo test'",
            "status": status, "exitCode": code})
    };
    world.hear_item("item/started", &step("inProgress", None));
    world.hear_item("item/completed", &step("failed", Some(1)));
    let log = world.session.log();
    let events = log.page(0, usize::MAX).events;
    let shown = events
        .iter()
        .map(|event| event.shown(ResponseMode::Minimal));
    let titles: Vec<Value> = shown
        .filter(|event| event["data"]["itemType"] == "commandExecution")
        .map(|event| event["data"]["title"].clone())
        .collect();
    assert_eq!(titles[1], "ran cargo test (exit 1)");
    assert!(
        titles[0].as_str().unwrap().starts_with("running "),
        "{titles:?}"
    );
}

#[test]
fn token_usage_is_an_event_with_its_numbers() {
    let mut world = World::running();
    let usage = json!({"last": {"totalTokens": 12}, "total": {"totalTokens": 30}});
    let params = json!({"threadId": "t", "turnId": "turn-1", "tokenUsage": usage});
    world.hear("thread/tokenUsage/updated", params);
    let log = world.session.log();
    let event = *log.page(0, usize::MAX).events.last().unwrap();
    let shown = event.shown(ResponseMode::Minimal);
    assert_eq!(shown["type"], "progress");
    assert_eq!(shown["data"]["method"], "thread/tokenUsage/updated");
    let title = "12 tokens used by the last request, 30 by the thread";
    assert_eq!(shown["data"]["title"], title);
    assert_eq!(world.told("progress").last().unwrap()["tokenUsage"], usage);
}

#[test]
fn events_of_ends_and_errors_name_their_thread() {
    let mut world = World::running();
    let error = json!({"message": "Reconnecting... 1/5"});
    for will_retry in [true, false] {
        let params = json!({"threadId": "t", "turnId": "turn-1", "error": error,
            "willRetry": will_retry});
        world.hear("error", params);
    }
    world.apply(Event::Completed);
    world.apply(Event::Lost);
    let named: Vec<Value> = ["progress", "error", "result"]
        .into_iter()
        .flat_map(|kind| world.told(kind))
        .filter(|data| data["method"] != "turn/started")
        .map(|data| data["threadId"].clone())
        .collect();
    assert_eq!(named, ["t", "t", "t", "t"]);
}

#[test]
fn result_of_a_crash_says_when() {
    for way in [&[] as &[Event], &[Event::Prompt, Event::Started]] {
        let mut world = World::after(way);
        world.wait(Duration::from_secs(7));
        world.apply(Event::Lost);
        let result = result(&world);
        assert_eq!(result["status"], "error");
        assert_eq!(result["completedAt"], "1970-01-01T00:00:07.000Z", "{way:?}");
    }
}

/// A thread that was taken up has used some before, and the same is told twice.
#[test]
fn tokens_of_a_turn_are_what_the_thread_used_in_it() {
    let count = |total: i64| json!({ "totalTokens": total, "inputTokens": total });
    let told = |world: &mut World, total, last| {
        let usage = json!({ "last": count(last), "total": count(total) });
        world.hear(
            "thread/tokenUsage/updated",
            json!({"threadId": "t", "turnId": "turn-1", "tokenUsage": usage}),
        );
        world.session.spent().total_tokens
    };
    let message = json!({"type": "agentMessage", "id": "m", "text": ""});
    let mut world = World::running();
    assert_eq!(told(&mut world, 1000, 300), 0);
    world.hear_item("item/started", &message);
    assert_eq!(told(&mut world, 1100, 100), 100);

    let mut world = World::running();
    world.hear_item("item/started", &message);
    for (total, last, spent) in [(1100, 100, 100), (1100, 100, 100), (1350, 250, 350)] {
        assert_eq!(told(&mut world, total, last), spent);
    }
    world.apply(Event::Completed);
    let (_, outcome) = world.session.outcome().unwrap();
    assert_eq!(outcome.facts.spent.total_tokens, 350);
    world.apply(Event::Prompt);
    assert_eq!(world.session.spent().total_tokens, 0);
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
        assert!(world.session.sending(1));
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
    let killed = json!({"status": "error", "error": "killed",
        "completedAt": "1970-01-01T00:00:00.000Z"});
    assert_eq!(result, Some(killed));
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
fn a_session_that_is_lost_between_turns_keeps_what_the_last_one_brought() {
    use Event::{Accepted, Completed, Lost, Message, Prompt};
    let mut world = World::after(&[Prompt, Accepted, Message, Completed]);
    let before = result(&world);
    world.apply(Lost);
    let mut expected = before.clone();
    expected["status"] = json!("error");
    expected["error"] = json!("killed");
    assert_eq!(result(&world), expected);
    assert_eq!(expected["output"], "whole");

    world.session.recovered();
    assert_eq!(world.session.state(), State::Idle);
    assert_eq!(result(&world), before);
    assert_eq!(world.session.view(world.now.instant).error, None);
}

#[test]
fn a_session_does_not_recover_under_a_prompt_that_may_be_refused() {
    let mut world = World::after(&[Event::Lost, Event::Take]);
    world.session.recovered();
    assert_eq!(world.session.state(), State::Running);
    world.apply(Event::Refused);
    assert_eq!(world.session.state(), State::Error);
    world.session.recovered();
    assert_eq!(world.session.state(), State::Idle);
}

#[test]
fn a_cancelled_session_says_why() {
    let mut world = World::running();
    world.hear_delta("m", "par");
    world.apply(Event::Cancel);
    let mut expected = json!({"status": "cancelled", "reason": "not wanted", "error": "not wanted",
        "turnId": "turn-1", "completedAt": "1970-01-01T00:00:00.000Z"});
    assert_eq!(result(&world), expected);
    for event in [Event::Delta, Event::InterruptedByCodex, Event::Lost] {
        world.wait(Duration::from_secs(1));
        world.apply(event);
        if event == Event::InterruptedByCodex {
            // What it has brought until then is had, and when it was cancelled
            // stays.
            expected["output"] = json!("parpar");
            expected["turn"] = json!({"id": "turn-1", "status": "interrupted", "items": []});
        }
        assert_eq!(result(&world), expected, "{event:?}");
    }
    assert_eq!(world.told("result").len(), 1);
    assert_eq!(world.told("error"), Vec::<Value>::new());
}

#[test]
fn a_session_that_is_cancelled_between_turns_keeps_what_the_last_one_brought() {
    for end in [Event::Completed, Event::Failed] {
        let mut world = World::running();
        let change = json!([{"path": "a", "kind": {"type": "add"}, "diff": ""}]);
        let item = json!({"type": "fileChange", "id": "c", "status": "completed",
            "changes": change});
        world.hear_item("item/completed", &item);
        world.apply(Event::Message);
        world.apply(end);
        let mut expected = result(&world);
        world.wait(Duration::from_secs(1));
        world.apply(Event::Cancel);
        assert_eq!(expected["output"], "whole");
        assert_eq!(
            expected["changedFiles"],
            json!([{"path": "a", "kind": "add"}])
        );
        for (key, value) in [
            ("status", "cancelled"),
            ("reason", "not wanted"),
            ("error", "not wanted"),
            ("completedAt", "1970-01-01T00:00:01.000Z"),
        ] {
            expected[key] = json!(value);
        }
        assert_eq!(result(&world), expected, "{end:?}");
    }
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
