//! Timeouts of questions, stalled turns and unused sessions.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn stalls(world: &World) -> Vec<u64> {
    let told = world.event_data("progress");
    let stalls = told
        .iter()
        .filter(|data| data["method"] == "codex-mcp/stalled");
    stalls
        .map(|data| data["stalledForMs"].as_u64().unwrap())
        .collect()
}

#[test]
fn question_times_out_and_is_declined() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.wait(SECOND);
    world.apply(Event::Asked);
    let deadline = world.now.instant - SECOND + TIMEOUTS.approval;
    assert_eq!(world.session.next_deadline(), Some(deadline));

    assert_eq!(world.tick_after(TIMEOUTS.approval - SECOND * 2), []);
    let effects = world.tick_after(SECOND);
    let words: Vec<String> = effects.iter().map(effect_words).collect();
    assert_eq!(words, [r#"answer 1 with {"decision":"decline"}"#]);
    assert_eq!(world.session.actions().len(), 1);
    let data = world.event_data("approval_result");
    assert_eq!(data.first().unwrap()["timeout"], true);

    let late = world.session.decide(
        &ActionId("req_1".into()),
        &Decision::Accept,
        None,
        world.now,
    );
    let closed = "decline: nobody answered in time, so it was declined";
    assert_eq!(late, Err(DecisionRefused::Closed(closed.to_owned())));
}

#[test]
fn question_timeout_starts_when_it_is_first_shown() {
    let mut world = World::running();
    world.ask_unseen(command("step"));
    let asked = world.now.instant;
    let unseen = TIMEOUTS.poll_interval() + TIMEOUTS.approval;
    assert_eq!(world.session.next_deadline(), Some(asked + unseen));

    world.wait(TIMEOUTS.poll_interval());
    assert!(world.session.show_questions(world.now));
    let deadline = Some(world.now.instant + TIMEOUTS.approval);
    assert_eq!(world.session.next_deadline(), deadline);
    // Only the first call counts.
    world.wait(SECOND);
    assert!(!world.session.show_questions(world.now));
    assert_eq!(world.session.next_deadline(), deadline);
    assert_eq!(world.tick_after(TIMEOUTS.approval - SECOND * 2), []);
    assert_eq!(world.tick_after(SECOND).len(), 1);
}

#[test]
fn question_keeps_its_deadline_in_the_next_process() {
    for is_shown in [true, false] {
        let mut world = World::running();
        world.ask_unseen(command("step"));
        if is_shown {
            world.session.show_questions(world.now);
        }
        let deadline = world.session.next_deadline();
        world.wait(SECOND * 20);
        let record = world.session.record().unwrap();
        world.session = Session::restored("t", TIMEOUTS, record, world.now);
        // Codex repeats it.
        world.asked = 0;
        world.ask_unseen(command("step"));
        assert_eq!(world.session.actions().len(), 1);
        assert_eq!(world.session.next_deadline(), deadline);
        // The time of one that was not shown begins when it is.
        assert_eq!(world.session.show_questions(world.now), !is_shown);
        let shown = match is_shown {
            true => deadline,
            false => Some(world.now.instant + TIMEOUTS.approval),
        };
        assert_eq!(world.session.next_deadline(), shown);
    }
}

#[test]
fn unseen_question_times_out_and_is_declined() {
    let mut world = World::running();
    world.ask_unseen(command("step"));
    let unseen = TIMEOUTS.poll_interval() + TIMEOUTS.approval;
    assert_eq!(world.tick_after(unseen - SECOND), []);
    assert_eq!(world.tick_after(SECOND).len(), 1);
}

#[test]
fn dismissed_question_gets_a_new_timeout() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.wait(TIMEOUTS.approval - SECOND);
    assert!(!world.session.has_dismissed());
    world.session.dismiss(&ActionId("req_1".into()), world.now);
    assert!(world.session.has_dismissed());
    assert_eq!(world.tick_after(TIMEOUTS.approval - SECOND), []);
    // Only the first dismissal counts.
    world.session.dismiss(&ActionId("req_1".into()), world.now);
    assert_eq!(world.tick_after(SECOND).len(), 1);
}

#[test]
fn poll_hint_follows_the_approval_timeout_within_its_bounds() {
    for (approval, expected) in [(60_000, 60_000), (50, 1000), (600_000, 120_000)] {
        let timeouts = Timeouts {
            approval: Duration::from_millis(approval),
            ..TIMEOUTS
        };
        let hint = State::Running.poll_interval(timeouts.poll_interval());
        assert_eq!(hint, Some(Duration::from_millis(expected)));
    }
}

#[test]
fn changed_stall_timeout_applies_to_the_running_turn() {
    let mut world = World::running();
    let stall = TIMEOUTS.stall * 2;
    world.session.set_timeouts(Timeouts { stall, ..TIMEOUTS });
    world.apply(Event::Stall);
    assert_eq!(stalls(&world), Vec::<u64>::new());
    world.apply(Event::Stall);
    assert_eq!(stalls(&world), [600_000]);
}

