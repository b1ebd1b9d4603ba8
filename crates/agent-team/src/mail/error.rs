//! What can go wrong with mail.

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
        /// Which.
        team: TeamName,
        /// The file that isn't there.
        path: PathBuf,
    },
    /// There is no such agent in the team.
    #[error(
        "team {team} has no member {agent}; its members are: {}",
        list(members)
    )]
    UnknownAgent {
        /// Which.
        agent: AgentName,
        /// In which team.
        team: TeamName,
        /// Who there is.
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
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is something else than a file.
    #[error("{} is not a regular file", path.display())]
    NoFile {
        /// Which.
        path: PathBuf,
    },
    /// An inbox can't be read, and so isn't written either.
    #[error("{}: {error}. It is left as it is: repair it, or move it away", path.display())]
    BadInbox {
        /// Which.
        path: PathBuf,
        /// Why.
        error: BadInbox,
    },
    /// The configuration of a team can't be read.
    #[error("{}: {error}. It is left as it is: repair it", path.display())]
    BadRoster {
        /// Which.
        path: PathBuf,
        /// Why.
        error: BadRoster,
    },
    /// A file is larger than anything that is read.
    #[error(
        "{} has {bytes} bytes, and at most {limit} are read; remove old messages from it",
        path.display()
    )]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        limit: u64,
    },
    /// A message is too long.
    #[error("a {part} has at most {limit} bytes, not {bytes}")]
    TooLong {
        /// What of it: "message" or "summary".
        part: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// Somebody else holds a lock.
    #[error(
        "{} has been locked by another program for {:.1} s; try again, or remove it if that program is gone",
        lock.display(), waited.as_secs_f64()
    )]
    Busy {
        /// The lock.
        lock: PathBuf,
        /// How long we waited.
        waited: Duration,
    },
    /// Somebody writes a file again and again without locking it.
    #[error(
        "{} is written by a program that doesn't lock it, faster than it can be changed; what was last in it is kept in {}",
        path.display(), kept.display()
    )]
    Unsettled {
        /// Which.
        path: PathBuf,
        /// Where the last version is that wasn't taken in.
        kept: PathBuf,
    },
    /// The note on what to restore can't be understood.
    #[error("{}: {error}. It says what to restore in the team: look, and remove it", path.display())]
    BadNote {
        /// Which.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
}

impl MailError {
    /// An error of a file, to be mapped over.
    pub(crate) fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File {
            path: path.to_owned(),
            error,
        }
    }
}

fn list(members: &[AgentName]) -> String {
    match members {
        [] => "nobody".to_owned(),
        _ => {
            let names: Vec<&str> = members.iter().map(AgentName::as_str).collect();
            names.join(", ")
        }
    }
}
