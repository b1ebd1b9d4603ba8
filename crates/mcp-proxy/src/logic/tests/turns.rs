//! Tests of the assignment of turns to calls.

use super::*;

/// Makes calls 5 and 6 in a thread. Before call 6, the child sends the events `begin`, and the
/// operations `to_first` are applied to call 5.
fn two_calls(begin: &[Value], to_first: &[&str]) -> Harness {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.reply(5, "t");
    for event in begin {
        harness.child(event);
    }
    for step in to_first {
        match *step {
            "cancelled" => drop(harness.client(&cancelled(5))),
            "asked" => drop(harness.child(&question(0, 5, "t"))),
            "aborted" => drop(harness.child(&event(5, "t", &json!({"type": "turn_aborted"})))),
            other => panic!("{other}"),
        }
    }
    harness.reply(6, "t");
    harness
}

fn turn_event(kind: &str, under: i64) -> Value {
    event(under, "t", &json!({ "type": kind }))
}

/// The thread and text of the call that fails at its deadline.
fn timed_out(harness: &mut Harness) -> CallInfo {
    let effects = harness.later(LIMITS.call);
    let Some(Effect::Answer {
        answer: Answer::Failed { call, .. },
        ..
    }) = effects.last()
    else {
        panic!("{effects:?}");
    };
    call.clone()
}

/// The reason in the proxy's own answer, which is the last effect.
fn why_failed(effects: &[Effect]) -> Failure {
    let Some(Effect::Answer {
        answer: Answer::Failed { why, .. },
        ..
    }) = effects.last()
    else {
        panic!("{effects:?}");
    };
    why.clone()
}

/// The effects in a few words, to compare.
fn in_short(effects: &[Effect]) -> String {
    let one = |effect: &Effect| match effect {
        Effect::ToClient(bytes) => {
            let message = parsed(bytes);
            let call = &message["params"]["_meta"]["requestId"];
            match message["method"].as_str() {
                Some("codex/event") => format!("event of {call}"),
                Some(method) => method.to_owned(),
                None => format!("answer to {}", message["id"]),
            }
        }
        Effect::ToChild(bytes) => {
            let message = parsed(bytes);
            match message["method"].as_str() {
                Some(_) => format!("child: cancel {}", message["params"]["requestId"]),
                None => "child: no".to_owned(),
            }
        }
        Effect::Answer { id, answer } => {
            let answer = format!("{answer:?}");
            let kind = answer.split([' ', '(']).next().unwrap_or_default();
            format!("our {kind} to {id}")
        }
        Effect::CallOwnTool { .. } => "own".to_owned(),
    };
    let all: Vec<String> = effects.iter().map(one).collect();
    all.join(", ")
}

#[test]
fn turn_states_react_to_each_event() {
    let started = turn_event("task_started", 5);
    let completed = turn_event("task_complete", 5);
    let states: [(&str, &[Value], &[&str]); 7] = [
        ("5 awaited", &[], &[]),
        ("5 running", std::slice::from_ref(&started), &[]),
        ("5 unattended", std::slice::from_ref(&started), &["asked"]),
        ("5 cancelled, awaited", &[], &["cancelled"]),
        (
            "5 cancelled, running",
            std::slice::from_ref(&started),
            &["cancelled"],
        ),
        (
            "5 cancelled, completed",
            &[started.clone(), completed.clone()],
            &["cancelled"],
        ),
        (
            "5 cancelled, aborted",
            std::slice::from_ref(&started),
            &["cancelled", "aborted"],
        ),
    ];
    let events = [
        ("a turn begins", turn_event("task_started", 6)),
        ("a turn is aborted", turn_event("turn_aborted", 6)),
        ("5 hears the end", completed.clone()),
        ("6 hears the end", turn_event("task_complete", 6)),
        ("answer 5", answered(5, "t")),
        ("answer 6", answered(6, "t")),
        (
            "refusal 6",
            json!({ "jsonrpc": "2.0", "id": 6, "result": {} }),
        ),
    ];
    let mut snapshot = String::new();
    for (state, begin, to_first) in states {
        let harness = two_calls(begin, to_first);
        snapshot.push_str(&format!("{state}: {}\n", harness.router.calls.describe()));
        for (name, event) in &events {
            let mut harness = two_calls(begin, to_first);
            let effects = in_short(&harness.child(event));
            let after = harness.router.calls.describe();
            snapshot.push_str(&format!("    {name}: {effects} | {after}\n"));
        }
    }
    insta::assert_snapshot!(snapshot);
}

