use super::*;

#[test]
fn timed_out_call_returns_the_partial_text() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    harness.child(&question(0, 5, "t"));
    for msg in [
        json!({"type": "agent_message_content_delta", "item_id": "a", "delta": "First."}),
        json!({"type": "agent_message", "message": "First."}),
        json!({"type": "agent_message_content_delta", "item_id": "b", "delta": "Sec"}),
        json!({"type": "agent_message_content_delta", "item_id": "b", "delta": "ond"}),
    ] {
        harness.child(&event(5, "t", &msg));
    }
    harness.now += LIMITS.approval;
    let effects = harness.later(LIMITS.call);
    let methods: Vec<Value> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::ToChild(bytes) => Some(parsed(bytes)["method"].clone()),
            _ => None,
        })
        .collect();
    // The refusal of the question, which has the earlier deadline, comes first, and then the end of
    // the call.
    assert_eq!(methods, [Value::Null, "notifications/cancelled".into()]);
    let Some(Effect::Answer {
        answer: Answer::Failed { call, why },
        ..
    }) = effects.last()
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*why, Failure::TimedOut);
    assert_eq!(call.partial, "First.\n\nSecond");
}

#[test]
fn late_messages_of_an_ended_call_go_to_the_next_call_of_its_thread() {
    for ended_by_client in [true, false] {
        let mut harness = Harness::initialized("0.153.4", &elicits());
        harness.call(5);
        harness.child(&event(5, "t", &json!({"type": "task_started"})));
        if ended_by_client {
            assert_eq!(harness.client(&cancelled(5)), [to_child(&cancelled(5))]);
        } else {
            harness.later(LIMITS.call);
        }
        harness.reply(6, "t");
        // The end of the old turn does not end the new call.
        let aborted = event(5, "t", &json!({"type": "turn_aborted"}));
        assert_eq!(harness.child(&aborted), [to_client(&aborted)]);
        let message_event = json!({"type": "agent_message", "message": "m"});
        assert_eq!(
            harness.child(&event(5, "t", &message_event)),
            [to_client(&event(6, "t", &message_event))]
        );
        assert_eq!(
            harness.child(&question(0, 5, "t")),
            [to_client(&question(0, 6, "t"))]
        );
        assert_eq!(
            harness.child(&answered(5, "t")),
            [
                told_to_withdraw(0).swap_remove(0),
                told_to_withdraw(0).swap_remove(1),
                to_client(&answered(6, "t"))
            ]
        );
        // Now the listener of call 6 is the stale one.
        harness.reply(7, "t");
        assert_eq!(
            harness.child(&answered(6, "t")),
            [to_client(&answered(7, "t"))]
        );
        // Messages of another thread are not changed.
        harness.call(8);
        assert_eq!(harness.child(&answered(7, "t")), []);
        assert_eq!(
            harness.child(&answered(8, "u")),
            [to_client(&answered(8, "u"))]
        );
    }
}

#[test]
fn cancelled_call_of_an_own_tool_keeps_its_id_until_the_tool_has_ended() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    let status = request(5, "tools/call", &json!({ "name": "codex_status" }));
    let id = RequestId::Number(5);
    let effects = harness.client(&status);
    assert!(matches!(effects.as_slice(), [Effect::CallOwnTool { .. }]));
    assert_eq!(harness.client(&cancelled(5)), []);
    // Otherwise this call would get the answer of the first.
    let answer = Answer::IdSpent;
    let refused = Effect::Answer {
        id: id.clone(),
        answer,
    };
    assert_eq!(harness.client(&status), [refused]);
    assert!(!harness.router.finish_own_call(&id));
    let effects = harness.client(&status);
    assert!(matches!(effects.as_slice(), [Effect::CallOwnTool { .. }]));
    assert!(harness.router.finish_own_call(&id));
}

