//! Looks a setting up in the variables and the files.

use std::env;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::duration::{self, SetDuration};
use common::serde_error::in_plain_words;
use safe_files::home_directory::home_directory;
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::error::ConfigError;
use crate::file::{CORE, File, SECTION, Scope};
use crate::key::Key;
use crate::source::{Origin, Setting, Source};

/// The environment in which settings are looked up: the working directory and the variables.
pub(super) struct Lookup<'a> {
    pub(super) here: &'a Path,
    pub(super) variables: &'a dyn Fn(&str) -> Option<OsString>,
}

/// A lookup in the variables of this process. It must not be used to resolve paths, as it has no
/// directory.
fn of_process() -> Lookup<'static> {
    Lookup {
        here: Path::new(""),
        variables: &|name| env::var_os(name),
    }
}

/// The home directory of a user who has none. Debian uses this name, and the directory does not
/// exist.
const NO_HOME: &str = "/nonexistent";

/// The directory with the teams and the records of servers: `ATM_HOME`, else HOME.
#[must_use]
pub fn atm_home() -> PathBuf {
    of_process().atm_home()
}

/// Codex's home directory: `CODEX_HOME`, else `~/.codex`.
#[must_use]
pub fn codex_home() -> PathBuf {
    of_process().codex_home()
}

/// The user's file of settings.
#[must_use]
pub fn user_file() -> PathBuf {
    of_process().user_file()
}

impl Lookup<'_> {
    /// The remedy for a key that is never taken from a repository.
    pub(super) fn user_file_hint(&self) -> String {
        format!("Set it in {}.", self.user_file().display())
    }

    /// The user's file of settings, below `ATM_HOME` or the home directory.
    pub(super) fn user_file(&self) -> PathBuf {
        let set = self.variable("ATM_HOME").map(PathBuf::from);
        let set = set.filter(|path| path.is_absolute());
        let home = set.unwrap_or_else(|| self.home());
        home.join(".config/atm/config.toml")
    }

    /// The user's home directory; if none is known, a directory that does not exist.
    pub(super) fn home(&self) -> PathBuf {
        let home = home_directory(|name| self.variable(name));
        home.unwrap_or_else(|| PathBuf::from(NO_HOME))
    }

    /// The directory with the teams; an empty path if it is not known.
    pub(super) fn atm_home(&self) -> PathBuf {
        let home = self.variable("ATM_HOME").or_else(|| self.variable("HOME"));
        home.map(PathBuf::from).unwrap_or_default()
    }

    pub(super) fn codex_home(&self) -> PathBuf {
        let set = self.variable("CODEX_HOME").map(PathBuf::from);
        set.unwrap_or_else(|| self.home().join(".codex"))
    }

    /// The value of a variable; an empty one counts as unset.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// A setting from a flag or a variable.
    pub(super) fn flag_or_variable<T: DeserializeOwned>(
        &self,
        key: Key,
        flag: Option<T>,
    ) -> Result<Option<Setting<T>>, ConfigError> {
        if let Some(value) = flag {
            return Ok(Some(Setting::new(value, Source::Flag(key.flag))));
        }
        self.in_variable(key.name, key.variable)
    }

    pub(super) fn in_variable<T: DeserializeOwned>(
        &self,
        key: &'static str,
        variable: &'static str,
    ) -> Result<Option<Setting<T>>, ConfigError> {
        let Some(value) = self.variable(variable) else {
            return Ok(None);
        };
        let from = Source::Variable(variable);
        let invalid = |why: String| ConfigError::Invalid {
            key,
            from: from.clone(),
            why,
        };
        let text = value
            .to_str()
            .ok_or_else(|| invalid("it is not UTF-8".to_owned()))?;
        let value = T::deserialize(text.into_deserializer())
            .map_err(|error: ValueError| invalid(in_plain_words(&error.to_string())))?;
        Ok(Some(Setting::new(value, from)))
    }

    /// A setting that is on or off.
    pub(super) fn switch(
        &self,
        key: Key,
        flag: Option<bool>,
        default: bool,
        files: &[File],
        of_file: impl Fn(&File) -> Option<bool>,
    ) -> Result<Setting<bool>, ConfigError> {
        if let Some(value) = flag {
            return Ok(Setting::new(value, Source::Flag(key.flag)));
        }
        if let Some(Setting { value, source }) =
            self.in_variable::<String>(key.name, key.variable)?
        {
            let value = value.parse().map_err(|_| ConfigError::Invalid {
                key: key.name,
                from: source.clone(),
                why: format!("it must be true or false, not {value:?}"),
            })?;
            return Ok(Setting::new(value, source));
        }
        let set = in_section(files, of_file);
        Ok(set.unwrap_or(Setting::new(default, Source::Default)))
    }
}

/// A setting from the first file that has it in our section.
pub(super) fn in_section<T>(
    files: &[File],
    get: impl Fn(&File) -> Option<T>,
) -> Option<Setting<T>> {
    in_section_or_core(files, get, |_| None)
}

/// A setting from the first file that has it, in our section or else in `[core]`.
pub(super) fn in_section_or_core<T>(
    files: &[File],
    ours: impl Fn(&File) -> Option<T>,
    core: impl Fn(&File) -> Option<T>,
) -> Option<Setting<T>> {
    files.iter().find_map(|file| {
        let set = |table| move |value| Setting::new(value, Source::File(table, file.path.clone()));
        ours(file)
            .map(set(SECTION))
            .or_else(|| core(file).map(set(CORE)))
    })
}

/// A setting that only the user's own file can have.
pub(super) fn of_user<T>(files: &[File], get: impl Fn(&File) -> Option<T>) -> Option<Setting<T>> {
    in_section(files, |file| match file.scope {
        Scope::User => get(file),
        Scope::Repository => None,
    })
}

/// Checks that a duration is in the range.
pub(super) fn within(
    key: &'static str,
    SetDuration(value): SetDuration,
    from: Source,
    range: &RangeInclusive<Duration>,
) -> Result<Setting<Duration>, ConfigError> {
    match duration::check(value, range) {
        Ok(value) => Ok(Setting::new(value, from)),
        Err(why) => Err(ConfigError::Invalid { key, from, why }),
    }
}

/// The author of a setting: the repository if its file has set it, else the user.
pub(super) fn origin<T>(set: &Setting<T>, files: &[File]) -> Origin {
    let (Source::File(_, path) | Source::Role(_, path)) = &set.source else {
        return Origin::User;
    };
    let is_theirs = |file: &File| file.scope == Scope::Repository && file.path == *path;
    match files.iter().any(is_theirs) {
        true => Origin::Repository,
        false => Origin::User,
    }
}
