//! Prompts that are accepted, sent, withdrawn and refused.

use super::*;
use crate::logic::events::ResponseMode;

fn turns(world: &World) -> u64 {
    world.session.view(world.now.instant).turns
}

fn result(world: &World) -> Option<Value> {
    world.session.result(ResponseMode::Full)
}

/// Codex reports an error that ends the turn.
fn receive_error(world: &mut World) {
    let params = json!({"threadId": "t", "turnId": world.current(), "willRetry": false,
        "error": {"message": "too much"}});
    world.receive("error", params);
}

#[test]
fn pending_prompt_is_sent_under_its_own_number() {
    let mut world = World::after(&[Event::Take]);
    assert_eq!(world.session.state(), State::Running);
    assert!(!world.session.sending(0) && !world.session.sending(2));
    // The numbers of other turns have changed nothing.
    world.apply(Event::Lost);
    assert_eq!(world.session.state(), State::Running);
    assert!(world.session.sending(1));
    world.apply(Event::Lost);
    assert_eq!(world.session.state(), State::Error);
}

#[test]
fn withdrawn_prompt_is_not_sent() {
    // Only a caller that interrupts a turn waits for its outcome.
    for (event, state, ending) in [
        (
            Event::Interrupt,
            State::Idle,
            Some(&TurnEnding::Interrupted),
        ),
        (Event::Cancel, State::Cancelled, None),
    ] {
        let mut world = World::after(&[Event::Take]);
        let (effects, _) = world.apply(event);
        assert!(!effects.iter().any(|it| matches!(it, Effect::Interrupt(_))));
        assert_eq!(world.session.state(), state);
        let outcome = world.session.outcome();
        assert_eq!(outcome.map(|(_, outcome)| &outcome.ending), ending);
        assert_eq!(world.event_data("result").len(), 1);
        assert!(!world.session.sending(1));
    }
}

#[test]
fn withdrawn_prompt_is_not_sent_in_place_of_the_next() {
    let mut world = World::after(&[Event::Take, Event::Interrupt, Event::Take]);
    assert!(!world.session.sending(1));
    assert!(world.session.sending(2));
}

