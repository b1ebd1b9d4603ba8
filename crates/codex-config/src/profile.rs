//! Codex's profiles, as settings of a thread.
//!
//! Up to about 0.149 a profile is a table `[profiles.NAME]` in `config.toml`,
//! and `config.profile` in `thread/start` selects it. Newer releases refuse
//! that; for them a profile is the file `$CODEX_HOME/NAME.config.toml`, whose
//! contents are overrides like any others.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use common::nearest::nearest;
use common::toml_error::{self, TomlError};
use safe_files::untrusted_file::{self, Links, ReadError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The name of a profile: letters, digits, `-` and `_`, at most 64, so that it can be
/// part of a file name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProfileName(String);

/// The longest name of a profile.
const NAME_LIMIT: usize = 64;

/// The suffix of the names of profile files.
const SUFFIX: &str = ".config.toml";

/// The longest profile, in bytes.
const LIMIT: u64 = 1024 * 1024;

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ProfileName {
    type Error = ProfileError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > NAME_LIMIT || !name.chars().all(plain) {
            return Err(ProfileError::BadName);
        }
        Ok(Self(name))
    }
}

impl From<ProfileName> for String {
    fn from(name: ProfileName) -> Self {
        name.0
    }
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The name is not valid.
    #[error("a profile's name has 1 to 64 letters, digits, dashes or underscores")]
    BadName,
    /// The file can't be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The file is not TOML.
    #[error("{} is not valid TOML: {error}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: TomlError,
    },
}

/// The profile exists neither as a file nor as a table.
#[derive(Debug, thiserror::Error)]
#[error("there is no profile {name} in {}; {hint}", codex_home.display())]
pub struct NoProfile {
    name: ProfileName,
    codex_home: PathBuf,
    /// The nearest name, the existing profiles, or the file to create.
    hint: String,
}

/// The overrides of `config.toml` that select the profile or that its file contains.
///
/// # Errors
///
/// [`ProfileError`]. A profile that exists in neither form is not detected here: Codex
/// reports it.
pub fn overrides(
    codex_home: &Path,
    name: &ProfileName,
) -> Result<Map<String, Value>, ProfileError> {
    let path = codex_home.join(format!("{}{SUFFIX}", name.0));
    match untrusted_file::read_text(&path, LIMIT, Links::Followed) {
        Ok(text) => {
            toml_error::parse(&text).map_err(|error| ProfileError::Malformed { path, error })
        }
        Err(error) if error.is_not_found() => Ok(Map::from_iter([(
            "profile".to_owned(),
            Value::String(name.0.clone()),
        )])),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a profile that exists in neither form.
///
/// # Errors
///
/// [`NoProfile`]. A Codex configuration that cannot be read is no error here, as Codex
/// reports it.
pub fn check_exists(codex_home: &Path, name: &ProfileName) -> Result<(), NoProfile> {
    if codex_home.join(format!("{}{SUFFIX}", name.0)).exists() {
        return Ok(());
    }
    let path = codex_home.join("config.toml");
    let text = match untrusted_file::read_text(&path, LIMIT, Links::Followed) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => String::new(),
        Err(_) => return Ok(()),
    };
    let Ok(config) = text.parse::<toml::Table>() else {
        return Ok(());
    };
    let tables = config.get("profiles").and_then(toml::Value::as_table);
    let mut known: Vec<String> = tables
        .into_iter()
        .flat_map(toml::Table::keys)
        .cloned()
        .collect();
    if known.contains(&name.0) {
        return Ok(());
    }
    known.extend(profile_files(codex_home));
    known.sort();
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = match (nearest(&name.0, &names), names.as_slice()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => format!("define it in {}{SUFFIX} there", name.0),
        (None, names) => format!("there are {}", names.join(", ")),
    };
    Err(NoProfile {
        name: name.clone(),
        codex_home: codex_home.to_owned(),
        hint,
    })
}

/// The names of the profiles that have a file.
fn profile_files(codex_home: &Path) -> Vec<String> {
    let entries = fs::read_dir(codex_home).into_iter().flatten().flatten();
    let name =
        |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(SUFFIX)?.to_owned());
    entries.filter_map(name).collect()
}

/// Merges `over` into `under`, table by table. Values of `over` take precedence.
pub fn overlay(under: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => overlay(below, above),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(text: &str) -> Result<ProfileName, ProfileError> {
        ProfileName::try_from(text.to_owned())
    }

    #[test]
    fn profile_name_that_could_leave_the_directory_is_refused() {
        for bad in ["", "../x", "a/b", "a.b", "a\0b", &"x".repeat(65), "ü"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        assert!(name("fast-2_x").is_ok());
    }

    #[test]
    fn profile_file_is_read_and_unknown_profile_is_left_to_codex() {
        let home = tempfile::tempdir().unwrap();
        let fast = name("fast").unwrap();
        let unknown = overrides(home.path(), &fast).unwrap();
        assert_eq!(Value::Object(unknown), json!({"profile": "fast"}));

        let file = home.path().join("fast.config.toml");
        std::fs::write(&file, "model = \"m\"\n[tools]\nweb = true\n").unwrap();
        let known = overrides(home.path(), &fast).unwrap();
        assert_eq!(
            Value::Object(known),
            json!({"model": "m", "tools": {"web": true}})
        );

        std::fs::write(&file, "bearer_token = \"sesame\" x\n").unwrap();
        let error = overrides(home.path(), &fast).unwrap_err().to_string();
        assert!(error.contains("line 1, column "), "{error}");
        assert!(!error.contains("sesame"), "{error}");
    }

    #[test]
    fn missing_profile_is_refused_and_the_nearest_name_is_suggested() {
        let home = tempfile::tempdir().unwrap();
        let check = |text: &str| check_exists(home.path(), &name(text).unwrap());
        let error = check("fast").unwrap_err().to_string();
        assert!(error.contains("define it in fast.config.toml"), "{error}");
        std::fs::write(home.path().join("fast.config.toml"), "").unwrap();
        std::fs::write(home.path().join("config.toml"), "[profiles.careful]\n").unwrap();
        assert!(check("fast").is_ok() && check("careful").is_ok());
        let error = check("carefull").unwrap_err().to_string();
        assert!(error.contains("did you mean `careful`?"), "{error}");
        let error = check("xyz").unwrap_err().to_string();
        assert!(error.ends_with("there are careful, fast"), "{error}");
        std::fs::write(home.path().join("config.toml"), "[profiles\n").unwrap();
        assert!(check("nope").is_ok());
    }

    #[test]
    fn overlay_merges_table_by_table() {
        let Value::Object(mut under) = json!({"a": {"x": 1, "y": 1}, "b": 1}) else {
            unreachable!()
        };
        let Value::Object(over) = json!({"a": {"y": 2}, "c": 3}) else {
            unreachable!()
        };
        overlay(&mut under, over);
        assert_eq!(
            Value::Object(under),
            json!({"a": {"x": 1, "y": 2}, "b": 1, "c": 3})
        );
    }
}
