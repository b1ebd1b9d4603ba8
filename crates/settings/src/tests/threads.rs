use codex_protocol::codex::{ApprovalPolicy, Effort, SandboxMode};

use super::{ROLES, World};
use crate::flags::Flags;
use crate::policy::REPLACED;
use crate::source::{Source, Warning};

#[test]
fn role_takes_precedence_over_the_section() {
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

    // The repository's file takes precedence over the user's, also within a role.
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
    let error = wrong.load(Flags::default()).unwrap_err().to_string();
    let known = "it must be one of `untrusted`, `on-request`, `never`";
    assert!(error.contains(known), "{error}");
}

#[test]
fn unknown_role_is_an_error_that_lists_the_known() {
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