#[test]
fn cancelled_call_of_an_own_tool_is_not_wanted_though_the_child_is_gone() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.router.child_gone("exited with code 3");
    harness.client(&request(
        5,
        "tools/call",
        &json!({ "name": "codex_status" }),
    ));
    let id = RequestId::Number(5);
    assert!(harness.router.is_wanted(&id));
    harness.router.take_notes();
    assert_eq!(harness.client(&cancelled(5)), []);
    assert!(!harness.router.is_wanted(&id));
    assert_eq!(harness.router.take_notes(), [Note::OwnCallCancelled]);
    assert!(!harness.router.finish_own_call(&id));
}

fn told_to_withdraw(question: i64) -> Vec<Effect> {
    let id = RequestId::Number(question);
    vec![
        Effect::ToChild(splice::declined(&id, LegacyRefusal::Object)),
        Effect::ToClient(cancellation(&id, "its call is over")),
    ]
}

#[test]
fn dead_child_fails_open_and_later_requests() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    harness.child(&question(0, 5, "t"));
    harness.client(&request(6, "ping", &json!({})));
    let effects = harness.router.child_gone("exited with code 3");
    let ids: Vec<&RequestId> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Answer { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [&RequestId::Number(5), &RequestId::Number(6)]);
    assert_eq!(harness.router.next_deadline(), None);

    let gone = Failure::Gone("exited with code 3".to_owned());
    let effects = harness.client(&codex(7));
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Answer { answer: Answer::Failed { why, .. }, .. }] if *why == gone
        ),
        "{effects:?}"
    );
    let effects = harness.client(&request(8, "made/up", &json!({})));
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Answer { answer: Answer::Error { why, .. }, .. }] if *why == gone
        ),
        "{effects:?}"
    );
    for (id, method) in [(9, "ping"), (10, "tools/list")] {
        let effects = harness.client(&request(id, method, &json!({})));
        assert!(
            matches!(
                effects.as_slice(),
                [Effect::Answer {
                    answer: Answer::Result(_),
                    ..
                }]
            ),
            "{effects:?}"
        );
    }
    assert_eq!(harness.client(&cancelled(7)), []);
    let status = json!({ "name": "codex_status" });
    let effects = harness.client(&request(11, "tools/call", &status));
    assert!(matches!(effects.as_slice(), [Effect::CallOwnTool { .. }]));
}

#[test]
fn child_that_does_not_read_gets_no_more_work() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    harness.queue = ChildQueue::Full;
    for message in [codex(6), request(7, "made/up", &json!({}))] {
        let effects = harness.client(&message);
        let [Effect::Answer { answer, .. }] = effects.as_slice() else {
            panic!("{effects:?}");
        };
        let (Answer::Failed { why, .. } | Answer::Error { why, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(*why, Failure::NotReading);
    }
    let status = json!({ "name": "codex_status" });
    let effects = harness.client(&request(8, "tools/call", &status));
    assert!(matches!(effects.as_slice(), [Effect::CallOwnTool { .. }]));
    // The call is over all the same.
    assert_eq!(harness.client(&cancelled(5)), [to_child(&cancelled(5))]);
    assert_eq!(harness.router.counts().in_flight, 0);
    // From here on, the child gets no message: neither this cancellation again nor any other.
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/made_up" });
    for message in [cancelled(5), notification, answered(88, "t")] {
        assert_eq!(harness.client(&message), []);
    }
}

#[test]
fn unreadable_answer_fails_its_call() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    let head = TruncatedMessage::Response(RequestId::Number(5));
    let effects = harness
        .router
        .fail_unreadable(&head, Failure::Unreadable("not JSON".to_owned()));
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Answer {
                answer: Answer::Failed {
                    why: Failure::Unreadable(_),
                    ..
                },
                ..
            }]
        ),
        "{effects:?}"
    );
    assert_eq!(harness.child(&answered(5, "t")), []);
}

#[test]
fn shutdown_cancels_running_turns() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    let effects = harness.router.shut_down();
    assert_eq!(only_message_to_child(&effects)["params"]["requestId"], 5);
    assert!(matches!(
        effects.last(),
        Some(Effect::Answer {
            answer: Answer::Failed {
                why: Failure::ShuttingDown,
                ..
            },
            ..
        })
    ));
}
