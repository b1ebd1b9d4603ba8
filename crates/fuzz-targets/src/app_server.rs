//! Messages of the app-server, and the session that they lead to.
//!
//! Input: a line for each message. Lines that begin with `!` are acts of ours, such as `!prompt`.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

use codex_engine::logic::action::{self, ActionId};
use codex_engine::logic::events::{FLOOR, Poll, PollOptions, ResponseMode};
use codex_engine::logic::session::{
    Effect, Form, IncomingQuestion, Session, SessionRecord, State, Timeouts,
};
use codex_engine::logic::{approval_text, usage_limits};
use codex_protocol::codex::{
    AccountReadResponse, Ask, InitializeResponse, RateLimits, TerminalsPage, ThreadNotification,
    ThreadResponse, ToolCall, TurnId, TurnResponse,
};
use codex_protocol::rpc::{Message, RequestId};
use common::text::is_hidden;
use common::timestamp::Now;
use serde_json::Value;
use serde_json::value::RawValue;

const TIMEOUTS: Timeouts = Timeouts {
    approval: Duration::from_secs(60),
    stall: Duration::from_secs(300),
};

const MODES: [ResponseMode; 3] = [
    ResponseMode::Minimal,
    ResponseMode::DeltaCompact,
    ResponseMode::Full,
];

/// Tests one input.
pub fn run(data: &[u8]) {
    let mut world = World::new();
    for line in data.split(|byte| *byte == b'\n').take(200) {
        match line.split_first() {
            Some((b'!', act)) => world.act(act),
            _ => world.hear(line),
        }
        world.check();
    }
    world.look();
    world.restore();
}

/// A session, and the answers that it has given.
struct World {
    session: Session,
    limits: RateLimits,
    now: Now,
    asked: u64,
    /// The questions by Codex's IDs, and how often each was asked and answered.
    answered: HashMap<RequestId, (u64, u64)>,
    released: u64,
}

impl World {
    fn new() -> Self {
        let now = Now {
            instant: Instant::now(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_760_000_000),
        };
        Self {
            session: Session::new("t", TIMEOUTS, now),
            limits: RateLimits::default(),
            now,
            asked: 0,
            answered: HashMap::new(),
            released: 0,
        }
    }

    fn hear(&mut self, line: &[u8]) {
        match Message::read(line) {
            Ok(Message::Notification { method, params }) => {
                self.notified(&method, params.unwrap_or(RawValue::NULL));
            }
            Ok(Message::Request { id, method, params }) => {
                self.asked(id, &method, params.unwrap_or(RawValue::NULL));
            }
            Ok(Message::Response {
                outcome: Ok(result),
                ..
            }) => self.answered(result),
            Ok(Message::Response { .. }) | Err(_) => {}
        }
    }

    fn notified(&mut self, method: &str, params: &RawValue) {
        if method == RateLimits::METHOD
            && let Ok(limits) = RateLimits::read(params)
        {
            self.limits.update(limits);
            let _ = usage_limits::used_up_until(&self.limits, self.now.wall);
            let words = usage_limits::in_words(&self.limits, self.now.wall);
            assert!(!words.chars().any(char::is_control), "{words:?}");
            drop(usage_limits::as_json(&self.limits, self.now.wall));
        }
        if let Ok(Some(notification)) = ThreadNotification::read(method, params) {
            let effects = self.session.on_notification(notification, self.now);
            self.note(effects);
        }
    }

    fn asked(&mut self, id: RequestId, method: &str, params: &RawValue) {
        if method == ToolCall::METHOD {
            return drop(ToolCall::read(params));
        }
        let Ok(Some((thread, ask))) = Ask::read(method, params) else {
            return;
        };
        check_question(&ask);
        // Codex asks again under an ID only when the first question is closed.
        let open = self.session.actions().iter();
        if open.map(|action| &action.request).any(|open| *open == id) {
            return;
        }
        self.asked += 1;
        self.answered.entry(id.clone()).or_default().0 += 1;
        let question = IncomingQuestion {
            id: ActionId(format!("req_{}", self.asked)),
            request: id,
            thread: thread.into_owned(),
            ask,
            params: serde_json::from_str(params.get()).unwrap_or_default(),
        };
        let effects = self.session.on_question(question, self.now);
        self.note(effects);
    }

    fn answered(&mut self, result: &RawValue) {
        let json = result.get();
        drop(
            serde_json::from_str::<InitializeResponse>(json)
                .map(|read| read.codex_version().map(str::len)),
        );
        drop(serde_json::from_str::<ThreadResponse>(json));
        drop(serde_json::from_str::<AccountReadResponse>(json));
        drop(serde_json::from_str::<TerminalsPage>(json));
        if let Ok(limits) = RateLimits::read(result) {
            self.limits.replace(limits);
        }
        if let Ok(response) = serde_json::from_str::<TurnResponse>(json) {
            let number = self.session.turns();
            let effects = self.session.accepted(number, response.turn.id, self.now);
            self.note(effects);
        }
    }

