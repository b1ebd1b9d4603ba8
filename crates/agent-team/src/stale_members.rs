//! Stale members: killed servers have left them in their teams, and nobody reads their mail.

use std::fs;
use std::path::{Path, PathBuf};

use super::claim::Claim;
use super::identities;
use super::mail::{MailError, MailStore, kept_note};
use crate::logic::{AgentName, TeamName};

/// The note of the state to restore in the team, in the identity's directory.
const NOTE: &str = "membership.json";

/// The note of the state to restore when an identity leaves its team.
pub(super) fn note_of(atm_home: &Path, identity: &AgentName) -> PathBuf {
    identities::directory_of(atm_home, identity).join(NOTE)
}

/// The active members of a team that no server of ours has added: other agents, whose mail must not
/// go to a server.
#[derive(Debug)]
pub enum ForeignMembers {
    /// All of them.
    Known(Vec<AgentName>),
    /// The team cannot be read.
    Unknown,
}

impl ForeignMembers {
    /// Those of a team; none without a team.
    #[must_use]
    pub fn of(atm_home: &Path, team: Option<&TeamName>) -> Self {
        let Some(team) = team else {
            return Self::Known(Vec::new());
        };
        match MailStore::new(atm_home).active_members(team) {
            Ok(mut members) => {
                members.retain(|member| !is_ours(atm_home, team, member));
                Self::Known(members)
            }
            Err(MailError::UnknownTeam { .. }) => Self::Known(Vec::new()),
            Err(_) => Self::Unknown,
        }
    }

    /// Whether a foreign member has this name. `false` if the team cannot be read: then its mail cannot
    /// be read either.
    #[must_use]
    pub fn has(&self, identity: &AgentName) -> bool {
        matches!(self, Self::Known(members) if members.contains(identity))
    }

    /// Whether a foreign member has this name, or the team cannot be read.
    #[must_use]
    pub fn may_have(&self, identity: &AgentName) -> bool {
        matches!(self, Self::Unknown) || self.has(identity)
    }
}

/// Whether a server of codex-mcp has added this identity to the team and has not removed it.
fn is_ours(atm_home: &Path, team: &TeamName, identity: &AgentName) -> bool {
    let note = note_of(atm_home, identity);
    let noted = MailStore::noted_team(&note);
    noted.is_ok_and(|noted| noted.as_ref() == Some(team)) || kept_note(&note, team).is_file()
}

/// The notes of an identity: that of its team, and those of teams that it could not leave.
fn notes_of(atm_home: &Path, identity: &AgentName) -> Vec<PathBuf> {
    let entries = fs::read_dir(identities::directory_of(atm_home, identity));
    let entries = entries.into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| is_note(path) && path.is_file())
        .collect()
}

fn is_note(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let rest = name.and_then(|name| name.strip_prefix("membership."));
    rest.is_some_and(|rest| rest == "json" || rest.ends_with(".json"))
}

/// Removes members that no process holds any more from their teams, except `except`.
pub(super) fn remove_all_but(atm_home: &Path, except: &AgentName) {
    let identities = identities::identities(atm_home).unwrap_or_else(|error| {
        tracing::warn!("cannot look for stale members: {error}");
        Vec::new()
    });
    for identity in identities.iter().filter(|identity| *identity != except) {
        if !notes_of(atm_home, identity).is_empty() {
            let left = Claim::while_free(atm_home, identity, || remove_one(atm_home, identity));
            if let Err(error) = left {
                tracing::warn!("cannot determine whether {identity} is a stale member: {error}");
            }
        }
    }
}

/// Removes an identity from the teams that earlier servers of the identity had joined. Only for the
/// holder of the identity.
pub(super) fn remove_one(atm_home: &Path, identity: &AgentName) {
    for note in notes_of(atm_home, identity) {
        match MailStore::new(atm_home).leave(&note) {
            Ok(_) => tracing::info!("removed the stale member {identity} from its team"),
            Err(error) => {
                tracing::warn!("cannot remove the stale member {identity} from its team: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mail::Membership;

    #[test]
    fn member_is_removed_from_a_team_that_it_could_not_leave() {
        let home = tempfile::tempdir().unwrap();
        let agent: AgentName = "ours".parse().unwrap();
        let config_of = |team: &str| {
            home.path()
                .join(".claude/teams")
                .join(team)
                .join("config.json")
        };
        let empty = json!({ "members": [] }).to_string();
        for team in ["a", "b"] {
            fs::create_dir_all(config_of(team).parent().unwrap()).unwrap();
            fs::write(config_of(team), &empty).unwrap();
        }
        let note = note_of(home.path(), &agent);
        fs::create_dir_all(note.parent().unwrap()).unwrap();
        let membership = Membership {
            agent: &agent,
            model: "m",
            cwd: Path::new("/"),
        };
        let join = |team: &str| {
            let team = team.parse().unwrap();
            let mail_store = MailStore::new(home.path());
            mail_store.join(&team, &membership, &note, || true).unwrap();
        };
        join("a");
        let with_us = fs::read(config_of("a")).unwrap();
        fs::write(config_of("a"), "[]").unwrap();
        join("b");
        fs::write(config_of("a"), with_us).unwrap();
        let foreign = ForeignMembers::of(home.path(), Some(&"a".parse().unwrap()));
        assert!(!foreign.has(&agent));
        remove_one(home.path(), &agent);
        for team in ["a", "b"] {
            let team = team.parse().unwrap();
            let left = MailStore::new(home.path()).members(&team).unwrap();
            assert_eq!(left, [], "{team}");
        }
        assert!(notes_of(home.path(), &agent).is_empty());
    }

    #[test]
    fn only_members_that_our_servers_entered_into_the_team_are_ours() {
        let home = tempfile::tempdir().unwrap();
        let (team, agent): (TeamName, AgentName) = ("t".parse().unwrap(), "ours".parse().unwrap());
        let foreign = |name: &str| {
            let foreign = ForeignMembers::of(home.path(), Some(&team));
            let name = name.parse().unwrap();
            (foreign.has(&name), foreign.may_have(&name))
        };
        assert_eq!(foreign("ours"), (false, false));

        let directory = home.path().join(".claude/teams/t");
        fs::create_dir_all(&directory).unwrap();
        let members = ["lead", "moved", "away"].map(|name| json!({ "name": name }));
        let mut config = json!({ "members": members });
        config["members"][2]["isActive"] = json!(false);
        let config_file = directory.join("config.json");
        fs::write(&config_file, config.to_string()).unwrap();
        for identity in ["ours", "moved"] {
            let directory = identities::directory_of(home.path(), &identity.parse().unwrap());
            fs::create_dir_all(directory).unwrap();
        }
        let membership = Membership {
            agent: &agent,
            model: "m",
            cwd: Path::new("/"),
        };
        let note = note_of(home.path(), &agent);
        MailStore::new(home.path())
            .join(&team, &membership, &note, || true)
            .unwrap();
        let elsewhere = json!({ "team": "other", "agent": "moved", "former": { "absent": 1 } });
        let note = note_of(home.path(), &"moved".parse().unwrap());
        fs::write(&note, elsewhere.to_string()).unwrap();
        for (name, is_foreign) in [
            ("lead", true),
            ("moved", true),
            ("away", false),
            ("ours", false),
            ("nobody", false),
        ] {
            assert_eq!(foreign(name), (is_foreign, is_foreign), "{name}");
        }

        fs::write(&config_file, "[]").unwrap();
        assert_eq!(foreign("lead"), (false, true));
        let without_team = ForeignMembers::of(home.path(), None);
        assert!(!without_team.may_have(&agent));
    }
}
