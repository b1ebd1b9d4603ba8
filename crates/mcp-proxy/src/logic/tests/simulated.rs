//! Runs the router against a simulated thread that behaves like the real child, and checks that
//! each call gets the answer of its own turn or none, and fails only for a reason.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// The operations that the child was sent, in order.
#[derive(Debug)]
enum Op {
    Turn(i64),
    Interrupt,
}

/// An answer that the child has yet to send.
struct TurnAnswer {
    under: i64,
    turn: String,
}

/// An event of a turn.
struct TurnEvent {
    turn: String,
    kind: &'static str,
}

/// One thread, whose listeners share its events.
#[derive(Default)]
struct Thread {
    ops: VecDeque<Op>,
    /// The name of the turn that is running.
    running: Option<String>,
    listeners: Vec<i64>,
    /// The events that no listener has read yet.
    unread: VecDeque<TurnEvent>,
    answers: VecDeque<TurnAnswer>,
    mails: u32,
}

#[derive(Debug, Clone)]
enum Step {
    Reply,
    Cancel,
    /// The child performs its next operation.
    Proceed(usize),
    /// The running turn has an error.
    Fail(usize),
    /// The running turn completes.
    Complete(usize),
    /// The running turn completes while it is being aborted.
    CompleteAborted(usize),
    /// A turn begins without a call.
    Mail(usize),
    Answer,
}

fn step() -> impl Strategy<Value = Step> {
    let listener = || 0..4_usize;
    prop_oneof![
        6 => Just(Step::Reply),
        4 => Just(Step::Cancel),
        8 => listener().prop_map(Step::Proceed),
        1 => listener().prop_map(Step::Fail),
        8 => listener().prop_map(Step::Complete),
        2 => listener().prop_map(Step::CompleteAborted),
        1 => listener().prop_map(Step::Mail),
        8 => Just(Step::Answer),
    ]
}

struct World {
    harness: Harness,
    thread: Thread,
    last: i64,
    /// Whether a turn has had an error.
    has_failed: bool,
    /// The calls that the child has.
    sent: BTreeSet<i64>,
    /// The calls that the client waits for.
    open: BTreeSet<i64>,
    answered: Vec<(i64, String)>,
}

