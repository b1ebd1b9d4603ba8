use agent_team::registry::Mode;

use super::{ROLES, World};
use crate::file::SECTION;
use crate::flags::Flags;
use crate::server::DEFAULT_TIMEOUT;
use crate::show::{as_json, as_text};
use crate::source::{Setting, Source};
use crate::threads::ThreadDefaults;

#[test]
fn unset_settings_have_their_defaults() {
    let config = World::new().load(Flags::default()).unwrap();
    assert_eq!(config.threads, ThreadDefaults::default());
    assert_eq!(config.identity.value.as_str(), "codex");
    assert_eq!(config.identity.source, Source::Default);
    assert_eq!(config.request_timeout.value, DEFAULT_TIMEOUT);
    assert!(config.team.is_none() && config.codex_bin.is_none());
    assert_eq!(config.warnings, []);
}

#[test]
fn settings_are_shown_with_their_sources() {
    let world = World::new().user(ROLES).variable("ATM_TEAM", "t");
    let config = world.load(Flags::default()).unwrap();
    let mut text = Vec::new();
    as_text(&config, None, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert!(rows.contains(&vec!["team", "t", "$ATM_TEAM"]), "{text}");
    assert!(rows.contains(&vec!["role", "-", "default"]), "{text}");
    let source = text
        .lines()
        .map(|row| row.find(" default").or(row.find(" [")).or(row.find(" $")));
    assert!(
        source
            .clone()
            .all(|column| column == source.clone().next().flatten()),
        "{text}"
    );
    let json = as_json(&config);
    assert_eq!(json["team"]["value"], "t");
    assert_eq!(json["team"]["source"], "$ATM_TEAM");
    assert_eq!(json["request_timeout_secs"]["value"], 300);
    assert_eq!(json["role"]["value"], serde_json::Value::Null);
}

#[test]
fn source_without_room_beside_its_value_is_below_it() {
    let model = "m".repeat(60);
    let world = World::new().variable("CODEX_MCP_MODEL", &model);
    let config = world.load(Flags::default()).unwrap();
    let mut text = Vec::new();
    as_text(&config, Some(80), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let source = format!("{model}\n{:23}  $CODEX_MCP_MODEL\n", "");
    assert!(text.contains(&source), "{text}");
    let wide = text.lines().filter(|line| line.chars().count() > 80);
    let rows = text.lines().count();
    assert_eq!(wide.count(), 1, "the value alone, {rows} lines: {text}");
}

#[test]
fn long_source_begins_further_left() {
    let world = World::new().user("[plugins.codex-mcp]\nmodel = \"m\"\n");
    let config = world.load(Flags::default()).unwrap();
    let source = config.threads.model.as_ref().unwrap().source.to_string();
    let columns = source.chars().count() + 10;
    let mut text = Vec::new();
    as_text(&config, Some(columns), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(&format!("  m\n    {source}\n")), "{text}");
}

#[test]
fn registry_journal_is_set_by_a_file() {
    let mode = |world: &World| world.load(Flags::default()).unwrap().registry_mode;
    let mut world = World::new();
    assert_eq!(mode(&world), Setting::new(Mode::Document, Source::Default));
    world = world.user("[plugins.codex-mcp]\nregistry_journal = true\n");
    let file = world.path("home/.config/atm/config.toml");
    let expected = Setting::new(Mode::Journal, Source::File(SECTION, file));
    assert_eq!(mode(&world), expected);
    world = world.repository("[plugins.codex-mcp]\nregistry_journal = false\n");
    assert_eq!(mode(&world).value, Mode::Document);
}