#[test]
fn turn_is_reported_as_stalled_until_codex_sends_news() {
    let mut world = World::running();
    world.apply(Event::Stall);
    world.wait(SECOND);
    let stalled = |world: &World| world.session.view(world.now.instant).stalled;
    assert_eq!(stalled(&world), Some(TIMEOUTS.stall + SECOND));
    // Without another deadline, a second silence would not be noticed.
    let again = world.now.instant - SECOND + TIMEOUTS.stall;
    assert_eq!(world.session.next_deadline(), Some(again));
    world.apply(Event::Delta);
    assert_eq!(stalled(&world), None);
    assert_eq!(
        world.session.next_deadline(),
        Some(world.now.instant + TIMEOUTS.stall)
    );
    world.apply(Event::Stall);
    world.apply(Event::Lost);
    assert_eq!(stalled(&world), None);
    assert_eq!(stalls(&world), [300_000, 300_000]);
}

#[test]
fn stall_timeout_restarts_after_a_question() {
    let mut world = World::running();
    world.wait(TIMEOUTS.stall - SECOND);
    world.apply(Event::Asked);
    world.wait(TIMEOUTS.approval);
    world.apply(Event::TimePasses);
    assert_eq!(world.session.state(), State::Running);
    let silence = world.now.instant + TIMEOUTS.stall;
    assert_eq!(world.session.next_deadline(), Some(silence));
    world.tick_after(TIMEOUTS.stall - SECOND);
    assert_eq!(stalls(&world), Vec::<u64>::new());
    world.tick_after(SECOND);
    assert_eq!(stalls(&world), [300_000]);
}

/// A turn in which Codex has reported a final error, and nothing else.
fn after_error(way: &[Event]) -> World {
    let mut world = World::after(way);
    assert_eq!(world.apply(Event::FinalError).0, []);
    let deadline = world.now.instant + FINAL_ERROR_GRACE;
    assert_eq!(world.session.next_deadline(), Some(deadline));
    world
}

fn last_ending(world: &World) -> Option<(u64, TurnEnding)> {
    let outcome = world.session.outcome();
    outcome.map(|(turn, outcome)| (*turn, outcome.ending.clone()))
}

#[test]
fn turn_without_an_end_fails_with_the_last_error() {
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
        let Some((1, TurnEnding::Failed(error))) = last_ending(&world) else {
            panic!("{way:?}: {:?}", last_ending(&world));
        };
        assert_eq!(error.message, "no model");
        // The thread can be used again, and a late end does not end the next turn.
        world.apply(Prompt);
        world.receive_end("turn-1", "completed");
        world.apply(Accepted);
        assert_eq!(world.session.state(), State::Running);
    }
}

#[test]
fn turn_end_within_the_grace_period_counts() {
    let mut world = after_error(&[Event::Prompt, Event::Accepted, Event::Started]);
    world.wait(FINAL_ERROR_GRACE - SECOND);
    world.apply(Event::Completed);
    assert_eq!(last_ending(&world), Some((1, TurnEnding::Completed)));
    assert_eq!(world.session.next_deadline(), None);
    for event in [Event::Prompt, Event::Accepted, Event::Started] {
        world.apply(event);
    }
    assert_eq!(world.tick_after(SECOND), []);
    assert_eq!(world.session.state(), State::Running);
}

#[test]
fn turn_that_continues_after_an_error_is_not_ended() {
    let signs: [fn(&mut World) -> Vec<Effect>; 5] = [
        |world| world.apply(Event::Started).0,
        |world| world.apply(Event::Delta).0,
        |world| world.apply(Event::Asked).0,
        |world| world.receive_error("Reconnecting... 1/5", true),
        |world| {
            let item = json!({"type": "commandExecution", "id": "c", "command": "make"});
            world.receive_item("item/started", &item)
        },
    ];
    for (number, goes_on) in signs.into_iter().enumerate() {
        let mut world = after_error(&[Event::Prompt, Event::Accepted, Event::Started]);
        goes_on(&mut world);
        assert_eq!(world.tick_after(FINAL_ERROR_GRACE), [], "{number}");
        assert!(world.session.state().is_at_work(), "{number}");
    }
    // A warning does not show that Codex still works.
    let mut world = after_error(&[Event::Prompt, Event::Accepted, Event::Started]);
    world.receive(
        "warning",
        json!({"threadId": "t", "message": "no metadata"}),
    );
    world.tick_after(FINAL_ERROR_GRACE);
    assert_eq!(world.session.state(), State::Idle);
}

#[test]
fn error_before_the_prompt_is_sent_does_not_end_its_turn() {
    let world = World::after(&[Event::Take, Event::FinalError]);
    let silence = world.now.instant + TIMEOUTS.stall;
    assert_eq!(world.session.next_deadline(), Some(silence));
}

/// Waits until just before the limit, then until it.
fn tidied(way: &[Event], limit: Duration) -> (State, Vec<Effect>, TidyOutcome, World) {
    let mut world = World::after(way);
    let state = world.session.state();
    world.wait(limit - SECOND);
    assert_eq!(
        world.session.tidy(world.now),
        (Vec::new(), TidyOutcome::Keep)
    );
    assert_eq!(world.session.state(), state);
    world.wait(SECOND);
    let (effects, outcome) = world.session.tidy(world.now);
    (world.session.state(), effects, outcome, world)
}

