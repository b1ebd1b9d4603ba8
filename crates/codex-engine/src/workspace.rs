//! The permissions of `workspace-write` in addition to writing the working directory.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use codex_config::writable_roots;
use codex_protocol::codex::{ThreadSettings, WorkspaceWrite};
use safe_files::directory::{self, ReplacedDirectory};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::command::Settings;
use super::engine::Engine;
use super::error::EngineError;
use super::overrides::set;

/// The table of these permissions in Codex's configuration.
const TABLE: &str = "sandbox_workspace_write";

/// Further permissions for commands in `workspace-write`, in addition to those of the
/// user's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Permission to commit, in this git directory instead of the repository's.
    pub git: Option<GitGrant>,
    /// Permission to use the network.
    pub network: bool,
}

/// A git directory that commands use and may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitGrant {
    /// The directory.
    pub directory: PathBuf,
    /// The variables by which git finds it.
    pub variables: Vec<(&'static str, PathBuf)>,
}

/// Settings with granted permissions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantedSettings {
    /// The settings. The permissions have an effect in `workspace-write` only.
    pub settings: Settings,
    /// All writable directories, absolute, the working directory first.
    pub directories: Vec<PathBuf>,
    /// The writable directories for temporary files.
    pub temporary: Vec<PathBuf>,
}

impl Engine {
    /// Adds these permissions to the settings of a thread.
    ///
    /// # Errors
    ///
    /// [`EngineError`].
    pub async fn with_grants(
        &self,
        mut settings: Settings,
        grants: &Grants,
    ) -> Result<GrantedSettings, EngineError> {
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
            // The table now contains all of these keys.
            let set = &mut settings.thread.config;
            set.retain(|key, _| key.split_once('.').is_none_or(|(table, _)| table != TABLE));
            set.insert(TABLE.to_owned(), table.into());
        }
        writable_roots::resolve(&mut settings.thread.config, &cwd);
        directories.insert(0, cwd);
        Ok(GrantedSettings {
            settings,
            directories,
            temporary,
        })
    }

    /// The table of a thread: its settings merged over the configuration of its
    /// directory.
    pub(super) async fn workspace_table(
        &self,
        settings: &Settings,
        cwd: Option<&Path>,
    ) -> Result<Map<String, Value>, EngineError> {
        let overrides = self.with_profile(settings)?.config;
        let (profile, cwd) = (settings.profile.clone(), cwd.map(Path::to_owned));
        let (_, configured) = self.configured(profile, cwd).await?;
        let mut table = configured.table(TABLE);
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

impl GrantedSettings {
    /// Checks that no directory of the thread was replaced meanwhile.
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

/// Checks that no directory of a thread was replaced since it was resolved.
pub(super) fn check(thread: &ThreadSettings) -> Result<(), ReplacedDirectory> {
    thread.cwd.as_deref().map_or(Ok(()), directory::check)?;
    writable_roots::check(&thread.config)
}

/// Parses the table. `turn/start` requires its values, whereas `thread/start` reads the
/// configuration itself.
pub(super) fn read(table: Map<String, Value>) -> Result<WorkspaceWrite, EngineError> {
    serde_json::from_value(Value::Object(table))
        .map_err(|error| EngineError::BadOverride { key: TABLE, error })
}
