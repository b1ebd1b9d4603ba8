//! The state that another process needs to continue a session.
//!
//! ```text
//!   Session ── record ──► kept ──► restored ── the turn in Codex's history ──► Session
//! ```
//!
//! Codex stores the work of the last turn. The record identifies that turn and holds the state that
//! only we know. The steps of the turn are handled again as notifications, so the event log of a
//! restored session begins with them. The event numbers begin beyond those of the earlier log,
//! which tells readers that events are missing.

use std::time::{Duration, SystemTime};

use codex_protocol::codex::{TokenCount, TurnId};
use codex_protocol::rpc::RequestId;
use common::timestamp::Now;
use serde::{Deserialize, Serialize};

use super::prompts::Prompts;
use super::turn::{EarlierEnd, Form, Phase, RunningTurn, TurnOutcome};
use super::{Cancellation, Effect, Session, Timeouts};
use crate::logic::action::{Action, ActionId, Audience};
use crate::logic::events::EventLog;

/// The event log of a restored session begins at a multiple of this number. The record is not
/// updated for each piece of text, but fewer events than this are written between two updates.
const NUMBERS: u64 = 1_000_000;

/// The state of a session that Codex does not store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// When the session began.
    created: SystemTime,
    /// The number of accepted prompts.
    turns: u64,
    /// The turn that runs.
    running: Option<RunningRecord>,
    /// The last turn that has ended. While no turn runs, summaries for clients that have left do not
    /// count.
    ended: Option<EndedRecord>,
    /// The number of the next event.
    next_event: u64,
    /// Whether turns that another client of Codex begins are turns of the session.
    is_attached: bool,
    /// The open questions, also those that Codex has not repeated yet.
    questions: Vec<EarlierQuestion>,
    /// Its cancellation, whose turn has not ended.
    #[serde(default)]
    cancelled: Option<Cancellation>,
    /// See [`Session::title`].
    #[serde(default)]
    title: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RunningRecord {
    id: Option<TurnId>,
    /// The ID under which Codex ends it, see `RunningTurn::answered`.
    answered: Option<TurnId>,
    /// See `RunningTurn::is_foreign`.
    is_foreign: bool,
    form: Form,
    interrupt_wanted: bool,
    /// See [`Session::keep_questions_open`].
    approval_timeout: Option<Duration>,
    used_before: Option<TokenCount>,
    /// See [`Session::omit_end_alert`].
    #[serde(default)]
    is_unannounced: bool,
    /// The last turn that was requested, if this one is a summary for a client that has left. It has
    /// its end: a summary has few steps.
    #[serde(default)]
    requested: Option<EndedRecord>,
}

/// An open question of the process that has stored the record. One of an older version has stored
/// the first two fields alone, as a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EarlierQuestion {
    /// Codex's ID of the request.
    pub(super) request: RequestId,
    /// Our ID of it.
    pub(super) id: ActionId,
    /// When it is declined.
    #[serde(default)]
    pub(super) expires: Option<SystemTime>,
    /// Whether a client has seen the question. If not, the time limit of the question begins when a
    /// client sees it.
    #[serde(default)]
    pub(super) was_shown: bool,
}

impl EarlierQuestion {
    fn of(action: &Action) -> Self {
        Self {
            request: action.request.clone(),
            id: action.id.clone(),
            expires: Some(action.expires),
            was_shown: action.audience != Audience::Nobody,
        }
    }
}

/// A turn that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EndedRecord {
    id: TurnId,
    form: Form,
    /// The end of the turn. Absent while a requested turn runs: a record is stored at each step, and
    /// the text is long.
    end: Option<EarlierEnd>,
}

impl EndedRecord {
    /// The record of a turn; `None` if Codex's ID of it is unknown.
    pub(super) fn of(outcome: &TurnOutcome) -> Option<Self> {
        let end = Some(EarlierEnd::of(outcome));
        Some(Self {
            end,
            ..Self::without_end(outcome)?
        })
    }

    fn without_end(outcome: &TurnOutcome) -> Option<Self> {
        Some(Self {
            id: outcome.turn.clone()?,
            form: match outcome.structured {
                Some(_) => Form::Structured,
                None => Form::Text,
            },
            end: None,
        })
    }
}

