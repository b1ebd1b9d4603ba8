use std::fmt::Write;
use std::time::{Duration, Instant};

use super::*;

fn attempt(number: u32, retry: u32, cancellation: Cancellation) -> JobEvent {
    JobEvent::LoseWorker(Attempt {
        number,
        retry,
        cancellation,
        phase: AttemptPhase::Turn,
    })
}

/// The loss of an attempt that has no retry left.
fn look(cancellation: Cancellation) -> JobEvent {
    JobEvent::LoseWorker(Attempt {
        number: 1,
        retry: 0,
        cancellation,
        phase: AttemptPhase::Look,
    })
}

#[test]
fn every_state_and_event() {
    let events = [
        ("claim", JobEvent::Claim),
        ("finish completed", JobEvent::Finish(Ending::Completed)),
        ("finish failed", JobEvent::Finish(Ending::Failed)),
        ("finish cancelled", JobEvent::Finish(Ending::Cancelled)),
        ("lost, no retry", attempt(1, 0, Cancellation::NotRequested)),
        (
            "lost, one retry left",
            attempt(1, 1, Cancellation::NotRequested),
        ),
        (
            "lost, retries used up",
            attempt(2, 1, Cancellation::NotRequested),
        ),
        ("lost, not wanted", attempt(1, 1, Cancellation::Requested)),
        ("lost during a look", look(Cancellation::NotRequested)),
        ("look, not wanted", look(Cancellation::Requested)),
        ("cancel", JobEvent::Cancel),
    ];
    let mut table = String::new();
    for &state in JobState::ALL {
        writeln!(table, "{state}").unwrap();
        for (name, event) in events {
            let next = match state.after(event) {
                None => "-".to_owned(),
                Some(Transition::AskWorker) => "running; the worker is asked".to_owned(),
                Some(Transition::State(next)) => next.to_string(),
            };
            writeln!(table, "  {name:<22} {next}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn cancel_response_depends_on_the_state() {
    let mut table = String::new();
    for &state in JobState::ALL {
        let response = CancelResponse::of(state);
        assert_eq!(response.previous_status(), state);
        let (new, message) = (response.new_status(), response.message());
        let running = response.was_running();
        writeln!(table, "{state:<10} {new:<10} {running:<6} {message}").unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn ended_job_ignores_events() {
    for state in JobState::ALL.iter().filter(|state| state.has_ended()) {
        for event in [
            JobEvent::Claim,
            JobEvent::Cancel,
            attempt(1, 9, Cancellation::NotRequested),
        ] {
            assert_eq!(state.after(event), None);
        }
    }
}

#[test]
fn state_is_parsed_from_its_name() {
    for &state in JobState::ALL {
        assert_eq!(state.as_str().parse(), Ok(state));
    }
    let unknown = "Queued".parse::<JobState>().unwrap_err();
    assert_eq!(unknown, UnknownState("Queued".to_owned()));
}

#[test]
fn ids_are_uuids_of_version_4() {
    for random in [0, u128::MAX, 0x1234_5678_9abc_def0_1234_5678_9abc_def0] {
        let id = JobId::from_random(random);
        let parts: Vec<&str> = id.as_str().split('-').collect();
        assert!(parts[2].starts_with('4'), "{id}");
        assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "{id}");
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        assert_eq!(id.as_str().to_uppercase().parse(), Ok(id));
    }
    assert_eq!(
        JobId::from_random(0).as_str(),
        "00000000-0000-4000-8000-000000000000"
    );
}

#[test]
fn malformed_id_is_refused() {
    for text in [
        "",
        "1",
        "00000000-0000-4000-8000-00000000000",
        "00000000-0000-4000-8000-00000000000g",
        "00000000_0000_4000_8000_000000000000",
        "' OR 1=1 --",
        "00000000-0000-4000-8000-000000000000-",
        "../../../../etc/passwd/aaaaaaaaaaaaa",
    ] {
        assert!(text.parse::<JobId>().is_err(), "{text}");
    }
}

#[test]
fn prefix_has_the_form_of_an_id() {
    let id = "0123abcd-0000-4000-8000-00000000000f";
    for length in 8..=id.len() {
        let text = &id[..length];
        let prefix: JobPrefix = text.to_uppercase().parse().unwrap();
        assert_eq!(prefix.as_str(), text);
        let whole = (length == id.len()).then(|| id.parse().unwrap());
        assert_eq!(prefix.whole(), whole);
    }
    for text in [
        "",
        "0123abc",
        "0123abcd0",
        "0123abc%",
        "0123-abcd",
        "0123abcdß",
        "0123abcd-0000-4000-8000-00000000000f0",
    ] {
        assert!(text.parse::<JobPrefix>().is_err(), "{text}");
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// When a worker releases a job whose lease of 30 s it cannot renew, if ending it takes 2 s.
#[test]
fn job_that_may_run_elsewhere_is_released_before_its_lease_ends() {
    let start = Instant::now();
    let mut table = String::new();
    for (name, number, retry, cancellation) in [
        ("no retry", 1, 0, Cancellation::NotRequested),
        ("one retry left", 1, 1, Cancellation::NotRequested),
        ("retries used up", 2, 1, Cancellation::NotRequested),
        ("not wanted", 1, 1, Cancellation::Requested),
    ] {
        let attempt = Attempt {
            number,
            retry,
            cancellation,
            phase: AttemptPhase::Turn,
        };
        let lease = Lease::new(attempt, start, 30 * SECOND);
        let renewed = lease.renewed(start + 10 * SECOND, 30 * SECOND);
        let after = |lease: Lease| match lease.release_at(2 * SECOND) {
            Some(at) => format!("{:?}", at - start),
            None => "never".to_owned(),
        };
        let (lease, renewed) = (after(lease), after(renewed));
        writeln!(table, "{name:<16} {lease:<6} renewed after 10s: {renewed}").unwrap();
    }
    insta::assert_snapshot!(table, @r"
    no retry         never  renewed after 10s: never
    one retry left   28s    renewed after 10s: 38s
    retries used up  never  renewed after 10s: never
    not wanted       never  renewed after 10s: never
    ");
}

/// A lost look runs again without a retry; a lost turn needs one.
#[test]
fn look_is_not_released_once_its_thread_is_stored() {
    let start = Instant::now();
    for (retry, released) in [(0, None), (1, Some(start + 28 * SECOND))] {
        let look = Attempt {
            number: 1,
            retry,
            cancellation: Cancellation::NotRequested,
            phase: AttemptPhase::Look,
        };
        let lease = Lease::new(look, start, 30 * SECOND);
        assert_eq!(
            lease.release_at(2 * SECOND),
            Some(start + 28 * SECOND),
            "retry {retry}"
        );
        let begun = lease.with_thread();
        assert_eq!(begun.release_at(2 * SECOND), released, "retry {retry}");
        // A renewed lease is still that of a turn.
        let renewed = begun.renewed(start, 30 * SECOND);
        assert_eq!(renewed, begun);
    }
}

#[test]
fn worker_leaves_after_its_idle_time() {
    let start = Instant::now();
    let mut idle = IdleTimer::new(Some(10 * SECOND), start);
    assert_eq!(idle.leave_at(0), Some(start + 10 * SECOND));
    assert_eq!(idle.leave_at(1), None);
    idle.worked(start + 5 * SECOND);
    assert_eq!(idle.leave_at(0), Some(start + 15 * SECOND));
    assert_eq!(IdleTimer::new(None, start).leave_at(0), None);
    assert_eq!(IdleTimer::new(Some(Duration::MAX), start).leave_at(0), None);
}