#[test]
fn late_answer_of_a_cancelled_call_is_dropped() {
    for heard_by in [5, 6] {
        for late_start in [true, false] {
            let mut harness = Harness::initialized("0.153.4", &no_capabilities());
            harness.reply(5, "t");
            harness.child(&turn_event("task_started", 5));
            harness.client(&cancelled(5));
            harness.reply(6, "t");
            // The turn had ended before the child read the cancellation.
            harness.child(&turn_event("task_complete", heard_by));
            if late_start {
                harness.child(&turn_event("task_started", 6));
            }
            assert_eq!(harness.child(&answered(heard_by, "t")), []);
            if !late_start {
                harness.child(&turn_event("task_started", 6));
            }
            // One listener is left.
            let listener = 11 - heard_by;
            harness.child(&turn_event("task_complete", listener));
            assert_eq!(
                harness.child(&answered(listener, "t")),
                [to_client(&answered(6, "t"))],
                "{heard_by} {late_start}"
            );
        }
    }
}

#[test]
fn turn_that_begins_after_its_cancellation_is_cancelled_again() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.reply(5, "t");
    harness.client(&cancelled(5));
    // Until then, a prompt would join the turn.
    assert_eq!(in_short(&harness.reply(6, "t")), "our Failed to 6");
    let effects = harness.child(&turn_event("task_started", 5));
    assert_eq!(in_short(&effects), "event of 5, child: cancel 5");
    harness.child(&turn_event("turn_aborted", 5));
    harness.reply(7, "t");
    harness.child(&turn_event("task_started", 7));
    assert_eq!(
        harness.child(&answered(7, "t")),
        [to_client(&answered(7, "t"))]
    );
}

#[test]
fn refusal_in_a_thread_being_ended_is_passed_on() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.reply(5, "t");
    harness.child(&turn_event("task_started", 5));
    harness.client(&cancelled(5));
    harness.reply(6, "t");
    let refusal = json!({ "jsonrpc": "2.0", "id": 6, "result": { "isError": true } });
    assert_eq!(harness.child(&refusal), [to_client(&refusal)]);
}

/// Before 0.75, neither events nor results name the thread.
#[test]
fn answers_of_releases_without_thread_ids_reach_their_calls() {
    let plain_event = |id: i64, msg: Value| {
        let params = json!({ "_meta": { "requestId": id }, "id": "0", "msg": msg });
        json!({ "jsonrpc": "2.0", "method": "codex/event", "params": params })
    };
    let plain_answer = |id: i64| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
    let mut harness = Harness::initialized("0.66.0", &no_capabilities());
    harness.call(5);
    let configured = json!({ "type": "session_configured", "session_id": "t" });
    harness.child(&plain_event(5, configured));
    harness.child(&plain_event(5, json!({ "type": "task_started" })));
    let call = timed_out(&mut harness);
    assert_eq!(call.thread.as_deref(), Some("t"));
    harness.child(&plain_event(5, json!({ "type": "turn_aborted" })));
    let params = json!({ "name": "codex-reply", "arguments": { "prompt": "x",
        "conversationId": "t" } });
    harness.client(&request(6, "tools/call", &params));
    harness.child(&plain_event(5, json!({ "type": "task_started" })));
    harness.child(&plain_event(5, json!({ "type": "task_complete" })));
    assert_eq!(
        harness.child(&plain_answer(5)),
        [to_client(&plain_answer(6))]
    );
}

