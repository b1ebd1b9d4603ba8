//! Joins a team, and on leaving restores the team's former state.
//!
//! A note of the state to restore is written before anything is changed, so that it survives a
//! crash.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::file::read;
use super::lock::FileLock;
use super::replace::{self, FileState};
use super::team::{LARGEST_ROSTER, Team};
use super::{MailError, MailStore};
use crate::logic::roster::{NewMember, Roster};
use crate::logic::{AgentName, TeamName};

/// The agent type of our members.
const AGENT_TYPE: &str = "codex-mcp";

/// The largest note, in bytes.
const LARGEST_NOTE: u64 = 64 * 1024;

/// A member that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership<'a> {
    /// The name of the member.
    pub agent: &'a AgentName,
    /// The model it works with, for others to see.
    pub model: &'a str,
    /// The directory it works in.
    pub cwd: &'a Path,
}

/// The result of joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinOutcome {
    /// The team had no such member.
    Added,
    /// The team had the member, which is marked as present now.
    Present,
    /// The team had the member, which was marked as present already.
    Active,
    /// The member no longer wanted to join once the team was locked.
    Cancelled,
}

/// The result of leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveOutcome {
    /// The added entry was removed.
    Removed,
    /// The entry was restored.
    Restored,
    /// There was nothing to restore: no note, no team, or no such entry.
    Nothing,
}

/// The note of the state to restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RestoreNote {
    team: TeamName,
    agent: AgentName,
    former: FormerEntry,
}

/// The former entry of the member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum FormerEntry {
    /// The member had no entry. The added one has this joining time, in milliseconds since 1970.
    Absent(u64),
    /// The member had an entry with this `isActive`, as JSON.
    Active(Option<String>),
}