/// The turn that a restored session waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// This one of Codex's history.
    Turn(TurnId),
    /// This one, which another client of Codex has begun meanwhile.
    Foreign(TurnId),
    /// A turn that Codex does not know: its prompt was not sent, or Codex did not receive it.
    Lost,
    /// None.
    None,
}

/// A turn of Codex's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTurn {
    /// Its ID.
    pub id: TurnId,
    /// Whether the turn runs, as far as Codex's list tells. Codex lists the beginning of a review
    /// as a separate turn, which seems to run even when the review has ended (0.153.4 and 0.169.0).
    pub runs: bool,
    /// Whether it is a review, and not the beginning of one.
    pub is_review: bool,
}

impl SessionRecord {
    /// The turn that a session restored from this record waits for. `listed` are the last turns of
    /// Codex's history, newest first.
    #[must_use]
    pub fn expects(&self, listed: &[ListedTurn]) -> Expected {
        let ended = self.ended.as_ref().map(|turn| &turn.id);
        let wanted = match &self.running {
            Some(running) => running.answered.as_ref(),
            None => ended,
        };
        let is_of_review = listed.get(1).is_some_and(|turn| turn.is_review);
        let foreign = listed.first().filter(|last| {
            let is_new = last.runs && !is_of_review && Some(&last.id) != ended;
            self.is_attached && self.running.is_none() && is_new
        });
        if let Some(turn) = foreign {
            return Expected::Foreign(turn.id.clone());
        }
        let has_ended = |turn: &&ListedTurn| !turn.runs && Some(&turn.id) == wanted;
        if let Some(turn) = listed.iter().find(has_ended) {
            return Expected::Turn(turn.id.clone());
        }
        match (&self.running, listed.first()) {
            (Some(RunningRecord { id: Some(id), .. }), Some(last)) if *id == last.id => {
                Expected::Turn(last.id.clone())
            }
            // Codex has begun the turn, and its response was lost. A turn that has already ended
            // may be older than the session.
            (Some(RunningRecord { id: None, .. }), Some(last))
                if last.runs && ended != Some(&last.id) =>
            {
                Expected::Turn(last.id.clone())
            }
            (Some(_), _) => Expected::Lost,
            (None, _) => Expected::None,
        }
    }

    /// The number of accepted prompts.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// When the session began.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        self.created
    }

    /// The turn that ran, if Codex had told its ID.
    #[must_use]
    pub fn running_turn(&self) -> Option<&TurnId> {
        self.running.as_ref()?.id.as_ref()
    }

    /// See [`Session::is_attached`].
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Whether a turn ran.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a turn was running that nobody had asked to interrupt.
    #[must_use]
    pub fn is_uninterrupted(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|turn| !turn.interrupt_wanted)
    }
}

impl Session {
    /// The record to keep of this session; `None` if it is over. A cancelled session is over when
    /// its turn has ended: until then, Codex uses its thread.
    #[must_use]
    pub fn record(&self) -> Option<SessionRecord> {
        if self.cancelled.is_some() && self.turn.is_none() {
            return None;
        }
        let last = self.outcome.as_ref().map(|(_, outcome)| outcome);
        let requested = || {
            let before = self.before_summary.clone();
            before.or_else(|| EndedRecord::of(last?))
        };
        let running = self.turn.as_ref().map(|turn| RunningRecord {
            id: turn.id.clone(),
            answered: turn.answered.clone(),
            is_foreign: turn.is_foreign,
            form: turn.form(),
            interrupt_wanted: turn.interrupt_wanted,
            approval_timeout: turn.approval_timeout,
            used_before: turn.used_before(),
            is_unannounced: turn.is_unannounced,
            requested: match turn.is_unannounced {
                true => requested(),
                false => None,
            },
        });
        let ended = match &self.turn {
            Some(_) => last.and_then(|outcome| EndedRecord::without_end(outcome)),
            None => requested(),
        };
        let unrepeated = self.asked_before.iter().cloned();
        let questions = unrepeated.chain(self.actions.iter().map(EarlierQuestion::of));
        Some(SessionRecord {
            created: self.created.wall,
            turns: self.turns,
            running,
            ended,
            next_event: self.log.next_id(),
            is_attached: self.is_attached,
            questions: questions.collect(),
            cancelled: self.cancelled.clone(),
            title: self.title().map(str::to_owned),
        })
    }

