use std::time::Duration;

use safe_files::home_directory::home_directory;

use super::World;
use crate::flags::Flags;
use crate::source::Source;

#[test]
fn nearer_source_wins_and_is_named() {
    let mut world = World::new();
    let mut sources = Vec::new();
    let mut look = |world: &World, flags: Flags| {
        let identity = world.load(flags).unwrap().identity;
        sources.push(format!("{}: {}", identity.value, identity.source));
    };
    world = world.user("[core]\nidentity = \"a\"\ndefault_team = \"t\"\n");
    look(&world, Flags::default());
    world = world.user("[core]\nidentity = \"a\"\n[plugins.codex-mcp]\nidentity = \"b\"\n");
    look(&world, Flags::default());
    world = world.repository("[core]\nidentity = \"c\"\n");
    look(&world, Flags::default());
    world = world.variable("ATM_IDENTITY", "d");
    look(&world, Flags::default());
    let flags = Flags {
        identity: Some("e".parse().unwrap()),
        ..Flags::default()
    };
    look(&world, flags);
    let user = world.path("home/.config/atm/config.toml");
    let repository = world.path("repo/.atm.toml");
    assert_eq!(
        sources,
        [
            format!("a: [core] in {}", user.display()),
            format!("b: [plugins.codex-mcp] in {}", user.display()),
            format!("c: [core] in {}", repository.display()),
            "d: $ATM_IDENTITY".to_owned(),
            "e: --identity".to_owned(),
        ]
    );
}

#[test]
fn identity_of_the_user_is_that_of_the_own_file() {
    let identity = |world: World| {
        let flags = Flags {
            identity: Some("e".parse().unwrap()),
            ..Flags::default()
        };
        let config = world
            .repository("[core]\nidentity = \"c\"\n")
            .variable("ATM_IDENTITY", "d")
            .load(flags)
            .unwrap();
        config.user_identity.unwrap().to_string()
    };
    let core = "[core]\nidentity = \"a\"\n";
    let section = format!("{core}[plugins.codex-mcp]\nidentity = \"b\"\n");
    assert_eq!(identity(World::new()), "codex");
    assert_eq!(identity(World::new().user(core)), "a");
    assert_eq!(identity(World::new().user(&section)), "b");
}

#[test]
fn empty_variable_counts_as_unset() {
    let world = World::new()
        .variable("ATM_TEAM", "")
        .variable("CODEX_HOME", "");
    let config = world.load(Flags::default()).unwrap();
    assert!(config.team.is_none());
    assert_eq!(config.codex_home, world.path("home/.codex"));
}

#[test]
fn atm_home_replaces_home_for_teams() {
    let world = World::new().user("[core]\nidentity = \"a\"\n");
    let elsewhere = world.path("elsewhere");
    let world = world.variable("ATM_HOME", elsewhere.to_str().unwrap());
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.atm_home, elsewhere);
    assert_eq!(config.identity.source, Source::Default);
}

#[test]
fn invalid_value_is_an_error_that_names_its_source() {
    for (variable, value, told) in [
        (
            "ATM_IDENTITY",
            "../x",
            "identity ($ATM_IDENTITY): \"../x\" is not a name",
        ),
        (
            "CODEX_MCP_SANDBOX",
            "none",
            "sandbox ($CODEX_MCP_SANDBOX): it must be one of `read-only`, ",
        ),
        (
            "CODEX_MCP_REQUEST_TIMEOUT_SECS",
            "soon",
            "is not a duration; write a number of seconds, such as 90",
        ),
        (
            "CODEX_MCP_REQUEST_TIMEOUT_SECS",
            "0",
            "it must be between 1s and 1d",
        ),
    ] {
        let world = World::new().variable(variable, value);
        let error = world.load(Flags::default()).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let world = World::new().user("[plugins.codex-mcp]\nrequest_timeout_secs = 0\n");
    let error = world.load(Flags::default()).unwrap_err().to_string();
    assert!(error.contains("config.toml): it must be"), "{error}");
}

#[test]
fn durations_have_units_in_files_and_variables() {
    let user = "[plugins.codex-mcp]\nrequest_timeout_secs = \"2m\"\nworker_idle_secs = \"1h\"\n";
    let world = World::new().user(user);
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.request_timeout.value, Duration::from_secs(120));
    assert_eq!(config.jobs.idle.value, Duration::from_secs(3600));
    let world = world.variable("CODEX_MCP_REQUEST_TIMEOUT_SECS", "90s");
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.request_timeout.value, Duration::from_secs(90));
}

#[test]
fn home_is_never_where_the_server_was_started() {
    for relative in ["", ".", "home"] {
        let world = World::new().variable("HOME", relative);
        let below_here = world.here().join(relative).join(".config/atm");
        std::fs::create_dir_all(&below_here).unwrap();
        let file = below_here.join("config.toml");
        std::fs::write(file, "[core]\nidentity = \"planted\"\n").unwrap();
        let config = world.load(Flags::default()).unwrap();
        let identity = config.identity.value.to_string();
        assert_ne!(identity, "planted", "{relative:?}");
        assert!(config.codex_home.is_absolute(), "{:?}", config.codex_home);
        // The user of a container may have no account, and so no home.
        if home_directory(|_| None).is_some() {
            let state = config.jobs.state;
            assert!(state.is_absolute(), "{state:?}");
        }
    }
}
