use codex_config::profile::ProfileName;
use codex_engine::command::Settings;
use goal_run::logic::criteria::Criteria;
use serde_json::{Value, json};

use super::*;

fn bounds() -> Bounds {
    Bounds {
        max_sandbox: Some(SandboxMode::WorkspaceWrite),
        ..Bounds::default()
    }
}

fn check(bounds: &Bounds, config: Value) -> Result<(), String> {
    let config = config.as_object().unwrap();
    let checked = bounds.check_config(config);
    checked.map_err(|error| error.to_string())
}

#[test]
fn config_that_leads_around_a_bound_is_refused() {
    let commands = Bounds {
        commands: Commands::Refused,
        ..Bounds::default()
    };
    let directories = Bounds {
        directories: Some(vec!["/allowed".into()]),
        ..Bounds::default()
    };
    for (bounds, setting) in [
        (&bounds(), "max_sandbox"),
        (&commands, "allow_commands"),
        (&directories, "allow_dirs"),
    ] {
        for config in [
            json!({ "default_permissions": ":danger-full-access" }),
            json!({ "permissions": {} }),
            json!({ "permissions.x.filesystem": {} }),
            json!({ "profile": "x" }),
            json!({ "profiles.x.sandbox_mode": "read-only" }),
            json!({ "projects": {} }),
            json!({ "mcp_servers": { "x": { "command": "sh" } } }),
            json!({ "mcp_servers.x.command": "sh" }),
            json!({ "notify": ["sh"] }),
            json!({ "hooks": {} }),
            json!({ "features.hooks": true }),
            json!({ "made_up": 1 }),
            json!({ "sandbox_workspace_write": { "made_up": 1 } }),
            json!({ "sandbox_workspace_write": { "network_access": true } }),
            json!({ "sandbox_workspace_write.network_access": true }),
            json!({ "sandbox_workspace_write": { "exclude_slash_tmp": false } }),
            json!({ "approval_policy": "never" }),
            json!({ "approval_policy": "on-request" }),
            json!({ "approval_policy": { "granular": {} } }),
        ] {
            let refused = check(bounds, config.clone()).unwrap_err();
            assert!(refused.contains(setting), "{config}: {refused}");
            assert_eq!(check(&Bounds::default(), config), Ok(()));
        }
        let harmless = json!({ "model": "m", "model_reasoning_effort": "high",
            "sandbox_mode": "workspace-write", "approval_policy": "untrusted",
            "sandbox_workspace_write.network_access": false });
        assert_eq!(check(bounds, harmless), Ok(()));
    }
    let wide = json!({ "sandbox_mode": "danger-full-access" });
    assert!(
        check(&bounds(), wide.clone())
            .unwrap_err()
            .contains("max_sandbox")
    );
    assert_eq!(check(&directories, wide), Ok(()));
}

#[test]
fn network_and_approval_policy_follow_the_user_config() {
    let home = tempfile::tempdir().unwrap();
    let user = |config: &str| {
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        Bounds {
            codex_home: home.path().to_owned(),
            ..bounds()
        }
    };
    let criteria: Criteria = serde_json::from_value(json!({ "pushed": true })).unwrap();
    let network = json!({ "sandbox_workspace_write": { "network_access": true } });
    let with = user("sandbox_workspace_write.network_access = true\n");
    assert_eq!(check(&with, network.clone()), Ok(()));
    assert_eq!(with.check_run(&criteria, &[], false), Ok(()));
    let without = user("");
    assert!(check(&without, network).unwrap_err().contains("network"));
    let refused = without.check_run(&criteria, &[], false).unwrap_err();
    assert!(refused.to_string().contains("the criterion pushed"));
    assert_eq!(Bounds::default().check_run(&criteria, &[], false), Ok(()));
    for (own, allowed) in [
        ("untrusted", &["untrusted"][..]),
        ("on-request", &["untrusted", "on-request"]),
        ("never", &["never"]),
    ] {
        let bounds = user(&format!("approval_policy = \"{own}\"\n"));
        for asked in ["untrusted", "on-request", "on-failure", "never"] {
            let checked = check(&bounds, json!({ "approval_policy": asked }));
            assert_eq!(checked.is_ok(), allowed.contains(&asked), "{own} {asked}");
        }
    }
}

