use codex_protocol::codex::{Ask, CommandApproval, ThreadNotification};
use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::logic::action::{ActionId, Decision};

mod outcomes;
mod prompting;
mod properties;
mod questions;
mod time;

const TIMEOUTS: Timeouts = Timeouts {
    approval: Duration::from_secs(60),
    stall: Duration::from_secs(300),
};

/// An input of the session machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A prompt is accepted and not sent.
    Take,
    /// The last accepted prompt is sent.
    Send,
    /// A prompt is accepted and sent.
    Prompt,
    Accepted,
    Refused,
    Started,
    Delta,
    Message,
    Asked,
    Resolved,
    Accept,
    WrongDecision,
    TimePasses,
    Stall,
    Tidy,
    Interrupt,
    InterruptAgain,
    Abandon,
    CutOff,
    /// Codex reports a final error.
    FinalError,
    Completed,
    InterruptedByCodex,
    Failed,
    OtherTurnCompleted,
    Cancel,
    Lost,
}

const EVENTS: [Event; 26] = [
    Event::Take,
    Event::Send,
    Event::Prompt,
    Event::Accepted,
    Event::Refused,
    Event::Started,
    Event::Delta,
    Event::Message,
    Event::Asked,
    Event::Resolved,
    Event::Accept,
    Event::WrongDecision,
    Event::TimePasses,
    Event::Stall,
    Event::Tidy,
    Event::Interrupt,
    Event::InterruptAgain,
    Event::Abandon,
    Event::CutOff,
    Event::FinalError,
    Event::Completed,
    Event::InterruptedByCodex,
    Event::Failed,
    Event::OtherTurnCompleted,
    Event::Cancel,
    Event::Lost,
];

/// A session, the time, the unsent prompt, and the number of questions that Codex has
/// asked.
struct World {
    session: Session,
    now: Now,
    unsent: Option<u64>,
    asked: i64,
}

impl World {
    fn new() -> Self {
        let now = Now {
            instant: Instant::now(),
            wall: std::time::SystemTime::UNIX_EPOCH,
        };
        Self {
            session: Session::new("t", TIMEOUTS, now),
            now,
            unsent: None,
            asked: 0,
        }
    }

    fn after(events: &[Event]) -> Self {
        let mut world = Self::new();
        for event in events {
            world.apply(*event);
        }
        world
    }

    fn running() -> Self {
        Self::after(&[Event::Prompt, Event::Accepted, Event::Started])
    }

    fn current(&self) -> String {
        format!("turn-{}", self.session.turns())
    }

    fn wait(&mut self, duration: Duration) {
        self.now.instant += duration;
        self.now.wall += duration;
    }

    /// Passes a notification to the session, as on the wire.
    fn receive(&mut self, method: &str, params: Value) -> Vec<Effect> {
        let params = RawValue::from_string(params.to_string()).unwrap();
        let notification = ThreadNotification::read(method, &params).unwrap().unwrap();
        self.session.on_notification(notification, self.now)
    }

    fn receive_delta(&mut self, item: &str, text: &str) -> Vec<Effect> {
        let params = json!({"threadId": "t", "turnId": self.current(), "itemId": item,
            "delta": text});
        self.receive("item/agentMessage/delta", params)
    }

    fn receive_item(&mut self, method: &str, item: &Value) -> Vec<Effect> {
        let params = json!({"threadId": "t", "turnId": self.current(), "item": item});
        self.receive(method, params)
    }

    fn receive_message(&mut self, item: &str, text: &str) -> Vec<Effect> {
        let item = json!({"type": "agentMessage", "id": item, "text": text});
        self.receive_item("item/completed", &item)
    }

    fn receive_error(&mut self, message: &str, will_retry: bool) -> Vec<Effect> {
        let error = json!({"message": message, "codexErrorInfo": "other"});
        let params = json!({"threadId": "t", "turnId": self.current(), "error": error,
            "willRetry": will_retry});
        self.receive("error", params)
    }

    fn receive_end(&mut self, turn: &str, status: &str) -> Vec<Effect> {
        let turn = json!({"id": turn, "status": status, "items": []});
        self.receive("turn/completed", json!({"threadId": "t", "turn": turn}))
    }

    /// Codex asks, and the question is shown at once.
    fn ask(&mut self, ask: Ask) -> Vec<Effect> {
        let effects = self.ask_unseen(ask);
        self.session.show_questions(self.now);
        effects
    }

