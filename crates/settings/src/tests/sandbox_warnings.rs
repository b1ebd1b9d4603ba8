use codex_protocol::codex::SandboxMode;

use super::World;
use crate::flags::Flags;

#[test]
fn repository_without_a_sandbox_causes_a_warning() {
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
fn full_access_of_a_trusted_repository_causes_a_warning() {
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
    let linked = |world: World| {
        let world = codex(world);
        let file = world.path("repo/.codex/config.toml");
        let target = world.path("repo/elsewhere.toml");
        std::fs::rename(&file, &target).unwrap();
        std::os::unix::fs::symlink(&target, &file).unwrap();
        world
    };
    for world in [
        World::new().repository(FULL),
        codex(World::new().repository("")),
        linked(World::new().repository("")),
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
