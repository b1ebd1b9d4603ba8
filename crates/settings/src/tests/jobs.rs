use std::time::Duration;

use super::World;
use crate::flags::Flags;
use crate::source::Source;
use crate::store_access::OthersJobs;

#[test]
fn store_of_jobs_is_set_by_the_user() {
    let shown = |world: &World, flags: Flags| {
        let store = world.load(flags).unwrap().jobs.store;
        format!("{} ({})", store.value, store.source)
    };
    let mut world = World::new();
    let of_home = world.path("home/.local/state/codex-mcp/jobs.db");
    let default = format!("{} (default)", of_home.display());
    assert_eq!(shown(&world, Flags::default()), default);
    world = world.variable("XDG_STATE_HOME", "relative");
    assert_eq!(shown(&world, Flags::default()), default);
    world = world.variable("XDG_STATE_HOME", "/state");
    let of_xdg = "/state/codex-mcp/jobs.db (default)";
    assert_eq!(shown(&world, Flags::default()), of_xdg);

    world = world.user("[plugins.codex-mcp]\nstore = \"~/my.db\"\nworker_idle_secs = 5\n");
    let mine = world.path("home/my.db");
    assert!(shown(&world, Flags::default()).starts_with(&format!("{} ([", mine.display())));
    let jobs = world.load(Flags::default()).unwrap().jobs;
    assert_eq!(jobs.idle.value, Duration::from_secs(5));
    assert_eq!(jobs.concurrency.value.get(), 4);

    // A file of this name in a stranger's repository is not opened.
    world = world.user("[plugins.codex-mcp]\nstore = \"my.db\"\n");
    let beside = world.path("home/.config/atm/my.db");
    assert!(shown(&world, Flags::default()).starts_with(&format!("{} ([", beside.display())));
    world = world.variable("CODEX_MCP_STORE", "postgres://me:sesame@localhost/jobs");
    let server = "postgres://me@localhost/jobs ($CODEX_MCP_STORE)";
    assert_eq!(shown(&world, Flags::default()), server);
    let flags = Flags {
        store: Some("near.db".parse().unwrap()),
        ..Flags::default()
    };
    let near = world.here().join("near.db");
    assert_eq!(
        shown(&world, flags),
        format!("{} (--store)", near.display())
    );
}

#[test]
fn repository_does_not_set_the_store_of_jobs() {
    let text = "[plugins.codex-mcp]\nstore = \"postgres://localhost/jobs\"\nworker_concurrency = 9\n\
                jobs_of_others = \"run\"\n";
    let config = World::new()
        .repository(text)
        .load(Flags::default())
        .unwrap();
    assert_eq!(config.jobs.store.source, Source::Default);
    assert_eq!(config.jobs.concurrency.source, Source::Default);
    assert_eq!(config.jobs.others.value, OthersJobs::Leave);
    let told = config
        .warnings
        .iter()
        .map(|warning| warning.message.split(' ').next().unwrap());
    assert_eq!(
        told.collect::<Vec<_>>(),
        ["store", "worker_concurrency", "jobs_of_others"]
    );
}

#[test]
fn invalid_settings_of_jobs_are_refused() {
    for line in [
        "worker_concurrency = 0",
        "worker_concurrency = 1001",
        "worker_idle_secs = 9999999",
    ] {
        let world = World::new().user(&format!("[plugins.codex-mcp]\n{line}\n"));
        let error = world.load(Flags::default()).unwrap_err().to_string();
        assert!(
            error.starts_with(line.split(' ').next().unwrap()),
            "{error}"
        );
        assert!(error.contains("it must be"), "{error}");
    }
    let world = World::new().variable("CODEX_MCP_STORE", "mysql://me:sesame@db/jobs");
    let error = world.load(Flags::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("store ($CODEX_MCP_STORE): there is no store at mysql://"),
        "{error}"
    );
}
