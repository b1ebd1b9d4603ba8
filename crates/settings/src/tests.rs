use std::collections::HashMap;

use codex_config::trust::TrustedDirectories;

use super::*;
use crate::store_access::OthersJobs;

/// A home, a repository in it, and variables.
struct World {
    folder: tempfile::TempDir,
    variables: HashMap<&'static str, OsString>,
    /// Whether the user trusts the repository as it is when the settings are loaded.
    is_trusted: bool,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let variables = HashMap::from([("HOME", folder.path().join("home").into())]);
        let world = Self {
            folder,
            variables,
            is_trusted: false,
        };
        std::fs::create_dir_all(world.here()).unwrap();
        std::fs::create_dir_all(world.path("home/.config/atm")).unwrap();
        std::fs::create_dir_all(world.path("repo/.git")).unwrap();
        std::fs::write(world.path("repo/.git/HEAD"), "").unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// Some folders below the repository's root.
    fn here(&self) -> PathBuf {
        self.path("repo/a/b")
    }

    /// A repository that the user trusts.
    fn repository(mut self, text: &str) -> Self {
        self.is_trusted = true;
        self.untrusted(text)
    }

    /// One that the user does not trust.
    fn untrusted(self, text: &str) -> Self {
        std::fs::write(self.path("repo/.atm.toml"), text).unwrap();
        self
    }

    fn codex(self, text: &str) -> Self {
        std::fs::create_dir_all(self.path("home/.codex")).unwrap();
        std::fs::write(self.path("home/.codex/config.toml"), text).unwrap();
        self
    }

    fn user(self, text: &str) -> Self {
        std::fs::write(self.path("home/.config/atm/config.toml"), text).unwrap();
        self
    }

    fn variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    fn load(&self, flags: Flags) -> Result<Config, ConfigError> {
        if self.is_trusted {
            let list = self.path("home/.config/codex-mcp/trust.toml");
            TrustedDirectories::add(&list, &self.here(), &self.path("repo")).unwrap();
        }
        let places = Places {
            here: &self.here(),
            variables: &|name| self.variables.get(name).cloned(),
        };
        places.load(flags)
    }
}

const ROLES: &str = "[plugins.codex-mcp]\nmodel = \"m\"\nsandbox = \"read-only\"\n\
    [plugins.codex-mcp.roles.writer]\nsandbox = \"workspace-write\"\n";

#[test]
fn nothing_is_set_that_nobody_set() {
    let config = World::new().load(Flags::default()).unwrap();
    assert_eq!(config.threads, ThreadDefaults::default());
    assert_eq!(config.identity.value.as_str(), "codex");
    assert_eq!(config.identity.source, Source::Default);
    assert_eq!(config.request_timeout.value, DEFAULT_TIMEOUT);
    assert!(config.team.is_none() && config.codex_bin.is_none());
    assert_eq!(config.warnings, []);
}

#[test]
fn the_nearer_source_wins_and_is_named() {
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
fn an_empty_variable_is_none() {
    let world = World::new()
        .variable("ATM_TEAM", "")
        .variable("CODEX_HOME", "");
    let config = world.load(Flags::default()).unwrap();
    assert!(config.team.is_none());
    assert_eq!(config.codex_home, world.path("home/.codex"));
}

#[test]
fn teams_are_looked_for_in_a_home_of_their_own_if_there_is_one() {
    let world = World::new().user("[core]\nidentity = \"a\"\n");
    let elsewhere = world.path("elsewhere");
    let world = world.variable("ATM_HOME", elsewhere.to_str().unwrap());
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.atm_home, elsewhere);
    assert_eq!(config.identity.source, Source::Default);
}

