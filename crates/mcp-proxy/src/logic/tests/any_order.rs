//! Every request gets one answer in any order of events.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// A step of a test, in any order.
#[derive(Debug, Clone)]
enum Step {
    Call,
    Reply(&'static str),
    Other(&'static str),
    Own,
    Cancel(i64),
    Answer(i64, Option<&'static str>),
    Event(&'static str, i64, &'static str, &'static str),
    Question(i64, i64, &'static str),
    Decide(i64),
    Pong(u64),
    Later(u64),
    CutOff(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let thread = || prop_oneof![Just("t"), Just("u")];
    let id = || 1..12_i64;
    let kind = prop_oneof![
        Just("task_started"),
        Just("turn_aborted"),
        Just("task_complete"),
        Just("error")
    ];
    let name = prop_oneof![Just(""), Just("a"), Just("b"), Just("c")];
    prop_oneof![
        3 => Just(Step::Call),
        3 => thread().prop_map(Step::Reply),
        1 => prop_oneof![Just("ping"), Just("made/up"), Just("tools/list")].prop_map(Step::Other),
        1 => Just(Step::Own),
        2 => id().prop_map(Step::Cancel),
        4 => (id(), proptest::option::of(thread())).prop_map(|(id, thread)| Step::Answer(id, thread)),
        4 => (name, id(), thread(), kind)
            .prop_map(|(name, id, thread, kind)| Step::Event(name, id, thread, kind)),
        2 => (0..4_i64, id(), thread()).prop_map(|(q, id, thread)| Step::Question(q, id, thread)),
        2 => (0..4_i64).prop_map(Step::Decide),
        1 => (1..5_u64).prop_map(Step::Pong),
        1 => (1..200_u64).prop_map(Step::Later),
        1 => id().prop_map(Step::CutOff),
    ]
}

/// For each request of the client, the number of its answers; for a cancelled request, also the
/// number at its cancellation.
#[derive(Default)]
struct Ledger {
    answers: HashMap<i64, u32>,
    cancelled: HashMap<i64, u32>,
    own: Vec<i64>,
}

impl Ledger {
    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            let id = match effect {
                Effect::Answer { id, .. } => json!(id),
                Effect::ToClient(bytes) => {
                    let message = parsed(bytes);
                    match message.get("method") {
                        Some(_) => continue,
                        None => message["id"].clone(),
                    }
                }
                Effect::CallOwnTool { id, .. } => {
                    self.own.extend(json!(id).as_i64());
                    continue;
                }
                Effect::ToChild(_) => continue,
            };
            *self.answers.entry(id.as_i64().unwrap()).or_default() += 1;
        }
    }
}

impl Harness {
    fn take(&mut self, step: &Step, next: &mut i64) -> Vec<Effect> {
        match step {
            Step::Call => self.client(&codex(new(next))),
            Step::Reply(thread) => self.reply(new(next), thread),
            Step::Other(method) => self.client(&request(new(next), method, &json!({}))),
            Step::Own => {
                let params = json!({ "name": "codex_status" });
                self.client(&request(new(next), "tools/call", &params))
            }
            Step::Cancel(id) => self.client(&cancelled(*id)),
            Step::Answer(id, Some(thread)) => self.child(&answered(*id, thread)),
            Step::Answer(id, None) => {
                self.child(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }))
            }
            Step::Event(name, id, thread, kind) => {
                self.child(&event_of(name, *id, thread, &json!({"type": kind})))
            }
            Step::Question(id, call, thread) => self.child(&question(*id, *call, thread)),
            Step::Decide(id) => {
                let result = json!({ "action": "accept" });
                self.client(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            }
            Step::Pong(number) => {
                let id = format!("codex-mcp:ping:{number}");
                self.child(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }))
            }
            Step::Later(seconds) => self.later(Duration::from_secs(*seconds)),
            Step::CutOff(id) => {
                let head = TruncatedMessage::Response(RequestId::Number(*id));
                self.router
                    .fail_unreadable(&head, Failure::Unreadable("not JSON".to_owned()))
            }
        }
    }
}

fn new(next: &mut i64) -> i64 {
    *next += 1;
    *next
}

proptest! {
    #[test]
    fn every_request_gets_one_answer_in_any_order_of_events(
        steps in proptest::collection::vec(step(), 1..60),
        asks in any::<bool>(),
    ) {
        let capabilities = if asks { elicits() } else { no_capabilities() };
        let mut harness = Harness::initialized("0.153.4", &capabilities);
        let mut ledger = Ledger::default();
        let mut last = 0;
        for step in &steps {
            let effects = harness.take(step, &mut last);
            ledger.note(&effects);
            if let Step::Cancel(id) = step
                && *id <= last
            {
                let answers = ledger.answers.get(id).copied().unwrap_or_default();
                ledger.cancelled.entry(*id).or_insert(answers);
            }
        }
        for id in std::mem::take(&mut ledger.own) {
            if harness.router.finish_own_call(&RequestId::Number(id)) {
                *ledger.answers.entry(id).or_default() += 1;
            }
        }
        ledger.note(&harness.router.child_gone("exited with code 0"));
        for id in 1..=last {
            let answers = ledger.answers.get(&id).copied().unwrap_or_default();
            let before = ledger.cancelled.get(&id).copied();
            prop_assert_eq!(answers, before.unwrap_or(1), "{}", id);
        }
        prop_assert_eq!(harness.router.next_deadline(), None);
    }
}
