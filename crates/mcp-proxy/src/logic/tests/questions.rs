use super::*;

#[test]
fn plain_accept_becomes_an_approval_and_decisions_are_kept() {
    let denied = json!({ "denied": { "rejection": "declined by the user" } });
    for (version, result, decision) in [
        (
            "0.153.4",
            json!({"action": "accept", "content": {}}),
            json!("approved"),
        ),
        ("0.153.4", json!({"action": "decline"}), denied.clone()),
        ("0.104.0", json!({"action": "decline"}), json!("denied")),
        (
            "0.104.0",
            json!({"action": "cancel", "decision": "abort"}),
            json!("abort"),
        ),
        (
            "0.153.4",
            json!({"decision": "approved_for_session"}),
            json!("approved_for_session"),
        ),
        (
            "0.153.4",
            json!({"action": "accept", "decision": "denied"}),
            json!("denied"),
        ),
        (
            "0.153.4",
            json!({"decision": null, "action": "accept"}),
            json!("approved"),
        ),
    ] {
        let mut harness = Harness::initialized(version, &elicits());
        harness.call(5);
        let asked = question(0, 5, "t");
        assert_eq!(harness.child(&asked), [to_client(&asked)]);
        let answer = json!({ "jsonrpc": "2.0", "id": 0, "result": result });
        let effects = harness.client(&answer);
        let sent = only_message_to_child(&effects);
        assert_eq!(sent["result"]["decision"], decision, "{result}");
        assert_eq!(sent["result"]["action"], result["action"]);
        assert_eq!(sent["id"], 0);
        assert_eq!(harness.later(LIMITS.approval), []);
    }
}

#[test]
fn question_to_a_client_without_elicitation_is_declined_and_returned() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.call(5);
    harness.child(&event(5, "t", &json!({"type": "task_started"})));
    let effects = harness.child(&question(0, 5, "t"));
    let sent = only_message_to_child(&effects);
    assert_eq!(sent["result"]["action"], "decline");
    let Some(Effect::Answer {
        id,
        answer: Answer::Declined { call, question },
    }) = effects.last()
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*id, RequestId::Number(5));
    assert_eq!(call.thread.as_deref(), Some("t"));
    assert_eq!(question["message"], "Allow?");

    // The turn continues, and its answer is dropped.
    let busy = harness.reply(6, "t");
    assert!(matches!(
        busy.as_slice(),
        [Effect::Answer {
            answer: Answer::Failed {
                why: Failure::Busy,
                ..
            },
            ..
        }]
    ));
    assert_eq!(harness.child(&answered(5, "t")), []);
    assert!(matches!(
        harness.reply(7, "t").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn unattended_turn_is_cancelled_at_its_deadline() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.call(5);
    harness.child(&event(5, "t", &json!({"type": "task_started"})));
    harness.child(&question(0, 5, "t"));
    let effects = harness.later(LIMITS.call);
    assert_eq!(only_message_to_child(&effects)["params"]["requestId"], 5);
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert!(matches!(
        harness.reply(7, "t").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn elicitation_error_declines_the_question() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    harness.child(&question(0, 5, "t"));
    let error = json!({ "code": -32601, "message": "no" });
    let effects = harness.client(&json!({ "jsonrpc": "2.0", "id": 0, "error": error }));
    assert_eq!(
        only_message_to_child(&effects)["result"]["action"],
        "decline"
    );
    assert!(matches!(
        effects.last(),
        Some(Effect::Answer {
            answer: Answer::Declined { .. },
            ..
        })
    ));
}

#[test]
fn dismissed_question_is_declined_and_returned() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    for (id, result) in [
        (5, json!({"action": "cancel"})),
        (6, json!({"action": "cancel", "decision": null})),
    ] {
        harness.call(id);
        harness.child(&question(0, id, "t"));
        let effects = harness.client(&json!({ "jsonrpc": "2.0", "id": 0, "result": result }));
        assert_eq!(
            only_message_to_child(&effects)["result"]["action"],
            "decline"
        );
        let Some(Effect::Answer { answer, .. }) = effects.last() else {
            panic!("{effects:?}");
        };
        assert!(matches!(answer, Answer::Declined { .. }), "{answer:?}");
    }
}

#[test]
fn unanswered_question_is_declined_and_withdrawn() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    harness.child(&question(0, 5, "t"));
    let effects = harness.later(LIMITS.approval);
    let [Effect::ToChild(no), Effect::ToClient(withdrawn)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(parsed(no)["result"]["action"], "decline");
    assert_eq!(parsed(withdrawn)["params"]["requestId"], 0);
    assert_eq!(harness.router.counts().in_flight, 1);
}

#[test]
fn question_withdrawn_by_the_child_is_closed() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    harness.child(&question(0, 5, "t"));
    assert_eq!(harness.child(&cancelled(0)), [to_client(&cancelled(0))]);
    assert_eq!(harness.later(LIMITS.approval), []);
}

/// A question about the command that the child calls `command`.
fn command_question(id: i64, call: i64, thread: &str, command: &str) -> Value {
    let mut asked = question(id, call, thread);
    asked["params"]["codex_call_id"] = command.into();
    asked
}

#[test]
fn questions_that_codex_could_confuse_are_declined() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    for (id, command) in [(0, "a"), (1, "b")] {
        let asked = command_question(id, 5, "t", command);
        assert_eq!(harness.child(&asked), [to_client(&asked)]);
    }
    let effects = harness.child(&command_question(2, 5, "t", "a"));
    let [
        Effect::ToChild(first),
        Effect::ToClient(withdrawn),
        Effect::ToChild(second),
    ] = effects.as_slice()
    else {
        panic!("{effects:?}");
    };
    for (id, declined) in [(0, first), (2, second)] {
        let declined = parsed(declined);
        assert_eq!(declined["id"], id);
        assert_eq!(declined["result"]["action"], "decline");
    }
    assert_eq!(parsed(withdrawn)["params"]["requestId"], 0);
    assert_eq!(harness.router.counts().questions, 1);
    // The call goes on.
    let done = answered(5, "t");
    let effects = harness.child(&done);
    assert_eq!(effects.last(), Some(&to_client(&done)));
}

#[test]
fn questions_that_codex_can_tell_apart_are_passed_on() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    for (call, thread) in [(5, "t"), (6, "u")] {
        harness.call(call);
        harness.child(&event(call, thread, &json!({"type": "task_started"})));
    }
    for (id, call, thread, command) in [(0, 5, "t", "a"), (1, 6, "u", "a"), (2, 5, "t", "b")] {
        let asked = command_question(id, call, thread, command);
        assert_eq!(harness.child(&asked), [to_client(&asked)], "{id}");
    }
    // The child asks again under an ID whose answer it no longer needs.
    let again = command_question(0, 5, "t", "a");
    assert_eq!(harness.child(&again), [to_client(&again)]);
    assert_eq!(harness.router.counts().questions, 3);
}