#[test]
fn aborted_turn_ends_its_call() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.reply(5, "t");
    harness.child(&turn_event("task_started", 5));
    harness.child(&question(0, 5, "t"));
    let abort = json!({ "action": "cancel", "decision": "abort" });
    let cancel = json!({ "jsonrpc": "2.0", "id": 0, "result": abort });
    harness.client(&cancel);
    let effects = harness.child(&turn_event("turn_aborted", 5));
    let [
        Effect::ToClient(_),
        Effect::Answer {
            answer: Answer::Failed { why, .. },
            ..
        },
    ] = effects.as_slice()
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*why, Failure::Interrupted);
    assert_eq!(harness.router.next_deadline(), None);
    assert!(matches!(
        harness.reply(6, "t").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn second_prompt_during_a_turn_is_refused() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.reply(5, "t");
    assert_eq!(in_short(&harness.reply(6, "t")), "our Failed to 6");
    assert!(matches!(
        harness.reply(7, "u").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn prompt_after_a_failed_turn_is_refused() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.call(1);
    harness.child(&event(1, "t", &json!({ "type": "task_started" })));
    let error = json!({ "type": "error", "message": "bad prompt" });
    harness.child(&event(1, "t", &error));
    let answer = answered(1, "t");
    assert_eq!(harness.child(&answer), [to_client(&answer)]);
    // The child has not read the end of that turn yet, and would answer with it.
    let effects = harness.reply(2, "t");
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Answer {
                answer: Answer::Failed {
                    why: Failure::OutOfStep,
                    ..
                },
                ..
            }]
        ),
        "{effects:?}"
    );
    // Other threads are not affected.
    let effects = harness.reply(3, "u");
    assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
}

#[test]
fn turn_that_never_begins_keeps_its_thread_busy_for_a_limited_time() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.reply(1, "t");
    harness.later(LIMITS.call);
    let busy = harness.reply(2, "t");
    assert!(
        matches!(
            busy.as_slice(),
            [Effect::Answer {
                answer: Answer::Failed {
                    why: Failure::Busy,
                    ..
                },
                ..
            }]
        ),
        "{busy:?}"
    );
    harness.later(LIMITS.request);
    let effects = harness.reply(3, "t");
    assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
}

/// A thread in which call 5 was cancelled in its turn "a", and call 6 waits for its turn.
fn cancelled_in_its_turn() -> Harness {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.reply(5, "t");
    harness.child(&named("a", "task_started", 5));
    harness.client(&cancelled(5));
    harness.reply(6, "t");
    harness
}

/// A thread in which call 4 has left its listener behind.
fn left_behind() -> Harness {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.reply(4, "t");
    harness.child(&named("z", "task_started", 4));
    harness.client(&cancelled(4));
    harness.child(&named("z", "turn_aborted", 4));
    harness
}

/// A thread in which call 4 has left its listener behind, call 5 was cancelled in its turn "a", and
/// call 6 waits for its turn.
fn cancelled_with_another_listener() -> Harness {
    let mut harness = left_behind();
    harness.reply(5, "t");
    harness.child(&named("a", "task_started", 5));
    harness.client(&cancelled(5));
    harness.reply(6, "t");
    harness
}

fn named(turn: &str, kind: &str, under: i64) -> Value {
    event_of(turn, under, "t", &json!({ "type": kind }))
}

/// A turn that is aborted while it completes has both ends, in any order.
#[test]
fn second_end_of_a_turn_is_not_the_end_of_the_next_one() {
    for ends in [
        ["task_complete", "turn_aborted"],
        ["turn_aborted", "task_complete"],
    ] {
        for heard_by in [5, 6] {
            let mut harness = cancelled_in_its_turn();
            for end in ends {
                let effects = harness.child(&named("a", end, heard_by));
                assert_eq!(in_short(&effects), "event of 5", "{ends:?}");
            }
            assert_eq!(harness.child(&answered(heard_by, "t")), []);
            let listener = 11 - heard_by;
            harness.child(&named("b", "task_started", listener));
            harness.child(&named("b", "task_complete", listener));
            assert_eq!(
                harness.child(&answered(listener, "t")),
                [to_client(&answered(6, "t"))],
                "{ends:?} {heard_by}"
            );
        }
    }
}