    fn act(&mut self, act: &[u8]) {
        let number = self.session.turns();
        let now = self.now;
        let effects = match act {
            b"prompt" | b"structured" | b"review" => {
                let form = match act {
                    b"prompt" => Form::Text,
                    b"structured" => Form::Structured,
                    _ => Form::Review,
                };
                if self.session.prompt(form, now).is_ok() {
                    self.session.sending(self.session.turns());
                }
                Vec::new()
            }
            b"refused" => self.session.refused(number, now),
            b"interrupt" => self.session.interrupt(now),
            b"again" => self.session.interrupt_again(),
            b"abandon" => self.session.abandon("it does not end", now),
            b"cut" => self.session.cut_off("it was too long", now),
            b"cancel" => self.session.cancel("no longer wanted", now),
            b"tidy" => self.session.tidy(now).0,
            b"attach" => {
                self.session.attach();
                Vec::new()
            }
            b"lose" => {
                self.session.lose("exited with code 1", now);
                Vec::new()
            }
            b"show" => {
                self.session.show_questions(now);
                Vec::new()
            }
            b"accept" => self.decide(0),
            b"decline" => self.decide(usize::MAX),
            b"look" => {
                self.look();
                Vec::new()
            }
            _ => self.wait(act),
        };
        self.note(effects);
    }

    /// Lets seconds pass.
    fn wait(&mut self, seconds: &[u8]) -> Vec<Effect> {
        let seconds = std::str::from_utf8(seconds).ok();
        let seconds = seconds.and_then(|seconds| seconds.parse::<u16>().ok());
        let time = Duration::from_secs(seconds.unwrap_or(1).into());
        self.now.instant += time;
        self.now.wall += time;
        self.session.tick(self.now)
    }

    /// Answers the oldest question by one of the offered decisions.
    fn decide(&mut self, number: usize) -> Vec<Effect> {
        let Some(oldest) = self.session.actions().first() else {
            return Vec::new();
        };
        let offered = action::offered(&oldest.ask);
        let (id, last) = (oldest.id.clone(), offered.len().saturating_sub(1));
        let Some(decision) = offered.get(number.min(last)) else {
            return Vec::new();
        };
        let decided = self.session.decide(&id, decision, None, self.now);
        decided.unwrap_or_else(|error| panic!("{decision:?} was offered: {error}"))
    }

    fn note(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Answer { request, .. } => {
                    self.answered.entry(request).or_default().1 += 1;
                }
                Effect::Unsubscribe => self.released += 1,
                Effect::Interrupt(TurnId(_)) | Effect::StopCommands => {}
            }
        }
    }

    /// No question is answered twice, and none is both open and answered.
    fn check(&mut self) {
        let open: Vec<&RequestId> = self
            .session
            .actions()
            .iter()
            .map(|action| &action.request)
            .collect();
        let distinct: HashSet<&RequestId> = open.iter().copied().collect();
        assert_eq!(distinct.len(), open.len());
        for (request, (asked, answered)) in &self.answered {
            let is_open = u64::from(distinct.contains(request));
            assert!(
                answered + is_open <= *asked,
                "{request:?}: {answered} answers"
            );
        }
        assert!(self.released <= 1, "the thread was released twice");
        let is_waiting = self.session.state() == State::WaitingApproval;
        assert!(!is_waiting || !open.is_empty());
        drop(self.session.take_alerts());
        drop(self.session.take_closed());
    }

    /// What readers get keeps to its limits.
    fn look(&mut self) {
        let view = self.session.view(self.now.instant);
        drop(format!("{view:?}"));
        drop(self.session.prompts(0));
        let words = self.session.progress(self.now.instant).words;
        assert!(!words.contains(is_hidden), "{words:?}");
        for mode in MODES {
            drop(self.session.result(mode));
            let poll = Poll {
                cursor: Some(self.session.log().read_to()),
                max_events: 50,
                mode,
                options: PollOptions {
                    max_bytes: Some(FLOOR as u64),
                    ..PollOptions::default()
                },
            };
            let shown = self.session.poll(&poll, self.now).unwrap();
            let length = serde_json::to_string(&shown).unwrap().len();
            assert!(length <= FLOOR, "{length} bytes: {shown:?}");
        }
    }

    /// The next host continues the session from its record.
    fn restore(&self) {
        let Some(record) = self.session.record() else {
            return;
        };
        let text = serde_json::to_string(&record).unwrap();
        let read: SessionRecord = serde_json::from_str(&text).unwrap();
        let session = Session::restored("t", TIMEOUTS, read, self.now);
        assert_eq!(session.turns(), self.session.turns());
        assert!(session.log().next_id() > self.session.log().next_id());
    }
}

/// A question can be shown, and each offered decision answers it.
fn check_question(ask: &Ask) {
    let words = approval_text::question(ask);
    let hides = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
    assert!(!words.contains(hides), "{words:?}");
    for decision in action::choices(ask).iter().chain(&action::offered(ask)) {
        let answer = action::answer(ask, decision);
        assert!(answer.is_ok_and(|answer| answer.result.is_object()));
        let label = approval_text::choice(decision);
        assert!(!label.contains(hides), "{label:?}");
        let word = serde_json::to_value(decision).unwrap();
        assert!(!word.is_null() && word != Value::Bool(false));
    }
}