impl MailStore {
    /// Adds a member to a team, marked as present. `note` is the path of the member's own file in
    /// an existing directory. It is written first, and tells [`MailStore::leave`], also in a later
    /// process, what to restore. Waiting for the team's lock may take seconds, so `is_wanted` is
    /// called once the lock is held.
    ///
    /// # Errors
    ///
    /// [`MailError`], for example if there is no such team.
    pub fn join(
        &self,
        team: &TeamName,
        member: &Membership<'_>,
        note: &Path,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<JoinOutcome, MailError> {
        let mut known = read_note(note)?;
        if let Some(former) = known.take_if(|known| known.team != *team) {
            self.leave_former(&former.team, note)?;
        }
        if known.is_none() {
            known = take_back(note, team)?;
        }
        if known
            .take_if(|known| known.agent != *member.agent)
            .is_some()
        {
            self.leave(note)?;
        }
        let found = self.team(team)?;
        let new = new_member(team, member);
        let _lock = FileLock::take(&found.config().with_extension("lock"))?;
        if !is_wanted() {
            return Ok(JoinOutcome::Cancelled);
        }
        let mut joined = JoinOutcome::Present;
        change(&found, |roster, attempt| {
            if let Attempt::First = attempt {
                let is_active = roster
                    .active(member.agent)
                    .is_some_and(|it| it.get() == "true");
                if is_active && known.is_none() {
                    joined = JoinOutcome::Active;
                }
                let former = former(roster, &new, known.as_ref());
                let (team, agent) = (team.clone(), member.agent.clone());
                let noted = RestoreNote {
                    team,
                    agent,
                    former,
                };
                write_note(note, &noted)?;
                if !roster.has(member.agent) {
                    joined = JoinOutcome::Added;
                }
            }
            Ok(match roster.has(member.agent) {
                true => roster.with_active(member.agent, Some("true")),
                false => roster.with(&new),
            })
        })?;
        Ok(joined)
    }

    /// Leaves a former team before another one is joined. If that fails, its note is kept beside, as a
    /// team whose files cannot be used must not keep the member out of the other one.
    fn leave_former(&self, former: &TeamName, note: &Path) -> Result<(), MailError> {
        let Err(error) = self.leave(note) else {
            return Ok(());
        };
        let kept = kept_note(note, former);
        fs::rename(note, &kept).map_err(MailError::of(note))?;
        tracing::warn!(
            "cannot leave team {former}: {error}. {} notes what to restore there",
            kept.display()
        );
        Ok(())
    }

    /// The team that a note restores; `None` if there is no note.
    pub(crate) fn noted_team(note: &Path) -> Result<Option<TeamName>, MailError> {
        Ok(read_note(note)?.map(|note| note.team))
    }

    /// Undoes [`MailStore::join`] by its note, and removes the note.
    ///
    /// # Errors
    ///
    /// [`MailError`]; then the note is still there.
    pub fn leave(&self, note: &Path) -> Result<LeaveOutcome, MailError> {
        let Some(known) = read_note(note)? else {
            return Ok(LeaveOutcome::Nothing);
        };
        let left = match self.team(&known.team) {
            Ok(team) => restore(&team, &known)?,
            Err(MailError::UnknownTeam { .. }) => LeaveOutcome::Nothing,
            Err(error) => return Err(error),
        };
        fs::remove_file(note).map_err(MailError::of(note))?;
        Ok(left)
    }
}

fn restore(team: &Team, note: &RestoreNote) -> Result<LeaveOutcome, MailError> {
    let _lock = FileLock::take(&team.config().with_extension("lock"))?;
    let mut left = LeaveOutcome::Nothing;
    change(team, |roster, _| {
        let (now, text) = match &note.former {
            // Removes only our own entry, not one that another process has written since.
            FormerEntry::Absent(joined) if roster.joined_at(&note.agent) == Some(*joined) => {
                (LeaveOutcome::Removed, roster.without(&note.agent))
            }
            FormerEntry::Absent(_) => (LeaveOutcome::Nothing, None),
            FormerEntry::Active(active) => {
                let text = roster.with_active(&note.agent, active.as_deref());
                (LeaveOutcome::Restored, text)
            }
        };
        left = if text.is_some() {
            now
        } else {
            LeaveOutcome::Nothing
        };
        Ok(text)
    })?;
    Ok(left)
}

/// Whether the configuration is changed for the first time.
enum Attempt {
    First,
    Retry,
}

/// Changes a team's configuration; the caller has locked it.
fn change(
    team: &Team,
    mut change: impl FnMut(&Roster<'_>, Attempt) -> Result<Option<String>, MailError>,
) -> Result<(), MailError> {
    let path = team.config();
    replace::replace(&path, LARGEST_ROSTER, |state| {
        let (bytes, attempt) = match state {
            FileState::Current(now) => (now, Attempt::First),
            // A program that wrote without the lock did not know of our change, so the change is
            // repeated on its text.
            FileState::Collision { found, .. } => (found, Attempt::Retry),
        };
        let roster = Roster::parse(bytes).map_err(|error| MailError::BadRoster {
            path: path.clone(),
            error,
        })?;
        let is_retry = matches!(attempt, Attempt::Retry);
        Ok(match change(&roster, attempt)? {
            Some(text) if is_retry || text.as_bytes() != bytes.trim_ascii() => {
                Some(text.into_bytes())
            }
            // Nothing to change, but the text that we replaced has to be restored.
            None if is_retry => Some(bytes.to_owned()),
            _ => None,
        })
    })
}

/// The former entry, from the roster and from the note of an earlier process that has not restored
/// it.
fn former(roster: &Roster<'_>, new: &NewMember, known: Option<&RestoreNote>) -> FormerEntry {
    if !roster.has(&new.name) {
        return FormerEntry::Absent(new.joined_at);
    }
    match known.map(|known| &known.former) {
        Some(FormerEntry::Absent(joined)) if roster.joined_at(&new.name) == Some(*joined) => {
            FormerEntry::Absent(*joined)
        }
        Some(FormerEntry::Active(active)) => FormerEntry::Active(active.clone()),
        _ => {
            let active = roster.active(&new.name);
            FormerEntry::Active(active.map(|active| active.get().to_owned()))
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

/// The place of a note while its team cannot be left.
pub(crate) fn kept_note(note: &Path, team: &TeamName) -> PathBuf {
    note.with_extension(format!("{team}.json"))
}

/// Takes back the kept note about a team that is joined again; `None` if there is none.
fn take_back(note: &Path, team: &TeamName) -> Result<Option<RestoreNote>, MailError> {
    match fs::rename(kept_note(note, team), note) {
        Ok(()) => read_note(note),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(MailError::of(note)(error)),
    }
}

fn read_note(path: &Path) -> Result<Option<RestoreNote>, MailError> {
    let Some(file) = read(path, LARGEST_NOTE)? else {
        return Ok(None);
    };
    let note = serde_json::from_slice(&file.bytes);
    note.map(Some).map_err(|error| MailError::BadNote {
        path: path.to_owned(),
        error,
    })
}

fn write_note(path: &Path, note: &RestoreNote) -> Result<(), MailError> {
    let written = serde_json::to_vec(note).map_err(io::Error::from);
    let bytes = written.map_err(MailError::of(path))?;
    replace::replace(path, LARGEST_NOTE, |state| match state {
        FileState::Current(now) if now == bytes => Ok(None),
        _ => Ok(Some(bytes.clone())),
    })
}
