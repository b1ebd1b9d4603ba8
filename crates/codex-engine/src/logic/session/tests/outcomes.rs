//! The outcomes of turns, and how they are reported.

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

fn outcome(world: &World) -> &TurnOutcome {
    &world.session.outcome().unwrap().1
}

#[test]
fn completed_turn_returns_its_last_whole_message() {
    let mut world = World::running();
    world.receive_message("a", "first");
    world.receive_delta("b", "sec");
    assert_eq!(world.session.partial_text(), "first\n\nsec");
    world.receive_message("b", "second");
    world.apply(Event::Completed);
    assert_eq!(outcome(&world).ending, TurnEnding::Completed);
    assert_eq!(outcome(&world).text, "second");
}

/// The line with the whole message was over the limit.
#[test]
fn completed_turn_without_the_end_of_its_final_message_returns_all_text() {
    let mut world = World::running();
    world.receive_message("a", "first");
    world.receive_delta("b", "second");
    world.apply(Event::Completed);
    assert_eq!(outcome(&world).ending, TurnEnding::Completed);
    assert_eq!(outcome(&world).text, "first\n\nsecond");
}

#[test]
fn later_message_is_the_final_one_although_an_earlier_one_has_no_end() {
    for (event, text) in [
        (Event::Completed, "second"),
        (Event::InterruptedByCodex, "first\n\nsecond"),
    ] {
        let mut world = World::running();
        world.receive_delta("a", "first");
        world.receive_message("b", "second");
        world.apply(event);
        assert_eq!(outcome(&world).text, text);
    }
}

#[test]
fn interrupted_turn_returns_all_text() {
    let mut world = World::running();
    world.receive_message("a", "first");
    world.receive_delta("b", "sec");
    world.apply(Event::InterruptedByCodex);
    assert_eq!(outcome(&world).text, "first\n\nsec");
}

#[test]
fn turn_that_ends_before_the_prompt_response_stays_ended() {
    let mut world = World::after(&[Event::Prompt, Event::Started, Event::Completed]);
    world.apply(Event::Accepted);
    assert_eq!(world.session.state(), State::Idle);
    assert!(world.session.outcome().is_some());
}

#[test]
fn early_turn_end_counts_only_for_its_own_turn() {
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
fn review_is_interrupted_by_one_id_and_ends_under_another() {
    let mut world = World::after(&[Event::Prompt, Event::Accepted]);
    let turn = json!({"threadId": "t", "turn": {"id": "inner", "status": "inProgress"}});
    world.receive("turn/started", turn);
    assert_eq!(world.session.turn_id(), Some(&TurnId("inner".into())));
    world.receive_message("m", "reviewed");
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
        world.receive_message("m", message);
        world.apply(Event::Completed);
        let failed = matches!(outcome(&world).ending, TurnEnding::Failed(_));
        assert_eq!(failed, is_missing, "{message}");
    }
}

#[test]
fn partial_text_is_bounded() {
    let mut world = World::running();
    let chunk = "x".repeat(100_000);
    for _ in 0..20 {
        world.receive_delta("m", &chunk);
    }
    let partial = world.session.partial_text();
    assert!(partial.len() < PARTIAL_TEXT_LIMIT + 100);
    assert!(partial.ends_with("[… cut here]"));
}

