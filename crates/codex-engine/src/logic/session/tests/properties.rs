//! Properties that hold for any sequence of events.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::logic::events::ResponseMode;

/// A session and all effects that it has returned.
struct Observed {
    world: World,
    answered: Vec<RequestId>,
    interrupted: Vec<TurnId>,
    /// Whether a second interrupt was requested, which may be superfluous.
    insisted: bool,
    unsubscribed: usize,
    /// Whether Codex exited before the thread could be released.
    went_down: bool,
}

impl Observed {
    fn open(&self) -> Vec<RequestId> {
        let actions = self.world.session.actions().iter();
        actions.map(|action| action.request.clone()).collect()
    }

    fn apply(&mut self, event: Event) -> Result<(), TestCaseError> {
        let before = self.open();
        self.went_down |= event == Event::Lost
            && self.world.session.has_turn()
            && self.world.session.state() == State::Cancelled;
        let (effects, _) = self.world.apply(event);
        for effect in effects {
            match effect {
                Effect::Answer { request, .. } => {
                    prop_assert!(!self.answered.contains(&request));
                    self.answered.push(request);
                }
                Effect::StopCommands => {}
                Effect::Unsubscribe => self.unsubscribed += 1,
                Effect::Interrupt(turn) => {
                    self.insisted |= event == Event::InterruptAgain;
                    prop_assert!(self.insisted || !self.interrupted.contains(&turn));
                    self.interrupted.push(turn);
                }
            }
        }
        self.check_questions(&before, event)?;
        self.check_log()?;
        self.check_the_end()
    }

    /// A question is open, or answered, or of no interest to Codex any more.
    fn check_questions(&self, before: &[RequestId], event: Event) -> Result<(), TestCaseError> {
        let open = self.open();
        for request in before {
            let answered = self.answered.contains(request);
            prop_assert!(!(answered && open.contains(request)));
            let gone = !answered && !open.contains(request);
            let turn_over = !self.world.session.has_turn();
            let reason = matches!(event, Event::Resolved | Event::Lost);
            prop_assert!(!gone || turn_over || reason);
        }
        // A question of Codex is opened, or answered at once.
        if event == Event::Asked {
            let asked = RequestId::Number(self.world.asked);
            prop_assert!(open.contains(&asked) != self.answered.contains(&asked));
        }
        let waiting = self.world.session.state() == State::WaitingApproval;
        prop_assert_eq!(waiting, !open.is_empty());
        Ok(())
    }

    /// Each question in the log that is not open has one answer there, after it.
    fn check_log(&self) -> Result<(), TestCaseError> {
        let mut answers: HashMap<String, usize> = HashMap::new();
        for event in self.world.events() {
            let request = || event["data"]["requestId"].as_str().unwrap().to_owned();
            match event["type"].as_str().unwrap() {
                "approval_request" => prop_assert_eq!(answers.insert(request(), 0), None),
                "approval_result" => *answers.get_mut(&request()).unwrap() += 1,
                _ => {}
            }
        }
        let open = self.world.session.actions().iter();
        let open: Vec<&str> = open.map(|action| action.id.0.as_str()).collect();
        for (request, count) in answers {
            prop_assert_eq!(count, usize::from(!open.contains(&request.as_str())));
        }
        Ok(())
    }

