//! The settings that bound what is kept on the disk. Only the user can set them, as a repository
//! could otherwise have the records of its own actions removed.

use std::ops::RangeInclusive;
use std::time::Duration;

use common::duration::SetDuration;

use crate::error::ConfigError;
use crate::file::{File, Scope, Section};
use crate::lookup::{of_user, within};
use crate::source::{Setting, Source, Warning};

const DAY: Duration = Duration::from_secs(86_400);

/// The default time for which an ended job is kept with its events.
const JOBS: Duration = DAY.saturating_mul(90);

/// The default time for which the result of a task is kept.
const TASKS: Duration = DAY;

/// The default sizes, in bytes, at which a file of the audit or a log is set aside.
const AUDIT_BYTES: u64 = 10 << 20;
const LOG_BYTES: u64 = 1 << 20;

/// The range of the times: from a minute, which a client may need to fetch a result, to 100 years.
const TIMES: RangeInclusive<Duration> = Duration::from_secs(60)..=DAY.saturating_mul(36_525);

/// The range of the sizes, in bytes: from a few lines of the audit, each up to 8 KiB, to a file
/// that an editor still opens.
const SIZES: RangeInclusive<u64> = 16 << 10..=1 << 30;

const KEEP_JOBS: &str = "keep_jobs_secs";
const KEEP_TASKS: &str = "keep_tasks_secs";
const MAX_AUDIT: &str = "max_audit_bytes";
const MAX_LOG: &str = "max_log_bytes";

/// The settings that bound what is kept on the disk.
#[derive(Debug)]
pub struct RetentionSettings {
    /// The time for which an ended job is kept with its events.
    pub jobs: Setting<Duration>,
    /// The time for which the result of a task is kept.
    pub tasks: Setting<Duration>,
    /// The size in bytes at which the audit log of an identity is set aside. Five older files are
    /// kept.
    pub audit_bytes: Setting<u64>,
    /// The size in bytes at which the log of a host or a worker is set aside. One older file is
    /// kept.
    pub log_bytes: Setting<u64>,
}

/// The defaults are for a process that cannot read its settings.
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