/// Two listeners of the child send their events in any order.
#[test]
fn end_after_the_beginning_of_the_next_turn_is_that_of_its_own_turn() {
    let mut harness = cancelled_in_its_turn();
    harness.child(&named("b", "task_started", 6));
    harness.child(&named("a", "task_complete", 5));
    assert_eq!(harness.child(&answered(5, "t")), []);
    harness.child(&named("b", "task_complete", 6));
    let answer = answered(6, "t");
    assert_eq!(harness.child(&answer), [to_client(&answer)]);
}

#[test]
fn late_events_of_a_turn_belong_to_its_call() {
    let mut harness = cancelled_in_its_turn();
    // The listener of call 6 hears the end, so that of call 5 stays.
    harness.child(&named("a", "turn_aborted", 6));
    harness.child(&named("b", "task_started", 6));
    harness.child(&named("b", "task_complete", 6));
    harness.child(&answered(6, "t"));
    harness.reply(7, "t");
    let late = event_of(
        "b",
        5,
        "t",
        &json!({"type": "agent_message", "message": "late"}),
    );
    assert_eq!(in_short(&harness.child(&late)), "event of 6");
    let call = timed_out(&mut harness);
    assert_eq!(call.partial, "");
}

/// The child answers a failed turn at its error, and takes the end of it for that of the next turn.
#[test]
fn end_of_a_failed_turn_is_not_the_answer_of_a_call_that_is_under_way() {
    let orders = [
        [0, 1, 2, 3],
        [0, 2, 1, 3],
        [0, 2, 3, 1],
        [2, 0, 1, 3],
        [2, 0, 3, 1],
        [2, 3, 0, 1],
    ];
    for (heard_by, order) in [5, 6]
        .into_iter()
        .flat_map(|it| orders.map(|order| (it, order)))
    {
        let mut harness = cancelled_in_its_turn();
        let listener = 11 - heard_by;
        let messages = [
            named("a", "error", heard_by),
            answered(heard_by, "t"),
            named("a", "task_complete", listener),
            answered(listener, "t"),
        ];
        let effects = order.map(|message| harness.child(&messages[message]));
        for (message, effects) in order.iter().zip(&effects).take(3) {
            let expected = if message % 2 == 0 { "event of 5" } else { "" };
            assert_eq!(in_short(effects), expected, "{heard_by} {order:?}");
        }
        // Both listeners have answered.
        let last = &effects[3];
        let expected = "child: cancel 6, our Failed to 6";
        assert_eq!(in_short(last), expected, "{heard_by} {order:?}");
        assert_eq!(why_failed(last), Failure::OutOfStep);
        assert_eq!(why_failed(&harness.reply(7, "t")), Failure::OutOfStep);
        // Nothing more comes under the ID of call 6.
        assert!(matches!(
            harness.reply(6, "u").as_slice(),
            [Effect::ToChild(_)]
        ));
    }
}

/// Each of the two listeners that are left may hear the end of the failed turn.
#[test]
fn surplus_answer_does_not_end_another_call() {
    for heard_by in [4, 6] {
        let mut harness = cancelled_with_another_listener();
        harness.child(&named("a", "error", 5));
        assert_eq!(harness.child(&answered(5, "t")), []);
        harness.child(&named("a", "task_complete", heard_by));
        assert_eq!(harness.child(&answered(heard_by, "t")), []);
        let listener = 10 - heard_by;
        harness.child(&named("b", "task_started", listener));
        harness.child(&named("b", "task_complete", listener));
        assert_eq!(
            harness.child(&answered(listener, "t")),
            [to_client(&answered(6, "t"))]
        );
    }
}

