//! Stale members: those that servers left behind when they were killed, and whose mail nobody
//! reads.

use std::path::{Path, PathBuf};

use super::claim::Claim;
use super::identities;
use super::mail::{MailError, MailStore};
use crate::logic::{AgentName, TeamName};

/// The note of the state to restore in the team, in the identity's directory.
const NOTE: &str = "membership.json";

/// The note of the state to restore when an identity leaves its team.
pub(super) fn note_of(atm_home: &Path, identity: &AgentName) -> PathBuf {
    identities::directory_of(atm_home, identity).join(NOTE)
}

/// Whether an identity is an active member of a team and no server of ours has entered
/// it. Where that cannot be determined, it counts as one.
pub fn is_foreign_member(atm_home: &Path, team: &TeamName, identity: &AgentName) -> bool {
    if note_of(atm_home, identity).is_file() {
        return false;
    }
    match MailStore::new(atm_home).is_active(team, identity) {
        Ok(is_active) => is_active,
        Err(MailError::UnknownTeam { .. }) => false,
        Err(_) => true,
    }
}

/// Removes the members that no process holds any more from their teams, all but `except`.
pub(super) fn remove_all_but(atm_home: &Path, except: &AgentName) {
    let identities = identities::identities(atm_home).unwrap_or_else(|error| {
        tracing::warn!("cannot look for stale members: {error}");
        Vec::new()
    });
    for identity in identities.iter().filter(|identity| *identity != except) {
        if note_of(atm_home, identity).is_file() {
            let left = Claim::while_free(atm_home, identity, || remove_one(atm_home, identity));
            if let Err(error) = left {
                tracing::warn!("cannot determine whether {identity} is a stale member: {error}");
            }
        }
    }
}

/// Removes an identity from the team that an earlier server of it was in. Only for its holder.
pub(super) fn remove_one(atm_home: &Path, identity: &AgentName) {
    let note = note_of(atm_home, identity);
    if !note.is_file() {
        return;
    }
    match MailStore::new(atm_home).leave(&note) {
        Ok(_) => tracing::info!("removed the stale member {identity} from its team"),
        Err(error) => {
            tracing::warn!("cannot remove the stale member {identity} from its team: {error}");
        }
    }
}