#[test]
fn refusal_names_every_bound_in_force_and_its_source() {
    let bounds = Bounds {
        commands: Commands::Refused,
        sources: Sources {
            max_sandbox: Source::Variable("CODEX_MCP_MAX_SANDBOX"),
            commands: Source::Flag("--no-commands"),
            ..Sources::default()
        },
        ..bounds()
    };
    let refused = check(&bounds, json!({ "notify": ["sh"] })).unwrap_err();
    assert_eq!(
        refused,
        "config may not set notify under max_sandbox ($CODEX_MCP_MAX_SANDBOX), \
         allow_commands (--no-commands)"
    );
    let wide = bounds.check_sandbox(SandboxMode::DangerFullAccess);
    assert_eq!(
        wide.unwrap_err().to_string(),
        "the sandbox danger-full-access is wider than workspace-write, the widest by max_sandbox \
         ($CODEX_MCP_MAX_SANDBOX)"
    );
}

#[test]
fn writable_roots_lie_in_the_allowed_directories() {
    let roots = |path: &str| json!({ "sandbox_workspace_write": { "writable_roots": [path] } });
    let both = Bounds {
        directories: Some(vec!["/allowed".into()]),
        ..bounds()
    };
    assert_eq!(check(&both, roots("/allowed/sub")), Ok(()));
    for path in ["/", "/allowed/../etc", "/allowedness", "relative", "~"] {
        assert!(check(&both, roots(path)).is_err(), "{path}");
    }
    assert!(check(&bounds(), roots("/allowed")).is_err());
    let dotted = json!({ "sandbox_workspace_write.writable_roots": ["/"] });
    assert!(check(&both, dotted).is_err());
}

#[test]
fn directory_is_judged_without_links() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    for name in ["in/sub", "out"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(root.join("out"), root.join("in/link")).unwrap();
    std::os::unix::fs::symlink(root.join("in"), root.join("named")).unwrap();
    let bounds = Bounds {
        directories: Some(vec![safe_files::directory::resolved(&root.join("named"))]),
        ..Bounds::default()
    };
    let judged = |name: &str| bounds.directory(&root.join(name)).ok();
    assert_eq!(judged("in"), Some(root.join("in")));
    assert_eq!(judged("named/sub"), Some(root.join("in/sub")));
    let outside = [
        "out",
        "in/link",
        "in/link/none",
        "in/../out",
        ".",
        "in/none/../../out",
    ];
    for outside in outside {
        assert_eq!(judged(outside), None, "{outside}");
    }
}

#[test]
fn repository_is_allowed_only_if_its_top_is() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("repo/sub")).unwrap();
    std::fs::create_dir_all(root.join("repo/.git/objects")).unwrap();
    std::fs::create_dir_all(root.join("repo/.git/refs")).unwrap();
    std::fs::write(root.join("repo/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    for (allowed, is_allowed) in [("", true), ("repo", true), ("repo/sub", false)] {
        let bounds = Bounds {
            directories: Some(vec![root.join(allowed)]),
            ..Bounds::default()
        };
        assert!(bounds.directory(&root.join("repo/sub")).is_ok());
        let checked = bounds.repository(&root.join("repo/sub"));
        assert_eq!(checked.is_ok(), is_allowed, "{allowed}");
    }
}

