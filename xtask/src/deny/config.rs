//! `deny.toml` in cargo-deny's format, as far as this project uses it. A key that is
//! not known here is an error, so that cargo-deny never sees a rule that we skip.
//! <https://embarkstudios.github.io/cargo-deny/checks/cfg.html>

use std::fs;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::workspace::Workspace;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) graph: Graph,
    pub(super) licenses: Licenses,
    pub(super) bans: Bans,
    pub(super) sources: Sources,
}

/// Which platforms' dependencies are looked at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Graph {
    /// Target triples.
    pub(crate) targets: Vec<String>,
}

/// The licences agreed with.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Licenses {
    /// SPDX identifiers, each with its exception if it has one.
    pub(super) allow: Vec<String>,
    include_dev: bool,
}

/// Rules about crates, whatever their licence.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Bans {
    pub(super) multiple_versions: Advice,
    pub(super) wildcards: Level,
    pub(super) allow_wildcard_paths: bool,
    pub(super) deny: Vec<Banned>,
}

/// A crate that may not be in the graph, in any version.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Banned {
    #[serde(rename = "crate")]
    pub(super) name: String,
    pub(super) reason: String,
}

/// Where crates may come from.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Sources {
    pub(super) unknown_registry: Level,
    pub(super) unknown_git: Level,
    pub(super) allow_registry: Vec<String>,
    pub(super) allow_git: Vec<String>,
}

/// What breaking a rule means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Deny,
    Warn,
    Allow,
}

/// A level that never fails the check: duplicates are counted more coarsely here than
/// by cargo-deny, so a verdict could not be the same.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Advice {
    Warn,
    Allow,
}

impl From<Advice> for Level {
    fn from(advice: Advice) -> Self {
        match advice {
            Advice::Warn => Self::Warn,
            Advice::Allow => Self::Allow,
        }
    }
}

impl Config {
    /// Reads the workspace's `deny.toml`.
    ///
    /// # Errors
    /// When the file cannot be read, or asks for something that is not checked here.
    pub(crate) fn load(workspace: &Workspace) -> anyhow::Result<Self> {
        let text = fs::read_to_string(workspace.root().join("deny.toml"))
            .context("cannot read deny.toml")?;
        Self::parse(&text).context("deny.toml asks for what `cargo xtask deny` cannot check")
    }

    /// Reads the text of a `deny.toml`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text)?;
        ensure!(
            config.licenses.include_dev,
            "licenses.include-dev: only `true` is supported"
        );
        for banned in &config.bans.deny {
            ensure!(
                !banned.name.contains(['@', ':']),
                "bans.deny: `{}`: only a whole crate can be banned, not a version",
                banned.name
            );
        }
        Ok(config)
    }
}
