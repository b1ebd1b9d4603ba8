//! The errors of mail.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::logic::inbox::BadInbox;
use crate::logic::roster::BadRoster;
use crate::logic::{AgentName, TeamName};

/// Why mail can't be sent or read.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// There is no such team.
    #[error(
        "there is no team {team}: {} doesn't exist",
        path.display()
    )]
    UnknownTeam {
        /// The team.
        team: TeamName,
        /// The file that isn't there.
        path: PathBuf,
    },
    /// There is no such agent in the team.
    #[error(
        "team {team} has no member {agent}; its members are: {}",
        join_names(members)
    )]
    UnknownAgent {
        /// The agent.
        agent: AgentName,
        /// The team.
        team: TeamName,
        /// The members that the team has.
        members: Vec<AgentName>,
    },
    /// A link leads somewhere else.
    #[error("{} leads out of the directory of teams; it is not followed", path.display())]
    Outside {
        /// The link.
        path: PathBuf,
    },
    /// The file of a team can't be used.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The path is not a regular file.
    #[error("{} is not a regular file", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// An inbox can't be read, and so isn't written either.
    #[error("{}: {error}. It is left as it is: repair it, or move it away", path.display())]
    BadInbox {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: BadInbox,
    },
    /// The configuration of a team can't be read.
    #[error("{}: {error}. It is left as it is: repair it", path.display())]
    BadRoster {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: BadRoster,
    },
    /// A file is larger than the limit for reading.
    #[error(
        "{} has {bytes} bytes, and at most {limit} are read; remove old messages from it",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The inboxes of a member, which are read together, are too large.
    #[error(
        "the inboxes of {agent} have more than {limit} {unit} together; remove old messages from them"
    )]
    InboxesTooLarge {
        /// The member.
        agent: AgentName,
        /// The limit.
        limit: u64,
        /// The unit of the limit: "bytes" or "messages".
        unit: &'static str,
    },
    /// A message is too long.
    #[error("a {part} has at most {limit} bytes, not {bytes}")]
    TooLong {
        /// The part that is too long: "message" or "summary".
        part: &'static str,
        /// Its length, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// Another program holds a lock.
    #[error(
        "{} has been locked by another program for {:.1} s; try again, or remove it if that program is gone",
        lock.display(), waited.as_secs_f64()
    )]
    Busy {
        /// The lock.
        lock: PathBuf,
        /// The time that we waited.
        waited: Duration,
    },
    /// Another program rewrites a file again and again without locking it.
    #[error(
        "another program writes {} without locking it, faster than it can be changed; its last version is kept in {}",
        path.display(), kept.display()
    )]
    Unsettled {
        /// The file.
        path: PathBuf,
        /// The file that holds the last version that was not merged.
        kept: PathBuf,
    },
    /// The note on the state to restore can't be parsed.
    #[error("{}: {error}. The file notes what to restore in the team: check the configuration of the team, then remove the file", path.display())]
    BadNote {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: serde_json::Error,
    },
}

impl MailError {
    /// Turns the I/O error of a file into a [`MailError`].
    pub(crate) fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File {
            path: path.to_owned(),
            error,
        }
    }
}

fn join_names(members: &[AgentName]) -> String {
    match members {
        [] => "nobody".to_owned(),
        _ => {
            let names: Vec<&str> = members.iter().map(AgentName::as_str).collect();
            names.join(", ")
        }
    }
}
