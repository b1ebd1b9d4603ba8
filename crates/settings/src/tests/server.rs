use super::World;
use crate::flags::Flags;
use crate::source::Origin;

#[test]
fn repository_chooses_neither_the_program_nor_files_of_others() {
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

/// The directories of `world`, with another file in the repository.
fn world_with(world: &World, text: &str) -> World {
    let copy = World::new();
    for name in ["secret", "repo/prompt.md"] {
        std::fs::copy(world.path(name), copy.path(name)).unwrap();
    }
    std::os::unix::fs::symlink(copy.path("secret"), copy.path("repo/link")).unwrap();
    copy.repository(text)
}

#[test]
fn codex_bin_of_the_user_may_begin_with_the_home_directory() {
    let world = World::new().user("[plugins.codex-mcp]\ncodex_bin = \"~/bin/codex\"\n");
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(
        config.codex_bin.unwrap().value,
        world.path("home/bin/codex")
    );
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