    fn ask_unseen(&mut self, ask: Ask) -> Vec<Effect> {
        self.ask_in("t", ask)
    }

    /// A thread asks, and nobody sees it yet.
    fn ask_in(&mut self, thread: &str, ask: Ask) -> Vec<Effect> {
        self.asked += 1;
        let asked = IncomingQuestion {
            id: ActionId(format!("req_{}", self.asked)),
            request: RequestId::Number(self.asked),
            thread: thread.to_owned(),
            ask,
            params: json!({"threadId": thread}),
        };
        self.session.on_question(asked, self.now)
    }

    fn events(&self) -> Vec<Value> {
        let events = self.session.log().page(0, usize::MAX).events;
        let shown = events
            .iter()
            .map(|event| event.shown(crate::logic::events::ResponseMode::Full));
        shown.collect()
    }

    /// The data of all events of one type.
    fn event_data(&self, kind: &str) -> Vec<Value> {
        let events = self.events().into_iter();
        let of_kind = events.filter(|event| event["type"] == kind);
        of_kind.map(|event| event["data"].clone()).collect()
    }

    /// Applies an event. Returns the effects and a note.
    fn apply(&mut self, event: Event) -> (Vec<Effect>, String) {
        let now = self.now;
        let id = self.current();
        let mut note = String::new();
        let effects = match event {
            Event::Take => {
                note = self.take();
                Vec::new()
            }
            Event::Send => {
                note = self.send();
                Vec::new()
            }
            Event::Prompt => {
                note = self.take();
                if note.is_empty() {
                    note = self.send();
                }
                Vec::new()
            }
            Event::Accepted => self.session.accepted(self.session.turns(), TurnId(id), now),
            Event::Refused => self.session.refused(self.session.turns(), now),
            Event::Started => {
                // Codex cannot begin a turn whose prompt it does not have.
                let id = match self.unsent {
                    Some(_) => format!("turn-{}", self.session.turns() - 1),
                    None => id,
                };
                let turn = json!({"id": id, "status": "inProgress", "items": []});
                self.receive("turn/started", json!({"threadId": "t", "turn": turn}))
            }
            Event::Delta => self.receive_delta("m", "par"),
            Event::Message => self.receive_message("m", "whole"),
            Event::Asked => self.ask(command(&format!("step-{}", self.asked + 1))),
            Event::Resolved => {
                let params = json!({"threadId": "t", "requestId": self.asked});
                self.receive("serverRequest/resolved", params)
            }
            Event::Accept => self.decide(&Decision::Accept, &mut note),
            Event::WrongDecision => {
                self.decide(&Decision::Submit(serde_json::Map::new()), &mut note)
            }
            Event::TimePasses => self.tick_after(TIMEOUTS.approval),
            Event::Stall => self.tick_after(TIMEOUTS.stall),
            Event::Tidy => {
                self.wait(IDLE_LIMIT);
                let (effects, outcome) = self.session.tidy(self.now);
                note = format!("{outcome:?}");
                effects
            }
            Event::Interrupt => self.session.interrupt(now),
            Event::InterruptAgain => self.session.interrupt_again(),
            Event::Abandon => self.session.abandon("does not end", now),
            Event::CutOff => self.session.cut_off("too long", now),
            Event::FinalError => self.receive_error("no model", false),
            Event::Completed => self.receive_end(&id, "completed"),
            Event::InterruptedByCodex => self.receive_end(&id, "interrupted"),
            Event::Failed => self.receive_end(&id, "failed"),
            Event::OtherTurnCompleted => self.receive_end("another", "completed"),
            Event::Cancel => self.session.cancel("not wanted", now),
            Event::Lost => {
                // There is no Codex for the effects.
                let _ = self.session.lose("killed", now);
                Vec::new()
            }
        };
        (effects, note)
    }

    fn take(&mut self) -> String {
        match self.session.prompt(Form::Text, self.now) {
            Ok(()) => {
                self.unsent = Some(self.session.turns());
                String::new()
            }
            Err(refusal) => format!("refused: {refusal:?}"),
        }
    }

    /// Sends the last accepted prompt, once.
    fn send(&mut self) -> String {
        let note = match self.unsent.take() {
            Some(number) if self.session.sending(number) => "",
            Some(_) => "not wanted",
            None => "nothing to send",
        };
        note.to_owned()
    }

