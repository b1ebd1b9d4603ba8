//! The members of a team, whose file other programs write too.
//!
//! Input: the file.

use agent_team::logic::AgentName;
use agent_team::logic::roster::{NewMember, Roster};
use serde_json::Value;

/// Tests one input.
pub fn run(data: &[u8]) {
    let Ok(roster) = Roster::parse(data) else {
        return;
    };
    let Ok(text) = std::str::from_utf8(data) else {
        panic!("a roster that is no text");
    };
    let text = text.trim_ascii();
    if serde_json::from_str::<Value>(text).is_err() {
        // A number that no value can hold is kept all the same.
        return;
    }
    add_and_remove(&roster);
    for name in roster.names() {
        member(&roster, &name, text);
    }
}

fn parse(text: &str) -> Roster<'_> {
    Roster::parse(text.as_bytes()).unwrap()
}

fn new_member() -> NewMember {
    NewMember {
        agent_id: "somebody-new@team".into(),
        name: "somebody-new".parse().unwrap(),
        agent_type: "codex-mcp".into(),
        model: "m".into(),
        joined_at: 1,
        cwd: "/".into(),
        is_active: true,
        last_active: 1,
    }
}

/// A member that was added and removed leaves the others as they were.
fn add_and_remove(roster: &Roster<'_>) {
    let new = new_member();
    if roster.has(&new.name) {
        return;
    }
    let names = roster.names();
    let with = roster.with(&new).unwrap();
    let longer = parse(&with);
    let expected: Vec<AgentName> = names.iter().cloned().chain([new.name.clone()]).collect();
    assert_eq!(longer.names(), expected);
    assert_eq!(longer.joined_at(&new.name), Some(1));
    let without = longer.without(&new.name).unwrap();
    assert_eq!(parse(&without).names(), names);
}

/// The values of a file, without one member of one object.
fn without_active(text: &str) -> Value {
    let mut file: Value = serde_json::from_str(text).unwrap();
    let members = file.get_mut("members").and_then(Value::as_array_mut);
    for member in members.into_iter().flatten() {
        if let Some(member) = member.as_object_mut() {
            member.remove("isActive");
        }
    }
    file
}

fn member(roster: &Roster<'_>, name: &AgentName, text: &str) {
    assert!(roster.has(name));
    let before = without_active(text);
    for active in [Some("false"), Some("true"), None] {
        let changed = roster.with_active(name, active).unwrap();
        let now = parse(&changed);
        assert_eq!(
            now.active(name).map(|value| value.get()),
            active,
            "{changed}"
        );
        assert_eq!(now.names(), roster.names());
        assert_eq!(without_active(&changed), before);
    }
    let removed = roster.without(name).unwrap();
    assert_eq!(parse(&removed).names().len() + 1, roster.names().len());
}
