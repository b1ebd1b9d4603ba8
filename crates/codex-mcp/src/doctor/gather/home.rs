//! Codex's home directory.

use std::path::{Path, PathBuf};
use std::{fs, io};

use codex_config::layers::UserConfig;
use codex_config::rules::GitRules;
use common::toml_error;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use safe_files::untrusted_file::{self, Links, ReadError};

use super::super::facts::{ConfigFile, Directory, Home, HomeSource};
use super::super::settings::{Credential, Settings};
use crate::environment;

/// The longest `config.toml`, in bytes.
const CONFIG_LIMIT: u64 = 4 * 1024 * 1024;

pub(super) fn inspect(path: PathBuf) -> Home {
    let settings = Settings::of(&UserConfig::read(&path).layers(None, None));
    let chosen_by = if environment::variable("CODEX_HOME").is_some() {
        HomeSource::Variable
    } else {
        HomeSource::Default
    };
    Home {
        directory: directory(&path),
        key_is_set: matches!(
            &settings.credential,
            Credential::Key { variable, .. } if environment::variable(variable).is_some()
        ),
        chosen_by,
        config: config_file(&path.join("config.toml")),
        git_rules: GitRules::of(&path),
        settings,
        path,
    }
}

pub(super) fn directory(path: &Path) -> Directory {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => match access(path, AccessFlags::W_OK) {
            Ok(()) => Directory::Writable,
            Err(Errno::EACCES | Errno::EPERM | Errno::EROFS) => Directory::ReadOnly,
            Err(errno) => Directory::Unknown(errno.desc().to_owned()),
        },
        Ok(_) => Directory::Other,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Directory::Missing,
        Err(error) => Directory::Unknown(error.to_string()),
    }
}

fn config_file(path: &Path) -> ConfigFile {
    match untrusted_file::read_text(path, CONFIG_LIMIT, Links::Followed) {
        Ok(text) => match toml_error::parse::<toml::Table>(&text) {
            Ok(_) => ConfigFile::Valid,
            Err(malformed) => ConfigFile::Malformed(malformed),
        },
        Err(ReadError::Io { error, .. })
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            ConfigFile::Absent
        }
        Err(ReadError::Io { error, .. }) => ConfigFile::Unreadable(error.to_string()),
        Err(error) => ConfigFile::Unreadable(error.to_string()),
    }
}
