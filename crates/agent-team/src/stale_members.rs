//! Stale members: those that servers left behind when they were killed, and whose mail nobody
//! reads.

use std::path::{Path, PathBuf};

use super::claim::Claim;
use super::identities;
use super::mail::{MailError, Mailroom};
use crate::logic::{AgentName, TeamName};

/// The file that says what to restore in the team, in the identity's directory.
const NOTE: &str = "membership.json";

/// Where it is noted what to restore when an identity leaves its team.
pub(super) fn note_of(atm_home: &Path, identity: &AgentName) -> PathBuf {
    identities::directory_of(atm_home, identity).join(NOTE)
}

/// Whether an identity is an active member of a team and no server of ours has entered
/// it. Where that cannot be determined, it counts as one.
pub fn is_somebody_elses(atm_home: &Path, team: &TeamName, identity: &AgentName) -> bool {
    if note_of(atm_home, identity).is_file() {
        return false;
    }
    match Mailroom::new(atm_home).is_active(team, identity) {
        Ok(is_active) => is_active,
        Err(MailError::UnknownTeam { .. }) => false,
        Err(_) => true,
    }
}

/// Has those identities leave their teams that nobody has any more, but for `own`.
pub(super) fn put_away(atm_home: &Path, own: &AgentName) {
    let identities = identities::identities(atm_home).unwrap_or_else(|error| {
        tracing::warn!("nobody looked for members that have died: {error}");
        Vec::new()
    });
    for identity in identities.iter().filter(|identity| *identity != own) {
        if note_of(atm_home, identity).is_file() {
            let left = Claim::while_free(atm_home, identity, || put_away_own(atm_home, identity));
            if let Err(error) = left {
                tracing::warn!("nobody can tell whether {identity} has died: {error}");
            }
        }
    }
}

/// Has an identity leave the team that a server of it was in, for whoever has it.
pub(super) fn put_away_own(atm_home: &Path, identity: &AgentName) {
    let note = note_of(atm_home, identity);
    if !note.is_file() {
        return;
    }
    match Mailroom::new(atm_home).leave(&note) {
        Ok(_) => tracing::info!("{identity} has died and is put away"),
        Err(error) => tracing::warn!("{identity} has died, and is not put away: {error}"),
    }
}
