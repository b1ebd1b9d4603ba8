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