    /// Restores the session of this record. It has a turn until notifications, [`lose`](Self::lose)
    /// or [`has_no_turn`](Self::has_no_turn) end the turn.
    #[must_use]
    pub fn restored(thread: &str, timeouts: Timeouts, record: SessionRecord, now: Now) -> Self {
        let SessionRecord {
            created,
            turns,
            running,
            ended,
            next_event,
            is_attached,
            questions,
            cancelled,
            title,
        } = record;
        let mut session = Self::new(thread, timeouts, now);
        let first = (next_event / NUMBERS + 1).saturating_mul(NUMBERS);
        session.log = EventLog::starting_at(first);
        let age = now.wall.duration_since(created).unwrap_or_default();
        session.created = Now {
            instant: now.instant.checked_sub(age).unwrap_or(now.instant),
            wall: created,
        };
        session.turns = turns;
        session.is_attached = is_attached;
        session.asked_before = questions;
        session.cancelled = cancelled;
        session.prompts = Prompts::titled(title);
        let form = match (&running, &ended) {
            (Some(turn), _) => Some(turn.form),
            (None, Some(turn)) => Some(turn.form),
            (None, None) => None,
        };
        session.turn = form.map(|form| {
            let mut turn = RunningTurn::new(form, None, first);
            turn.phase = Phase::Sent;
            match running {
                Some(running) => {
                    turn.answered = running.answered;
                    turn.is_foreign = running.is_foreign;
                    turn.interrupt_wanted = running.interrupt_wanted;
                    turn.approval_timeout = running.approval_timeout;
                    turn.is_unannounced = running.is_unannounced;
                    turn.set_used_before(running.used_before);
                    session.before_summary = running.requested;
                }
                None => {
                    turn.is_unannounced = true;
                    turn.earlier_end = ended.and_then(|ended| Some((ended.id, ended.end?)));
                }
            }
            turn
        });
        if session.turn.is_some() {
            session.activity.takeover_begins(now.instant);
        }
        session
    }

