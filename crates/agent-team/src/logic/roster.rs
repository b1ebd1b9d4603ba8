//! The members of a team, in its `config.json`. Several programs write the file, so unchanged parts
//! are kept byte for byte.

use common::json::range_of;
use serde::Serialize;
use serde_json::value::RawValue;

use super::json_edit::{Members, replaced, with_appended, with_member, without, without_member};
use super::name::AgentName;

/// The indent of a member in the file, as atm writes it.
const INDENT: &str = "    ";

/// The key that says whether a member is present to read its mail. Peers take a member without it
/// for present.
const ACTIVE: &str = "isActive";

/// Why a text is not the configuration of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRoster {
    /// The text is not an object.
    #[error("it is not a JSON object")]
    NoObject,
    /// The object has no list of members.
    #[error("it has no array `members`")]
    NoMembers,
}

/// The configuration of a team.
#[derive(Debug)]
pub struct Roster<'a> {
    text: &'a str,
    members: &'a str,
    entries: Vec<&'a RawValue>,
}

/// The entry of a new member, with all keys that atm 0.9.0 and 0.45.2 require.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewMember {
    /// `name@team`.
    pub agent_id: String,
    /// The name of the member.
    pub name: AgentName,
    /// The kind of agent.
    pub agent_type: String,
    /// The model it works with.
    pub model: String,
    /// The time at which the member joined, in milliseconds since 1970.
    pub joined_at: u64,
    /// The directory it works in.
    pub cwd: String,
    /// Whether the member is present to read its mail.
    pub is_active: bool,
    /// The time of the member's last activity, in milliseconds since 1970.
    pub last_active: u64,
}

impl<'a> Roster<'a> {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    ///
    /// [`BadRoster`].
    pub fn parse(file: &'a [u8]) -> Result<Self, BadRoster> {
        let text = std::str::from_utf8(file).map_err(|_| BadRoster::NoObject)?;
        let text = text.trim_ascii();
        let all = Members::of(text).ok_or(BadRoster::NoObject)?;
        let members = all.get("members").ok_or(BadRoster::NoMembers)?.get();
        let entries = serde_json::from_str(members).map_err(|_| BadRoster::NoMembers)?;
        Ok(Self {
            text,
            members,
            entries,
        })
    }

    /// The members, in the order of the file. A member whose name is not valid is left out: nobody
    /// can write to it.
    #[must_use]
    pub fn names(&self) -> Vec<AgentName> {
        self.entries
            .iter()
            .filter_map(|entry| name(entry))
            .collect()
    }

    /// The members that are not marked as absent, like [`Roster::names`].
    #[must_use]
    pub fn active_names(&self) -> Vec<AgentName> {
        let entries = self.entries.iter().filter(|entry| !is_absent(entry));
        entries.filter_map(|entry| name(entry)).collect()
    }

    /// Whether it has a member of that name.
    #[must_use]
    pub fn has(&self, agent: &AgentName) -> bool {
        self.entry(agent).is_some()
    }

    /// The value of `isActive` in a member's entry, as JSON.
    #[must_use]
    pub fn active(&self, agent: &AgentName) -> Option<&'a RawValue> {
        Members::of(self.entry(agent)?.1)?.get(ACTIVE)
    }

    /// The time at which a member joined, in milliseconds since 1970.
    #[must_use]
    pub fn joined_at(&self, agent: &AgentName) -> Option<u64> {
        let joined = Members::of(self.entry(agent)?.1)?.get("joinedAt")?;
        serde_json::from_str(joined.get()).ok()
    }

    /// The file with a member added.
    #[must_use]
    pub fn with(&self, member: &NewMember) -> Option<String> {
        let entry = serde_json::to_string(member).ok()?;
        self.with_members(&with_appended(self.members, &entry, INDENT)?)
    }

    /// The file with `isActive` of a member set to some JSON, or without it. `None`
    /// if there is no such member.
    #[must_use]
    pub fn with_active(&self, agent: &AgentName, active: Option<&str>) -> Option<String> {
        let (_, entry) = self.entry(agent)?;
        let changed = match active {
            Some(active) => with_member(entry, ACTIVE, active)?,
            None => without_member(entry, ACTIVE)?,
        };
        replaced(self.text, &range_of(self.text, entry)?, &changed)
    }

    /// The file without a member. `None` if there is no such member.
    #[must_use]
    pub fn without(&self, agent: &AgentName) -> Option<String> {
        let (index, _) = self.entry(agent)?;
        self.with_members(&without(self.members, &self.entries, index)?)
    }

    fn with_members(&self, members: &str) -> Option<String> {
        replaced(self.text, &range_of(self.text, self.members)?, members)
    }

    fn entry(&self, agent: &AgentName) -> Option<(usize, &'a str)> {
        let is_it = |entry: &&RawValue| name(entry).is_some_and(|name| name == *agent);
        let index = self.entries.iter().position(is_it)?;
        Some((index, self.entries.get(index)?.get()))
    }
}

