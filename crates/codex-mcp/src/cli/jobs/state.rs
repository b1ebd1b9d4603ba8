//! The states of jobs on the command line.

use anstyle::{AnsiColor, Style};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use job_queue::logic::JobState;

/// Parses a state.
pub(super) fn parser() -> impl TypedValueParser<Value = JobState> {
    let words = JobState::ALL.map(JobState::as_str);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<JobState>())
}

/// The colour of a state.
pub(super) fn style(state: JobState) -> Style {
    match state {
        JobState::Queued => Style::new(),
        JobState::Running => AnsiColor::Cyan.on_default(),
        JobState::Completed => AnsiColor::Green.on_default(),
        JobState::Failed => AnsiColor::Red.on_default(),
        JobState::Cancelled => AnsiColor::Yellow.on_default(),
    }
}
