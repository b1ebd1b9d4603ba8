//! The settings of jobs: their store and their worker. Only the user can set them, as a repository
//! could otherwise send the user's jobs to a stranger.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use codex_protocol::codex::SandboxMode;
use safe_files::state_directory::state_directory;

use crate::error::ConfigError;
use crate::file::{File, Scope};
use crate::key::Key;
use crate::lookup::{Lookup, of_user, within};
use crate::source::{Setting, Source, Warning};
use crate::store_access::{Access, OthersJobs};
use crate::store_location::Location;

/// The range of `worker_idle_secs`: up to 30 days.
const IDLE_TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 86_400);

/// The sandbox of a job if neither the job nor any configuration sets one: the sandbox of `codex
/// exec --full-auto`.
pub const DEFAULT_SANDBOX: SandboxMode = SandboxMode::WorkspaceWrite;

/// The default number of jobs that a worker runs at once.
pub const CONCURRENCY: NonZeroU32 = NonZeroU32::new(4).unwrap();

/// The default time for which a worker that was started on demand stays without work.
const IDLE: Duration = Duration::from_secs(600);

/// The greatest value of `worker_concurrency`. It is bounded because each job has its own
/// processes.
const MOST_AT_ONCE: u32 = 1000;

pub(super) const STORE: Key = Key {
    name: "store",
    flag: "--store",
    variable: "CODEX_MCP_STORE",
};

/// The settings of jobs.
#[derive(Debug)]
pub struct JobSettings {
    /// The location of the store: `$XDG_STATE_HOME/codex-mcp/jobs.db` unless set.
    pub store: Setting<Location>,
    /// The number of jobs that a worker runs at once.
    pub concurrency: Setting<NonZeroU32>,
    /// The time for which a worker that was started on demand stays without work.
    pub idle: Setting<Duration>,
    /// The rights of this machine over the jobs that others have submitted to a shared store.
    pub others: Setting<OthersJobs>,
    /// The state directory of this machine: `$XDG_STATE_HOME/codex-mcp`.
    pub state: PathBuf,
}

impl JobSettings {
    /// The access with which the store is opened.
    #[must_use]
    pub fn access(&self) -> Access {
        Access {
            others: self.others.value,
            ..Access::of(&self.state)
        }
    }
}

impl Lookup<'_> {
    pub(super) fn jobs(
        &self,
        store: Option<Location>,
        files: &[File],
        warnings: &mut Vec<Warning>,
    ) -> Result<JobSettings, ConfigError> {
        warn_about_repository(files, &self.user_file_hint(), warnings);
        let state = self.state_directory();
        let given = self.flag_or_variable(STORE, store)?;
        let given = given.map(|set| Setting::new(self.resolved(set.value, self.here), set.source));
        let in_file = |file: &File| {
            let directory = file.path.parent().unwrap_or(self.here);
            Some(self.resolved(file.section.store.clone()?, directory))
        };
        let default = || Setting::new(Location::Sqlite(state.join("jobs.db")), Source::Default);
        let store = given.or_else(|| of_user(files, in_file));
        let store = store.unwrap_or_else(default);
        Ok(JobSettings {
            store,
            concurrency: concurrency(files)?,
            idle: idle(files)?,
            others: of_user(files, |file| file.section.jobs_of_others)
                .unwrap_or(Setting::new(OthersJobs::default(), Source::Default)),
            state,
        })
    }

    /// Resolves the path of a file: `~` at its beginning, and a relative path, which starts at
    /// `directory`.
    fn resolved(&self, location: Location, directory: &Path) -> Location {
        match location {
            Location::Sqlite(path) => Location::Sqlite(match path.strip_prefix("~") {
                Ok(below) => self.home().join(below),
                Err(_) => directory.join(path),
            }),
            server @ Location::Postgres(_) => server,
        }
    }

    /// The state directory. If none is known, it is a relative path, which the store and the key of
    /// this machine refuse.
    fn state_directory(&self) -> PathBuf {
        let known = state_directory(|name| self.variable(name));
        known.unwrap_or_else(|| PathBuf::from("codex-mcp"))
    }
}

fn concurrency(files: &[File]) -> Result<Setting<NonZeroU32>, ConfigError> {
    let Some(Setting { value, source }) = of_user(files, |file| file.section.worker_concurrency)
    else {
        return Ok(Setting::new(CONCURRENCY, Source::Default));
    };
    let number = NonZeroU32::new(value).filter(|number| number.get() <= MOST_AT_ONCE);
    match number {
        Some(number) => Ok(Setting::new(number, source)),
        None => Err(ConfigError::Invalid {
            key: "worker_concurrency",
            from: source,
            why: format!("it must be between 1 and {MOST_AT_ONCE}"),
        }),
    }
}

fn idle(files: &[File]) -> Result<Setting<Duration>, ConfigError> {
    let Some(Setting { value, source }) = of_user(files, |file| file.section.worker_idle_secs)
    else {
        return Ok(Setting::new(IDLE, Source::Default));
    };
    within("worker_idle_secs", value, source, &IDLE_TIMES)
}

fn warn_about_repository(files: &[File], hint: &str, warnings: &mut Vec<Warning>) {
    for file in files.iter().filter(|file| file.scope == Scope::Repository) {
        let section = &file.section;
        let set = [
            ("store", section.store.is_some()),
            ("worker_concurrency", section.worker_concurrency.is_some()),
            ("worker_idle_secs", section.worker_idle_secs.is_some()),
            ("jobs_of_others", section.jobs_of_others.is_some()),
        ];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            warnings.push(Warning {
                message: format!(
                    "{key} in {} is left aside: jobs are the user's, not a repository's",
                    file.path.display()
                ),
                hint: hint.to_owned(),
            });
        }
    }
}
