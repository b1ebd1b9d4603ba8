use std::collections::BTreeSet;

use super::World;
use crate::file::{PRESET_KEYS, SECTION_KEYS};
use crate::flags::Flags;
use crate::partial::DISPENSABLE;
use crate::source::Source;
use crate::store_location::Location;

#[test]
fn wrong_values_that_only_new_work_needs_are_left_out() {
    let text = "[plugins.codex-mcp]\nnotify = \"desktop\"\nnotify_on = [\"starts\"]\n\
                keep_jobs_secs = 1\nsandbox = \"none\"\nstore = \"/srv/jobs.db\"\n\
                identity = \"arch\"\nmax_sandbox = \"read-only\"\nmodel = \"m\"\n\
                [plugins.codex-mcp.prices.m]\ninput = 1\n";
    let world = World::new().user(text);
    assert!(world.load(Flags::default()).is_err());
    let partial = world.load_partial().unwrap();
    let wrong: Vec<String> = partial.wrong.iter().map(ToString::to_string).collect();
    for key in ["notify", "notify_on", "keep_jobs_secs", "sandbox", "prices"] {
        let told = |line: &String| {
            let in_file = line.contains(&format!("`{key}`: "));
            in_file || line.starts_with(&format!("{key} ("))
        };
        assert!(wrong.iter().any(told), "{key}: {wrong:?}");
    }
    assert_eq!(wrong.len(), 5, "{wrong:?}");
    let config = partial.config;
    assert!(config.alerts.notify.is_none());
    assert_eq!(config.threads.sandbox, None);
    assert_eq!(config.retention.jobs.source, Source::Default);
    // What is right counts.
    assert_eq!(config.identity.value.as_str(), "arch");
    assert_eq!(config.threads.model.unwrap().value, "m");
    assert!(config.bounds.max_sandbox.is_some());
    let Location::Sqlite(store) = config.jobs.store.value else {
        panic!("the store is a file");
    };
    assert_eq!(store.to_str(), Some("/srv/jobs.db"));
}

#[test]
fn wrong_value_that_locates_or_bounds_work_is_never_left_out() {
    for line in [
        "codex_bin = 7",
        "identity = \"../x\"",
        "team = 7",
        "role = 7",
        "roles = 7",
        "registry_journal = \"yes\"",
        "store = \"mysql://db/jobs\"",
        "jobs_of_others = \"all\"",
        "max_sandbox = \"none\"",
        "allow_commands = \"false\"",
        "allow_dirs = \"/srv\"",
        "allow_dirs = [\"srv\"]",
        "approval_policy = \"none\"",
        "max_audit_bytes = \"1GB\"",
    ] {
        let text = format!("[plugins.codex-mcp]\nnotify = \"desktop\"\n{line}\n");
        let error = World::new().user(&text).load_partial().unwrap_err();
        let error = error.to_string();
        let key = line.split(' ').next().unwrap();
        let is_named = error.contains(&format!("`{key}`: ")) || error.starts_with(key);
        assert!(is_named, "{line}: {error}");
    }
    let world = World::new().user("[core]\nidentity = 5\n");
    assert!(world.load_partial().is_err());
    let world = World::new().user("[plugins.codex-mcp]\nnotify = desktop\n");
    assert!(world.load_partial().is_err());
}

/// The keys that are never left out: a default would show other work, allow more, or delete records.
const INDISPENSABLE: [&str; 13] = [
    "codex_bin",
    "identity",
    "team",
    "role",
    "roles",
    "registry_journal",
    "store",
    "jobs_of_others",
    "max_sandbox",
    "allow_commands",
    "allow_dirs",
    "approval_policy",
    "max_audit_bytes",
];

#[test]
fn keys_that_are_never_left_out_are_in_the_docs() {
    let all = SECTION_KEYS.into_iter().chain(PRESET_KEYS);
    let (dispensable, others): (BTreeSet<&str>, BTreeSet<&str>) =
        all.partition(|key| DISPENSABLE.contains(key));
    assert_eq!(dispensable.len(), DISPENSABLE.len());
    assert_eq!(others, BTreeSet::from(INDISPENSABLE));

    let page = testkit::docs::root().join("docs/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let words: Vec<&str> = page.split_whitespace().collect();
    let text = words.join(" ");
    let (_, list) = text
        .split_once("if the wrong value is in `[core]`,")
        .unwrap();
    let (list, _) = list.split_once(':').unwrap();
    let named: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    assert_eq!(named, others);
}

#[test]
fn wrong_value_of_a_trusted_repository_is_left_out() {
    let text = "[plugins.codex-mcp]\nsandbox = \"none\"\n";
    let partial = World::new().repository(text).load_partial().unwrap();
    assert_eq!(partial.wrong.len(), 1);
    assert_eq!(partial.config.threads.sandbox, None);
}

#[test]
fn wrong_value_of_a_repository_removes_no_setting_of_the_user() {
    let load = |user: &str| {
        let repository = "[plugins.codex-mcp]\nnotify = 3\n";
        let world = World::new().user(user).repository(repository);
        world.load_partial().unwrap()
    };
    let partial = load("[plugins.codex-mcp]\nnotify = [\"desktop\"]\n");
    assert_eq!(partial.wrong.len(), 1);
    assert_eq!(partial.config.alerts.notifiers().len(), 1);
    // Each file has an error of its own.
    let partial = load("[plugins.codex-mcp]\nnotify = \"desktop\"\n");
    let wrong: Vec<String> = partial.wrong.iter().map(ToString::to_string).collect();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    for file in ["config.toml", ".atm.toml"] {
        assert!(wrong.iter().any(|error| error.contains(file)), "{wrong:?}");
    }
}