#[test]
fn a_role_goes_before_what_holds_for_all() {
    let world = World::new().user(ROLES);
    let plain = world.load(Flags::default()).unwrap();
    assert_eq!(plain.threads.sandbox.unwrap().value, SandboxMode::ReadOnly);

    let flags = Flags {
        role: Some("writer".parse().unwrap()),
        ..Flags::default()
    };
    let threads = world.load(flags.clone()).unwrap().threads;
    let sandbox = threads.sandbox.unwrap();
    assert_eq!(sandbox.value, SandboxMode::WorkspaceWrite);
    assert!(sandbox.source.to_string().starts_with("role writer in "));
    assert_eq!(threads.model.unwrap().value, "m");

    // The repository's is laid over the user's, also within a role.
    let over = "[plugins.codex-mcp]\nsandbox = \"read-only\"\n\
                [plugins.codex-mcp.roles.writer]\napproval_policy = \"never\"\n";
    let world = world.repository(over);
    let threads = world.load(flags.clone()).unwrap().threads;
    assert_eq!(threads.sandbox.unwrap().value, SandboxMode::WorkspaceWrite);
    assert_eq!(
        threads.approval_policy.unwrap().value,
        ApprovalPolicy::Never
    );

    let world = world.variable("CODEX_MCP_SANDBOX", "danger-full-access");
    let threads = world.load(flags).unwrap().threads;
    assert_eq!(
        threads.sandbox.unwrap().value,
        SandboxMode::DangerFullAccess
    );
}

#[test]
fn policy_that_codex_dropped_is_replaced_with_a_warning() {
    let setting = "[plugins.codex-mcp]\napproval_policy = \"on-failure\"\n";
    let role = "[plugins.codex-mcp]\nrole = \"w\"\n\
                [plugins.codex-mcp.roles.w]\napproval_policy = \"on-failure\"\n";
    for world in [
        World::new().user(setting),
        World::new().user(role),
        World::new().repository(setting),
        World::new().variable("CODEX_MCP_APPROVAL_POLICY", "on-failure"),
    ] {
        let config = world.load(Flags::default()).unwrap();
        let policy = config.threads.approval_policy.unwrap();
        assert_eq!(policy.value, ApprovalPolicy::OnRequest);
        let warnings: Vec<String> = config.warnings.iter().map(Warning::to_string).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(REPLACED), "{warnings:?}");
    }
    let wrong = World::new().user("[plugins.codex-mcp]\napproval_policy = \"sometimes\"\n");
    assert!(wrong.load(Flags::default()).is_err());
}

#[test]
fn a_role_that_is_not_there_is_an_error_with_those_that_are() {
    let flags = Flags {
        role: Some("reader".parse().unwrap()),
        ..Flags::default()
    };
    let error = World::new().user(ROLES).load(flags.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no role reader (--role); there are writer"
    );
    let error = World::new().load(flags).unwrap_err().to_string();
    assert!(error.contains("[plugins.codex-mcp.roles.NAME]"), "{error}");
}

