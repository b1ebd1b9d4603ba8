//! The options of all verbs.

use std::path::PathBuf;
use std::{env, io};

use anstream::ColorChoice;
use clap::ValueEnum;
use common::output::{self, Verbosity};

/// The heading above these options in the help.
const HEADING: &str = "Global options";

#[derive(Debug, clap::Args)]
pub(super) struct Global {
    /// Work as if started in this directory: paths in other options count from there.
    // The field is not named `directory` because `trust` has an argument of that name, and clap
    // identifies arguments by their names.
    #[arg(short = 'C', value_name = "DIR", global = true, help_heading = HEADING)]
    working_directory: Option<PathBuf>,

    /// Print errors and results only: no progress, no warnings; log errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = HEADING)]
    quiet: bool,

    /// Log more to stderr, like CODEX_MCP_LOG=debug.
    #[arg(short, long, global = true, help_heading = HEADING)]
    verbose: bool,

    /// Use colours always, never, or auto: at a terminal, unless NO_COLOR is set.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", hide_possible_values = true, global = true, help_heading = HEADING)]
    color: ColourMode,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ColourMode {
    /// At a terminal.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl ColourMode {
    /// Applies the mode to all later output.
    pub(super) fn apply(self) {
        let choice = match self {
            Self::Auto => ColorChoice::Auto,
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// Why the working directory cannot be entered.
#[derive(Debug, thiserror::Error)]
#[error("-C {}: {error}; name an existing directory", directory.display())]
pub(super) struct DirectoryError {
    directory: PathBuf,
    error: io::Error,
}

impl Global {
    /// Applies the options to this process.
    ///
    /// # Errors
    ///
    /// If the directory cannot be entered.
    pub(super) fn apply(&self) -> Result<(), DirectoryError> {
        self.color.apply();
        output::set_verbosity(match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Usual,
        });
        let Some(directory) = &self.working_directory else {
            return Ok(());
        };
        env::set_current_dir(directory).map_err(|error| DirectoryError {
            directory: directory.clone(),
            error,
        })
    }
}
