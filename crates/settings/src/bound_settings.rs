//! The settings that bound clients. Only the user can set them, as a repository or a client could
//! otherwise widen the bounds.

use std::path::{Path, PathBuf};

use codex_protocol::codex::SandboxMode;

use crate::error::ConfigError;
use crate::file::{File, Scope};
use crate::flags::Flags;
use crate::key::Key;
use crate::lookup::{Lookup, of_user};
use crate::source::{Setting, Source, Warning};

pub(super) const MAX_SANDBOX: Key = Key {
    name: "max_sandbox",
    flag: "--max-sandbox",
    variable: "CODEX_MCP_MAX_SANDBOX",
};
pub(super) const ALLOW_COMMANDS: Key = Key {
    name: "allow_commands",
    flag: "--no-commands",
    variable: "CODEX_MCP_ALLOW_COMMANDS",
};
pub(super) const ALLOW_DIRS: Key = Key {
    name: "allow_dirs",
    flag: "--allow-dir",
    variable: "CODEX_MCP_ALLOW_DIRS",
};

/// The settings that bound clients.
#[derive(Debug)]
pub struct BoundSettings {
    /// The widest sandbox that a client may have.
    pub max_sandbox: Option<Setting<SandboxMode>>,
    /// Whether criteria and notifiers may name programs.
    pub allow_commands: Setting<bool>,
    /// The absolute paths of the directories in which work may be done.
    pub allow_dirs: Option<Setting<Vec<PathBuf>>>,
}

impl BoundSettings {
    /// Whether the bounds allow commands without a sandbox.
    pub(super) fn allow_full_access(&self) -> bool {
        let most = self.max_sandbox.as_ref().map(|set| set.value);
        most.is_none_or(|most| most == SandboxMode::DangerFullAccess)
    }
}

impl Lookup<'_> {
    pub(super) fn bounds(
        &self,
        flags: &Flags,
        files: &[File],
        warnings: &mut Vec<Warning>,
    ) -> Result<BoundSettings, ConfigError> {
        warn_about_repository(files, &self.user_file_hint(), warnings);
        let max_sandbox = self.flag_or_variable(MAX_SANDBOX, flags.max_sandbox)?;
        let of_file = || of_user(files, |file| file.section.max_sandbox);
        let user: Vec<File> = files
            .iter()
            .filter(|file| belongs_to_user(file))
            .cloned()
            .collect();
        let allow_commands =
            self.switch(ALLOW_COMMANDS, flags.allow_commands, true, &user, |file| {
                file.section.allow_commands
            })?;
        Ok(BoundSettings {
            max_sandbox: max_sandbox.or_else(of_file),
            allow_commands,
            allow_dirs: self.allow_dirs(&flags.allow_dirs, files, warnings)?,
        })
    }

    fn allow_dirs(
        &self,
        flags: &[PathBuf],
        files: &[File],
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Setting<Vec<PathBuf>>>, ConfigError> {
        let set = match (flags, self.variable(ALLOW_DIRS.variable)) {
            ([], None) => of_user(files, |file| file.section.allow_dirs.clone()),
            ([], Some(set)) => {
                let paths = std::env::split_paths(&set).collect();
                Some(Setting::new(paths, Source::Variable(ALLOW_DIRS.variable)))
            }
            (flags, _) => {
                let paths = flags.iter().map(|path| self.here.join(path)).collect();
                Some(Setting::new(paths, Source::Flag(ALLOW_DIRS.flag)))
            }
        };
        let Some(Setting { value, source }) = set else {
            return Ok(None);
        };
        let home = self.home();
        let absolute = |path: PathBuf| {
            let path = match path.strip_prefix("~") {
                Ok(below) => home.join(below),
                Err(_) => path,
            };
            match path.is_absolute() {
                true => Ok(path),
                false => Err(relative(&path, &source)),
            }
        };
        let paths: Vec<PathBuf> = value.into_iter().map(absolute).collect::<Result<_, _>>()?;
        for missing in paths.iter().filter(|path| !path.is_dir()) {
            warnings.push(Warning {
                message: format!(
                    "allow_dirs ({source}) names {}, where there is no directory",
                    missing.display()
                ),
                hint: "No work is allowed there until there is one.".to_owned(),
            });
        }
        Ok(Some(Setting::new(paths, source)))
    }
}

fn relative(path: &Path, from: &Source) -> ConfigError {
    ConfigError::Invalid {
        key: ALLOW_DIRS.name,
        from: from.clone(),
        why: format!("{} is not an absolute path", path.display()),
    }
}

fn belongs_to_user(file: &File) -> bool {
    file.scope == Scope::User
}

fn warn_about_repository(files: &[File], hint: &str, warnings: &mut Vec<Warning>) {
    for file in files.iter().filter(|file| !belongs_to_user(file)) {
        let section = &file.section;
        let set = [
            (MAX_SANDBOX.name, section.max_sandbox.is_some()),
            (ALLOW_COMMANDS.name, section.allow_commands.is_some()),
            (ALLOW_DIRS.name, section.allow_dirs.is_some()),
        ];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            warnings.push(Warning {
                message: format!(
                    "{key} in {} is left out: bounds are the user's, not a repository's",
                    file.path.display()
                ),
                hint: hint.to_owned(),
            });
        }
    }
}
