use super::*;

#[test]
fn a_plain_accept_is_an_approval_and_a_decision_stays() {
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
        let mut table = Table::begun(version, &elicits());
        table.call(5);
        let asked = question(0, 5, "t");
        assert_eq!(table.child(&asked), [to_client(&asked)]);
        let answer = json!({ "jsonrpc": "2.0", "id": 0, "result": result });
        let effects = table.client(&answer);
        let sent = told_child(&effects);
        assert_eq!(sent["result"]["decision"], decision, "{result}");
        assert_eq!(sent["result"]["action"], result["action"]);
        assert_eq!(sent["id"], 0);
        assert_eq!(table.later(LIMITS.approval), []);
    }
}

#[test]
fn a_client_that_cannot_be_asked_gets_the_question_and_the_child_a_no() {
    let mut table = Table::begun("0.153.4", &no_capabilities());
    table.call(5);
    table.child(&event(5, "t", &json!({"type": "task_started"})));
    let effects = table.child(&question(0, 5, "t"));
    let sent = told_child(&effects);
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

    // The turn goes on, and what comes of it has no taker.
    let busy = table.reply(6, "t");
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
    assert_eq!(table.child(&answered(5, "t")), []);
    assert!(matches!(
        table.reply(7, "t").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn a_turn_that_nobody_waits_for_has_an_end() {
    let mut table = Table::begun("0.153.4", &no_capabilities());
    table.call(5);
    table.child(&event(5, "t", &json!({"type": "task_started"})));
    table.child(&question(0, 5, "t"));
    let effects = table.later(LIMITS.call);
    assert_eq!(told_child(&effects)["params"]["requestId"], 5);
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert!(matches!(
        table.reply(7, "t").as_slice(),
        [Effect::ToChild(_)]
    ));
}

#[test]
fn a_client_that_refuses_to_ask_is_one_that_cannot() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    table.child(&question(0, 5, "t"));
    let error = json!({ "code": -32601, "message": "no" });
    let effects = table.client(&json!({ "jsonrpc": "2.0", "id": 0, "error": error }));
    assert_eq!(told_child(&effects)["result"]["action"], "decline");
    assert!(matches!(
        effects.last(),
        Some(Effect::Answer {
            answer: Answer::Declined { .. },
            ..
        })
    ));
}

#[test]
fn dismissed_question_is_declined_and_given_back() {
    let mut table = Table::begun("0.153.4", &elicits());
    for (id, result) in [
        (5, json!({"action": "cancel"})),
        (6, json!({"action": "cancel", "decision": null})),
    ] {
        table.call(id);
        table.child(&question(0, id, "t"));
        let effects = table.client(&json!({ "jsonrpc": "2.0", "id": 0, "result": result }));
        assert_eq!(told_child(&effects)["result"]["action"], "decline");
        let Some(Effect::Answer { answer, .. }) = effects.last() else {
            panic!("{effects:?}");
        };
        assert!(matches!(answer, Answer::Declined { .. }), "{answer:?}");
    }
}

#[test]
fn an_unanswered_question_is_declined_and_withdrawn() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    table.child(&question(0, 5, "t"));
    let effects = table.later(LIMITS.approval);
    let [Effect::ToChild(no), Effect::ToClient(withdrawn)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(parsed(no)["result"]["action"], "decline");
    assert_eq!(parsed(withdrawn)["params"]["requestId"], 0);
    assert_eq!(table.router.counts().in_flight, 1);
}

#[test]
fn a_question_that_the_child_takes_back_is_open_no_more() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    table.child(&question(0, 5, "t"));
    assert_eq!(table.child(&cancelled(0)), [to_client(&cancelled(0))]);
    assert_eq!(table.later(LIMITS.approval), []);
}
