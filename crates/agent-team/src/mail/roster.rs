//! Joining a team and leaving it as it was.
//!
//! What is to be restored is noted in a file before anything is changed, so that it
//! is known also after a crash.

use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::file::read;
use super::lock::FileLock;
use super::place::{LARGEST_ROSTER, Team};
use super::replace::{self, Seen};
use super::{MailError, Mailroom};
use crate::logic::roster::{NewMember, Roster};
use crate::logic::{AgentName, TeamName};

/// What kind of agent we say that we are.
const AGENT_TYPE: &str = "codex-mcp";

/// The largest note, in bytes.
const LARGEST_NOTE: u64 = 64 * 1024;

/// Who joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership<'a> {
    /// Under which name.
    pub agent: &'a AgentName,
    /// The model it works with, for others to see.
    pub model: &'a str,
    /// The directory it works in.
    pub cwd: &'a Path,
}

/// How somebody joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// The team had no such member.
    Added,
    /// It had, and the member is said to be there now.
    Present,
    /// It had, and somebody said already that the member is there.
    Active,
}

/// How somebody left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The entry that was added is gone.
    Removed,
    /// The entry is as it was.
    Restored,
    /// There was nothing to restore: no note, no team, or no such entry.
    Nothing,
}

/// What is to be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    team: TeamName,
    agent: AgentName,
    former: Former,
}

/// What there was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Former {
    /// No entry. The one that we added says that it joined at this time, in
    /// milliseconds since 1970.
    Absent(u64),
    /// One with this `isActive`, as JSON.
    Active(Option<String>),
}

impl Mailroom {
    /// Enters a member into a team as one that is there. `note` is a file of the
    /// member's own in a directory that is there; it is written first, and says what
    /// [`Mailroom::leave`] is to restore, also if that is called by a later process.
    ///
    /// # Errors
    ///
    /// [`MailError`], for one if there is no such team.
    pub fn join(
        &self,
        team: &TeamName,
        member: &Membership<'_>,
        note: &Path,
    ) -> Result<Joined, MailError> {
        let known = read_note(note)?;
        let is_same = |known: &Note| known.team == *team && known.agent == *member.agent;
        let known = match known {
            Some(known) if !is_same(&known) => {
                self.leave(note)?;
                None
            }
            known => known,
        };
        let found = self.team(team)?;
        let new = new_member(team, member);
        let _lock = FileLock::take(&found.config().with_extension("lock"))?;
        let mut joined = Joined::Present;
        change(&found, |roster, look| {
            if let Look::First = look {
                let is_active = roster
                    .active(member.agent)
                    .is_some_and(|it| it.get() == "true");
                if is_active && known.is_none() {
                    joined = Joined::Active;
                }
                let former = former(roster, &new, known.as_ref());
                let (team, agent) = (team.clone(), member.agent.clone());
                let noted = Note {
                    team,
                    agent,
                    former,
                };
                write_note(note, &noted)?;
                if !roster.has(member.agent) {
                    joined = Joined::Added;
                }
            }
            Ok(match roster.has(member.agent) {
                true => roster.with_active(member.agent, Some("true")),
                false => roster.with(&new),
            })
        })?;
        Ok(joined)
    }

    /// Takes back what [`Mailroom::join`] did, by its note, and removes the note.
    ///
    /// # Errors
    ///
    /// [`MailError`]; then the note is still there.
    pub fn leave(&self, note: &Path) -> Result<Left, MailError> {
        let Some(known) = read_note(note)? else {
            return Ok(Left::Nothing);
        };
        let left = match self.team(&known.team) {
            Ok(team) => restore(&team, &known)?,
            Err(MailError::UnknownTeam { .. }) => Left::Nothing,
            Err(error) => return Err(error),
        };
        fs::remove_file(note).map_err(MailError::of(note))?;
        Ok(left)
    }
}

fn restore(team: &Team, note: &Note) -> Result<Left, MailError> {
    let _lock = FileLock::take(&team.config().with_extension("lock"))?;
    let mut left = Left::Nothing;
    change(team, |roster, _| {
        let (now, text) = match &note.former {
            // Unless it is somebody else's by now.
            Former::Absent(joined) if roster.joined_at(&note.agent) == Some(*joined) => {
                (Left::Removed, roster.without(&note.agent))
            }
            Former::Absent(_) => (Left::Nothing, None),
            Former::Active(active) => {
                let text = roster.with_active(&note.agent, active.as_deref());
                (Left::Restored, text)
            }
        };
        left = if text.is_some() { now } else { Left::Nothing };
        Ok(text)
    })?;
    Ok(left)
}

/// Whether the configuration is looked at for the first time.
enum Look {
    First,
    Again,
}

/// Changes a team's configuration; the caller has locked it.
fn change(
    team: &Team,
    mut change: impl FnMut(&Roster<'_>, Look) -> Result<Option<String>, MailError>,
) -> Result<(), MailError> {
    let path = team.config();
    replace::replace(&path, LARGEST_ROSTER, |seen| {
        let (bytes, look) = match seen {
            Seen::Now(now) => (now, Look::First),
            // Who wrote without the lock didn't know of our change: it is made again.
            Seen::Collision { found, .. } => (found, Look::Again),
        };
        let roster = Roster::parse(bytes).map_err(|error| MailError::BadRoster {
            path: path.clone(),
            error,
        })?;
        let is_again = matches!(look, Look::Again);
        Ok(match change(&roster, look)? {
            Some(text) if is_again || text.as_bytes() != bytes.trim_ascii() => {
                Some(text.into_bytes())
            }
            // What was found has to go back into its place.
            None if is_again => Some(bytes.to_owned()),
            _ => None,
        })
    })
}

/// What there was before us, given what an earlier process of ours noted that may
/// not have come to restore it.
fn former(roster: &Roster<'_>, new: &NewMember, known: Option<&Note>) -> Former {
    if !roster.has(&new.name) {
        return Former::Absent(new.joined_at);
    }
    match known.map(|known| &known.former) {
        Some(Former::Absent(joined)) if roster.joined_at(&new.name) == Some(*joined) => {
            Former::Absent(*joined)
        }
        Some(Former::Active(active)) => Former::Active(active.clone()),
        _ => {
            let active = roster.active(&new.name);
            Former::Active(active.map(|active| active.get().to_owned()))
        }
    }
}

fn new_member(team: &TeamName, member: &Membership<'_>) -> NewMember {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = u64::try_from(now.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX);
    NewMember {
        agent_id: format!("{}@{team}", member.agent),
        name: member.agent.clone(),
        agent_type: AGENT_TYPE.to_owned(),
        model: member.model.to_owned(),
        joined_at: now,
        cwd: member.cwd.display().to_string(),
        is_active: true,
        last_active: now,
    }
}

fn read_note(path: &Path) -> Result<Option<Note>, MailError> {
    let Some(file) = read(path, LARGEST_NOTE)? else {
        return Ok(None);
    };
    let note = serde_json::from_slice(&file.bytes);
    note.map(Some).map_err(|error| MailError::BadNote {
        path: path.to_owned(),
        error,
    })
}

fn write_note(path: &Path, note: &Note) -> Result<(), MailError> {
    let written = serde_json::to_vec(note).map_err(io::Error::from);
    let bytes = written.map_err(MailError::of(path))?;
    replace::replace(path, LARGEST_NOTE, |seen| match seen {
        Seen::Now(now) if now == bytes => Ok(None),
        _ => Ok(Some(bytes.clone())),
    })
}
