//! The exit codes of all verbs. docs/command-line.md has them in one table.

use goal_run::logic::outcome::Reason;
use job_queue::logic::JobState;
use tokio::signal::unix::SignalKind;

/// Something failed, or a job has, or a review asks for changes.
pub(super) const FAILED: u8 = 1;

/// The command line is wrong, unless the verb is one of [`WITH_OUTCOMES`].
const USAGE: u8 = 2;

/// A run has ended, and not all that was asked for is there.
const NOT_SATISFIED: u8 = 2;

/// A job was cancelled.
const CANCELLED: u8 = 2;

/// A run or a verb of `jobs` could not do its work; also for a wrong command line.
pub(super) const COULD_NOT: u8 = 3;

/// A job has not ended in the time that `jobs wait` was given.
pub(super) const TIMED_OUT: u8 = 124;

/// Ended by Ctrl-C, as shells have it: 128 and the number of SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

/// The verbs of which 1 and 2 tell how a job, a review or a run has ended.
const WITH_OUTCOMES: [&str; 3] = ["jobs", "review", "run"];

/// That of a wrong command line of a verb.
pub(super) fn of_usage(verb: Option<&str>) -> u8 {
    match verb.is_some_and(|verb| WITH_OUTCOMES.contains(&verb)) {
        true => COULD_NOT,
        false => USAGE,
    }
}

/// That of a process that a signal has asked to end.
pub(super) fn of_signal(signal: SignalKind) -> u8 {
    u8::try_from(signal.as_raw_value()).map_or(FAILED, |number| number.saturating_add(128))
}

/// That of a run that has ended for this reason; `None` is success.
pub(super) fn of_run(reason: Option<Reason>) -> u8 {
    match reason {
        None => 0,
        Some(Reason::CouldNotRun) => COULD_NOT,
        Some(_) => NOT_SATISFIED,
    }
}

/// That of a job in this state. One that has not ended was not waited for long enough.
pub(super) fn of_job(state: JobState) -> u8 {
    match state {
        JobState::Completed => 0,
        JobState::Failed => FAILED,
        JobState::Cancelled => CANCELLED,
        JobState::Queued | JobState::Running => TIMED_OUT,
    }
}

/// Of several jobs' codes the one that tells most.
pub(super) fn worst(codes: impl IntoIterator<Item = u8>) -> u8 {
    const FROM_WORST: [u8; 5] = [INTERRUPTED, COULD_NOT, TIMED_OUT, FAILED, CANCELLED];
    let codes: Vec<u8> = codes.into_iter().collect();
    let found = FROM_WORST.into_iter().find(|code| codes.contains(code));
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_of_several_codes_tells_most() {
        assert_eq!(worst([]), 0);
        assert_eq!(worst([0, 2, 1, 0]), 1);
        assert_eq!(worst([1, 124, 2]), 124);
        assert_eq!(worst([124, 3, 0]), 3);
        let codes = JobState::ALL.map(of_job);
        assert_eq!(codes, [124, 124, 0, 1, 2]);
    }

    #[test]
    fn signal_has_the_code_of_shells() {
        assert_eq!(of_signal(SignalKind::interrupt()), INTERRUPTED);
        assert_eq!(of_signal(SignalKind::terminate()), 143);
    }

    #[test]
    fn docs_have_every_exit_code() {
        let page = include_str!("../../../../docs/command-line.md");
        let (_, section) = page.split_once("\n## Exit codes\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let codes: Vec<u8> = rows
            .map(|row| row.split('`').next().unwrap().parse().unwrap())
            .collect();
        let all = [0, FAILED, USAGE, COULD_NOT, TIMED_OUT, INTERRUPTED];
        assert_eq!(codes, all);
    }
}
