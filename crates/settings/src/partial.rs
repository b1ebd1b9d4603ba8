//! Loads the settings without wrong values, for verbs that show, answer or end work: running work
//! stays within reach while a file is wrong. Whatever starts work refuses such a file.

use std::env;

use crate::config::{Config, load_without};
use crate::error::ConfigError;
use crate::file::{LeftOut, SECTION};
use crate::flags::Flags;
use crate::source::Source;

/// The keys that can be left out, as only new work depends on them. Those that locate the store, the
/// identity or Codex, and those that bound anything, are not among them: their defaults would show
/// other work, or allow more. Nor is the size of the audit: a smaller one would delete records.
pub(super) const DISPENSABLE: [&str; 23] = [
    "request_timeout_secs",
    "team_tools",
    "summaries",
    "host",
    "http",
    "request_image",
    "max_image_bytes",
    "worker_concurrency",
    "worker_idle_secs",
    "notify",
    "notify_on",
    "answer_by_mail",
    "stall_timeout_secs",
    "keep_jobs_secs",
    "keep_tasks_secs",
    "max_log_bytes",
    "prices",
    "currency",
    "model",
    "reasoning_effort",
    "sandbox",
    "base_prompt_file",
    "extra_instructions_file",
];

/// The settings without the wrong values of files.
#[derive(Debug)]
pub struct PartialConfig {
    /// The settings. They must start no work: a setting that is left out has its default.
    pub config: Config,
    /// The error of each value that is left out.
    pub wrong: Vec<ConfigError>,
}

/// Loads the settings for the working directory without wrong values on which only new work
/// depends.
///
/// # Errors
///
/// [`ConfigError`] when another value is wrong, or a file is unreadable or not TOML.
pub fn load_partial(flags: &Flags) -> Result<PartialConfig, ConfigError> {
    let directory = env::current_dir().unwrap_or_default();
    without_wrong_values(|left_out| load_without(&directory, flags.clone(), left_out))
}

/// Calls `load` with more and more keys to leave out, until it succeeds. A key is left out only in
/// the file in which it is wrong, so that one of a repository removes none of the user's settings.
pub(super) fn without_wrong_values(
    load: impl Fn(&[LeftOut]) -> Result<Config, ConfigError>,
) -> Result<PartialConfig, ConfigError> {
    let mut left_out: Vec<LeftOut> = Vec::new();
    let mut wrong = Vec::new();
    loop {
        let error = match load(&left_out) {
            Ok(config) => return Ok(PartialConfig { config, wrong }),
            Err(error) => error,
        };
        match dispensable(&error) {
            Some(key) if !left_out.contains(&key) => left_out.push(key),
            _ => return Err(error),
        }
        wrong.push(error);
    }
}

/// The key that is wrong in a file, if it can be left out there.
fn dispensable(error: &ConfigError) -> Option<LeftOut> {
    let (file, key) = match error {
        ConfigError::Malformed { path, error } => {
            let keys = error.keys.as_deref()?;
            let in_section = keys.strip_prefix(SECTION)?.strip_prefix('.')?;
            (path, in_section.split('.').next()?)
        }
        ConfigError::Invalid {
            key,
            from: Source::File(SECTION, path),
            ..
        } => (path, *key),
        _ => return None,
    };
    let key = DISPENSABLE.into_iter().find(|known| *known == key)?;
    Some(LeftOut {
        file: file.clone(),
        key,
    })
}
