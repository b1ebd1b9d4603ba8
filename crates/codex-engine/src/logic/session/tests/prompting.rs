//! Prompts: taken, sent, and accepted or not.

use super::*;
use crate::logic::events::ResponseMode;

fn turns(world: &World) -> u64 {
    world.session.view(world.now.instant).turns
}

fn result(world: &World) -> Option<Value> {
    world.session.result(ResponseMode::Full)
}

/// What Codex says in the words of an error that ends the turn.
fn hear_error(world: &mut World) {
    let params = json!({"threadId": "t", "turnId": world.current(), "willRetry": false,
        "error": {"message": "too much"}});
    world.hear("error", params);
}

#[test]
fn a_prompt_that_was_taken_is_sent_once_it_is_wanted() {
    let mut world = World::after(&[Event::Take]);
    assert_eq!(world.session.state(), State::Running);
    assert!(!world.session.sending(0) && !world.session.sending(2));
    // A number that is not the turn's has changed nothing.
    world.apply(Event::Lost);
    assert_eq!(world.session.state(), State::Running);
    assert!(world.session.sending(1));
    world.apply(Event::Lost);
    assert_eq!(world.session.state(), State::Error);
}

#[test]
fn a_prompt_that_was_taken_back_is_not_sent() {
    // Only who interrupts a turn waits for what becomes of it.
    for (event, state, ending) in [
        (Event::Interrupt, State::Idle, Some(&Ending::Interrupted)),
        (Event::Cancel, State::Cancelled, None),
    ] {
        let mut world = World::after(&[Event::Take]);
        let (effects, _) = world.apply(event);
        assert!(!effects.iter().any(|it| matches!(it, Effect::Interrupt(_))));
        assert_eq!(world.session.state(), state);
        let outcome = world.session.outcome();
        assert_eq!(outcome.map(|(_, outcome)| &outcome.ending), ending);
        assert_eq!(world.told("result").len(), 1);
        assert!(!world.session.sending(1));
    }
}

#[test]
fn a_prompt_that_was_taken_back_is_not_sent_in_place_of_the_next() {
    let mut world = World::after(&[Event::Take, Event::Interrupt, Event::Take]);
    assert!(!world.session.sending(1));
    assert!(world.session.sending(2));
}

#[test]
fn a_question_is_declined_with_the_prompt_that_is_taken_back() {
    for event in [Event::Interrupt, Event::Cancel] {
        let mut world = World::after(&[Event::Take, Event::Asked]);
        let (effects, _) = world.apply(event);
        let declined = effect_words(effects.first().unwrap());
        assert_eq!(declined, r#"answer 1 with {"decision":"decline"}"#);
        assert!(world.session.actions().is_empty());
        assert_eq!(world.told("approval_result").len(), 1);
    }
}

#[test]
fn a_prompt_that_was_not_sent_goes_to_the_next_codex_and_questions_do_not() {
    let mut world = World::after(&[Event::Take, Event::Asked, Event::Lost]);
    assert_eq!(world.session.state(), State::Running);
    assert!(world.session.actions().is_empty());
    assert_eq!(world.told("error"), Vec::<Value>::new());
    for event in [
        Event::Send,
        Event::Accepted,
        Event::Started,
        Event::Completed,
    ] {
        world.apply(event);
    }
    let (turn, outcome) = world.session.outcome().unwrap();
    assert_eq!((*turn, &outcome.ending), (1, &Ending::Completed));
}

#[test]
fn a_refused_prompt_leaves_all_as_it_was() {
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
fn numbers_of_turns_are_not_given_twice() {
    let mut world = World::after(&[Event::Prompt, Event::Refused, Event::Prompt]);
    assert_eq!((world.session.turns(), turns(&world)), (2, 1));
    world.apply(Event::Accepted);
    world.apply(Event::Completed);
    assert_eq!(world.session.outcome().unwrap().0, 2);
    assert_eq!(turns(&world), 1);
}

#[test]
fn an_accepted_prompt_lets_go_of_how_the_turn_before_ended_only() {
    use Event::{Accepted, Completed, Prompt};
    let mut world = World::after(&[Prompt, Accepted]);
    hear_error(&mut world);
    world.apply(Completed);
    let ends = |world: &World| (world.told("error").len(), world.told("result").len());
    assert_eq!(ends(&world), (1, 1));

    world.apply(Prompt);
    hear_error(&mut world);
    assert_eq!(ends(&world), (2, 1));
    world.apply(Accepted);
    assert_eq!(ends(&world), (1, 0));
    assert_eq!(world.told("error").first().unwrap()["message"], "too much");
    // The one that is left came after the prompt.
    world.apply(Accepted);
    assert_eq!(ends(&world), (1, 0));
}

#[test]
fn a_late_acceptance_lets_go_of_nothing() {
    use Event::{Accepted, Completed, Interrupt, Prompt, Take};
    let mut world = World::after(&[Prompt, Accepted, Completed, Take, Interrupt]);
    let before = world.events();
    world.apply(Accepted);
    assert_eq!(world.events(), before);
    assert_eq!(world.session.state(), State::Idle);
}

#[test]
fn what_codex_starts_before_a_prompt_is_sent_is_another_turn() {
    let mut world = World::after(&[Event::Take, Event::Started]);
    assert_eq!(world.session.turn_id(), None);
    let (effects, _) = world.apply(Event::Interrupt);
    assert_eq!(effects, []);
    assert_eq!(world.session.state(), State::Idle);
    assert!(!world.session.sending(1));
}