#[test]
fn sandbox_of_codex_is_inherited_up_to_the_bound() {
    let home = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        codex_home: home.path().to_owned(),
        ..bounds()
    };
    let sent = |config: &str, profile: Option<&str>| {
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        let profile = profile.map(|name| ProfileName::try_from(name.to_owned()).unwrap());
        bounds.sandbox(None, profile.as_ref(), home.path())
    };
    use SandboxMode::{ReadOnly, WorkspaceWrite};
    let mode = |mode: &str| format!("sandbox_mode = \"{mode}\"\n");
    assert_eq!(sent("", None), Ok(Some(ReadOnly)));
    assert_eq!(sent(&mode("read-only"), None), Ok(Some(ReadOnly)));
    let danger = mode("danger-full-access");
    assert_eq!(sent(&danger, None), Ok(Some(WorkspaceWrite)));
    let permissions = "default_permissions = \":danger-full-access\"\n";
    let too_wide = sent(permissions, None).unwrap_err().to_string();
    assert!(too_wide.contains("default_permissions"), "{too_wide}");
    assert!(too_wide.contains("max_sandbox"), "{too_wide}");
    let table = format!("[profiles.p]\n{danger}");
    assert_eq!(sent(&table, Some("p")), Ok(Some(WorkspaceWrite)));
    let file = home.path().join("q.config.toml");
    std::fs::write(file, permissions).unwrap();
    assert!(matches!(
        sent("", Some("q")),
        Err(OutOfBounds::Profile { .. })
    ));
}

#[test]
fn resumed_thread_keeps_a_narrower_sandbox_and_a_known_directory() {
    let known = |mode| Settings {
        thread: codex_protocol::codex::ThreadSettings {
            sandbox: Some(mode),
            cwd: Some("/".into()),
            ..Default::default()
        },
        ..Settings::default()
    };
    let resumed = |bounds: &Bounds, known: Option<&Settings>| {
        let mut settings = Settings::default();
        bounds
            .bound_resumed(&mut settings, known)
            .map(|()| settings)
    };
    use SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};
    for (before, sent) in [
        (ReadOnly, ReadOnly),
        (WorkspaceWrite, WorkspaceWrite),
        (DangerFullAccess, WorkspaceWrite),
    ] {
        let settings = resumed(&bounds(), Some(&known(before))).unwrap();
        assert_eq!(settings.thread.sandbox, Some(sent));
        assert_eq!(settings.thread.cwd, None);
    }
    let directories = Bounds {
        directories: Some(vec!["/nowhere".into()]),
        ..Bounds::default()
    };
    assert!(matches!(
        resumed(&directories, None),
        Err(OutOfBounds::UnknownDirectory(_))
    ));
    assert!(resumed(&directories, Some(&known(ReadOnly))).is_err());
}

#[test]
fn permissions_within_the_bound_stay_in_force() {
    let home = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let careful = "default_permissions = \"careful\"\n[permissions.careful.filesystem]\n\
        \":root\" = \"read\"\n\"/secret\" = \"deny\"\n";
    let writing = format!("{careful}\":workspace_roots\" = \"write\"\n");
    use SandboxMode::{ReadOnly, WorkspaceWrite};
    for (config, most, stays) in [
        (careful.to_owned(), ReadOnly, true),
        (writing.clone(), ReadOnly, false),
        (writing, WorkspaceWrite, true),
        (
            format!("sandbox_mode = \"workspace-write\"\n{careful}"),
            ReadOnly,
            false,
        ),
        (
            format!("sandbox_mode = \"workspace-write\"\n{careful}"),
            WorkspaceWrite,
            true,
        ),
    ] {
        std::fs::write(home.path().join("config.toml"), &config).unwrap();
        let bounds = Bounds {
            max_sandbox: Some(most),
            codex_home: home.path().to_owned(),
            ..Bounds::default()
        };
        let case = format!("{most:?}: {config}");
        for sent in [
            bounds.sandbox(None, None, work.path()),
            bounds.sandbox_of_job(None, None, work.path()),
        ] {
            match stays {
                true => assert_eq!(sent, Ok(None), "{case}"),
                false => assert!(
                    matches!(sent, Err(OutOfBounds::Permissions { .. })),
                    "{case}"
                ),
            }
        }
        let asked = bounds.sandbox(Some(ReadOnly), None, work.path());
        assert_eq!(asked, Ok(Some(ReadOnly)), "{case}");
        let resumed = bounds.bound_resumed(&mut Settings::default(), None);
        assert!(resumed.is_err(), "{case}");
        if stays {
            let known = Settings::default();
            let mut settings = Settings::default();
            settings.thread.cwd = Some(work.path().to_owned());
            assert_eq!(bounds.bound_resumed(&mut settings, Some(&known)), Ok(()));
            assert_eq!(settings.thread.sandbox, None, "{case}");
        }
    }
}
