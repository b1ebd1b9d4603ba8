mod alerts;
mod bound_settings;
mod config;
mod jobs;
mod lookup;
mod partial;
mod prices;
mod repository;
mod retention;
mod sandbox_warnings;
mod server;
mod threads;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use codex_config::trust::TrustedDirectories;

use crate::config::Config;
use crate::error::ConfigError;
use crate::file::LeftOut;
use crate::flags::Flags;
use crate::lookup::Lookup;
use crate::partial::{PartialConfig, without_wrong_values};

/// A home, a repository in it, and variables.
struct World {
    directory: tempfile::TempDir,
    variables: HashMap<&'static str, OsString>,
    /// Whether the user trusts the repository as it is when the settings are loaded.
    is_trusted: bool,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let variables = HashMap::from([("HOME", directory.path().join("home").into())]);
        let world = Self {
            directory,
            variables,
            is_trusted: false,
        };
        std::fs::create_dir_all(world.here()).unwrap();
        std::fs::create_dir_all(world.path("home/.config/atm")).unwrap();
        std::fs::create_dir_all(world.path("repo/.git")).unwrap();
        std::fs::write(world.path("repo/.git/HEAD"), "").unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    /// The working directory, below the repository's root.
    fn here(&self) -> PathBuf {
        self.path("repo/a/b")
    }

    /// A repository that the user trusts.
    fn repository(mut self, text: &str) -> Self {
        self.is_trusted = true;
        self.untrusted(text)
    }

    /// A repository that the user does not trust.
    fn untrusted(self, text: &str) -> Self {
        std::fs::write(self.path("repo/.atm.toml"), text).unwrap();
        self
    }

    fn codex(self, text: &str) -> Self {
        std::fs::create_dir_all(self.path("home/.codex")).unwrap();
        std::fs::write(self.path("home/.codex/config.toml"), text).unwrap();
        self
    }

    fn user(self, text: &str) -> Self {
        std::fs::write(self.path("home/.config/atm/config.toml"), text).unwrap();
        self
    }

    fn variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    fn load(&self, flags: Flags) -> Result<Config, ConfigError> {
        self.load_without(flags, &[])
    }

    /// Loads the settings without the values that are wrong and not needed to look.
    fn load_partial(&self) -> Result<PartialConfig, ConfigError> {
        without_wrong_values(|left_out| self.load_without(Flags::default(), left_out))
    }

    fn load_without(&self, flags: Flags, left_out: &[LeftOut]) -> Result<Config, ConfigError> {
        if self.is_trusted {
            let list = self.path("home/.config/codex-mcp/trust.toml");
            TrustedDirectories::add(&list, &self.here(), &self.path("repo")).unwrap();
        }
        let lookup = Lookup {
            here: &self.here(),
            variables: &|name| self.variables.get(name).cloned(),
        };
        lookup.load(flags, left_out)
    }
}

const ROLES: &str = "[plugins.codex-mcp]\nmodel = \"m\"\nsandbox = \"read-only\"\n\
    [plugins.codex-mcp.roles.writer]\nsandbox = \"workspace-write\"\n";
