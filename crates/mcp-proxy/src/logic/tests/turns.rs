//! Whose turn it is that the child tells of.

use super::*;

/// Calls 5 and 6 of a thread, whose turns the child tells of as `begun` says; and
/// what is done to call 5 before call 6 is made.
fn two_calls(begin: &[Value], to_first: &[&str]) -> Table {
    let mut table = Table::begun("0.153.4", &no_capabilities());
    table.reply(5, "t");
    for event in begin {
        table.child(event);
    }
    for step in to_first {
        match *step {
            "cancelled" => drop(table.client(&cancelled(5))),
            "asked" => drop(table.child(&question(0, 5, "t"))),
            "aborted" => drop(table.child(&event(5, "t", &json!({"type": "turn_aborted"})))),
            other => panic!("{other}"),
        }
    }
    table.reply(6, "t");
    table
}

fn told(kind: &str, under: i64) -> Value {
    event(under, "t", &json!({ "type": kind }))
}

/// Effects in a few words.
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
        Effect::Own { .. } => "own".to_owned(),
    };
    let all: Vec<String> = effects.iter().map(one).collect();
    all.join(", ")
}

#[test]
fn each_state_meets_each_event() {
    let started = told("task_started", 5);
    let completed = told("task_complete", 5);
    let states: [(&str, &[Value], &[&str]); 7] = [
        ("5 awaited", &[], &[]),
        ("5 begun", std::slice::from_ref(&started), &[]),
        ("5 unattended", std::slice::from_ref(&started), &["asked"]),
        ("5 cancelled, awaited", &[], &["cancelled"]),
        (
            "5 cancelled, begun",
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
        ("a turn begins", told("task_started", 6)),
        ("a turn is aborted", told("turn_aborted", 6)),
        ("5 hears the end", completed.clone()),
        ("6 hears the end", told("task_complete", 6)),
        ("answer 5", answered(5, "t")),
        ("answer 6", answered(6, "t")),
        (
            "refusal 6",
            json!({ "jsonrpc": "2.0", "id": 6, "result": {} }),
        ),
    ];
    let mut snapshot = String::new();
    for (state, begin, to_first) in states {
        let table = two_calls(begin, to_first);
        snapshot.push_str(&format!("{state}: {}\n", table.router.calls.describe()));
        for (name, event) in &events {
            let mut table = two_calls(begin, to_first);
            let effects = in_short(&table.child(event));
            let after = table.router.calls.describe();
            snapshot.push_str(&format!("    {name}: {effects} | {after}\n"));
        }
    }
    insta::assert_snapshot!(snapshot);
}

#[test]
fn the_late_answer_of_a_cancelled_call_is_nobodys() {
    for heard_by in [5, 6] {
        for late_start in [true, false] {
            let mut table = Table::begun("0.153.4", &no_capabilities());
            table.reply(5, "t");
            table.child(&told("task_started", 5));
            table.client(&cancelled(5));
            table.reply(6, "t");
            // It had ended before the child heard of the cancellation.
            table.child(&told("task_complete", heard_by));
            if late_start {
                table.child(&told("task_started", 6));
            }
            assert_eq!(table.child(&answered(heard_by, "t")), []);
            if !late_start {
                table.child(&told("task_started", 6));
            }
            // One listener is left.
            let listener = 11 - heard_by;
            table.child(&told("task_complete", listener));
            assert_eq!(
                table.child(&answered(listener, "t")),
                [to_client(&answered(6, "t"))],
                "{heard_by} {late_start}"
            );
        }
    }
}

#[test]
fn a_turn_that_begins_after_its_cancellation_is_cancelled_again() {
    let mut table = Table::begun("0.153.4", &no_capabilities());
    table.reply(5, "t");
    table.client(&cancelled(5));
    // Until then a prompt would become a part of it.
    assert_eq!(in_short(&table.reply(6, "t")), "our Failed to 6");
    let effects = table.child(&told("task_started", 5));
    assert_eq!(in_short(&effects), "event of 5, child: cancel 5");
    table.child(&told("turn_aborted", 5));
    table.reply(7, "t");
    table.child(&told("task_started", 7));
    assert_eq!(
        table.child(&answered(7, "t")),
        [to_client(&answered(7, "t"))]
    );
}

#[test]
fn a_refusal_in_a_thread_that_is_being_ended_is_passed_on() {
    let mut table = Table::begun("0.153.4", &no_capabilities());
    table.reply(5, "t");
    table.child(&told("task_started", 5));
    table.client(&cancelled(5));
    table.reply(6, "t");
    let refusal = json!({ "jsonrpc": "2.0", "id": 6, "result": { "isError": true } });
    assert_eq!(table.child(&refusal), [to_client(&refusal)]);
}

/// Before 0.75 neither events nor results tell the thread.
#[test]
fn a_release_that_does_not_tell_threads_gets_its_answers_right_too() {
    let plain_event = |id: i64, msg: Value| {
        let params = json!({ "_meta": { "requestId": id }, "id": "0", "msg": msg });
        json!({ "jsonrpc": "2.0", "method": "codex/event", "params": params })
    };
    let plain_answer = |id: i64| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
    let mut table = Table::begun("0.66.0", &no_capabilities());
    table.call(5);
    let configured = json!({ "type": "session_configured", "session_id": "t" });
    table.child(&plain_event(5, configured));
    table.child(&plain_event(5, json!({ "type": "task_started" })));
    let effects = table.later(LIMITS.call);
    let Some(Effect::Answer {
        answer: Answer::Failed { call, .. },
        ..
    }) = effects.last()
    else {
        panic!("{effects:?}");
    };
    assert_eq!(call.thread.as_deref(), Some("t"));
    table.child(&plain_event(5, json!({ "type": "turn_aborted" })));
    let params = json!({ "name": "codex-reply", "arguments": { "prompt": "x",
        "conversationId": "t" } });
    table.client(&request(6, "tools/call", &params));
    table.child(&plain_event(5, json!({ "type": "task_started" })));
    table.child(&plain_event(5, json!({ "type": "task_complete" })));
    assert_eq!(table.child(&plain_answer(5)), [to_client(&plain_answer(6))]);
}

#[test]
fn a_turn_that_is_aborted_ends_its_call() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.reply(5, "t");
    table.child(&told("task_started", 5));
    table.child(&question(0, 5, "t"));
    let abort = json!({ "action": "cancel", "decision": "abort" });
    let cancel = json!({ "jsonrpc": "2.0", "id": 0, "result": abort });
    table.client(&cancel);
    let effects = table.child(&told("turn_aborted", 5));
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
    assert_eq!(table.router.next_deadline(), None);
    assert!(matches!(
        table.reply(6, "t").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn a_second_prompt_in_the_middle_of_a_turn_is_refused() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.reply(5, "t");
    assert_eq!(in_short(&table.reply(6, "t")), "our Failed to 6");
    assert!(matches!(
        table.reply(7, "u").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn a_thread_whose_turn_failed_is_not_answered_wrongly() {
    let mut table = Table::begun("0.153.4", &no_capabilities());
    table.call(1);
    table.child(&event(1, "t", &json!({ "type": "task_started" })));
    let error = json!({ "type": "error", "message": "bad prompt" });
    table.child(&event(1, "t", &error));
    let answer = answered(1, "t");
    assert_eq!(table.child(&answer), [to_client(&answer)]);
    // The child has the end of that turn before it, and would answer with it.
    let effects = table.reply(2, "t");
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
    // Others are not concerned.
    let effects = table.reply(3, "u");
    assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
}

#[test]
fn a_turn_that_never_begins_keeps_its_thread_busy_for_a_while_only() {
    let mut table = Table::begun("0.153.4", &no_capabilities());
    table.reply(1, "t");
    table.later(LIMITS.call);
    let busy = table.reply(2, "t");
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
    table.later(LIMITS.request);
    let effects = table.reply(3, "t");
    assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
}