#[test]
fn idle_session_is_cancelled_after_half_an_hour_and_forgotten_later() {
    let (state, effects, outcome, mut world) = tidied(&[], IDLE_LIMIT);
    assert_eq!((state, outcome), (State::Cancelled, TidyOutcome::Keep));
    assert_eq!(effects, [Effect::StopCommands, Effect::Unsubscribe]);
    world.wait(TERMINAL_LIMIT - SECOND);
    assert_eq!(
        world.session.tidy(world.now),
        (Vec::new(), TidyOutcome::Keep)
    );
    world.wait(SECOND);
    assert_eq!(
        world.session.tidy(world.now),
        (Vec::new(), TidyOutcome::Forget)
    );
}

#[test]
fn turn_without_news_is_cancelled_after_four_hours() {
    use Event::{Accepted, Asked, Prompt, Started};
    let (state, effects, outcome, mut world) = tidied(&[Prompt, Accepted, Started], TURN_LIMIT);
    assert_eq!((state, outcome), (State::Cancelled, TidyOutcome::Keep));
    assert_eq!(effects, [Effect::Interrupt(TurnId("turn-1".into()))]);
    // The session is not forgotten before its turn has ended.
    world.wait(TERMINAL_LIMIT);
    assert_eq!(
        world.session.tidy(world.now),
        (Vec::new(), TidyOutcome::Keep)
    );
    let (effects, _) = world.apply(Event::InterruptedByCodex);
    assert_eq!(effects, [Effect::StopCommands, Effect::Unsubscribe]);
    world.wait(TERMINAL_LIMIT);
    assert_eq!(
        world.session.tidy(world.now),
        (Vec::new(), TidyOutcome::Forget)
    );

    let (state, effects, ..) = tidied(&[Prompt, Accepted, Started, Asked], TURN_LIMIT);
    assert_eq!((state, effects.len()), (State::Cancelled, 2));
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn question_that_is_open_for_a_day_keeps_its_session() {
    let mut world = World::after(&[Event::Prompt, Event::Accepted, Event::Started]);
    world.session.keep_questions_open(DAY);
    check_kept_for_a_day(world);
}

#[test]
fn session_with_a_timeout_of_a_day_is_kept_by_its_question() {
    let mut world = World::after(&[Event::Prompt, Event::Accepted, Event::Started]);
    world.session.set_timeouts(Timeouts {
        approval: DAY,
        ..TIMEOUTS
    });
    check_kept_for_a_day(world);
}

/// Has Codex ask, and checks that the session lasts until the question is declined.
fn check_kept_for_a_day(mut world: World) {
    world.apply(Event::Asked);
    world.wait(DAY - SECOND);
    assert_eq!(
        world.session.tidy(world.now),
        (Vec::new(), TidyOutcome::Keep)
    );
    assert_eq!(world.session.state(), State::WaitingApproval);
    // Its turn goes on without an answer.
    assert_eq!(world.tick_after(SECOND).len(), 1);
    assert_eq!(
        world.session.tidy(world.now),
        (Vec::new(), TidyOutcome::Keep)
    );
    assert_eq!(world.session.state(), State::Running);
    world.wait(TURN_LIMIT);
    world.session.tidy(world.now);
    assert_eq!(world.session.state(), State::Cancelled);
}

#[test]
fn ended_session_is_forgotten_after_five_minutes() {
    use Event::{Cancel, Lost, Prompt};
    let ways: [&[Event]; 3] = [&[Cancel], &[Lost], &[Prompt, Lost]];
    for way in ways {
        let (_, effects, outcome, _) = tidied(way, TERMINAL_LIMIT);
        assert_eq!(
            (effects, outcome),
            (Vec::new(), TidyOutcome::Forget),
            "{way:?}"
        );
    }
}

#[test]
fn poll_keeps_a_session_alive() {
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

    /// Regardless of the times of the ticks, each silence is reported once, and as soon
    /// as it is too long.
    #[test]
    fn silence_is_reported_once(
        steps in proptest::collection::vec((0..400_u64, any::<bool>()), 0..40),
    ) {
        let mut world = World::running();
        let (mut silent, mut reported, mut expected) = (0, false, Vec::new());
        for (seconds, speaks) in steps {
            silent += seconds;
            world.tick_after(Duration::from_secs(seconds));
            if silent >= TIMEOUTS.stall.as_secs() && !reported {
                reported = true;
                expected.push(silent * 1000);
            }
            let left = match reported {
                true => TIMEOUTS.stall,
                false => TIMEOUTS.stall - Duration::from_secs(silent),
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
                Alert::Question { .. } | Alert::Ended { .. } => 0,
            })
            .collect();
        prop_assert_eq!(&alerted, &expected);
        prop_assert_eq!(stalls(&world), expected);
    }
}
