//! The states of jobs on the command line.

use anstyle::{AnsiColor, Style};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use job_queue::logic::JobState;
use strum::VariantNames;

/// Parses a state.
pub(super) fn parser() -> impl TypedValueParser<Value = JobState> {
    PossibleValuesParser::new(<JobState as VariantNames>::VARIANTS)
        .try_map(|word| word.parse::<JobState>())
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