    /// Ends the wait of a restored session for a turn that is not in Codex's history. The turn
    /// ended as the earlier host has recorded.
    pub fn has_no_turn(&mut self, now: Now) -> Vec<Effect> {
        let Some(mut turn) = self.turn.take() else {
            return Vec::new();
        };
        if let Some((id, end)) = &mut turn.earlier_end {
            let (id, ending) = (id.clone(), end.ending.clone());
            let text = std::mem::take(&mut end.text);
            turn.message_completed("", text);
            turn.id = Some(id);
            self.conclude(turn, ending, None, now);
        }
        self.after_turn(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use codex_protocol::codex::ThreadNotification;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::super::{Form, State, TurnEnding};
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        approval: Duration::from_secs(60),
        stall: Duration::from_secs(300),
    };

    fn now() -> Now {
        Now {
            instant: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    fn hear(session: &mut Session, method: &str, params: &serde_json::Value) -> Vec<Effect> {
        let params = to_raw_value(params).unwrap();
        let notification = ThreadNotification::read(method, &params).unwrap().unwrap();
        session.on_notification(notification, now())
    }

    fn turn(status: &str) -> serde_json::Value {
        json!({ "threadId": "t", "turn": { "id": "turn-1", "status": status, "items": [] } })
    }

    fn id(text: &str) -> TurnId {
        TurnId(text.to_owned())
    }

    fn prompted() -> Session {
        let mut session = Session::new("t", TIMEOUTS, now());
        session.prompt(Form::Text, now()).unwrap();
        session
    }

    fn restored(session: &Session) -> Session {
        let record = serde_json::to_string(&session.record().unwrap()).unwrap();
        let record = serde_json::from_str(&record).unwrap();
        Session::restored("t", TIMEOUTS, record, now())
    }

    const RUNS: bool = true;
    const ENDED: bool = false;

    fn listed(id: &str, runs: bool) -> ListedTurn {
        let id = TurnId(id.to_owned());
        let is_review = false;
        ListedTurn {
            id,
            runs,
            is_review,
        }
    }

    fn expected(session: &Session, last: &str, runs: bool) -> Expected {
        session.record().unwrap().expects(&[listed(last, runs)])
    }

    fn it_is(text: &str) -> Expected {
        Expected::Turn(id(text))
    }

    #[test]
    fn turn_whose_beginning_was_not_reported_is_found() {
        let mut session = prompted();
        assert!(session.sending(1));
        assert_eq!(session.record().unwrap().expects(&[]), Expected::Lost);
        assert_eq!(expected(&session, "turn-1", RUNS), it_is("turn-1"));
        // It may be one of the thread's past.
        assert_eq!(expected(&session, "turn-1", ENDED), Expected::Lost);
        let _ = session.accepted(1, id("turn-1"), now());
        assert_eq!(expected(&session, "turn-1", ENDED), it_is("turn-1"));
        assert_eq!(expected(&session, "turn-2", RUNS), Expected::Lost);
    }

    #[test]
    fn earlier_turn_is_not_taken_for_the_next_one() {
        let mut session = prompted();
        assert!(session.sending(1));
        hear(&mut session, "turn/started", &turn("inProgress"));
        let _ = session.accepted(1, id("turn-1"), now());
        hear(&mut session, "turn/completed", &turn("completed"));
        assert_eq!(expected(&session, "turn-1", ENDED), it_is("turn-1"));
        assert_eq!(expected(&session, "turn-2", ENDED), Expected::None);
        session.prompt(Form::Text, now()).unwrap();
        assert!(session.sending(2));
        assert_eq!(expected(&session, "turn-1", ENDED), Expected::Lost);
        assert_eq!(expected(&session, "turn-2", RUNS), it_is("turn-2"));
    }

    /// Codex answers with one ID, and reports the start of a turn with another.
    #[test]
    fn review_is_found_whether_or_not_it_has_ended() {
        let mut session = Session::new("t", TIMEOUTS, now());
        session.prompt(Form::Review, now()).unwrap();
        assert!(session.sending(1));
        let _ = session.accepted(1, id("review"), now());
        hear(&mut session, "turn/started", &turn("inProgress"));
        assert_eq!(expected(&session, "turn-1", RUNS), it_is("turn-1"));
        let history = [listed("turn-1", RUNS), listed("review", ENDED)];
        let record = session.record().unwrap();
        assert_eq!(record.expects(&history), it_is("review"));
        let end = json!({ "threadId": "t",
            "turn": { "id": "review", "status": "completed", "items": [] } });
        hear(&mut session, "turn/completed", &end);
        assert_eq!(session.state(), State::Idle);
        let record = session.record().unwrap();
        assert_eq!(record.expects(&history), it_is("review"));
        assert_eq!(expected(&session, "turn-1", RUNS), Expected::None);
    }

    #[test]
    fn turn_ends_in_the_restored_session() {
        let mut session = prompted();
        assert!(session.sending(1));
        let _ = session.accepted(1, id("turn-1"), now());
        let mut again = restored(&session);
        assert_eq!(again.state(), State::Running);
        assert_eq!(again.created.wall, session.created.wall);
        assert_eq!(again.log().next_id(), NUMBERS);
        hear(&mut again, "turn/started", &turn("inProgress"));
        hear(&mut again, "turn/completed", &turn("completed"));
        assert_eq!(again.state(), State::Idle);
        let (number, outcome) = again.outcome().unwrap();
        assert_eq!((*number, &outcome.ending), (1, &TurnEnding::Completed));
    }

    #[test]
    fn end_of_a_turn_is_announced_once() {
        let mut session = prompted();
        assert!(session.sending(1));
        hear(&mut session, "turn/started", &turn("inProgress"));
        let _ = session.accepted(1, id("turn-1"), now());
        let mut running = restored(&session);
        session.omit_end_alert();
        let mut unannounced = restored(&session);
        hear(&mut session, "turn/completed", &turn("completed"));
        let mut ended = restored(&session);
        for (session, alerts) in [(&mut running, 1), (&mut unannounced, 0), (&mut ended, 0)] {
            hear(session, "turn/started", &turn("inProgress"));
            hear(session, "turn/completed", &turn("completed"));
            assert_eq!(session.state(), State::Idle);
            assert_eq!(session.take_alerts().len(), alerts);
        }
        let at = |session: &Session| session.outcome().unwrap().1.at;
        assert_eq!(at(&ended), at(&session));
        assert_ne!(at(&running), at(&session));
    }

    /// Each client that leaves has its sessions summed up. The host may be killed meanwhile.
    #[test]
    fn summary_is_not_the_last_turn_of_the_restored_session() {
        let history = [listed("turn-3", ENDED), listed("turn-1", ENDED)];
        for is_killed in [false, true] {
            let mut session = Session::new("t", TIMEOUTS, now());
            for number in 1..=4 {
                session.prompt(Form::Text, now()).unwrap();
                if matches!(number, 2 | 3) {
                    session.omit_end_alert();
                }
                let name = format!("turn-{number}");
                assert!(session.sending(number));
                let _ = session.accepted(number, id(&name), now());
                let named = |status: &str| {
                    let turn = json!({ "id": name, "status": status, "items": [] });
                    json!({ "threadId": "t", "turn": turn })
                };
                hear(&mut session, "turn/started", &named("inProgress"));
                let content = json!([{ "type": "text", "text": format!("prompt {number}") }]);
                let prompt = json!({ "threadId": "t", "turnId": name,
                    "item": { "type": "userMessage", "id": name, "content": content } });
                hear(&mut session, "item/completed", &prompt);
                if is_killed {
                    session = restored(&session);
                    hear(&mut session, "turn/started", &named("inProgress"));
                }
                let answer = json!({ "threadId": "t", "turnId": name,
                    "item": { "type": "agentMessage", "id": "m", "text": name } });
                hear(&mut session, "item/completed", &answer);
                hear(&mut session, "turn/completed", &named("completed"));
                let record = session.record().unwrap();
                let (expected, requested) = match number {
                    4 => (Expected::None, "turn-4"),
                    _ => (it_is("turn-1"), "turn-1"),
                };
                assert_eq!(record.expects(&history), expected, "{number}");
                let mut again = restored(&session);
                assert_eq!(again.title(), Some("prompt 1"));
                assert_eq!(again.turns(), number);
                assert_eq!(again.has_no_turn(now()), []);
                assert_eq!(again.outcome().unwrap().1.text, requested);
            }
        }
    }

    /// Codex does not list the turn of a thread that it has unloaded.
    #[test]
    fn result_is_kept_where_codex_has_none() {
        for status in ["completed", "failed"] {
            let mut session = prompted();
            assert!(session.sending(1));
            let _ = session.accepted(1, id("turn-1"), now());
            let text = "x".repeat(100_000);
            let item = json!({ "threadId": "t", "turnId": "turn-1",
                "item": { "type": "agentMessage", "id": "m", "text": text } });
            hear(&mut session, "item/completed", &item);
            let mut end = turn(status);
            end["turn"]["error"] = json!({ "message": "why" });
            hear(&mut session, "turn/completed", &end);
            let mut unloaded = restored(&session);
            assert_eq!(unloaded.has_no_turn(now()), []);
            assert_eq!(unloaded.state(), State::Idle);
            // Codex dies before the session is restored.
            let mut dead = restored(&session);
            assert_eq!(dead.lose("Codex died", now()), []);
            assert_eq!(dead.state(), State::Error);
            for mut again in [unloaded, dead] {
                assert_eq!(again.take_alerts(), []);
                let (before, after) = (session.outcome().unwrap(), again.outcome().unwrap());
                assert_eq!(before.0, after.0);
                assert_eq!(before.1.ending, after.1.ending);
                assert_eq!((&before.1.turn, before.1.at), (&after.1.turn, after.1.at));
                let kept = &after.1.text;
                assert!(kept.len() > 10_000 && kept.len() < 20_000);
                assert!(kept.starts_with("xxx"));
            }
            // Stored at each step of the next turn, so without the text.
            session.prompt(Form::Text, now()).unwrap();
            let record = session.record().unwrap();
            assert_eq!(record.ended.unwrap().end, None);
        }
    }

    /// It was cancelled before it was restored.
    #[test]
    fn cancelled_session_releases_its_thread_when_it_waits_for_no_turn() {
        let released = [Effect::StopCommands, Effect::Unsubscribe];
        let mut session = prompted();
        assert!(session.sending(1));
        let _ = session.accepted(1, id("turn-1"), now());
        let mut running = restored(&session);
        assert_eq!(running.cancel("test", now()), []);
        assert_eq!(running.lose("unknown turn", now()), released);
        hear(&mut session, "turn/started", &turn("inProgress"));
        hear(&mut session, "turn/completed", &turn("completed"));
        let mut ended = restored(&session);
        assert_eq!(ended.cancel("test", now()), []);
        assert_eq!(ended.has_no_turn(now()), released);
        assert_eq!(ended.has_no_turn(now()), []);
    }

    #[test]
    fn question_without_a_deadline_is_read() {
        let read: EarlierQuestion = serde_json::from_str(r#"[1, "req_1"]"#).unwrap();
        assert_eq!((&*read.id.0, read.expires), ("req_1", None));
    }

    #[test]
    fn interrupt_is_repeated() {
        let mut session = prompted();
        assert!(session.sending(1));
        hear(&mut session, "turn/started", &turn("inProgress"));
        assert_eq!(session.interrupt(now()).len(), 1);
        let mut again = restored(&session);
        let effects = hear(&mut again, "turn/started", &turn("inProgress"));
        assert_eq!(effects, [Effect::Interrupt(id("turn-1"))]);
    }

    /// Codex names a review differently at its end.
    #[test]
    fn review_begun_elsewhere_ends() {
        let mut session = Session::new("t", TIMEOUTS, now());
        session.attach();
        hear(&mut session, "turn/started", &turn("inProgress"));
        let mut session = restored(&session);
        hear(&mut session, "turn/started", &turn("inProgress"));
        let end = json!({ "threadId": "t",
            "turn": { "id": "review", "status": "completed", "items": [] } });
        hear(&mut session, "turn/completed", &end);
        assert_eq!((session.state(), session.turns()), (State::Idle, 1));
    }

    #[test]
    fn turn_begun_elsewhere_without_a_host_is_found() {
        let mut session = prompted();
        assert!(session.sending(1));
        hear(&mut session, "turn/started", &turn("inProgress"));
        let _ = session.accepted(1, id("turn-1"), now());
        hear(&mut session, "turn/completed", &turn("completed"));
        let history = [listed("turn-2", RUNS), listed("turn-1", ENDED)];
        let record = session.record().unwrap();
        assert_eq!(record.expects(&history), it_is("turn-1"));
        session.attach();
        let record = session.record().unwrap();
        assert_eq!(record.expects(&history), Expected::Foreign(id("turn-2")));
        let review = ListedTurn {
            is_review: true,
            ..listed("turn-1", ENDED)
        };
        let history = [listed("turn-2", RUNS), review];
        assert_eq!(record.expects(&history), it_is("turn-1"));
    }

    #[test]
    fn turn_begun_elsewhere_counts_once_attached() {
        let mut session = Session::new("t", TIMEOUTS, now());
        hear(&mut session, "turn/started", &turn("inProgress"));
        assert_eq!((session.state(), session.turns()), (State::Idle, 0));
        session.attach();
        let mut session = restored(&session);
        hear(&mut session, "turn/started", &turn("inProgress"));
        assert_eq!((session.state(), session.turns()), (State::Running, 1));
        hear(&mut session, "turn/completed", &turn("completed"));
        assert_eq!((session.state(), session.turns()), (State::Idle, 1));
        // Codex may report the start of a turn again.
        hear(&mut session, "turn/started", &turn("inProgress"));
        assert_eq!((session.state(), session.turns()), (State::Idle, 1));
    }

    #[test]
    fn cancelled_session_is_kept_until_its_turn_ends() {
        let mut session = prompted();
        assert!(session.sending(1));
        hear(&mut session, "turn/started", &turn("inProgress"));
        assert_eq!(session.cancel("test", now()).len(), 1);
        let mut again = restored(&session);
        assert_eq!(again.state(), State::Cancelled);
        let effects = hear(&mut again, "turn/started", &turn("inProgress"));
        assert_eq!(effects, [Effect::Interrupt(id("turn-1"))]);
        for mut cancelled in [session, again] {
            let effects = hear(&mut cancelled, "turn/completed", &turn("interrupted"));
            assert_eq!(effects, [Effect::StopCommands, Effect::Unsubscribe]);
            assert_eq!(cancelled.record(), None);
        }
    }

    #[test]
    fn cancelled_session_is_not_kept() {
        let mut session = prompted();
        let _ = session.cancel("test", now());
        assert_eq!(session.record(), None);
    }
}
