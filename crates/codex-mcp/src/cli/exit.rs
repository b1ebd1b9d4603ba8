//! The exit codes of all verbs. docs/command-line.md lists them in one table.

use goal_run::logic::outcome::Reason;
use job_queue::logic::JobState;
use tokio::signal::unix::SignalKind;

/// An operation or a job failed, or a review asks for changes.
pub(super) const FAILED: u8 = 1;

/// The command line is wrong, unless the verb is one of [`WITH_OUTCOMES`].
const USAGE: u8 = 2;

/// A run has ended without meeting all its criteria.
const NOT_SATISFIED: u8 = 2;

/// A job was cancelled.
const CANCELLED: u8 = 2;

/// One of [`WITH_OUTCOMES`] could not do its work, or its command line is wrong.
pub(super) const COULD_NOT: u8 = 3;

/// A job did not end within the timeout of `jobs wait`.
pub(super) const TIMED_OUT: u8 = 124;

/// Ended by Ctrl-C: 128 plus the number of SIGINT, as in shells.
pub(super) const INTERRUPTED: u8 = 130;

/// The verbs that report the outcome of a job, a review or a run with the codes 1 and 2, and those
/// that, like the verbs of `jobs`, exit with [`COULD_NOT`].
const WITH_OUTCOMES: [&str; 11] = [
    "approve", "attach", "cancel", "decline", "jobs", "logs", "review", "run", "steer", "top",
    "web",
];

/// The exit code for a wrong command line of a verb.
pub(super) fn usage_code(verb: Option<&str>) -> u8 {
    match verb.is_some_and(|verb| WITH_OUTCOMES.contains(&verb)) {
        true => COULD_NOT,
        false => USAGE,
    }
}

/// The exit code of a process ended by a signal.
pub(super) fn signal_code(signal: SignalKind) -> u8 {
    u8::try_from(signal.as_raw_value()).map_or(FAILED, |number| number.saturating_add(128))
}

/// The exit code of a run that ended for this reason; `None` is success.
pub(super) fn run_code(reason: Option<Reason>) -> u8 {
    match reason {
        None => 0,
        Some(Reason::CouldNotRun) => COULD_NOT,
        Some(_) => NOT_SATISFIED,
    }
}

/// The exit code for a job in this state; a job that has not ended yields [`TIMED_OUT`].
pub(super) fn job_code(state: JobState) -> u8 {
    match state {
        JobState::Completed => 0,
        JobState::Failed => FAILED,
        JobState::Cancelled => CANCELLED,
        JobState::Queued | JobState::Running => TIMED_OUT,
    }
}

/// The most severe of several jobs' exit codes.
pub(super) fn worst(codes: impl IntoIterator<Item = u8>) -> u8 {
    const FROM_WORST: [u8; 5] = [INTERRUPTED, COULD_NOT, TIMED_OUT, FAILED, CANCELLED];
    let codes: Vec<u8> = codes.into_iter().collect();
    let found = FROM_WORST.into_iter().find(|code| codes.contains(code));
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn worst_of_several_codes_wins() {
        assert_eq!(worst([]), 0);
        assert_eq!(worst([0, 2, 1, 0]), 1);
        assert_eq!(worst([1, 124, 2]), 124);
        assert_eq!(worst([124, 3, 0]), 3);
        let codes: Vec<u8> = JobState::ALL.iter().copied().map(job_code).collect();
        assert_eq!(codes, [124, 124, 0, 1, 2]);
    }

    #[test]
    fn signal_exit_code_follows_shells() {
        assert_eq!(signal_code(SignalKind::interrupt()), INTERRUPTED);
        assert_eq!(signal_code(SignalKind::terminate()), 143);
    }

    /// The section on exit codes in docs/command-line.md.
    fn section() -> &'static str {
        let page = include_str!("../../../../docs/command-line.md");
        let (_, section) = page.split_once("\n## Exit codes\n").unwrap();
        section.split_once("\n## ").unwrap().0
    }

    #[test]
    fn headings_of_docs_name_each_verb_that_exits_with_3() {
        let is_head = |line: &&str| line.starts_with("| code |");
        let head = section().lines().find(is_head).unwrap();
        let verbs: BTreeSet<&str> = head.split('`').skip(1).step_by(2).collect();
        assert_eq!(verbs, BTreeSet::from(WITH_OUTCOMES));
    }

    #[test]
    fn docs_have_every_exit_code() {
        let rows = section()
            .lines()
            .filter_map(|line| line.strip_prefix("| `"));
        let codes: Vec<u8> = rows
            .map(|row| row.split('`').next().unwrap().parse().unwrap())
            .collect();
        let all = [0, FAILED, USAGE, COULD_NOT, TIMED_OUT, INTERRUPTED];
        assert_eq!(codes, all);
    }
}
