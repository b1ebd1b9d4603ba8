//! The part of `cargo metadata` that the checks read. Format 1, as described at
//! <https://doc.rust-lang.org/cargo/commands/cargo-metadata.html>. The crate `cargo_metadata` has
//! types for all of it; these few fields need no further dependency.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;

use crate::tool::Tool;
use crate::workspace::Workspace;

/// The resolved dependency graph of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    /// Every crate of the graph.
    pub(crate) packages: Vec<Package>,
    /// The ids of our own crates.
    pub(crate) workspace_members: Vec<String>,
    resolve: Resolve,
}

/// One version of one crate.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// The address of its repository, if the manifest has one.
    pub(crate) repository: Option<String>,
    /// An SPDX expression, in old crates with `/` for `OR`.
    pub(crate) license: Option<String>,
    /// `registry+URL`, `sparse+URL` or `git+URL`; none for a crate on disk.
    pub(crate) source: Option<String>,
    /// The path of its `Cargo.toml`.
    pub(crate) manifest_path: PathBuf,
    publish: Option<Vec<String>>,
    pub(crate) dependencies: Vec<Requirement>,
}

impl Package {
    /// Whether the crate is marked as never to be published.
    pub(crate) fn is_private(&self) -> bool {
        self.publish.as_ref().is_some_and(Vec::is_empty)
    }
}

/// A dependency as the manifest has it.
#[derive(Debug, Deserialize)]
pub(crate) struct Requirement {
    pub(crate) name: String,
    pub(crate) req: String,
    pub(crate) kind: Kind,
    pub(crate) source: Option<String>,
}

/// When a dependency is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<String>")]
pub(crate) enum Kind {
    /// Part of what is shipped.
    Normal,
    /// For tests, examples and benches.
    Dev,
    /// For the build script.
    Build,
}

impl From<Option<String>> for Kind {
    fn from(name: Option<String>) -> Self {
        match name.as_deref() {
            Some("dev") => Self::Dev,
            Some("build") => Self::Build,
            _ => Self::Normal,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

/// A resolved dependency.
#[derive(Debug, Deserialize)]
pub(crate) struct Edge {
    /// The id of the crate depended on.
    pub(crate) pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Kind,
}

impl Edge {
    /// Whether the dependency is there outside tests, examples and benches.
    pub(crate) fn is_shipped(&self) -> bool {
        self.dep_kinds.iter().any(|edge| edge.kind != Kind::Dev)
    }
}

impl Metadata {
    /// Asks cargo for the graph on the given platforms. Cargo.lock must be up to date.
    ///
    /// # Errors
    /// When cargo fails or prints something else than expected.
    pub(crate) fn load(workspace: &Workspace, targets: &[String]) -> anyhow::Result<Self> {
        let mut tool = Tool::cargo(["metadata", "--format-version", "1", "--locked"]);
        for target in targets {
            tool = tool.args(["--filter-platform", target.as_str()]);
        }
        let json = tool.capture(workspace.root())?;
        serde_json::from_str(&json).context("cannot read what cargo metadata prints")
    }

    /// The crates by id.
    pub(crate) fn by_id(&self) -> BTreeMap<&str, &Package> {
        self.packages
            .iter()
            .map(|package| (package.id.as_str(), package))
            .collect()
    }

    /// The dependencies of each crate, by id.
    pub(crate) fn edges(&self) -> BTreeMap<&str, &[Edge]> {
        self.resolve
            .nodes
            .iter()
            .map(|node| (node.id.as_str(), node.deps.as_slice()))
            .collect()
    }

    /// The crates of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }
}