#[test]
fn what_cannot_be_used_is_named_with_its_source() {
    for (variable, value, told) in [
        (
            "ATM_IDENTITY",
            "../x",
            "identity ($ATM_IDENTITY): \"../x\" is not a name",
        ),
        (
            "CODEX_MCP_SANDBOX",
            "none",
            "sandbox ($CODEX_MCP_SANDBOX): unknown variant `none`",
        ),
        (
            "CODEX_MCP_REQUEST_TIMEOUT_SECS",
            "soon",
            "is not a duration; write a number of seconds, such as 90",
        ),
        (
            "CODEX_MCP_REQUEST_TIMEOUT_SECS",
            "0",
            "it must be between 1s and 1day",
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
fn a_repository_chooses_neither_the_program_nor_files_of_others() {
    let world = World::new().repository("[plugins.codex-mcp]\ncodex_bin = \"bin/codex\"\n");
    let config = world.load(Flags::default()).unwrap();
    assert!(config.codex_bin.is_none());
    assert!(config.warnings[0].message.contains("may not choose"));

    let world = world.user("[plugins.codex-mcp]\ncodex_bin = \"bin/codex\"\n");
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(
        config.codex_bin.unwrap().value,
        world.path("home/.config/atm/bin/codex")
    );

    std::fs::write(world.path("secret"), "").unwrap();
    std::fs::write(world.path("repo/prompt.md"), "").unwrap();
    std::os::unix::fs::symlink(world.path("secret"), world.path("repo/link")).unwrap();
    for (prompt, fine) in [
        ("prompt.md", true),
        ("../secret", false),
        ("link", false),
        ("absent.md", false),
    ] {
        let text = format!("[plugins.codex-mcp]\nextra_instructions_file = {prompt:?}\n");
        let world = World {
            ..world_with(&world, &text)
        };
        let loaded = world.load(Flags::default());
        assert_eq!(loaded.is_ok(), fine, "{prompt}: {loaded:?}");
    }
}

/// The same folders with another file in the repository.
fn world_with(world: &World, text: &str) -> World {
    let copy = World::new();
    for name in ["secret", "repo/prompt.md"] {
        std::fs::copy(world.path(name), copy.path(name)).unwrap();
    }
    std::os::unix::fs::symlink(copy.path("secret"), copy.path("repo/link")).unwrap();
    copy.repository(text)
}

#[test]
fn it_is_shown_with_its_sources() {
    let world = World::new().user(ROLES).variable("ATM_TEAM", "t");
    let config = world.load(Flags::default()).unwrap();
    let mut text = Vec::new();
    as_text(&config, &mut text).unwrap();
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
fn the_registry_has_a_journal_where_a_file_says_so() {
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

#[test]
fn a_repository_that_wants_no_sandbox_is_told_of() {
    let none = "[plugins.codex-mcp]\nsandbox = \"danger-full-access\"\n";
    let warned = |world: World| !world.load(Flags::default()).unwrap().warnings.is_empty();
    assert!(warned(World::new().repository(none)));
    assert!(!warned(World::new().user(none)));
    let overridden = World::new().repository(none);
    assert!(!warned(
        overridden.variable("CODEX_MCP_SANDBOX", "read-only")
    ));
}

#[test]
fn the_users_program_may_be_named_from_the_home_folder() {
    let world = World::new().user("[plugins.codex-mcp]\ncodex_bin = \"~/bin/codex\"\n");
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(
        config.codex_bin.unwrap().value,
        world.path("home/bin/codex")
    );
}

#[test]
fn jobs_are_kept_where_the_user_says() {
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
fn a_repository_does_not_say_where_jobs_are_kept() {
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
fn settings_of_jobs_that_cannot_be_are_refused() {
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

#[test]
fn repository_does_not_choose_who_is_told() {
    let text = "[plugins.codex-mcp]\nnotify = [\"command:evil\"]\nstall_timeout_secs = 1\n";
    let config = World::new()
        .repository(text)
        .load(Flags::default())
        .unwrap();
    assert!(config.alerts.notify.is_none());
    assert_eq!(config.alerts.stall_timeout.source, Source::Default);
    let told = config
        .warnings
        .iter()
        .map(|warning| warning.message.split(' ').next().unwrap());
    assert_eq!(told.collect::<Vec<_>>(), ["notify", "stall_timeout_secs"]);
}

#[test]
fn bound_on_commands_leaves_notifiers_out_that_are_programs() {
    let text = "[plugins.codex-mcp]\nnotify = [\"command:say hi\", \"mail:lead@t\"]\n\
                stall_timeout_secs = 5\n";
    let world = World::new().user(text);
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.alerts.notifiers().len(), 2);
    assert_eq!(config.alerts.stall_timeout.value, Duration::from_secs(5));
    assert_eq!(config.warnings, []);
    let flags = Flags {
        allow_commands: Some(false),
        ..Flags::default()
    };
    let config = world.load(flags).unwrap();
    assert_eq!(config.alerts.notifiers(), ["mail:lead@t".parse().unwrap()]);
    let [warning] = config.warnings.as_slice() else {
        panic!("{:?}", config.warnings);
    };
    let left_out = "command:say hi is left out, as allow_commands (--no-commands) forbids";
    assert!(warning.message.contains(left_out), "{}", warning.message);
}

#[test]
fn settings_of_alerts_that_cannot_be_are_refused() {
    for (line, why) in [
        ("notify = [\"sms:1\"]", "is no way to tell anybody"),
        ("stall_timeout_secs = 0", "it must be between 1s and 1day"),
    ] {
        let world = World::new().user(&format!("[plugins.codex-mcp]\n{line}\n"));
        let error = world.load(Flags::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

fn sandbox_and_policy(world: &World) -> (Option<SandboxMode>, Option<ApprovalPolicy>) {
    let threads = world.load(Flags::default()).unwrap().threads;
    (
        threads.sandbox.map(|set| set.value),
        threads.approval_policy.map(|set| set.value),
    )
}

fn warnings(world: &World) -> Vec<String> {
    let config = world.load(Flags::default()).unwrap();
    config.warnings.iter().map(ToString::to_string).collect()
}

const WIDE: &str = "[core]\nidentity = \"team-lead\"\ndefault_team = \"t\"\n\
    [plugins.codex-mcp]\nsandbox = \"danger-full-access\"\napproval_policy = \"never\"\n\
    model = \"m\"\nreasoning_effort = \"xhigh\"\nextra_instructions_file = \"x.md\"\n\
    base_prompt_file = \"x.md\"\ncodex_bin = \"x\"\nstore = \"postgres://evil/jobs?sslmode=disable\"\n\
    worker_concurrency = 9\nworker_idle_secs = 9\nidentity = \"i\"\nteam = \"e\"\n\
    role = \"absent\"\nteam_tools = true\nsummaries = true\nrequest_image = true\n\
    registry_journal = true\nmax_image_bytes = 9\nrequest_timeout_secs = 9\n\
    notify = [\"command:evil\"]\nstall_timeout_secs = 9\n\
    jobs_of_others = \"run\"\nmax_sandbox = \"danger-full-access\"\nallow_commands = true\nallow_dirs = [\"/\"]\n\
    [plugins.codex-mcp.roles.writer]\nsandbox = \"danger-full-access\"\n";

#[test]
fn untrusted_repository_widens_nothing_and_is_warned_of_once() {
    let plain = World::new().load(Flags::default()).unwrap();
    let world = World::new().untrusted(WIDE);
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.threads, plain.threads);
    assert_eq!(config.identity, plain.identity);
    assert!(config.team.is_none() && config.codex_bin.is_none() && config.role.is_none());
    assert_eq!(config.jobs.store.source, Source::Default);
    assert_eq!(config.registry_mode, plain.registry_mode);
    assert_eq!(config.request_timeout, plain.request_timeout);
    let [warning] = config.warnings.as_slice() else {
        panic!("{:?}", config.warnings);
    };
    let keys = WIDE.lines().filter_map(|line| line.split_once(" = "));
    for (key, _) in keys {
        assert!(warning.message.contains(key), "{key}: {}", warning.message);
    }
    let hint = format!("codex-mcp trust {}", world.path("repo").display());
    assert!(warning.hint.contains(&hint), "{}", warning.hint);
}

#[test]
fn untrusted_repository_lowers_what_the_user_allows() {
    use ApprovalPolicy::{Never, OnRequest, Untrusted};
    use SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};
    let section = |sandbox: &str, policy: &str| {
        format!("[plugins.codex-mcp]\nsandbox = \"{sandbox}\"\napproval_policy = \"{policy}\"\n")
    };
    let codex = |sandbox: &str, policy: &str| {
        format!("sandbox_mode = \"{sandbox}\"\napproval_policy = \"{policy}\"\n")
    };
    let profile = format!(
        "profile = \"p\"\n[profiles.p]\n{}",
        codex("read-only", "untrusted")
    );
    let permissions = "default_permissions = \"careful\"\nsandbox_mode = \"workspace-write\"\n\
        approval_policy = \"never\"\n";
    let permissions = permissions.to_owned();
    let granular = "sandbox_mode = \"workspace-write\"\n\
        approval_policy = { granular = { sandbox_approval = true } }\n";
    let granular = granular.to_owned();
    let strict = section("read-only", "untrusted");
    let middle = section("workspace-write", "on-request");
    let wide = section("danger-full-access", "never");
    let nothing = String::new();
    for (user, codex, repository, expected, warned) in [
        (
            &wide,
            &nothing,
            &strict,
            (Some(ReadOnly), Some(Never)),
            true,
        ),
        (
            &wide,
            &nothing,
            &middle,
            (Some(WorkspaceWrite), Some(Never)),
            true,
        ),
        (
            &middle,
            &nothing,
            &strict,
            (Some(ReadOnly), Some(Untrusted)),
            false,
        ),
        (
            &middle,
            &nothing,
            &wide,
            (Some(WorkspaceWrite), Some(OnRequest)),
            true,
        ),
        (
            &strict,
            &codex("danger-full-access", "never"),
            &middle,
            (Some(ReadOnly), Some(Untrusted)),
            true,
        ),
        (
            &nothing,
            &codex("danger-full-access", "never"),
            &middle,
            (Some(WorkspaceWrite), None),
            true,
        ),
        (&nothing, &permissions, &strict, (None, None), true),
        (
            &strict,
            &permissions,
            &strict,
            (Some(ReadOnly), Some(Untrusted)),
            false,
        ),
        (&nothing, &granular, &strict, (None, None), true),
        (
            &nothing,
            &codex("read-only", "untrusted"),
            &middle,
            (None, None),
            true,
        ),
        (&nothing, &profile, &middle, (None, None), true),
        (&nothing, &nothing, &middle, (None, None), true),
        (
            &nothing,
            &nothing,
            &strict,
            (Some(ReadOnly), Some(Untrusted)),
            false,
        ),
        (
            &wide,
            &nothing,
            &wide,
            (Some(DangerFullAccess), Some(Never)),
            false,
        ),
    ] {
        let world = World::new().user(user).codex(codex).untrusted(repository);
        let case = format!("user {user:?}, Codex {codex:?}, repository {repository:?}");
        assert_eq!(sandbox_and_policy(&world), expected, "{case}");
        assert_eq!(!warnings(&world).is_empty(), warned, "{case}");
    }
    let world = World::new().user(&wide).untrusted(&strict);
    let world = world.variable("CODEX_MCP_SANDBOX", "danger-full-access");
    assert_eq!(sandbox_and_policy(&world).0, Some(DangerFullAccess));
}

#[test]
fn untrusted_repository_chooses_a_role_but_gains_nothing_by_it() {
    let roles = format!(
        "{ROLES}[plugins.codex-mcp.roles.reader]\nsandbox = \"read-only\"\nmodel = \"r\"\n"
    );
    let choosing = |role: &str| format!("[plugins.codex-mcp]\nrole = \"{role}\"\n");
    let world = World::new().user(&roles).untrusted(&choosing("reader"));
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.threads.model.unwrap().value, "r");
    assert!(config.warnings.is_empty());
    let world = World::new().user(&roles).untrusted(&choosing("writer"));
    assert_eq!(sandbox_and_policy(&world).0, Some(SandboxMode::ReadOnly));
    assert!(warnings(&world)[0].contains("sandbox"));
    // Nor where permissions are in force, which a role's sandbox would replace.
    let reader = "[plugins.codex-mcp.roles.reader]\nsandbox = \"read-only\"\n";
    let permitted = World::new().user(reader).untrusted(&choosing("reader"));
    let permitted = permitted.codex("default_permissions = \"careful\"\n");
    assert_eq!(sandbox_and_policy(&permitted).0, None);
    assert!(warnings(&permitted)[0].contains("sandbox"));
    // The user's own choice of it stays.
    let flags = Flags {
        role: Some("writer".parse().unwrap()),
        ..Flags::default()
    };
    let sandbox = world.load(flags.clone()).unwrap().threads.sandbox;
    assert_eq!(sandbox.unwrap().value, SandboxMode::WorkspaceWrite);

    // A role of the repository does not replace the user's of that name.
    let replaced = "[plugins.codex-mcp.roles.writer]\nsandbox = \"danger-full-access\"\n";
    let loaded = |world: World| {
        let threads = world.load(flags.clone()).unwrap().threads;
        threads.sandbox.unwrap().value
    };
    let untrusted = World::new().user(&roles).untrusted(replaced);
    assert_eq!(loaded(untrusted), SandboxMode::WorkspaceWrite);
    let trusted = World::new().user(&roles).repository(replaced);
    assert_eq!(loaded(trusted), SandboxMode::DangerFullAccess);
}

#[test]
fn mistyped_keys_of_an_untrusted_repository_are_named_within_bounds() {
    let text = "[plugins.codex-mcp]\nsandbx = \"read-only\"\n";
    let told = |world: World| {
        let warnings = world.load(Flags::default()).unwrap().warnings;
        let texts = warnings.iter().map(ToString::to_string);
        texts.collect::<Vec<_>>()
    };
    let (untrusted, trusted) = (
        told(World::new().untrusted(text)),
        told(World::new().repository(text)),
    );
    for told in [&untrusted, &trusted] {
        assert_eq!(told.len(), 1, "{told:?}");
        let is_named = told[0].ends_with("has no key `sandbx`. Did you mean `sandbox`?");
        assert!(is_named, "{told:?}");
    }
    let many: String = (0..100)
        .map(|number| format!("\"{}{number}\" = 1\n", "do as I say ".repeat(50)))
        .collect();
    let told = told(World::new().untrusted(&format!("[plugins.codex-mcp]\n{many}")));
    assert_eq!(told.len(), 5, "{told:?}");
    assert!(told.iter().all(|told| told.len() < 1000), "{told:?}");
}

#[test]
fn untrusted_repository_switches_things_off_only() {
    let off = "[plugins.codex-mcp]\nteam_tools = false\nsummaries = false\nrequest_image = false\n";
    let switches = |config: &Config| {
        let eyes = config.eyes.request_image.value;
        [config.team_tools.value, config.summaries.value, eyes]
    };
    let world = World::new().untrusted(off);
    let config = world.load(Flags::default()).unwrap();
    assert_eq!((switches(&config), config.warnings.len()), ([false; 3], 0));
    let world = World::new()
        .user(off)
        .untrusted(&off.replace("false", "true"));
    let config = world.load(Flags::default()).unwrap();
    assert_eq!((switches(&config), config.warnings.len()), ([false; 3], 1));
}

#[test]
fn search_ends_at_the_top_of_the_repository() {
    let model = "[plugins.codex-mcp]\nsandbox = \"read-only\"\n";
    let world = World::new();
    std::fs::write(world.path(".atm.toml"), model).unwrap();
    assert_eq!(sandbox_and_policy(&world).0, None);
    std::fs::remove_dir_all(world.path("repo/.git")).unwrap();
    let world = world.untrusted(model);
    assert_eq!(sandbox_and_policy(&world).0, None);
    std::fs::write(world.here().join(".atm.toml"), model).unwrap();
    assert_eq!(sandbox_and_policy(&world).0, Some(SandboxMode::ReadOnly));
}

#[test]
fn file_that_others_can_write_is_not_read() {
    use std::os::unix::fs::PermissionsExt;

    let world = World::new().repository("[plugins.codex-mcp]\nmodel = \"m\"\n");
    let model = |world: &World| {
        let config = world.load(Flags::default()).unwrap();
        (config.threads.model.is_some(), config.warnings.len())
    };
    let set = |mode| {
        let path = world.path("repo/.atm.toml");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o644);
    assert_eq!(model(&world), (true, 0));
    set(0o646);
    assert_eq!(model(&world), (false, 1));
}

#[test]
fn file_of_another_kind_is_a_warning() {
    let world = World::new();
    let path = world.path("repo/.atm.toml");
    let warned = || {
        let warnings = warnings(&world);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(".atm.toml"), "{warnings:?}");
    };
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    warned();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(world.path("repo/.git/HEAD"), &path).unwrap();
    warned();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "x".repeat(64 * 1024 + 1)).unwrap();
    warned();
    std::fs::write(&path, "[plugins\n").unwrap();
    warned();
}

#[test]
fn identity_has_an_origin() {
    let text = "[core]\nidentity = \"a\"\n";
    let origin = |world: World| world.load(Flags::default()).unwrap().identity_origin;
    assert_eq!(origin(World::new().repository(text)), Origin::Repository);
    assert_eq!(origin(World::new().untrusted(text)), Origin::User);
    assert_eq!(origin(World::new().user(text)), Origin::User);
    let given = World::new().repository(text).variable("ATM_IDENTITY", "b");
    assert_eq!(origin(given), Origin::User);
}

#[test]
fn keys_that_trust_does_not_admit_are_listed_apart_with_their_values() {
    let warning = |text: &str| {
        let config = World::new().untrusted(text).load(Flags::default()).unwrap();
        config.warnings.first().unwrap().clone()
    };
    let both = warning("[plugins.codex-mcp]\nmodel = \"m\"\ncodex_bin = \"./evil\"\n");
    assert!(
        both.message.ends_with(
            "left out: model = \"m\"; never taken from a repository: codex_bin = \"./evil\""
        ),
        "{both}"
    );
    let never = warning("[plugins.codex-mcp]\nmax_sandbox = \"read-only\"\n");
    assert!(!never.to_string().contains("codex-mcp trust"), "{never}");
    assert!(
        never.hint.contains("home/.config/atm/config.toml"),
        "{never}"
    );
}

#[test]
fn full_access_of_a_trusted_repository_is_warned_of_where_it_counts() {
    const FULL: &str = "[plugins.codex-mcp]\nsandbox = \"danger-full-access\"\n";
    let warnings = |world: &World, flags: Flags| world.load(flags).unwrap().warnings;
    let flag = Flags {
        sandbox: Some(SandboxMode::ReadOnly),
        ..Flags::default()
    };
    let bound = Flags {
        max_sandbox: Some(SandboxMode::WorkspaceWrite),
        ..Flags::default()
    };
    let codex = |world: World| {
        std::fs::create_dir(world.path("repo/.codex")).unwrap();
        let text = "sandbox_mode = \"danger-full-access\"\n";
        std::fs::write(world.path("repo/.codex/config.toml"), text).unwrap();
        world
    };
    for world in [
        World::new().repository(FULL),
        codex(World::new().repository("")),
    ] {
        let told = warnings(&world, Flags::default());
        let [warning] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert!(warning.message.contains("touch everything"), "{warning}");
        assert!(!warning.hint.contains("Unless you trust"), "{warning}");
        assert_eq!(warnings(&world, flag.clone()), []);
        assert_eq!(warnings(&world, bound.clone()), []);
    }
    assert_eq!(warnings(&codex(World::new()), Flags::default()), []);
}

#[test]
fn missing_directory_of_allow_dirs_is_warned_of() {
    let flags = |path: &str| Flags {
        allow_dirs: vec![path.into()],
        ..Flags::default()
    };
    let world = World::new();
    assert_eq!(world.load(flags(".")).unwrap().warnings, []);
    let warnings = world.load(flags("absent")).unwrap().warnings;
    let told = warnings.first().unwrap().to_string();
    assert!(
        told.contains("--allow-dir") && told.contains("a/b/absent"),
        "{told}"
    );
}

#[test]
fn thread_defaults_come_from_flags_before_variables() {
    let world = World::new()
        .user("[plugins.codex-mcp]\nmodel = \"of-file\"\nbase_prompt_file = \"absent\"\n")
        .variable("CODEX_MCP_MODEL", "of-variable")
        .variable("CODEX_MCP_BASE_PROMPT_FILE", "base.md")
        .variable("CODEX_MCP_EXTRA_INSTRUCTIONS_FILE", "extra.md");
    for name in ["base.md", "extra.md"] {
        std::fs::write(world.here().join(name), name).unwrap();
    }
    let flags = Flags {
        model: Some("of-flag".to_owned()),
        effort: Some(Effort::High),
        sandbox: Some(SandboxMode::ReadOnly),
        approval_policy: Some(ApprovalPolicy::Never),
        ..Flags::default()
    };
    let threads = world.load(flags).unwrap().threads;
    let model = threads.model.unwrap();
    assert_eq!(
        (model.value.as_str(), model.source),
        ("of-flag", Source::Flag("--model"))
    );
    assert_eq!(
        threads.reasoning_effort.unwrap().source,
        Source::Flag("--effort")
    );
    assert_eq!(threads.sandbox.unwrap().source, Source::Flag("--sandbox"));
    assert_eq!(
        threads.approval_policy.unwrap().source,
        Source::Flag("--approval-policy")
    );
    let base = threads.base_prompt_file.unwrap();
    assert!(base.value.ends_with("base.md"), "{base:?}");
    assert_eq!(base.source, Source::Variable("CODEX_MCP_BASE_PROMPT_FILE"));
    assert!(
        threads
            .extra_instructions_file
            .unwrap()
            .value
            .ends_with("extra.md")
    );
    assert_eq!(
        world
            .load(Flags::default())
            .unwrap()
            .threads
            .model
            .unwrap()
            .value,
        "of-variable"
    );

    let missing = World::new().variable("CODEX_MCP_BASE_PROMPT_FILE", "absent.md");
    let error = missing.load(Flags::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("base_prompt_file ($CODEX_MCP_BASE_PROMPT_FILE): "),
        "{error}"
    );
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