#[test]
fn question_is_declined_with_the_withdrawn_prompt() {
    for event in [Event::Interrupt, Event::Cancel] {
        let mut world = World::after(&[Event::Take, Event::Asked]);
        let (effects, _) = world.apply(event);
        let declined = effect_words(effects.first().unwrap());
        assert_eq!(declined, r#"answer 1 with {"decision":"decline"}"#);
        assert!(world.session.actions().is_empty());
        assert_eq!(world.event_data("approval_result").len(), 1);
    }
}

#[test]
fn unsent_prompt_survives_a_lost_codex_and_questions_do_not() {
    let mut world = World::after(&[Event::Take, Event::Asked, Event::Lost]);
    assert_eq!(world.session.state(), State::Running);
    assert!(world.session.actions().is_empty());
    assert_eq!(world.event_data("error"), Vec::<Value>::new());
    for event in [
        Event::Send,
        Event::Accepted,
        Event::Started,
        Event::Completed,
    ] {
        world.apply(event);
    }
    let (turn, outcome) = world.session.outcome().unwrap();
    assert_eq!((*turn, &outcome.ending), (1, &TurnEnding::Completed));
}

#[test]
fn refused_prompt_leaves_the_session_unchanged() {
    use Event::{Accepted, Completed, Lost, Message, Prompt, Refused, Send, Take};
    let befores: [&[Event]; 4] = [
        &[],
        &[Lost],
        &[Prompt, Accepted, Message, Completed],
        &[Prompt, Accepted, Message, Completed, Lost],
    ];
    for before in befores {
        for prompt in [&[Take] as &[Event], &[Take, Send]] {
            let mut world = World::after(before);
            let seen = |world: &World| {
                let view = world.session.view(world.now.instant);
                (view, result(world), world.events())
            };
            let expected = seen(&world);
            prompt.iter().for_each(|event| {
                world.apply(*event);
            });
            assert_eq!(world.events(), expected.2);
            assert_eq!(turns(&world), expected.0.turns + 1);
            world.apply(Refused);
            assert_eq!(seen(&world), expected, "{before:?}, {prompt:?}");
        }
    }
}

#[test]
fn turn_numbers_are_not_reused() {
    let mut world = World::after(&[Event::Prompt, Event::Refused, Event::Prompt]);
    assert_eq!((world.session.turns(), turns(&world)), (2, 1));
    world.apply(Event::Accepted);
    world.apply(Event::Completed);
    assert_eq!(world.session.outcome().unwrap().0, 2);
    assert_eq!(turns(&world), 1);
}

#[test]
fn accepted_prompt_forgets_only_the_end_of_the_previous_turn() {
    use Event::{Accepted, Completed, Prompt};
    let mut world = World::after(&[Prompt, Accepted]);
    receive_error(&mut world);
    world.apply(Completed);
    let ends = |world: &World| {
        (
            world.event_data("error").len(),
            world.event_data("result").len(),
        )
    };
    assert_eq!(ends(&world), (1, 1));

    world.apply(Prompt);
    receive_error(&mut world);
    assert_eq!(ends(&world), (2, 1));
    world.apply(Accepted);
    assert_eq!(ends(&world), (1, 0));
    assert_eq!(
        world.event_data("error").first().unwrap()["message"],
        "too much"
    );
    // The remaining error was reported after the prompt.
    world.apply(Accepted);
    assert_eq!(ends(&world), (1, 0));
}

#[test]
fn late_acceptance_forgets_nothing() {
    use Event::{Accepted, Completed, Interrupt, Prompt, Take};
    let mut world = World::after(&[Prompt, Accepted, Completed, Take, Interrupt]);
    let before = world.events();
    world.apply(Accepted);
    assert_eq!(world.events(), before);
    assert_eq!(world.session.state(), State::Idle);
}

#[test]
fn turn_started_before_the_prompt_is_sent_is_another_turn() {
    let mut world = World::after(&[Event::Take, Event::Started]);
    assert_eq!(world.session.turn_id(), None);
    let (effects, _) = world.apply(Event::Interrupt);
    assert_eq!(effects, []);
    assert_eq!(world.session.state(), State::Idle);
    assert!(!world.session.sending(1));
}

#[test]
fn turn_that_begins_after_it_was_given_up_is_interrupted() {
    use Event::{Abandon, Accepted, Completed, Interrupt, Prompt, Started, Take};
    let interrupt = [Effect::Interrupt(TurnId("turn-1".into()))];
    let ways: [&[Event]; 4] = [
        &[Prompt, Interrupt, Abandon],
        &[Prompt, Interrupt, Abandon, Accepted],
        &[Prompt, Accepted, Interrupt, Abandon],
        &[Prompt, Interrupt, Abandon, Take],
    ];
    for way in ways {
        let mut world = World::after(way);
        assert_eq!(world.apply(Started).0, interrupt, "{way:?}");
        assert_eq!(world.apply(Started).0, [], "{way:?}");
    }
    // Codex has refused it, or the next turn has ended: no start of it can come.
    for way in [
        &[Prompt, Interrupt, Abandon, Event::Refused] as &[Event],
        &[Prompt, Interrupt, Abandon, Prompt, Accepted, Completed],
        &[Prompt, Interrupt, Abandon, Event::Lost],
    ] {
        assert_eq!(World::after(way).apply(Started).0, [], "{way:?}");
    }
}

#[test]
fn turn_that_was_given_up_is_not_taken_for_the_next_one() {
    use Event::{Abandon, Accepted, Completed, Interrupt, Prompt, Started};
    let mut world = World::after(&[Prompt, Interrupt, Abandon, Prompt]);
    let first = TurnId("turn-1".into());
    assert_eq!(world.session.accepted(1, first.clone(), world.now), []);
    let turn = json!({"threadId": "t", "turn": {"id": "turn-1", "status": "inProgress"}});
    let effects = world.receive("turn/started", turn);
    assert_eq!(effects, [Effect::Interrupt(first)]);
    assert_eq!(world.session.turn_id(), None);
    world.receive_end("turn-1", "interrupted");
    assert_eq!(world.session.state(), State::Running);
    for event in [Accepted, Started, Completed] {
        assert_eq!(world.apply(event).0, []);
    }
    let (turn, outcome) = world.session.outcome().unwrap();
    assert_eq!((*turn, &outcome.ending), (2, &TurnEnding::Completed));
}
