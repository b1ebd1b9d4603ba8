//! Time: questions, stalls, and what becomes of sessions that nobody uses.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn stalls(world: &World) -> Vec<u64> {
    let told = world.told("progress");
    let stalls = told
        .iter()
        .filter(|data| data["method"] == "codex-mcp/stalled");
    stalls
        .map(|data| data["stalledForMs"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_question_is_declined_when_its_time_is_up() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.wait(SECOND);
    world.apply(Event::Asked);
    let deadline = world.now.instant - SECOND + PATIENCE.approval;
    assert_eq!(world.session.next_deadline(), Some(deadline));

    assert_eq!(world.tick_after(PATIENCE.approval - SECOND * 2), []);
    let effects = world.tick_after(SECOND);
    let words: Vec<String> = effects.iter().map(effect_words).collect();
    assert_eq!(words, [r#"answer 1 with {"decision":"decline"}"#]);
    assert_eq!(world.session.actions().len(), 1);
    let data = world.told("approval_result");
    assert_eq!(data.first().unwrap()["timeout"], true);

    let late = world.session.decide(
        &ActionId("req_1".into()),
        &Decision::Accept,
        None,
        world.now,
    );
    assert_eq!(late, Err(DecisionRefused::NotOpen));
}

#[test]
fn time_of_a_question_begins_when_it_is_first_shown() {
    let mut world = World::running();
    world.ask_unseen(command());
    let asked = world.now.instant;
    let unseen = PATIENCE.poll_interval() + PATIENCE.approval;
    assert_eq!(world.session.next_deadline(), Some(asked + unseen));

    world.wait(PATIENCE.poll_interval());
    assert!(world.session.show_questions(world.now));
    let deadline = Some(world.now.instant + PATIENCE.approval);
    assert_eq!(world.session.next_deadline(), deadline);
    // Only the first time counts.
    world.wait(SECOND);
    assert!(!world.session.show_questions(world.now));
    assert_eq!(world.session.next_deadline(), deadline);
    assert_eq!(world.tick_after(PATIENCE.approval - SECOND * 2), []);
    assert_eq!(world.tick_after(SECOND).len(), 1);
}

#[test]
fn question_that_nobody_sees_is_declined_in_the_end() {
    let mut world = World::running();
    world.ask_unseen(command());
    let unseen = PATIENCE.poll_interval() + PATIENCE.approval;
    assert_eq!(world.tick_after(unseen - SECOND), []);
    assert_eq!(world.tick_after(SECOND).len(), 1);
}

#[test]
fn dismissed_question_has_its_time_again() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.wait(PATIENCE.approval - SECOND);
    assert!(!world.session.has_dismissed());
    world.session.dismiss(&ActionId("req_1".into()), world.now);
    assert!(world.session.has_dismissed());
    assert_eq!(world.tick_after(PATIENCE.approval - SECOND), []);
    assert_eq!(world.tick_after(SECOND).len(), 1);
}

#[test]
fn poll_hint_follows_the_approval_timeout_within_its_bounds() {
    for (approval, expected) in [(60_000, 60_000), (50, 1000), (600_000, 120_000)] {
        let patience = Patience {
            approval: Duration::from_millis(approval),
            ..PATIENCE
        };
        let hint = State::Running.poll_interval(patience.poll_interval());
        assert_eq!(hint, Some(Duration::from_millis(expected)));
    }
}

#[test]
fn patience_may_change_on_the_way() {
    let mut world = World::running();
    let stall = PATIENCE.stall * 2;
    world.session.set_patience(Patience { stall, ..PATIENCE });
    world.apply(Event::Stall);
    assert_eq!(stalls(&world), Vec::<u64>::new());
    world.apply(Event::Stall);
    assert_eq!(stalls(&world), [600_000]);
}

#[test]
fn a_turn_is_seen_as_stalled_until_codex_is_heard() {
    let mut world = World::running();
    world.apply(Event::Stall);
    world.wait(SECOND);
    let stalled = |world: &World| world.session.view(world.now.instant).stalled;
    assert_eq!(stalled(&world), Some(PATIENCE.stall + SECOND));
    // It is looked at again, or a second silence would not be noticed.
    let again = world.now.instant - SECOND + PATIENCE.stall;
    assert_eq!(world.session.next_deadline(), Some(again));
    world.apply(Event::Delta);
    assert_eq!(stalled(&world), None);
    assert_eq!(
        world.session.next_deadline(),
        Some(world.now.instant + PATIENCE.stall)
    );
    world.apply(Event::Stall);
    world.apply(Event::Lost);
    assert_eq!(stalled(&world), None);
    assert_eq!(stalls(&world), [300_000, 300_000]);
}

#[test]
fn codex_is_not_silent_while_it_waits_for_an_answer() {
    let mut world = World::running();
    world.wait(PATIENCE.stall - SECOND);
    world.apply(Event::Asked);
    world.wait(PATIENCE.approval);
    world.apply(Event::TimePasses);
    assert_eq!(world.session.state(), State::Running);
    let silence = world.now.instant + PATIENCE.stall;
    assert_eq!(world.session.next_deadline(), Some(silence));
    world.tick_after(PATIENCE.stall - SECOND);
    assert_eq!(stalls(&world), Vec::<u64>::new());
    world.tick_after(SECOND);
    assert_eq!(stalls(&world), [300_000]);
}

/// A turn in which Codex has told an error that it does not mend, and nothing else.
fn after_error(way: &[Event]) -> World {
    let mut world = World::after(way);
    assert_eq!(world.apply(Event::FinalError).0, []);
    let deadline = world.now.instant + FINAL_ERROR_GRACE;
    assert_eq!(world.session.next_deadline(), Some(deadline));
    world
}

fn last_ending(world: &World) -> Option<(u64, Ending)> {
    let outcome = world.session.outcome();
    outcome.map(|(turn, outcome)| (*turn, outcome.ending.clone()))
}

#[test]
fn turn_without_an_end_fails_with_the_error_that_codex_told() {
    use Event::{Accepted, Asked, Prompt, Started};
    let interrupt = Effect::Interrupt(TurnId("turn-1".into()));
    let decline = Effect::Answer {
        request: RequestId::Number(1),
        result: json!({"decision": "decline"}),
    };
    let ways: [(&[Event], Vec<Effect>); 3] = [
        (&[Prompt, Accepted], vec![]),
        (
            &[Prompt, Accepted, Started],
            vec![interrupt.clone(), Effect::StopCommands],
        ),
        (
            &[Prompt, Accepted, Started, Asked],
            vec![decline, interrupt, Effect::StopCommands],
        ),
    ];
    for (way, expected) in ways {
        let mut world = after_error(way);
        assert_eq!(world.tick_after(FINAL_ERROR_GRACE - SECOND), []);
        assert!(world.session.state().is_at_work());
        assert_eq!(world.tick_after(SECOND), expected, "{way:?}");
        assert_eq!(world.session.state(), State::Idle);
        let Some((1, Ending::Failed(error))) = last_ending(&world) else {
            panic!("{way:?}: {:?}", last_ending(&world));
        };
        assert_eq!(error.message, "no model");
        // The thread can be used again, and a late end is not that of the next turn.
        world.apply(Prompt);
        world.hear_end("turn-1", "completed");
        world.apply(Accepted);
        assert_eq!(world.session.state(), State::Running);
    }
}

#[test]
fn end_within_the_grace_time_counts() {
    let mut world = after_error(&[Event::Prompt, Event::Accepted, Event::Started]);
    world.wait(FINAL_ERROR_GRACE - SECOND);
    world.apply(Event::Completed);
    assert_eq!(last_ending(&world), Some((1, Ending::Completed)));
    assert_eq!(world.session.next_deadline(), None);
    for event in [Event::Prompt, Event::Accepted, Event::Started] {
        world.apply(event);
    }
    assert_eq!(world.tick_after(SECOND), []);
    assert_eq!(world.session.state(), State::Running);
}

#[test]
fn turn_that_goes_on_after_an_error_is_not_ended() {
    let signs: [fn(&mut World) -> Vec<Effect>; 5] = [
        |world| world.apply(Event::Started).0,
        |world| world.apply(Event::Delta).0,
        |world| world.apply(Event::Asked).0,
        |world| world.hear_error("Reconnecting... 1/5", true),
        |world| {
            let item = json!({"type": "commandExecution", "id": "c", "command": "make"});
            world.hear_item("item/started", &item)
        },
    ];
    for (number, goes_on) in signs.into_iter().enumerate() {
        let mut world = after_error(&[Event::Prompt, Event::Accepted, Event::Started]);
        goes_on(&mut world);
        assert_eq!(world.tick_after(FINAL_ERROR_GRACE), [], "{number}");
        assert!(world.session.state().is_at_work(), "{number}");
    }
    // A warning tells of no work.
    let mut world = after_error(&[Event::Prompt, Event::Accepted, Event::Started]);
    world.hear(
        "warning",
        json!({"threadId": "t", "message": "no metadata"}),
    );
    world.tick_after(FINAL_ERROR_GRACE);
    assert_eq!(world.session.state(), State::Idle);
}

#[test]
fn error_before_a_prompt_is_sent_is_not_that_of_its_turn() {
    let world = World::after(&[Event::Take, Event::FinalError]);
    let silence = world.now.instant + PATIENCE.stall;
    assert_eq!(world.session.next_deadline(), Some(silence));
}

/// Waits until just before the limit, then until it.
fn tidied(way: &[Event], limit: Duration) -> (State, Vec<Effect>, Fate, World) {
    let mut world = World::after(way);
    let state = world.session.state();
    world.wait(limit - SECOND);
    assert_eq!(world.session.tidy(world.now), (Vec::new(), Fate::Keep));
    assert_eq!(world.session.state(), state);
    world.wait(SECOND);
    let (effects, fate) = world.session.tidy(world.now);
    (world.session.state(), effects, fate, world)
}

#[test]
fn an_idle_session_is_cancelled_after_half_an_hour_and_forgotten_later() {
    let (state, effects, fate, mut world) = tidied(&[], IDLE_LIMIT);
    assert_eq!((state, fate), (State::Cancelled, Fate::Keep));
    assert_eq!(effects, [Effect::StopCommands, Effect::LetGo]);
    world.wait(TERMINAL_LIMIT - SECOND);
    assert_eq!(world.session.tidy(world.now), (Vec::new(), Fate::Keep));
    world.wait(SECOND);
    assert_eq!(world.session.tidy(world.now), (Vec::new(), Fate::Forget));
}

#[test]
fn a_turn_has_four_hours() {
    use Event::{Accepted, Asked, Prompt, Started};
    let (state, effects, fate, mut world) = tidied(&[Prompt, Accepted, Started], TURN_LIMIT);
    assert_eq!((state, fate), (State::Cancelled, Fate::Keep));
    assert_eq!(effects, [Effect::Interrupt(TurnId("turn-1".into()))]);
    // It is not forgotten while its turn has not ended.
    world.wait(TERMINAL_LIMIT);
    assert_eq!(world.session.tidy(world.now), (Vec::new(), Fate::Keep));
    let (effects, _) = world.apply(Event::InterruptedByCodex);
    assert_eq!(effects, [Effect::StopCommands, Effect::LetGo]);
    world.wait(TERMINAL_LIMIT);
    assert_eq!(world.session.tidy(world.now), (Vec::new(), Fate::Forget));

    let (state, effects, ..) = tidied(&[Prompt, Accepted, Started, Asked], TURN_LIMIT);
    assert_eq!((state, effects.len()), (State::Cancelled, 2));
}

#[test]
fn a_session_that_is_over_is_forgotten_after_five_minutes() {
    use Event::{Cancel, Lost, Prompt};
    let ways: [&[Event]; 3] = [&[Cancel], &[Lost], &[Prompt, Lost]];
    for way in ways {
        let (_, effects, fate, _) = tidied(way, TERMINAL_LIMIT);
        assert_eq!((effects, fate), (Vec::new(), Fate::Forget), "{way:?}");
    }
}

#[test]
fn who_looks_in_keeps_a_session() {
    let mut world = World::new();
    for _ in 0..3 {
        world.wait(IDLE_LIMIT - SECOND);
        assert_eq!(world.session.tidy(world.now).0, []);
        world.session.poll(&Poll::default(), world.now).unwrap();
    }
    world.wait(IDLE_LIMIT - SECOND);
    world.session.used(world.now);
    world.wait(IDLE_LIMIT - SECOND);
    assert_eq!(world.session.tidy(world.now).0, []);
    assert_eq!(world.session.state(), State::Idle);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However often the clock is looked at: each silence is reported once, and
    /// as soon as it is too long.
    #[test]
    fn a_silence_is_reported_once(
        steps in proptest::collection::vec((0..400_u64, any::<bool>()), 0..40),
    ) {
        let mut world = World::running();
        let (mut silent, mut reported, mut expected) = (0, false, Vec::new());
        for (seconds, speaks) in steps {
            silent += seconds;
            world.tick_after(Duration::from_secs(seconds));
            if silent >= PATIENCE.stall.as_secs() && !reported {
                reported = true;
                expected.push(silent * 1000);
            }
            let left = match reported {
                true => PATIENCE.stall,
                false => PATIENCE.stall - Duration::from_secs(silent),
            };
            let deadline = world.now.instant + left;
            prop_assert_eq!(world.session.next_deadline(), Some(deadline));
            if speaks {
                world.apply(Event::Delta);
                (silent, reported) = (0, false);
            }
        }
        let alerts = world.session.take_alerts().into_iter();
        let alerted: Vec<u64> = alerts
            .map(|alert| match alert {
                Alert::Stalled { silent, .. } => silent.as_secs() * 1000,
                Alert::Question { .. } => 0,
            })
            .collect();
        prop_assert_eq!(&alerted, &expected);
        prop_assert_eq!(stalls(&world), expected);
    }
}
