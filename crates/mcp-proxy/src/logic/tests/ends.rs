use super::*;

#[test]
fn a_call_that_takes_too_long_tells_what_was_said() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    table.child(&question(0, 5, "t"));
    for msg in [
        json!({"type": "agent_message_content_delta", "item_id": "a", "delta": "First."}),
        json!({"type": "agent_message", "message": "First."}),
        json!({"type": "agent_message_content_delta", "item_id": "b", "delta": "Sec"}),
        json!({"type": "agent_message_content_delta", "item_id": "b", "delta": "ond"}),
    ] {
        table.child(&event(5, "t", &msg));
    }
    table.now += LIMITS.approval;
    let effects = table.later(LIMITS.call);
    let methods: Vec<Value> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::ToChild(bytes) => Some(parsed(bytes)["method"].clone()),
            _ => None,
        })
        .collect();
    // The no to the question, which was late before, and the end of the call.
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
fn what_comes_under_the_id_of_an_ended_call_is_its_threads() {
    for ended_by_client in [true, false] {
        let mut table = Table::begun("0.153.4", &elicits());
        table.call(5);
        table.child(&event(5, "t", &json!({"type": "task_started"})));
        if ended_by_client {
            assert_eq!(table.client(&cancelled(5)), [to_child(&cancelled(5))]);
        } else {
            table.later(LIMITS.call);
        }
        table.reply(6, "t");
        // The end of its own turn is not the new one's.
        let aborted = event(5, "t", &json!({"type": "turn_aborted"}));
        assert_eq!(table.child(&aborted), [to_client(&aborted)]);
        let said = json!({"type": "agent_message", "message": "m"});
        assert_eq!(
            table.child(&event(5, "t", &said)),
            [to_client(&event(6, "t", &said))]
        );
        assert_eq!(
            table.child(&question(0, 5, "t")),
            [to_client(&question(0, 6, "t"))]
        );
        assert_eq!(
            table.child(&answered(5, "t")),
            [
                told_to_withdraw(0).swap_remove(0),
                told_to_withdraw(0).swap_remove(1),
                to_client(&answered(6, "t"))
            ]
        );
        // Now the listener of call 6 is the stale one.
        table.reply(7, "t");
        assert_eq!(
            table.child(&answered(6, "t")),
            [to_client(&answered(7, "t"))]
        );
        // Another thread's are left alone.
        table.call(8);
        assert_eq!(table.child(&answered(7, "t")), []);
        assert_eq!(
            table.child(&answered(8, "u")),
            [to_client(&answered(8, "u"))]
        );
    }
}

fn told_to_withdraw(question: i64) -> Vec<Effect> {
    let id = RequestId::Number(question);
    vec![
        Effect::ToChild(splice::declined(&id, LegacyRefusal::Object)),
        Effect::ToClient(cancellation(&id, "its call is over")),
    ]
}

#[test]
fn a_dead_child_fails_what_it_held_and_what_comes_after() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    table.child(&question(0, 5, "t"));
    table.client(&request(6, "ping", &json!({})));
    let effects = table.router.child_gone("exited with code 3");
    let ids: Vec<&RequestId> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Answer { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [&RequestId::Number(5), &RequestId::Number(6)]);
    assert_eq!(table.router.next_deadline(), None);

    let gone = Failure::Gone("exited with code 3".to_owned());
    let effects = table.client(&codex(7));
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Answer { answer: Answer::Failed { why, .. }, .. }] if *why == gone
        ),
        "{effects:?}"
    );
    let effects = table.client(&request(8, "made/up", &json!({})));
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Answer { answer: Answer::Error { why, .. }, .. }] if *why == gone
        ),
        "{effects:?}"
    );
    for (id, method) in [(9, "ping"), (10, "tools/list")] {
        let effects = table.client(&request(id, method, &json!({})));
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
    assert_eq!(table.client(&cancelled(7)), []);
    let status = json!({ "name": "codex_status" });
    let effects = table.client(&request(11, "tools/call", &status));
    assert!(matches!(effects.as_slice(), [Effect::Own { .. }]));
}

#[test]
fn a_child_that_does_not_read_gets_no_more_work() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    table.room = Room::None;
    for message in [codex(6), request(7, "made/up", &json!({}))] {
        let effects = table.client(&message);
        let [Effect::Answer { answer, .. }] = effects.as_slice() else {
            panic!("{effects:?}");
        };
        let (Answer::Failed { why, .. } | Answer::Error { why, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(*why, Failure::NotReading);
    }
    let status = json!({ "name": "codex_status" });
    let effects = table.client(&request(8, "tools/call", &status));
    assert!(matches!(effects.as_slice(), [Effect::Own { .. }]));
    // The call is over all the same.
    assert_eq!(table.client(&cancelled(5)), [to_child(&cancelled(5))]);
    assert_eq!(table.router.counts().in_flight, 0);
    // It need not hear that again, nor anything else.
    let news = json!({ "jsonrpc": "2.0", "method": "notifications/made_up" });
    for message in [cancelled(5), news, answered(88, "t")] {
        assert_eq!(table.client(&message), []);
    }
}

#[test]
fn an_answer_that_cannot_be_taken_fails_its_call() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    let head = Beheaded::Response(RequestId::Number(5));
    let effects = table
        .router
        .cut_off(&head, Failure::Unreadable("not JSON".to_owned()));
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
    assert_eq!(table.child(&answered(5, "t")), []);
}

#[test]
fn the_end_of_the_program_ends_turns_too() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    let effects = table.router.shut_down();
    assert_eq!(told_child(&effects)["params"]["requestId"], 5);
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
