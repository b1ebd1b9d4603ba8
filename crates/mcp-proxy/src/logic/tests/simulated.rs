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

impl TurnEvent {
    fn is_answered(&self) -> bool {
        matches!(self.kind, "task_complete" | "error")
    }
}

/// The listener of a call. It reports an event before it reads the next one.
struct Listener {
    call: i64,
    /// The event that it has read and not reported yet.
    read: Option<TurnEvent>,
}

/// One thread, whose listeners share its events.
#[derive(Default)]
struct Thread {
    ops: VecDeque<Op>,
    /// The name of the turn that is running.
    running: Option<String>,
    listeners: Vec<Listener>,
    /// The events that no listener has read yet.
    unread: VecDeque<TurnEvent>,
    answers: Vec<TurnAnswer>,
    mails: u32,
}

impl Thread {
    /// The positions of the listeners that have an event to report.
    fn reporters(&self) -> Vec<usize> {
        let listeners = self.listeners.iter().enumerate();
        let reporters = listeners.filter(|(_, listener)| listener.read.is_some());
        reporters.map(|(at, _)| at).collect()
    }

    /// Whether the child has nothing left to do or to send.
    fn is_at_rest(&self) -> bool {
        let is_idle = self.ops.is_empty() && self.running.is_none();
        is_idle && self.answers.is_empty() && self.reporters().is_empty()
    }
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
    /// A listener reports the event that it has read.
    Report(usize),
    /// A listener that has reported the end of a turn, or an error, answers.
    Answer(usize),
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
        20 => listener().prop_map(Step::Report),
        8 => listener().prop_map(Step::Answer),
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
            Step::Report(listener) => self.report(*listener),
            Step::Answer(listener) => self.answer(*listener),
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
            let listener = Listener {
                call: id,
                read: None,
            };
            self.thread.listeners.push(listener);
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

    /// A turn whose beginning is reported while a call awaits its own cannot be told from that one.
    fn begin_without_a_call(&mut self, listener: usize) {
        self.report_all();
        let Thread {
            ops,
            running,
            listeners,
            ..
        } = &self.thread;
        if ops.is_empty() && running.is_none() && !listeners.is_empty() {
            self.thread.mails += 1;
            self.begin(format!("mail {}", self.thread.mails), listener);
            self.report_all();
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

    /// The listeners that have nothing to report read one event each.
    fn read(&mut self, listener: usize) {
        let Thread {
            listeners, unread, ..
        } = &mut self.thread;
        let idle = listeners.iter_mut().filter(|it| it.read.is_none());
        let mut idle: Vec<&mut Listener> = idle.collect();
        while !idle.is_empty()
            && let Some(event) = unread.pop_front()
        {
            let chosen = listener % idle.len();
            idle.remove(chosen).read = Some(event);
        }
    }

    /// A listener reports the event that it has read. It leaves to answer, or reads on.
    fn report(&mut self, listener: usize) {
        let reporters = self.thread.reporters();
        if reporters.is_empty() {
            return;
        }
        let at = reporters[listener % reporters.len()];
        let reporter = &mut self.thread.listeners[at];
        let under = reporter.call;
        let event = reporter.read.take().unwrap();
        if event.is_answered() {
            self.thread.listeners.remove(at);
            let turn = event.turn.clone();
            self.thread.answers.push(TurnAnswer { under, turn });
        }
        let msg = json!({ "type": event.kind });
        let effects = self.harness.child(&event_of(&event.turn, under, "t", &msg));
        self.perform(effects);
        self.read(listener);
    }

    fn report_all(&mut self) {
        while !self.thread.reporters().is_empty() {
            self.report(0);
        }
    }

    fn answer(&mut self, listener: usize) {
        let answers = &mut self.thread.answers;
        if answers.is_empty() {
            return;
        }
        let TurnAnswer { under, turn } = answers.remove(listener % answers.len());
        let mut message = answered(under, "t");
        message["result"]["structuredContent"]["content"] = turn.into();
        let effects = self.harness.child(&message);
        self.perform(effects);
    }
}

proptest! {
    #[test]
    fn each_call_gets_the_answer_of_its_own_turn(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        while !world.thread.is_at_rest() {
            world.take(&Step::Complete(0));
            world.take(&Step::Report(0));
            world.take(&Step::Answer(0));
            world.take(&Step::Proceed(0));
        }
        for (id, content) in &world.answered {
            prop_assert_eq!(content, &format!("turn {id}"));
        }
        prop_assert!(world.open.is_empty(), "without an answer: {:?}", world.open);
    }
}