/// The child skips the abortion of a turn, so it misses nothing.
#[test]
fn thread_whose_failed_turn_was_aborted_can_be_prompted() {
    let mut harness = cancelled_in_its_turn();
    harness.child(&named("a", "error", 5));
    harness.child(&named("a", "turn_aborted", 6));
    assert_eq!(harness.child(&answered(5, "t")), []);
    harness.child(&named("b", "task_started", 6));
    harness.child(&named("b", "task_complete", 6));
    let answer = answered(6, "t");
    assert_eq!(harness.child(&answer), [to_client(&answer)]);
    assert!(matches!(
        harness.reply(7, "t").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn late_error_is_not_the_answer_of_the_next_call() {
    let mut harness = cancelled_in_its_turn();
    harness.child(&named("b", "task_started", 6));
    harness.child(&named("a", "error", 5));
    assert_eq!(harness.child(&answered(5, "t")), []);
    harness.child(&named("b", "task_complete", 6));
    let answer = answered(6, "t");
    assert_eq!(harness.child(&answer), [to_client(&answer)]);
    assert_eq!(in_short(&harness.reply(7, "t")), "our Failed to 7");
}

/// A turn can begin without a call, as by mail of a sub-agent.
#[test]
fn answer_of_a_turn_without_a_call_is_dropped() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.reply(5, "t");
    harness.child(&named("a", "task_started", 5));
    harness.client(&cancelled(5));
    harness.child(&named("a", "turn_aborted", 5));
    harness.child(&named("x", "task_started", 5));
    harness.child(&named("x", "task_complete", 5));
    assert_eq!(harness.child(&answered(5, "t")), []);
    assert!(matches!(
        harness.reply(6, "t").as_slice(),
        [Effect::ToChild(_)]
    ));
}

/// A thread in which call 4 has left its listener behind, and the turn "x" runs without a call.
fn turn_without_a_call() -> Harness {
    let mut harness = left_behind();
    harness.child(&named("x", "task_started", 4));
    harness
}

#[test]
fn prompt_during_a_turn_without_a_call_is_refused() {
    for end in ["task_complete", "turn_aborted"] {
        let mut harness = turn_without_a_call();
        assert_eq!(why_failed(&harness.reply(5, "t")), Failure::Busy);
        harness.child(&named("x", end, 4));
        assert!(matches!(
            harness.reply(6, "t").as_slice(),
            [Effect::ToChild(_)]
        ));
        if end == "task_complete" {
            // Call 6 has its own listener.
            assert_eq!(harness.child(&answered(4, "t")), []);
        }
    }
}

/// Two listeners report the events of a turn in any order, and a beginning twice.
#[test]
fn beginning_of_a_turn_without_a_call_after_its_end_does_not_keep_the_thread_busy() {
    let end_first = ["task_complete", "task_started"];
    let twice = ["task_started", "task_complete", "task_started"];
    for reports in [end_first.as_slice(), &twice] {
        let mut harness = left_behind();
        harness.reply(5, "t");
        harness.child(&named("a", "task_started", 5));
        harness.client(&cancelled(5));
        harness.child(&named("a", "turn_aborted", 5));
        for kind in reports {
            let under = if *kind == "task_complete" { 5 } else { 4 };
            harness.child(&named("x", kind, under));
        }
        assert_eq!(harness.child(&answered(5, "t")), []);
        let effects = harness.reply(6, "t");
        assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
    }
}

#[test]
fn second_beginning_of_a_completed_turn_does_not_keep_the_thread_busy() {
    let mut harness = left_behind();
    harness.reply(5, "t");
    harness.child(&named("a", "task_started", 5));
    harness.child(&named("a", "task_complete", 5));
    harness.child(&named("a", "task_started", 4));
    let answer = answered(5, "t");
    assert_eq!(harness.child(&answer), [to_client(&answer)]);
    let effects = harness.reply(6, "t");
    assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
}

/// The child would take the end of that turn for the end of the next one.
#[test]
fn thread_in_which_a_turn_without_a_call_has_failed_is_out_of_step() {
    let mut harness = turn_without_a_call();
    harness.child(&named("x", "error", 4));
    assert_eq!(harness.child(&answered(4, "t")), []);
    assert_eq!(why_failed(&harness.reply(5, "t")), Failure::OutOfStep);
}

/// Old releases number the turns of a thread, and use the ID of the request for the first one.
#[test]
fn reused_turn_name_refers_to_the_latest_turn() {
    for is_cancelled in [true, false] {
        let mut harness = Harness::initialized("0.66.0", &no_capabilities());
        harness.reply(2, "t");
        harness.child(&named("2", "task_started", 2));
        if is_cancelled {
            harness.client(&cancelled(2));
            harness.child(&named("2", "turn_aborted", 2));
        } else {
            harness.child(&named("2", "task_complete", 2));
            harness.child(&answered(2, "t"));
        }
        harness.reply(5, "t");
        let under = if is_cancelled { 2 } else { 5 };
        let began = harness.child(&named("2", "task_started", under));
        assert_eq!(in_short(&began), "event of 5");
        let message = json!({"type": "agent_message", "message": "text"});
        let effects = harness.child(&event_of("2", under, "t", &message));
        assert_eq!(in_short(&effects), "event of 5");
        let call = timed_out(&mut harness);
        assert_eq!(call.partial, "text");
    }
}

/// The end of a turn can come before its beginning.
#[test]
fn turn_that_completes_before_it_begins_keeps_its_name() {
    let mut harness = cancelled_in_its_turn();
    harness.child(&named("a", "turn_aborted", 5));
    harness.child(&named("b", "task_complete", 6));
    harness.client(&cancelled(6));
    harness.child(&answered(6, "t"));
    harness.reply(7, "t");
    let effects = harness.child(&named("b", "turn_aborted", 5));
    assert_eq!(in_short(&effects), "event of 6");
}

/// Old releases number the turns of each thread.
#[test]
fn name_of_a_turn_is_its_own_in_each_thread() {
    let mut harness = Harness::initialized("0.66.0", &no_capabilities());
    harness.reply(5, "t");
    harness.child(&named("1", "task_started", 5));
    harness.child(&named("1", "task_complete", 5));
    harness.child(&answered(5, "t"));
    harness.reply(9, "u");
    for kind in ["task_started", "task_complete"] {
        harness.child(&event_of("1", 9, "u", &json!({ "type": kind })));
    }
    harness.child(&answered(9, "u"));
    harness.reply(6, "t");
    let effects = harness.child(&named("1", "turn_aborted", 6));
    assert_eq!(in_short(&effects), "event of 5");
}

#[test]
fn turn_that_is_reported_to_begin_twice_has_one_call() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.reply(5, "t");
    for kind in ["task_started", "task_started", "task_complete"] {
        harness.child(&named("a", kind, 5));
    }
    let answer = answered(5, "t");
    assert_eq!(harness.child(&answer), [to_client(&answer)]);
}

#[test]
fn beginning_of_a_turn_after_its_end_is_not_that_of_the_next_turn() {
    for is_answered in [true, false] {
        let mut harness = cancelled_in_its_turn();
        harness.child(&named("a", "turn_aborted", 5));
        harness.child(&named("b", "task_complete", 6));
        harness.client(&cancelled(6));
        if is_answered {
            harness.child(&answered(6, "t"));
        }
        harness.reply(7, "t");
        for kind in ["task_started", "turn_aborted"] {
            let effects = harness.child(&named("b", kind, 5));
            assert_eq!(in_short(&effects), "event of 6", "{is_answered}");
        }
        if !is_answered {
            assert_eq!(harness.child(&answered(6, "t")), []);
        }
        harness.child(&named("c", "task_started", 7));
        harness.child(&named("c", "task_complete", 7));
        let answer = answered(7, "t");
        assert_eq!(harness.child(&answer), [to_client(&answer)]);
    }
}

/// Three listeners have read the end of the first turn, and the beginning and the end of the second.
#[test]
fn end_before_its_beginning_is_not_that_of_the_turn_before() {
    let mut harness = cancelled_with_another_listener();
    harness.child(&named("b", "task_complete", 6));
    let answer = answered(6, "t");
    assert_eq!(harness.child(&answer), [to_client(&answer)]);
    let effects = harness.child(&named("a", "turn_aborted", 4));
    assert_eq!(in_short(&effects), "event of 5");
    let effects = harness.child(&named("b", "task_started", 5));
    assert_eq!(in_short(&effects), "event of 6");
    harness.reply(7, "t");
    harness.child(&named("c", "task_started", 7));
    harness.child(&named("c", "task_complete", 7));
    let answer = answered(7, "t");
    assert_eq!(harness.child(&answer), [to_client(&answer)]);
}