    fn tick_after(&mut self, duration: Duration) -> Vec<Effect> {
        self.wait(duration);
        self.session.tick(self.now)
    }

    /// Answers the oldest open question.
    fn decide(&mut self, decision: &Decision, note: &mut String) -> Vec<Effect> {
        let open = self.session.actions().first();
        let id = open.map_or(ActionId("req_0".into()), |action| action.id.clone());
        let effects = self.session.decide(&id, decision, None, self.now);
        effects.unwrap_or_else(|refusal| {
            *note = format!("refused: {refusal:?}");
            Vec::new()
        })
    }
}

/// A question about a command that is this step.
fn command(item: &str) -> Ask {
    Ask::Command(CommandApproval {
        item_id: item.to_owned(),
        command: Some("touch x".into()),
        ..CommandApproval::default()
    })
}

fn effect_words(effect: &Effect) -> String {
    match effect {
        Effect::Answer { request, result } => format!("answer {request} with {result}"),
        Effect::Interrupt(turn) => format!("interrupt {}", turn.0),
        Effect::StopCommands => "stop its commands".to_owned(),
        Effect::Unsubscribe => "unsubscribe".to_owned(),
    }
}

fn ending_word(ending: &TurnEnding) -> &'static str {
    match ending {
        TurnEnding::Completed => "completed",
        TurnEnding::Interrupted => "interrupted",
        TurnEnding::Failed(_) => "failed",
        TurnEnding::Lost(_) => "lost",
    }
}

/// The types of the events that came after the first `before`.
fn written(world: &World, before: usize) -> Vec<String> {
    let events = world.events().into_iter().skip(before);
    let words = events.map(|event| match &event["data"]["method"] {
        Value::String(method) if method.starts_with("codex-mcp/") => method.clone(),
        _ => event["type"].as_str().unwrap().to_owned(),
    });
    words.collect()
}

#[test]
fn every_state_and_event() {
    use Event::{
        Accepted, Asked, Cancel, Completed, FinalError, Interrupt, Lost, Prompt, Started, Take,
    };
    let states: [(&str, &[Event]); 15] = [
        ("idle", &[]),
        ("taken", &[Take]),
        ("taken, waiting", &[Take, Asked]),
        ("prompted", &[Prompt]),
        ("accepted", &[Prompt, Accepted]),
        (
            "interrupt wanted before the start",
            &[Prompt, Accepted, Interrupt],
        ),
        ("running", &[Prompt, Accepted, Started]),
        ("waiting", &[Prompt, Accepted, Started, Asked]),
        (
            "after an error, not started",
            &[Prompt, Accepted, FinalError],
        ),
        ("after an error", &[Prompt, Accepted, Started, FinalError]),
        ("idle again", &[Prompt, Accepted, Started, Completed]),
        ("error", &[Prompt, Started, Lost]),
        ("taken after an error", &[Prompt, Started, Lost, Take]),
        (
            "cancelled, turn running",
            &[Prompt, Accepted, Started, Cancel],
        ),
        ("cancelled", &[Cancel]),
    ];
    let mut table = String::new();
    for (name, way) in states {
        table.push_str(&format!("{name}\n"));
        for event in EVENTS {
            table.push_str(&format!(
                "  {:<20}{}\n",
                format!("{event:?}"),
                cell(way, event)
            ));
        }
    }
    insta::assert_snapshot!(table);
}

/// The reaction to an event, in words: the state, the effects, the events written to the
/// log, and the outcome of a turn that ends.
fn cell(way: &[Event], event: Event) -> String {
    let mut world = World::after(way);
    let number = |world: &World| world.session.outcome().map(|(turn, _)| *turn);
    let (ended, events) = (number(&world), world.events().len());
    let (effects, note) = world.apply(event);
    let mut cell = vec![format!("{:?}", world.session.state())];
    cell.extend((!note.is_empty()).then_some(note));
    cell.extend(effects.iter().map(effect_words));
    let written = written(&world, events);
    cell.extend((!written.is_empty()).then(|| format!("tell {}", written.join(", "))));
    if number(&world) != ended {
        let outcome = world.session.outcome();
        cell.extend(
            outcome.map(|(turn, outcome)| {
                format!("outcome of {turn}: {}", ending_word(&outcome.ending))
            }),
        );
    }
    cell.join("; ")
}
