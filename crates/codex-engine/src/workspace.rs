//! What `workspace-write` allows besides the working directory.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use codex_config::layers::UserConfig;
use codex_config::trust::{TrustError, directory_trust};
use codex_config::writable_roots;
use codex_protocol::codex::{ThreadSettings, WorkspaceWrite};
use safe_files::directory::{self, ReplacedDirectory};
use safe_files::off_runtime;
use serde_json::{Map, Value, json};

use super::command::Settings;
use super::confinement::set;
use super::{Engine, EngineError};

/// Where Codex's configuration has it.
const TABLE: &str = "sandbox_workspace_write";

/// What commands are to be allowed in `workspace-write`, beside what the user's
/// configuration allows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// To commit, in this git directory and not in the repository's.
    pub git: Option<GitGrant>,
    /// To use the network.
    pub network: bool,
}

/// A git directory that commands are to use and to write in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitGrant {
    /// The directory.
    pub directory: PathBuf,
    /// The variables by which git finds it.
    pub variables: Vec<(&'static str, PathBuf)>,
}

/// Settings that allow it.
#[derive(Debug, Clone)]
pub struct Granted {
    /// They. They make a difference in `workspace-write` alone.
    pub settings: Settings,
    /// All directories that may be written, absolute: the working directory first.
    pub directories: Vec<PathBuf>,
    /// The directories for temporary files that may be written as well.
    pub temporary: Vec<PathBuf>,
}

impl Engine {
    /// The settings of a thread that allows this too.
    ///
    /// # Errors
    ///
    /// [`EngineError`].
    pub async fn granting(
        &self,
        mut settings: Settings,
        grants: &Grants,
    ) -> Result<Granted, EngineError> {
        let cwd = self.working_directory(settings.thread.cwd.take())?;
        settings.thread.cwd = Some(cwd.clone());
        writable_roots::resolve(&mut settings.thread.config, &cwd);
        let mut table = self.workspace_table(&settings, Some(&cwd)).await?;
        let allowed = read(table.clone())?;
        let temporary = temporary(&allowed);
        let mut directories = allowed.writable_roots;
        if let Some(git) = &grants.git {
            directories.push(git.directory.clone());
            for (name, path) in &git.variables {
                let path = path.to_string_lossy().into_owned();
                let key = ["shell_environment_policy", "set", name];
                set(&mut settings.thread.config, &key, path.into());
            }
        }
        if *grants != Grants::default() {
            table.insert("writable_roots".to_owned(), json!(directories));
            if grants.network {
                table.insert("network_access".to_owned(), true.into());
            }
            // It is all in the table now.
            let set = &mut settings.thread.config;
            set.retain(|key, _| key.split_once('.').is_none_or(|(table, _)| table != TABLE));
            set.insert(TABLE.to_owned(), table.into());
        }
        writable_roots::resolve(&mut settings.thread.config, &cwd);
        directories.insert(0, cwd);
        Ok(Granted {
            settings,
            directories,
            temporary,
        })
    }

    /// The table of a thread: its settings laid over what is configured for its directory.
    ///
    /// Codex's own `config/read` goes by its list of trusted directories alone, and would
    /// count a repository's file that has changed since the user trusted it.
    pub(super) async fn workspace_table(
        &self,
        settings: &Settings,
        cwd: Option<&Path>,
    ) -> Result<Map<String, Value>, EngineError> {
        let overrides = self.with_profile(settings)?.config;
        let codex_home = self.options.codex_home.clone();
        let (profile, cwd) = (settings.profile.clone(), cwd.map(Path::to_owned));
        let configured = off_runtime::run(move || -> Result<_, TrustError> {
            let user = UserConfig::read(&codex_home);
            let trust = cwd.map(|cwd| directory_trust(&cwd, &user)).transpose()?;
            Ok(user.layers(profile.as_ref(), trust.as_ref()).table(TABLE))
        });
        let mut table = configured.await??;
        for (key, value) in overrides {
            match (key.as_str(), key.split_once('.'), value) {
                (TABLE, _, Value::Object(over)) => table.extend(over),
                (_, Some((TABLE, key)), value) => {
                    table.insert(key.to_owned(), value);
                }
                _ => {}
            }
        }
        Ok(table)
    }
}

impl Granted {
    /// Checks that none of the thread's directories was replaced since.
    pub fn check(&self) -> Result<(), EngineError> {
        Ok(check(&self.settings.thread)?)
    }
}

/// The directories for temporary files in `workspace-write`.
fn temporary(allowed: &WorkspaceWrite) -> Vec<PathBuf> {
    let of_variable = env::var_os("TMPDIR").filter(|_| !allowed.exclude_tmpdir_env_var);
    let usual = (!allowed.exclude_slash_tmp).then(|| OsString::from("/tmp"));
    let all = of_variable.into_iter().chain(usual).map(PathBuf::from);
    all.filter(|path| path.is_absolute()).collect()
}

/// Checks that no directory of a thread was replaced since it was noted.
pub(super) fn check(thread: &ThreadSettings) -> Result<(), ReplacedDirectory> {
    thread.cwd.as_deref().map_or(Ok(()), directory::check)?;
    writable_roots::check(&thread.config)
}

/// The table, understood. `turn/start` wants it said, where `thread/start` takes it
/// from the configuration by itself.
pub(super) fn read(table: Map<String, Value>) -> Result<WorkspaceWrite, EngineError> {
    serde_json::from_value(Value::Object(table))
        .map_err(|error| EngineError::BadOverride { key: TABLE, error })
}
