//! The settings that bound what is kept on the disk. Only the user can set them: a repository could
//! have the records of what was done removed.

use std::ops::RangeInclusive;
use std::time::Duration;

use common::duration::SetDuration;

use crate::error::ConfigError;
use crate::file::{File, Scope, Section};
use crate::lookup::{of_user, within};
use crate::source::{Setting, Source, Warning};

const DAY: Duration = Duration::from_secs(86_400);

/// How long an ended job is kept with its events, unless set.
const JOBS: Duration = DAY.saturating_mul(90);

/// How long the result of a task is kept, unless set.
const TASKS: Duration = DAY;

/// The sizes at which a file of the audit and a log are set aside, unless set.
const AUDIT_BYTES: u64 = 10 << 20;
const LOG_BYTES: u64 = 1 << 20;

/// From the time that a client needs to fetch a result to one that nobody outlives.
const TIMES: RangeInclusive<Duration> = Duration::from_secs(60)..=DAY.saturating_mul(36_500);

/// From some lines, each of which has up to 8 KiB in the audit, to what an editor still opens.
const SIZES: RangeInclusive<u64> = 16 << 10..=1 << 30;

const KEEP_JOBS: &str = "keep_jobs_secs";
const KEEP_TASKS: &str = "keep_tasks_secs";
const MAX_AUDIT: &str = "max_audit_bytes";
const MAX_LOG: &str = "max_log_bytes";

/// The settings that bound what is kept on the disk.
#[derive(Debug)]
pub struct RetentionSettings {
    /// How long an ended job is kept with its events.
    pub jobs: Setting<Duration>,
    /// How long the result of a task is kept.
    pub tasks: Setting<Duration>,
    /// The size at which the audit log of an identity is set aside; five older ones are kept.
    pub audit_bytes: Setting<u64>,
    /// The size at which the log of a host or a worker is set aside; one older one is kept.
    pub log_bytes: Setting<u64>,
}

/// For a process that cannot read its settings.
impl Default for RetentionSettings {
    fn default() -> Self {
        Self {
            jobs: Setting::new(JOBS, Source::Default),
            tasks: Setting::new(TASKS, Source::Default),
            audit_bytes: Setting::new(AUDIT_BYTES, Source::Default),
            log_bytes: Setting::new(LOG_BYTES, Source::Default),
        }
    }
}

pub(super) fn retention(
    files: &[File],
    hint: &str,
    warnings: &mut Vec<Warning>,
) -> Result<RetentionSettings, ConfigError> {
    warn_about_repository(files, hint, warnings);
    let usual = RetentionSettings::default();
    let jobs = time(files, KEEP_JOBS, |section| section.keep_jobs_secs)?;
    let tasks = time(files, KEEP_TASKS, |section| section.keep_tasks_secs)?;
    let audit_bytes = size(files, MAX_AUDIT, |section| section.max_audit_bytes)?;
    let log_bytes = size(files, MAX_LOG, |section| section.max_log_bytes)?;
    Ok(RetentionSettings {
        jobs: jobs.unwrap_or(usual.jobs),
        tasks: tasks.unwrap_or(usual.tasks),
        audit_bytes: audit_bytes.unwrap_or(usual.audit_bytes),
        log_bytes: log_bytes.unwrap_or(usual.log_bytes),
    })
}

fn time(
    files: &[File],
    key: &'static str,
    of: impl Fn(&Section) -> Option<SetDuration>,
) -> Result<Option<Setting<Duration>>, ConfigError> {
    let set = of_user(files, |file| of(&file.section));
    set.map(|Setting { value, source }| within(key, value, source, &TIMES))
        .transpose()
}

fn size(
    files: &[File],
    key: &'static str,
    of: impl Fn(&Section) -> Option<u64>,
) -> Result<Option<Setting<u64>>, ConfigError> {
    match of_user(files, |file| of(&file.section)) {
        Some(Setting { value, source }) if !SIZES.contains(&value) => Err(ConfigError::Invalid {
            key,
            from: source,
            why: format!(
                "it must be between {} and {} bytes",
                SIZES.start(),
                SIZES.end()
            ),
        }),
        set => Ok(set),
    }
}

fn warn_about_repository(files: &[File], hint: &str, warnings: &mut Vec<Warning>) {
    for file in files.iter().filter(|file| file.scope == Scope::Repository) {
        let section = &file.section;
        let set = [
            (KEEP_JOBS, section.keep_jobs_secs.is_some()),
            (KEEP_TASKS, section.keep_tasks_secs.is_some()),
            (MAX_AUDIT, section.max_audit_bytes.is_some()),
            (MAX_LOG, section.max_log_bytes.is_some()),
        ];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            warnings.push(Warning {
                message: format!(
                    "{key} in {} is left aside: what is kept is the user's choice, not a repository's",
                    file.path.display()
                ),
                hint: hint.to_owned(),
            });
        }
    }
}
