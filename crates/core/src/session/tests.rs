use std::borrow::Cow;

use codex_mcp_protocol::codex::{
    AgentMessageDelta, CommandApproval, FileChangeApproval, FileChangeKind,
};
use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(60);

fn turn(id: &str, status: TurnStatus) -> Turn {
    Turn {
        id: TurnId(id.into()),
        status,
        error: None,
    }
}

fn delta<'a>(item: &'a str, text: &'a str) -> Notification<'a> {
    Notification::AgentMessageDelta(AgentMessageDelta {
        item_id: Cow::Borrowed(item),
        delta: Cow::Borrowed(text),
    })
}

fn message(item: &str, text: &str) -> Notification<'static> {
    Notification::ItemCompleted(Item::AgentMessage {
        id: item.into(),
        text: text.into(),
    })
}

fn command() -> Ask {
    Ask::Command(CommandApproval {
        command: Some("touch x".into()),
        ..CommandApproval::default()
    })
}

/// What can happen to a session; time is counted in seconds.
#[derive(Debug, Clone, Copy)]
enum Event {
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
    Interrupt,
    InterruptAgain,
    Abandon,
    CutOff,
    Completed,
    InterruptedByCodex,
    Failed,
    OtherTurnCompleted,
    Lost,
}

const EVENTS: [Event; 20] = [
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
    Event::Interrupt,
    Event::InterruptAgain,
    Event::Abandon,
    Event::CutOff,
    Event::Completed,
    Event::InterruptedByCodex,
    Event::Failed,
    Event::OtherTurnCompleted,
    Event::Lost,
];

struct World {
    session: Session,
    now: Instant,
    asked: i64,
}