    /// A cancelled session stays cancelled, and releases its thread when no turn is left.
    fn check_the_end(&mut self) -> Result<(), TestCaseError> {
        let session = &mut self.world.session;
        let cancelled = session.state() == State::Cancelled;
        let over = cancelled && !session.has_turn();
        prop_assert_eq!(self.unsubscribed, usize::from(over && !self.went_down));
        if cancelled {
            let refusal = session.prompt(Form::Text, self.world.now);
            prop_assert_eq!(refusal, Err(PromptRefused::Cancelled));
        }
        Ok(())
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let any = proptest::sample::select(EVENTS.to_vec());
    // A uniform choice would rarely lead to questions.
    let usual = proptest::sample::select(vec![
        Event::Take,
        Event::Send,
        Event::Prompt,
        Event::Accepted,
        Event::Started,
        Event::Asked,
        Event::Asked,
        Event::Accept,
        Event::Completed,
    ]);
    proptest::collection::vec(prop_oneof![any, usual], 0..60)
}

/// The state that a refused prompt does not change.
#[derive(Debug, PartialEq)]
struct Snapshot {
    state: State,
    turns: u64,
    error: Option<String>,
    result: Option<Value>,
    ends: Vec<Value>,
}

impl Snapshot {
    fn of(world: &World) -> Self {
        let view = world.session.view(world.now.instant);
        Self {
            state: view.state,
            turns: view.turns,
            error: view.error,
            result: world.session.result(ResponseMode::Full),
            ends: ends(world),
        }
    }
}

/// The events about ends, without errors before them.
fn ends(world: &World) -> Vec<Value> {
    let is_end = |event: &Value| match event["type"].as_str() {
        Some("result") => true,
        Some("error") => event["data"]["method"] != "error",
        _ => false,
    };
    world.events().into_iter().filter(is_end).collect()
}

/// A session, and its state before the prompt of the running turn.
struct Ends {
    world: World,
    before: Snapshot,
    /// The number of the first event after the prompt.
    since: u64,
    /// Whether Codex has confirmed the prompt.
    known: bool,
}

impl Ends {
    fn new() -> Self {
        let world = World::new();
        Self {
            before: Snapshot::of(&world),
            world,
            since: 0,
            known: false,
        }
    }

    fn apply(&mut self, event: Event) -> Result<(), TestCaseError> {
        let standing = Snapshot::of(&self.world);
        let next = self.world.session.log().next_id();
        let had_turn = self.world.session.has_turn();
        let number = self.world.session.turns();
        self.world.apply(event);
        if self.world.session.turns() > number {
            prop_assert_eq!(&standing.ends, &ends(&self.world));
            (self.before, self.since, self.known) = (standing, next, false);
        }
        let starts = event == Event::Started && self.world.unsent.is_none();
        self.known |= had_turn && (starts || event == Event::Accepted);
        self.check_the_turn_before()?;
        if had_turn && !self.world.session.has_turn() {
            self.check_the_end(event)?;
        }
        Ok(())
    }

    fn is_of_the_turn(&self, event: &Value) -> bool {
        event["id"].as_u64().unwrap() >= self.since
    }

    /// The end of the previous turn is in the log until Codex has the next prompt.
    fn check_the_turn_before(&self) -> Result<(), TestCaseError> {
        let mut left = ends(&self.world);
        left.retain(|event| !self.is_of_the_turn(event));
        let expected = match self.known {
            true => &[],
            false => self.before.ends.as_slice(),
        };
        prop_assert_eq!(left, expected);
        Ok(())
    }

    fn check_the_end(&self, event: Event) -> Result<(), TestCaseError> {
        let now = Snapshot::of(&self.world);
        if now.state == State::Cancelled {
            return Ok(());
        }
        if event == Event::Refused {
            if !self.known {
                prop_assert_eq!(&now, &self.before);
            }
            return Ok(());
        }
        let of_the_turn = now.ends.iter().filter(|event| self.is_of_the_turn(event));
        let kinds: Vec<&str> = of_the_turn
            .map(|event| event["type"].as_str().unwrap())
            .collect();
        match now.state {
            State::Error => prop_assert_eq!(kinds, ["result", "error"]),
            _ => prop_assert_eq!(kinds, ["result"]),
        }
        let (number, _) = self.world.session.outcome().unwrap();
        prop_assert_eq!(*number, self.world.session.turns());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A question is answered at most once, and an open one is never forgotten while its
    /// turn runs; a turn is interrupted at most once unless a second interrupt is
    /// requested; the thread of a cancelled session is released once.
    #[test]
    fn questions_and_interrupts_are_handled_exactly_once(events in events()) {
        let mut observed = Observed {
            world: World::new(),
            answered: Vec::new(),
            interrupted: Vec::new(),
            insisted: false,
            unsubscribed: 0,
            went_down: false,
        };
        for event in events {
            observed.apply(event)?;
        }
    }

    /// The end of the previous turn is reported until Codex has the next prompt, a
    /// refused prompt leaves no trace, and the end of each turn is reported once.
    #[test]
    fn turn_ends_stay_in_the_log_until_codex_has_the_next_prompt(events in events()) {
        let mut ends = Ends::new();
        for event in events {
            ends.apply(event)?;
        }
    }
}