#[test]
fn result_holds_the_whole_final_message_in_every_mode() {
    let message = "ß".repeat(PARTIAL_TEXT_LIMIT);
    let mut world = World::running();
    world.receive_message("m", &message);
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
    world.receive("turn/completed", json!({"threadId": "t", "turn": turn}));
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
    world.receive_item(
        "item/started",
        &json!({"type": "agentMessage", "id": "m", "text": ""}),
    );
    world.receive_message("m", "whole");
    world.receive_item(
        "item/started",
        &json!({"type": "commandExecution", "id": "c", "command": "ls"}),
    );
    let of_items = |kind: &str| {
        let told = world.event_data(kind).into_iter();
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
fn title_of_an_event_states_the_outcome_of_its_step() {
    let mut world = World::running();
    let step = |status: &str, code: Option<i32>| {
        json!({"type": "commandExecution", "id": "c", "command": "bash -lc 'cargo test'",
            "status": status, "exitCode": code})
    };
    world.receive_item("item/started", &step("inProgress", None));
    world.receive_item("item/completed", &step("failed", Some(1)));
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
    world.receive("thread/tokenUsage/updated", params);
    let log = world.session.log();
    let event = *log.page(0, usize::MAX).events.last().unwrap();
    let shown = event.shown(ResponseMode::Minimal);
    assert_eq!(shown["type"], "progress");
    assert_eq!(shown["data"]["method"], "thread/tokenUsage/updated");
    let title = "12 tokens used by the last request, 30 by the thread";
    assert_eq!(shown["data"]["title"], title);
    assert_eq!(
        world.event_data("progress").last().unwrap()["tokenUsage"],
        usage
    );
}

#[test]
fn used_tokens_of_the_thread_outlast_the_turn() {
    let mut world = World::running();
    let usage = json!({"last": {"totalTokens": 12}, "total": {"totalTokens": 30}});
    let params = json!({"threadId": "t", "turnId": "turn-1", "tokenUsage": usage});
    world.receive("thread/tokenUsage/updated", params);
    world.apply(Event::Completed);
    let used = |world: &World| world.session.view(world.now.instant).used.unwrap();
    assert_eq!(used(&world).total_tokens, 30);
    // Without a report in the next turn.
    for event in [
        Event::Prompt,
        Event::Accepted,
        Event::Started,
        Event::InterruptedByCodex,
    ] {
        world.apply(event);
        assert_eq!(used(&world).total_tokens, 30, "{event:?}");
    }
}

#[test]
fn sole_model_is_known_until_there_may_be_another_one() {
    let sole = |model: &str, change: &dyn Fn(&mut World)| {
        let mut world = World::running();
        world.session.begins_with_model(model);
        change(&mut world);
        world.session.view(world.now.instant).sole_model
    };
    let uses = |world: &mut World, model| world.session.uses_model(model);
    let same = sole("m", &|world| uses(world, Some("m")));
    assert_eq!(same.as_deref(), Some("m"));
    let agents = json!({"type": "collabAgentToolCall", "id": "i", "receiverThreadIds": ["child"]});
    let compaction = json!({"type": "contextCompaction", "id": "i"});
    let changes: [&dyn Fn(&mut World); 11] = [
        // Codex does not report the tokens of reviews and of OpenAI's compaction, nor here those of
        // other agents.
        &|world| {
            world.apply(Event::Completed);
            world.session.prompt(Form::Review, world.now).unwrap();
            assert!(world.session.sending(2));
        },
        &|world| drop(world.receive_item("item/started", &agents)),
        &|world| drop(world.receive_item("item/completed", &agents)),
        &|world| drop(world.receive_item("item/started", &compaction)),
        &|world| drop(world.receive_item("item/completed", &compaction)),
        &|world| {
            let params = json!({"threadId": "t", "turnId": "turn-1"});
            world.receive("thread/compacted", params);
        },
        &|world| uses(world, None),
        &|world| {
            uses(world, Some("other"));
            uses(world, Some("m"));
        },
        &|world| world.session.attach(),
        &|world| {
            let params = json!({"threadId": "t", "turnId": "turn-1", "fromModel": "m",
                "toModel": "other", "reason": "highRiskCyberActivity"});
            world.receive("model/rerouted", params);
        },
        // Another host may have missed a change.
        &|world| {
            let record = world.session.record().unwrap();
            world.session = Session::restored("t", TIMEOUTS, record, world.now);
        },
    ];
    for change in changes {
        assert_eq!(sole("m", change), None);
    }
    assert_eq!(sole(&"m".repeat(1000), &|_| ()), None);
}

#[test]
fn result_and_error_events_name_their_thread() {
    let mut world = World::running();
    let error = json!({"message": "Reconnecting... 1/5"});
    for will_retry in [true, false] {
        let params = json!({"threadId": "t", "turnId": "turn-1", "error": error,
            "willRetry": will_retry});
        world.receive("error", params);
    }
    world.apply(Event::Completed);
    world.apply(Event::Lost);
    let named: Vec<Value> = ["progress", "error", "result"]
        .into_iter()
        .flat_map(|kind| world.event_data(kind))
        .filter(|data| data["method"] != "turn/started")
        .map(|data| data["threadId"].clone())
        .collect();
    assert_eq!(named, ["t", "t", "t", "t"]);
}

#[test]
fn result_of_a_crash_has_a_time() {
    for way in [&[] as &[Event], &[Event::Prompt, Event::Started]] {
        let mut world = World::after(way);
        world.wait(Duration::from_secs(7));
        world.apply(Event::Lost);
        let result = result(&world);
        assert_eq!(result["status"], "error");
        assert_eq!(result["completedAt"], "1970-01-01T00:00:07.000Z", "{way:?}");
    }
}

/// A resumed thread has used tokens before, and a report may be repeated.
#[test]
fn turn_tokens_are_those_used_during_the_turn() {
    let count = |total: i64| json!({ "totalTokens": total, "inputTokens": total });
    let told = |world: &mut World, total, last| {
        let usage = json!({ "last": count(last), "total": count(total) });
        world.receive(
            "thread/tokenUsage/updated",
            json!({"threadId": "t", "turnId": "turn-1", "tokenUsage": usage}),
        );
        world.session.spent().total_tokens
    };
    let message = json!({"type": "agentMessage", "id": "m", "text": ""});
    let mut world = World::running();
    assert_eq!(told(&mut world, 1000, 300), 0);
    world.receive_item("item/started", &message);
    assert_eq!(told(&mut world, 1100, 100), 100);

    let mut world = World::running();
    world.receive_item("item/started", &message);
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
fn result_lists_files_plan_usage_and_diff() {
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
        world.receive_item("item/completed", &item);
    }
    let plan = json!([{"step": "s", "status": "pending"}]);
    world.receive(
        "turn/plan/updated",
        json!({"threadId": "t", "turnId": "turn-1", "plan": plan}),
    );
    let diff = json!({"threadId": "t", "turnId": "turn-1", "diff": "d".repeat(10_000)});
    world.receive("turn/diff/updated", diff);
    let count = json!({"totalTokens": 3, "inputTokens": 1, "cachedInputTokens": 0,
        "outputTokens": 2, "reasoningOutputTokens": 0});
    let usage = json!({"last": count, "total": count});
    world.receive(
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
fn structured_final_message_is_parsed() {
    for (message, expected) in [(r#"{"a":1}"#, Some(json!({"a": 1}))), ("words", None)] {
        let mut world = World::new();
        world.session.prompt(Form::Structured, world.now).unwrap();
        assert!(world.session.sending(1));
        world.apply(Event::Accepted);
        world.receive_message("m", message);
        world.apply(Event::Completed);
        assert_eq!(outcome(&world).structured, expected);
    }
}

#[test]
fn failed_turn_leaves_an_idle_session() {
    let mut world = World::running();
    let error = json!({"message": "too much", "codexErrorInfo": "usageLimitExceeded"});
    let turn = json!({"id": "turn-1", "status": "failed", "error": error});
    world.receive("turn/completed", json!({"threadId": "t", "turn": turn}));
    assert_eq!(world.session.state(), State::Idle);
    let result = world.session.result(ResponseMode::Minimal).unwrap();
    assert_eq!(result["status"], "failed");
    assert_eq!(result["error"], "too much");
    assert_eq!(result["turnError"], error);
    let told = world.event_data("result");
    assert_eq!(told.len(), 1);
    assert_eq!(told.first().unwrap()["status"], "failed");
    assert_eq!(told.first().unwrap()["error"], "too much");
}

#[test]
fn lost_session_reports_the_reason_and_accepts_the_next_prompt() {
    let world = World::after(&[Event::Lost]);
    let result = world.session.result(ResponseMode::Minimal);
    let killed = json!({"status": "error", "error": "killed",
        "completedAt": "1970-01-01T00:00:00.000Z"});
    assert_eq!(result, Some(killed));
    assert_eq!(world.event_data("error").len(), 1);

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
fn session_lost_between_turns_keeps_the_last_outcome() {
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
fn session_does_not_recover_while_a_prompt_may_be_refused() {
    let mut world = World::after(&[Event::Lost, Event::Take]);
    world.session.recovered();
    assert_eq!(world.session.state(), State::Running);
    world.apply(Event::Refused);
    assert_eq!(world.session.state(), State::Error);
    world.session.recovered();
    assert_eq!(world.session.state(), State::Idle);
}

#[test]
fn cancelled_session_reports_the_reason() {
    let mut world = World::running();
    world.receive_delta("m", "par");
    world.apply(Event::Cancel);
    let mut expected = json!({"status": "cancelled", "reason": "not wanted", "error": "not wanted",
        "turnId": "turn-1", "completedAt": "1970-01-01T00:00:00.000Z"});
    assert_eq!(result(&world), expected);
    for event in [Event::Delta, Event::InterruptedByCodex, Event::Lost] {
        world.wait(Duration::from_secs(1));
        world.apply(event);
        if event == Event::InterruptedByCodex {
            // The turn's output is added, and the time of the cancellation stays.
            expected["output"] = json!("parpar");
            expected["turn"] = json!({"id": "turn-1", "status": "interrupted", "items": []});
        }
        assert_eq!(result(&world), expected, "{event:?}");
    }
    assert_eq!(world.event_data("result").len(), 1);
    assert_eq!(world.event_data("error"), Vec::<Value>::new());
}

#[test]
fn session_cancelled_between_turns_keeps_the_last_outcome() {
    for end in [Event::Completed, Event::Failed] {
        let mut world = World::running();
        let change = json!([{"path": "a", "kind": {"type": "add"}, "diff": ""}]);
        let item = json!({"type": "fileChange", "id": "c", "status": "completed",
            "changes": change});
        world.receive_item("item/completed", &item);
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
fn error_that_codex_retries_is_a_progress_event() {
    let mut world = World::running();
    let error = json!({"message": "Reconnecting... 2/5"});
    let params = json!({"threadId": "t", "turnId": "turn-1", "error": error, "willRetry": true});
    world.receive("error", params);
    let told = world.event_data("progress");
    let told = told.last().unwrap();
    assert_eq!(told["method"], "codex-mcp/reconnect");
    assert_eq!(
        (&told["retryCount"], &told["maxRetries"]),
        (&json!(2), &json!(5))
    );
    assert_eq!(world.event_data("error"), Vec::<Value>::new());
}

#[test]
fn poll_shows_events_questions_and_the_result() {
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
fn cursor_beyond_the_end_is_refused_and_skips_nothing() {
    let mut world = World::running();
    let next = world.session.log().next_id();
    let refusal = world
        .session
        .poll(&poll(Some(next + 1)), world.now)
        .unwrap_err();
    assert_eq!(
        refusal,
        CursorBeyondEnd {
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

#[test]
fn end_of_a_turn_is_one_alert() {
    for (event, expected) in [
        (Event::Completed, "completed"),
        (Event::InterruptedByCodex, "interrupted"),
        (Event::Failed, "failed"),
        (Event::Lost, "failed"),
    ] {
        let mut world = World::running();
        world.apply(event);
        let alerts = world.session.take_alerts();
        let [Alert::Ended { status, .. }] = &alerts[..] else {
            panic!("{alerts:?}");
        };
        assert_eq!(status.as_ref(), expected);
        world.apply(event);
        assert_eq!(world.session.take_alerts(), []);
    }
    let mut world = World::running();
    world.session.omit_end_alert();
    world.apply(Event::Completed);
    assert_eq!(world.session.take_alerts(), []);
}