impl World {
    fn new() -> Self {
        Self {
            session: Session::new(TIMEOUT),
            now: Instant::now(),
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

    fn current(&self) -> String {
        format!("turn-{}", self.session.turns())
    }

    fn apply(&mut self, event: Event) -> (Vec<Effect>, String) {
        let id = self.current();
        let session = &mut self.session;
        let mut note = String::new();
        let effects = match event {
            Event::Prompt => {
                if let Err(refusal) = session.prompt() {
                    note = format!("refused: {refusal:?}");
                }
                Vec::new()
            }
            Event::Accepted => session.accepted(TurnId(id)),
            Event::Refused => session.refused(),
            Event::Started => {
                session.heard(Notification::TurnStarted(turn(&id, TurnStatus::InProgress)))
            }
            Event::Delta => session.heard(delta("m", "par")),
            Event::Message => session.heard(message("m", "whole")),
            Event::Asked => {
                self.asked += 1;
                session.asked(RequestId::Number(self.asked), command(), self.now)
            }
            Event::Resolved => {
                session.heard(Notification::RequestResolved(RequestId::Number(self.asked)))
            }
            Event::Accept | Event::WrongDecision => {
                let decision = match event {
                    Event::Accept => Decision::Accept,
                    _ => Decision::Submit(serde_json::Map::new()),
                };
                let open = session.actions().first().map(|action| action.id.clone());
                let id = open.unwrap_or(ActionId("req_0".into()));
                session.decide(&id, &decision).unwrap_or_else(|refusal| {
                    note = format!("refused: {refusal:?}");
                    Vec::new()
                })
            }
            Event::TimePasses => {
                self.now += TIMEOUT;
                session.tick(self.now)
            }
            Event::Interrupt => session.interrupt(),
            Event::InterruptAgain => session.interrupt_again(),
            Event::Abandon => session.abandon("does not end"),
            Event::CutOff => session.cut_off("too long"),
            Event::Completed => session.heard(Notification::TurnCompleted(turn(
                &id,
                TurnStatus::Completed,
            ))),
            Event::InterruptedByCodex => session.heard(Notification::TurnCompleted(turn(
                &id,
                TurnStatus::Interrupted,
            ))),
            Event::Failed => {
                session.heard(Notification::TurnCompleted(turn(&id, TurnStatus::Failed)))
            }
            Event::OtherTurnCompleted => session.heard(Notification::TurnCompleted(turn(
                "another",
                TurnStatus::Completed,
            ))),
            Event::Lost => {
                session.lose("killed");
                Vec::new()
            }
        };
        (effects, note)
    }
}

fn effect_words(effect: &Effect) -> String {
    match effect {
        Effect::Answer { request, result } => format!("answer {request} with {result}"),
        Effect::Interrupt(turn) => format!("interrupt {}", turn.0),
        Effect::StopCommands => "stop its commands".to_owned(),
    }
}

fn ending_word(ending: &Ending) -> &'static str {
    match ending {
        Ending::Completed => "completed",
        Ending::Interrupted => "interrupted",
        Ending::Failed(_) => "failed",
        Ending::Lost(_) => "lost",
    }
}

#[test]
fn every_state_and_event() {
    use Event::{Accepted, Asked, Interrupt, Lost, Prompt, Started};
    let states: [(&str, &[Event]); 7] = [
        ("idle", &[]),
        ("prompted", &[Prompt]),
        ("accepted", &[Prompt, Accepted]),
        (
            "interrupt wanted before the start",
            &[Prompt, Accepted, Interrupt],
        ),
        ("running", &[Prompt, Accepted, Started]),
        ("waiting", &[Prompt, Accepted, Started, Asked]),
        ("lost", &[Prompt, Started, Lost]),
    ];
    let mut table = String::new();
    for (name, way) in states {
        table.push_str(&format!("{name}\n"));
        for event in EVENTS {
            let mut world = World::after(way);
            let (effects, note) = world.apply(event);
            let mut cell = vec![format!("{:?}", world.session.state())];
            cell.extend(effects.iter().map(effect_words));
            cell.extend((!note.is_empty()).then_some(note));
            cell.extend(world.session.outcome().map(|(turn, outcome)| {
                format!("outcome of {turn}: {}", ending_word(&outcome.ending))
            }));
            table.push_str(&format!(
                "  {:<20}{}\n",
                format!("{event:?}"),
                cell.join("; ")
            ));
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn the_outcome_of_a_completed_turn_is_its_last_whole_message() {
    let mut world = World::after(&[Event::Prompt, Event::Started]);
    world.session.heard(message("a", "first"));
    world.session.heard(delta("b", "sec"));
    assert_eq!(world.session.partial_text(), "first\n\nsec");
    world.session.heard(message("b", "second"));
    world.apply(Event::Completed);
    let outcome = Outcome {
        ending: Ending::Completed,
        text: "second".into(),
    };
    assert_eq!(world.session.outcome(), Some(&(1, Arc::new(outcome))));
}

#[test]
fn the_outcome_of_an_interrupted_turn_is_all_that_was_said() {
    let mut world = World::after(&[Event::Prompt, Event::Started]);
    world.session.heard(message("a", "first"));
    world.session.heard(delta("b", "sec"));
    world.apply(Event::InterruptedByCodex);
    assert_eq!(world.session.outcome().unwrap().1.text, "first\n\nsec");
}

#[test]
fn a_turn_that_ends_before_its_prompt_is_answered_stays_ended() {
    let mut world = World::after(&[Event::Prompt, Event::Started, Event::Completed]);
    world.apply(Event::Accepted);
    assert_eq!(world.session.state(), State::Idle);
    assert!(world.session.outcome().is_some());
}

#[test]
fn an_end_that_comes_before_the_answer_to_the_prompt_counts_for_its_own_turn_only() {
    let mut world = World::after(&[
        Event::Prompt,
        Event::Message,
        Event::Completed,
        Event::Accepted,
    ]);
    assert_eq!(world.session.outcome().unwrap().1.text, "whole");
    for event in [Event::Prompt, Event::OtherTurnCompleted, Event::Accepted] {
        world.apply(event);
    }
    assert_eq!(world.session.state(), State::Running);
}

#[test]
fn a_question_about_files_says_which() {
    let mut world = World::after(&[Event::Prompt, Event::Started]);
    let change = FileChange {
        path: "a.txt".into(),
        kind: FileChangeKind::Add,
        diff: "hello".into(),
    };
    world
        .session
        .heard(Notification::ItemStarted(Item::FileChange {
            id: "c".into(),
            changes: vec![change.clone()],
        }));
    let ask = |item: &str| {
        Ask::FileChange(FileChangeApproval {
            item_id: item.into(),
            ..FileChangeApproval::default()
        })
    };
    for (item, expected) in [("c", vec![change]), ("another", Vec::new())] {
        world
            .session
            .asked(RequestId::Text(item.into()), ask(item), world.now);
        let Ask::FileChange(asked) = &world.session.actions().last().unwrap().ask else {
            panic!("about files");
        };
        assert_eq!(asked.changes, expected);
    }
}

#[test]
fn partial_text_is_bounded() {
    let mut world = World::after(&[Event::Prompt, Event::Started]);
    let chunk = "x".repeat(100_000);
    for _ in 0..20 {
        world.session.heard(delta("m", &chunk));
    }
    let partial = world.session.partial_text();
    assert!(partial.len() < PARTIAL_TEXT_LIMIT + 100);
    assert!(partial.ends_with("[… cut here]"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: a question is answered at most once,
    /// an open one is never forgotten while its turn runs, and a turn is
    /// interrupted at most once unless that is asked for.
    #[test]
    fn questions_and_interrupts_are_never_doubled_or_lost(
        events in proptest::collection::vec(proptest::sample::select(EVENTS.to_vec()), 0..60),
    ) {
        let mut world = World::new();
        let mut answered = Vec::new();
        let mut interrupted = Vec::new();
        let mut insisted = false;
        for event in events {
            let open_before: Vec<_> =
                world.session.actions().iter().map(|action| action.request.clone()).collect();
            let (effects, _) = world.apply(event);
            for effect in effects {
                match effect {
                    Effect::Answer { request, .. } => {
                        prop_assert!(!answered.contains(&request));
                        answered.push(request);
                    }
                    Effect::StopCommands => {}
                    Effect::Interrupt(turn) => {
                        insisted |= matches!(event, Event::InterruptAgain);
                        prop_assert!(insisted || !interrupted.contains(&turn));
                        interrupted.push(turn);
                    }
                }
            }
            let open: Vec<_> =
                world.session.actions().iter().map(|action| action.request.clone()).collect();
            for request in open_before {
                let resolved = matches!(event, Event::Resolved);
                let gone = open.contains(&request) || answered.contains(&request) || resolved;
                let turn_over = matches!(world.session.state(), State::Idle | State::Lost);
                prop_assert!(gone || turn_over);
            }
            let waiting = world.session.state() == State::WaitingApproval;
            prop_assert_eq!(waiting, !open.is_empty());
        }
    }
}