/// A member without `isActive` is present.
fn is_absent(entry: &RawValue) -> bool {
    let members = Members::of(entry.get());
    let active = members.and_then(|members| members.get(ACTIVE));
    active.is_some_and(|active| active.get() == "false")
}

fn name(entry: &RawValue) -> Option<AgentName> {
    let name = Members::of(entry.get())?.get("name")?;
    serde_json::from_str(name.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: &str = r#"{
  "name": "t", "big": 123456789012345678901234567890,
  "members": [
    {"name": "lead", "z": 1.0, "isActive":false},
    {"name": "../x"}, 7,
    {"name":"codex","joinedAt":5}
  ], "x": {"members": []}
}"#;

    fn agent(name: &str) -> AgentName {
        name.parse().unwrap()
    }

    fn roster(text: &str) -> Roster<'_> {
        Roster::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn members_with_invalid_names_are_left_out() {
        let roster = roster(TEAM);
        assert_eq!(roster.names(), [agent("lead"), agent("codex")]);
        assert_eq!(roster.active_names(), [agent("codex")]);
        assert_eq!(roster.active(&agent("lead")).unwrap().get(), "false");
        assert!(roster.active(&agent("codex")).is_none());
        assert_eq!(roster.joined_at(&agent("codex")), Some(5));
        assert!(!roster.has(&agent("nobody")));
        for (bad, why) in [
            ("[]", BadRoster::NoObject),
            ("", BadRoster::NoObject),
            ("{}", BadRoster::NoMembers),
            ("{\"members\":{}}", BadRoster::NoMembers),
        ] {
            assert_eq!(Roster::parse(bad.as_bytes()).unwrap_err(), why);
        }
    }

    #[test]
    fn active_flag_is_changed_and_other_bytes_are_kept() {
        let active = roster(TEAM)
            .with_active(&agent("lead"), Some("true"))
            .unwrap();
        assert_eq!(active, TEAM.replace("false", "true"));
        let absent = roster(TEAM).with_active(&agent("lead"), None).unwrap();
        assert_eq!(absent, TEAM.replace(", \"isActive\":false", ""));
        let added = roster(TEAM)
            .with_active(&agent("codex"), Some("true"))
            .unwrap();
        let restored = roster(&added).with_active(&agent("codex"), None).unwrap();
        assert_eq!(restored.replace("5\n}", "5}"), TEAM);
        assert_eq!(roster(TEAM).with_active(&agent("nobody"), None), None);
    }

    #[test]
    fn member_is_added_and_removed() {
        let member = NewMember {
            agent_id: "new@t".into(),
            name: agent("new"),
            agent_type: "codex-mcp".into(),
            model: "m".into(),
            joined_at: 1,
            cwd: "/".into(),
            is_active: true,
            last_active: 1,
        };
        let with = roster(TEAM).with(&member).unwrap();
        assert!(roster(&with).has(&agent("new")));
        assert_eq!(roster(&with).without(&agent("new")).unwrap(), TEAM);
        let without = roster(TEAM).without(&agent("lead")).unwrap();
        assert_eq!(roster(&without).names(), [agent("codex")]);
        assert!(without.contains("\"members\": [\n    {\"name\": \"../x\"}, 7"));
    }
}