impl World {
    fn new() -> Self {
        Self {
            harness: Harness::initialized("0.153.4", &no_capabilities()),
            thread: Thread::default(),
            last: 0,
            has_failed: false,
            sent: BTreeSet::new(),
            open: BTreeSet::new(),
            answered: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Reply => {
                self.last += 1;
                self.open.insert(self.last);
                let effects = self.harness.reply(self.last, "t");
                self.perform(effects);
            }
            Step::Cancel => {
                if let Some(id) = self.open.pop_first() {
                    let effects = self.harness.client(&cancelled(id));
                    self.perform(effects);
                }
            }
            Step::Proceed(listener) => self.proceed(*listener),
            Step::Fail(listener) => {
                if let Some(turn) = self.thread.running.clone() {
                    self.has_failed = true;
                    self.tell(turn, "error", *listener);
                }
            }
            Step::Complete(listener) => self.complete(*listener),
            Step::Mail(listener) => self.begin_without_a_call(*listener),
            Step::CompleteAborted(listener) => self.complete_aborted(*listener),
            Step::Answer => self.answer(),
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ToChild(bytes) => self.receive(&parsed(&bytes)),
                Effect::ToClient(bytes) => {
                    let message = parsed(&bytes);
                    if message.get("method").is_none() {
                        let content = &message["result"]["structuredContent"]["content"];
                        let content = content.as_str().unwrap().to_owned();
                        self.answered
                            .push((message["id"].as_i64().unwrap(), content));
                        self.open.remove(&message["id"].as_i64().unwrap());
                    }
                }
                Effect::Answer { id, answer } => {
                    let id = json!(id).as_i64().unwrap();
                    self.open.remove(&id);
                    self.check_failure(id, &answer);
                }
                Effect::CallOwnTool { .. } => panic!("not asked for"),
            }
        }
    }

    /// Checks that a call has not failed without a reason: its thread is busy, or it is out of step
    /// after an error. A call that the child has is not failed while a listener can answer it.
    fn check_failure(&self, id: i64, answer: &Answer) {
        let Answer::Failed { why, .. } = answer else {
            panic!("{answer:?}");
        };
        let is_sent = self.sent.contains(&id);
        let can_be_answered = !(self.thread.listeners.is_empty() && self.thread.answers.is_empty());
        match why {
            Failure::Busy => assert!(!is_sent, "{id} was sent"),
            Failure::OutOfStep => {
                assert!(self.has_failed, "{id} failed without an error");
                assert!(!(is_sent && can_be_answered), "{id} can be answered");
            }
            _ => panic!("{why:?}"),
        }
    }

    /// Handles a message to the child. The child knows a call from the beginning of the call's
    /// turn.
    fn receive(&mut self, message: &Value) {
        if message["method"] == "tools/call" {
            let id = message["id"].as_i64().unwrap();
            self.sent.insert(id);
            self.thread.listeners.push(id);
            self.thread.ops.push_back(Op::Turn(id));
            self.read(0);
            return;
        }
        let cancelled = message["params"]["requestId"].as_i64().unwrap();
        let waits = |op: &Op| matches!(op, Op::Turn(id) if *id == cancelled);
        if !self.thread.ops.iter().any(waits) {
            self.thread.ops.push_back(Op::Interrupt);
        }
    }

    fn proceed(&mut self, listener: usize) {
        match self.thread.ops.front() {
            Some(Op::Turn(id)) if self.thread.running.is_none() => {
                let turn = format!("turn {id}");
                self.thread.ops.pop_front();
                self.begin(turn, listener);
            }
            Some(Op::Interrupt) => {
                self.thread.ops.pop_front();
                if let Some(turn) = self.thread.running.take() {
                    self.tell(turn, "turn_aborted", listener);
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, turn: String, listener: usize) {
        self.thread.running = Some(turn.clone());
        self.tell(turn, "task_started", listener);
    }

    /// A turn whose beginning is read while a call awaits its own cannot be told from that one.
    fn begin_without_a_call(&mut self, listener: usize) {
        let Thread {
            ops,
            running,
            listeners,
            ..
        } = &self.thread;
        if ops.is_empty() && running.is_none() && !listeners.is_empty() {
            self.thread.mails += 1;
            self.begin(format!("mail {}", self.thread.mails), listener);
        }
    }

    fn complete(&mut self, listener: usize) {
        if let Some(turn) = self.thread.running.take() {
            self.tell(turn, "task_complete", listener);
        }
    }

    fn complete_aborted(&mut self, listener: usize) {
        if let (Some(turn), Some(Op::Interrupt)) =
            (self.thread.running.clone(), self.thread.ops.front())
        {
            self.thread.ops.pop_front();
            self.complete(listener);
            self.tell(turn, "turn_aborted", listener);
        }
    }

    fn tell(&mut self, turn: String, kind: &'static str, listener: usize) {
        self.thread.unread.push_back(TurnEvent { turn, kind });
        self.read(listener);
    }

    /// A listener reads the events. It leaves at the end of a turn, and the next one goes on.
    fn read(&mut self, listener: usize) {
        while !self.thread.listeners.is_empty()
            && let Some(TurnEvent { turn, kind }) = self.thread.unread.pop_front()
        {
            let chosen = listener % self.thread.listeners.len();
            let under = self.thread.listeners[chosen];
            if matches!(kind, "task_complete" | "error") {
                self.thread.listeners.remove(chosen);
                let turn = turn.clone();
                self.thread.answers.push_back(TurnAnswer { under, turn });
            }
            let msg = json!({ "type": kind });
            let effects = self.harness.child(&event_of(&turn, under, "t", &msg));
            self.perform(effects);
        }
    }

    fn answer(&mut self) {
        if let Some(TurnAnswer { under, turn }) = self.thread.answers.pop_front() {
            let mut message = answered(under, "t");
            message["result"]["structuredContent"]["content"] = turn.into();
            let effects = self.harness.child(&message);
            self.perform(effects);
        }
    }
}

proptest! {
    #[test]
    fn each_call_gets_the_answer_of_its_own_turn(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        // The child finishes all its operations.
        while !(world.thread.ops.is_empty() && world.thread.running.is_none()) {
            world.take(&Step::Complete(0));
            world.take(&Step::Answer);
            world.take(&Step::Proceed(0));
        }
        while !world.thread.answers.is_empty() {
            world.take(&Step::Answer);
        }
        for (id, content) in &world.answered {
            prop_assert_eq!(content, &format!("turn {id}"));
        }
        prop_assert!(world.open.is_empty(), "without an answer: {:?}", world.open);
    }
}
