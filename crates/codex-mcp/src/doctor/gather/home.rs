//! Codex's home folder.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use super::super::codex_config::{CodexConfig, Need};
use super::super::facts::{ConfigFile, Folder, Home, HomeSource};
use crate::untrusted_file::{self, Links, ReadError};

/// The longest `config.toml`, in bytes.
const CONFIG_LIMIT: u64 = 4 * 1024 * 1024;

pub(super) fn look(path: PathBuf) -> Home {
    let config = read_config(&path.join("config.toml"));
    let chosen_by = if is_set("CODEX_HOME") {
        HomeSource::Variable
    } else {
        HomeSource::Default
    };
    Home {
        folder: folder(&path),
        key_is_set: key_is_set(&config),
        chosen_by,
        path,
        config,
    }
}

fn folder(path: &Path) -> Folder {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => match access(path, AccessFlags::W_OK) {
            Ok(()) => Folder::Writable,
            Err(Errno::EACCES | Errno::EPERM | Errno::EROFS) => Folder::ReadOnly,
            Err(errno) => Folder::Unknown(errno.desc().to_owned()),
        },
        Ok(_) => Folder::Other,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Folder::Missing,
        Err(error) => Folder::Unknown(error.to_string()),
    }
}

fn read_config(path: &Path) -> ConfigFile {
    match untrusted_file::read_text(path, CONFIG_LIMIT, Links::Followed) {
        Ok(text) => match CodexConfig::parse(&text) {
            Ok(config) => ConfigFile::Parsed(config),
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

fn key_is_set(config: &ConfigFile) -> bool {
    match config {
        ConfigFile::Parsed(CodexConfig {
            need: Need::Key { variable, .. },
            ..
        }) => is_set(variable),
        _ => false,
    }
}

/// An empty variable counts as none, as it does for Codex.
fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}
