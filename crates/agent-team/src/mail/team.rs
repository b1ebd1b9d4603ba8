//! The directory and the files of a team. Names are parts of paths and links can lead anywhere, so
//! each path is checked to stay within the directory of teams.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use safe_files::state_file::is_directory;

use super::MailError;
use super::file::read;
use crate::identities;
use crate::logic::roster::Roster;
use crate::logic::{AgentName, TeamName};

/// The largest `config.json` that is read, in bytes: hundreds of members with long
/// prompts.
pub(super) const LARGEST_ROSTER: u64 = 16 * 1024 * 1024;

/// The directory of teams, below the home directory of the agents.
const TEAMS: &str = ".claude/teams";

/// The extension of inboxes.
const INBOX: &str = ".json";

/// An existing team.
pub(super) struct Team {
    pub(super) name: TeamName,
    /// The home directory of the agents.
    home: PathBuf,
    /// The directory of teams, without links.
    teams: PathBuf,
    /// The directory of this team, without links.
    directory: PathBuf,
}

/// The state of a member's mail files, to notice changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<FileStamp>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileStamp {
    file: String,
    inode: (u64, u64),
    changed: (i64, i64),
    length: u64,
}

impl Team {
    /// Looks for a team below the home directory of the agents.
    pub(super) fn find(home: &Path, name: &TeamName) -> Result<Self, MailError> {
        let teams = home.join(TEAMS);
        let requested = teams.join(name.as_str());
        let unknown = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => MailError::UnknownTeam {
                team: name.clone(),
                path: requested.join("config.json"),
            },
            _ => MailError::of(&requested)(error),
        };
        let teams = teams.canonicalize().map_err(unknown)?;
        let directory = requested.canonicalize().map_err(unknown)?;
        let team = Self {
            name: name.clone(),
            home: home.to_owned(),
            teams,
            directory,
        };
        team.check_inside(&team.directory, &requested)?;
        fs::symlink_metadata(team.config()).map_err(unknown)?;
        Ok(team)
    }

    /// The file that lists the members.
    pub(super) fn config(&self) -> PathBuf {
        self.directory.join("config.json")
    }

    /// The members, in their order.
    pub(super) fn members(&self) -> Result<Vec<AgentName>, MailError> {
        self.read_roster(|roster| roster.names())
    }

    /// The members that are not marked as absent, in their order.
    pub(super) fn active_members(&self) -> Result<Vec<AgentName>, MailError> {
        self.read_roster(|roster| roster.active_names())
    }

    fn read_roster<T>(&self, find: impl Fn(&Roster<'_>) -> T) -> Result<T, MailError> {
        super::retry_while_malformed(|| {
            let path = self.config();
            let file = read(&path, LARGEST_ROSTER)?;
            let bytes = file.map_or_else(Vec::new, |file| file.bytes);
            let roster = Roster::parse(&bytes);
            let roster = roster.map_err(|error| MailError::BadRoster { path, error })?;
            Ok(find(&roster))
        })
    }

    /// Checks that the team has that member, and returns all members.
    pub(super) fn check(&self, agent: &AgentName) -> Result<Vec<AgentName>, MailError> {
        let members = self.members()?;
        match members.contains(agent) {
            true => Ok(members),
            false => Err(MailError::UnknownAgent {
                agent: agent.clone(),
                team: self.name.clone(),
                members,
            }),
        }
    }

    /// The path of an inbox, by the name of its file.
    pub(super) fn inbox(&self, file: &str) -> Result<PathBuf, MailError> {
        let directory = self.directory.join("inboxes");
        match directory.canonicalize() {
            Ok(real) => {
                self.check_inside(&real, &directory)?;
                Ok(real.join(file))
            }
            Err(error) => Err(MailError::of(&directory)(error)),
        }
    }

    /// Creates the directory of the inboxes, if it is missing.
    pub(super) fn make_inboxes(&self) -> Result<(), MailError> {
        let directory = self.directory.join("inboxes");
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(MailError::of(&directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// The existing files of a member's mail: its own inbox first, then those of other hosts,
    /// `AGENT.HOST.json`.
    pub(super) fn inboxes_of(&self, agent: &AgentName) -> Result<Vec<String>, MailError> {
        let members = self.check(agent)?;
        let mut files = self.files_from(agent)?;
        files.retain(|file| {
            let stem = file.strip_suffix(INBOX).unwrap_or(file);
            // The stem may also be the name of another agent, followed by a host.
            !longer_names(stem, agent)
                .any(|other| members.contains(&other) || self.is_known(&other))
        });
        Ok(files)
    }

    /// Whether servers of codex-mcp on this machine use this agent name as their identity. When such a
    /// server ends, it leaves the team, and its mail waits for the next server of that identity.
    fn is_known(&self, agent: &AgentName) -> bool {
        is_directory(&identities::directory_of(&self.home, agent))
    }

    /// See [`Fingerprint`]. Mail of another member whose name begins alike may be
    /// part of it.
    pub(super) fn fingerprint(&self, agent: &AgentName) -> Fingerprint {
        let files = self.files_from(agent).unwrap_or_default();
        let stamps = files.into_iter().filter_map(|file| {
            let about = fs::symlink_metadata(self.inbox(&file).ok()?).ok()?;
            Some(FileStamp {
                file,
                inode: (about.dev(), about.ino()),
                changed: (about.mtime(), about.mtime_nsec()),
                length: about.len(),
            })
        });
        Fingerprint(stamps.collect())
    }

    /// The inboxes whose names are an agent's, or begin with it and a dot.
    fn files_from(&self, agent: &AgentName) -> Result<Vec<String>, MailError> {
        let directory = self.directory.join("inboxes");
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(MailError::of(&directory)(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(MailError::of(&directory))?;
            let is_file = entry.file_type().is_ok_and(|kind| !kind.is_dir());
            if let Ok(file) = entry.file_name().into_string()
                && is_file
                && file
                    .strip_suffix(INBOX)
                    .is_some_and(|stem| is_inbox_of(stem, agent))
            {
                files.push(file);
            }
        }
        // By their stems, of which the agent's own is the shortest.
        files.sort_by(|a, b| a.strip_suffix(INBOX).cmp(&b.strip_suffix(INBOX)));
        Ok(files)
    }

    fn check_inside(&self, real: &Path, named: &Path) -> Result<(), MailError> {
        match real.starts_with(&self.teams) {
            true => Ok(()),
            false => Err(MailError::Outside {
                path: named.to_owned(),
            }),
        }
    }
}

/// The agents with a longer name whose inbox can have this file stem too.
fn longer_names(stem: &str, agent: &AgentName) -> impl Iterator<Item = AgentName> {
    let ends = stem.match_indices('.').map(|(dot, _)| dot);
    let ends = ends.chain([stem.len()]);
    let longer = ends.filter(move |end| *end > agent.as_str().len());
    longer.filter_map(move |end| stem.get(..end)?.parse().ok())
}

/// Whether an inbox with this file stem can be an agent's.
fn is_inbox_of(stem: &str, agent: &AgentName) -> bool {
    let host = stem.strip_prefix(agent.as_str());
    host.is_some_and(|host| host.is_empty() || host.starts_with('.'))
}
