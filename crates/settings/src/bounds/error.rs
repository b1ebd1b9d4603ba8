//! The refusals of requests that are out of bounds.

use std::path::PathBuf;

use codex_config::profile::ProfileName;
use codex_protocol::codex::{ApprovalPolicy, SandboxMode};

use super::Bound;

/// A request that is out of bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    /// The requested sandbox is wider than the bound.
    #[error("the sandbox {} is wider than {}, the widest by {by}", word(*.asked), word(*.most))]
    Sandbox {
        /// The requested mode.
        asked: SandboxMode,
        /// The widest mode that is allowed.
        most: SandboxMode,
        /// The bound.
        by: Bound,
    },
    /// Commands would leave the sandbox without a question to anybody.
    #[error("approve = \"always\" lets commands leave the sandbox, which {0} forbids")]
    ApproveAll(Bound),
    /// A profile of permissions that may allow more.
    #[error(
        "default_permissions in Codex's configuration, or sandbox_mode beside it, may allow more \
         than {}, the widest by {by}; let the profile write in :workspace_roots at most and \
         set sandbox_mode no wider, or name a sandbox in the call", word(*.most)
    )]
    Permissions {
        /// The widest sandbox that is allowed.
        most: SandboxMode,
        /// The bound.
        by: Bound,
    },
    /// An earlier thread, whose sandbox is unknown.
    #[error(
        "the thread's sandbox is not known, and {0} bounds it; name a sandbox, or begin a new thread"
    )]
    UnknownSandbox(Bound),
    /// A running job whose submitter did not have this bound.
    #[error(
        "the job was not submitted under {0}, so under it nothing is approved there, and it is not \
         steered: do that where {0} is not set"
    )]
    RunningJob(Bound),
    /// The requested directory is not among the allowed ones.
    #[error("{} is in none of the directories of {by}: {}", .directory.display(), list(.allowed))]
    Directory {
        /// The requested directory, without links.
        directory: PathBuf,
        /// The allowed directories.
        allowed: Vec<PathBuf>,
        /// The bound.
        by: Bound,
    },
    /// An earlier thread, whose directory is unknown.
    #[error("the thread's working directory is not known, and {0} bounds it")]
    UnknownDirectory(Bound),
    /// The request would give commands the network, which the user's own configuration does not
    /// give them.
    #[error(
        "{what} would give commands the network, which {} forbids: the user can set \
         sandbox_workspace_write.network_access in Codex's configuration",
        settings(.by)
    )]
    Network {
        /// The argument, key or criterion.
        what: &'static str,
        /// The bounds, any of which forbids it.
        by: Vec<Bound>,
    },
    /// An approval policy that may be wider than the user's.
    #[error(
        "config may set approval_policy only to {} under {}", list_words(.allowed), settings(.by)
    )]
    ApprovalPolicy {
        /// The policies that are allowed, as they are not wider than the user's.
        allowed: Vec<ApprovalPolicy>,
        /// The bounds, any of which forbids others.
        by: Vec<Bound>,
    },
    /// The request names a program.
    #[error("{what} would run a program, which {by} forbids")]
    Command {
        /// The criterion or notifier that names it.
        what: &'static str,
        /// The bound.
        by: Bound,
    },
    /// A key of Codex's configuration with which a call could get around a bound.
    #[error("config may not set {key} under {}", settings(.by))]
    Config {
        /// The key of Codex's configuration.
        key: String,
        /// The bounds, any of which forbids it.
        by: Vec<Bound>,
    },
    /// A profile that sets permissions.
    #[error("the profile {name} sets permissions, which {by} forbids")]
    Profile {
        /// Its name.
        name: ProfileName,
        /// The bound.
        by: Bound,
    },
}

fn word(mode: SandboxMode) -> &'static str {
    mode.into()
}

fn list_words(policies: &[ApprovalPolicy]) -> String {
    let words: Vec<&'static str> = policies.iter().map(Into::into).collect();
    words.join(" or ")
}

fn settings(bounds: &[Bound]) -> String {
    let bounds = bounds.iter().map(Bound::to_string);
    bounds.collect::<Vec<_>>().join(", ")
}

fn list(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}
