use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A repository `repo` with the directory `sub`, its linked working tree `tree`, the
/// directory `plain` outside any repository, and a list.
struct World {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["repo/sub", "plain/sub"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let world = Self {
            _directory: directory,
            root,
        };
        world.link_tree("tree", "repo/.git");
        world
    }

    /// Makes a linked working tree of the repository with this common directory.
    fn link_tree(&self, tree: &str, common_dir: &str) {
        let common_dir = self.root.join(common_dir);
        let tree = self.root.join(tree);
        let own = common_dir.join("worktrees/tree");
        for directory in [&tree, &own] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(common_dir.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(own.join("HEAD"), "ref: refs/heads/tree\n").unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        let back = format!("{}\n", tree.join(".git").display());
        fs::write(own.join("gitdir"), back).unwrap();
        let there = format!("gitdir: {}\n", own.display());
        fs::write(tree.join(".git"), there).unwrap();
    }

    fn list(&self) -> PathBuf {
        self.root.join("config/codex-mcp/trust.toml")
    }

    /// Trust by the list of that name and these levels in Codex's configuration.
    fn trust(&self, directory: &str, listed: &[&str], codex: &[(&str, &str)]) -> Trust {
        self.directory_trust_of(directory, listed, codex).trust
    }

    fn directory_trust_of(
        &self,
        directory: &str,
        listed: &[&str],
        codex: &[(&str, &str)],
    ) -> DirectoryTrust {
        let listed = listed
            .iter()
            .map(|name| (self.root.join(name), Record::default()));
        let list = TrustedDirectories(listed.collect());
        let levels = codex.iter().map(|(name, level)| {
            let path = self.root.join(name);
            format!("[projects.{path:?}]\ntrust_level = {level:?}\n")
        });
        let config = levels.collect::<String>();
        fs::write(self.root.join("config.toml"), config).unwrap();
        let codex = UserConfig::read(&self.root);
        trust_by(&self.root.join(directory), &list, &codex).unwrap()
    }
}

#[test]
fn directory_inherits_trust_up_to_the_top_of_its_repository() {
    let world = World::new();
    for (directory, listed, expected) in [
        ("repo", "repo", Trust::Trusted),
        ("repo/sub", "repo", Trust::Trusted),
        ("repo/sub", "repo/sub", Trust::Trusted),
        ("tree", "repo", Trust::Trusted),
        ("tree", "tree", Trust::Trusted),
        ("plain", "plain", Trust::Trusted),
        ("repo", "repo/sub", Trust::Untrusted),
        ("repo", "tree", Trust::Untrusted),
        ("repo/sub", "", Trust::Untrusted),
        ("plain/sub", "plain", Trust::Untrusted),
        ("plain", "", Trust::Untrusted),
    ] {
        let by_list = world.trust(directory, &[listed], &[]);
        assert_eq!(by_list, expected, "{directory} by the list: {listed}");
        let by_codex = world.trust(directory, &[], &[(listed, "trusted")]);
        assert_eq!(by_codex, expected, "{directory} by Codex: {listed}");
    }
    assert_eq!(world.trust("repo", &[], &[]), Trust::Untrusted);
}

#[test]
fn nearest_listed_directory_decides() {
    let world = World::new();
    let outer = ("repo", "trusted");
    let inner = ("repo/sub", "untrusted");
    assert_eq!(
        world.trust("repo/sub", &[], &[outer, inner]),
        Trust::Untrusted
    );
    assert_eq!(
        world.trust("repo/sub", &["repo"], &[inner]),
        Trust::Untrusted
    );
    assert_eq!(
        world.trust("repo/sub", &["repo/sub"], &[inner]),
        Trust::Trusted
    );
    assert_eq!(world.trust("repo", &[], &[outer, inner]), Trust::Trusted);
    let odd = [("repo", "made up")];
    assert_eq!(world.trust("repo", &[], &odd), Trust::Untrusted);
}

#[test]
fn nested_repository_does_not_inherit_trust() {
    let world = World::new();
    fs::create_dir_all(world.root.join("repo/vendor/.git")).unwrap();
    fs::write(world.root.join("repo/vendor/.git/HEAD"), "").unwrap();
    let listed = ["repo"];
    assert_eq!(world.trust("repo/vendor", &listed, &[]), Trust::Untrusted);
    assert_eq!(world.trust("repo/sub", &listed, &[]), Trust::Trusted);
}

/// The user may clone repositories of strangers into a directory that Codex trusts.
#[test]
fn worktree_of_a_bare_repository_does_not_inherit_trust() {
    let world = World::new();
    world.link_tree("of-bare", "src/bare.git");
    for (trusted, expected) in [("src", Trust::Untrusted), ("of-bare", Trust::Trusted)] {
        let by_list = world.trust("of-bare", &[trusted], &[]);
        assert_eq!(by_list, expected, "by the list: {trusted}");
        let by_codex = world.trust("of-bare", &[], &[(trusted, "trusted")]);
        assert_eq!(by_codex, expected, "by Codex: {trusted}");
    }
}

#[test]
fn untrusted_paths_are_all_that_codex_may_look_up() {
    let world = World::new();
    let untrusted = |directory: &str| {
        let paths = world.directory_trust_of(directory, &[], &[]).codex_paths;
        // Other programs may have created a `.git` above the test's own directory.
        let names = paths.iter().filter_map(|path| {
            let name = path.strip_prefix(&world.root).ok()?;
            Some(name.to_str().unwrap().to_owned())
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(untrusted("repo/sub"), ["repo", "repo/sub"]);
    assert_eq!(untrusted("tree"), ["repo", "tree"]);
    assert!(untrusted("plain/sub").contains(&"plain/sub".to_owned()));
    symlink(world.root.join("repo/sub"), world.root.join("link")).unwrap();
    assert_eq!(untrusted("link"), ["link", "repo", "repo/sub"]);
    // Git does not recognise this as a repository; Codex does.
    fs::create_dir(world.root.join("plain/.git")).unwrap();
    assert_eq!(untrusted("plain/sub"), ["plain", "plain/sub"]);
    assert_eq!(
        world
            .directory_trust_of("repo", &["repo"], &[])
            .codex_paths
            .len(),
        1
    );
}

#[test]
fn list_is_written_for_the_user_only() {
    let world = World::new();
    let path = world.list();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert!(
        TrustedDirectories::read(&path)
            .unwrap()
            .iter()
            .eq([""; 0].map(Path::new))
    );
    let (one, other) = (Path::new("/a b"), Path::new("/c\"d"));
    let add = |directory| TrustedDirectories::add(&path, directory, directory).unwrap();
    assert_eq!(add(one), AddOutcome::New);
    assert_eq!(add(other), AddOutcome::New);
    assert_eq!(add(one), AddOutcome::Unchanged);
    assert!(
        TrustedDirectories::read(&path)
            .unwrap()
            .iter()
            .eq([one, other])
    );
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert!(TrustedDirectories::revoke(&path, one).unwrap());
    assert!(!TrustedDirectories::revoke(&path, one).unwrap());
    assert!(TrustedDirectories::read(&path).unwrap().iter().eq([other]));
}

#[test]
fn damaged_list_is_an_error_and_stays_as_it_is() {
    let world = World::new();
    let path = world.list();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let refused = |text: &str| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let read = TrustedDirectories::read(&path).unwrap_err();
        assert!(matches!(read, TrustError::Damaged { .. }), "{text}: {read}");
        TrustedDirectories::add(&path, Path::new("/a"), Path::new("/a")).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    };
    refused("directories = [\"/a\"\n");
    refused("directories = [\"a\"]\n");
    refused("directories = [\"/a\"]\nmore = 1\n");
    refused("");
}

#[test]
fn list_that_others_can_write_is_an_error() {
    let world = World::new();
    let path = world.list();
    TrustedDirectories::add(&path, Path::new("/a"), Path::new("/a")).unwrap();
    let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o620, 0o602] {
        set(mode);
        let read = TrustedDirectories::read(&path).unwrap_err();
        assert!(matches!(read, TrustError::Unsafe { .. }), "{read}");
    }
    set(0o644);
    TrustedDirectories::read(&path).unwrap();
    let link = path.with_file_name("link.toml");
    symlink(&path, &link).unwrap();
    let read = TrustedDirectories::read(&link).unwrap_err();
    assert!(matches!(read, TrustError::Unreadable(_)), "{read}");
}

#[test]
fn list_is_stored_in_the_users_configuration_directory() {
    let path = |variables: &[(&str, &str)]| {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name);
        list_path(&|name| value(name).map(|(_, value)| value.into()))
    };
    let home = ("HOME", "/home/me");
    let default = Some(PathBuf::from("/home/me/.config/codex-mcp/trust.toml"));
    assert_eq!(path(&[home]), default);
    assert_eq!(path(&[home, ("XDG_CONFIG_HOME", "relative")]), default);
    let set = path(&[home, ("XDG_CONFIG_HOME", "/config")]);
    assert_eq!(set, Some(PathBuf::from("/config/codex-mcp/trust.toml")));
    // The user of a container may have no account.
    let Some(account) = home_directory(|_| None) else {
        return;
    };
    let of_account = Some(account.join(".config/codex-mcp/trust.toml"));
    assert_eq!(path(&[]), of_account);
    assert_eq!(path(&[("HOME", "relative")]), of_account);
}

#[test]
fn unreadable_codex_configuration_trusts_nothing() {
    let world = World::new();
    let trust = |codex: &UserConfig| codex_trust(&world.root.join("repo"), codex).unwrap().trust;
    let config = format!(
        "[projects.{:?}]\ntrust_level = \"trusted\"\n",
        world.root.join("repo")
    );
    for (text, expected) in [
        (config.clone(), Trust::Trusted),
        (config + "= 1", Trust::Untrusted),
    ] {
        fs::write(world.root.join("config.toml"), text).unwrap();
        assert_eq!(trust(&UserConfig::read(&world.root)), expected);
    }
    let nowhere = UserConfig::read(&world.root.join("plain"));
    assert_eq!(trust(&nowhere), Trust::Untrusted);
}

/// The entry of one repository counts as long as no covered file changes.
#[test]
fn trust_ends_with_any_change_of_a_recorded_file() {
    let world = World::new();
    let top = world.root.join("repo");
    let write = |name: &str, text: &str| {
        let path = top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let accept = |directory: &str| {
        let directory = world.root.join(directory);
        TrustedDirectories::add(&world.list(), &directory, &top)
    };
    let codex = UserConfig::read(&world.root);
    let changes = |directory: &str| {
        let list = TrustedDirectories::read(&world.list()).unwrap();
        let found = trust_by(&world.root.join(directory), &list, &codex).unwrap();
        assert_eq!(found.trust == Trust::Trusted, found.changes.is_none());
        found.changes.map_or_else(Vec::new, |changes| changes.files)
    };
    write("README.md", "x");
    assert_eq!(accept("repo").unwrap(), AddOutcome::New);
    assert_eq!(changes("repo"), [""; 0]);

    let roles = "[plugins.codex-mcp.roles.r]\nextra_instructions_file = \"r.md\"\n";
    for (name, text, other) in [
        (".atm.toml", roles, "[core]\n"),
        ("r.md", "one", "two"),
        (".codex/config.toml", "x = 1\n", "x = 2\n"),
        (".codex/hooks.json", "{}", "[]"),
        (".codex/rules/a.rules", "", "x"),
        (".codex/agents/deep/a.toml", "", "x"),
        (".codex-mcp/prompts/nudge.md", "one", "two"),
    ] {
        write(name, text);
        assert_eq!(changes("repo"), [format!("{name} (new)")]);
        assert_eq!(changes("repo/sub"), [format!("{name} (new)")]);
        assert_eq!(accept("repo").unwrap(), AddOutcome::Accepted);
        assert_eq!(changes("repo/sub"), [""; 0]);
        write(name, other);
        assert_eq!(changes("repo")[0], format!("{name} (changed)"));
        fs::remove_file(top.join(name)).unwrap();
        assert_eq!(changes("repo")[0], format!("{name} (removed)"));
        write(name, text);
        assert_eq!(changes("repo"), [""; 0]);
    }
    assert_eq!(accept("repo").unwrap(), AddOutcome::Unchanged);

    write("sub/.codex/config.toml", "");
    assert_eq!(changes("repo"), [""; 0]);
    assert_eq!(changes("repo/sub"), ["sub/.codex/config.toml (new)"]);
    accept("repo").unwrap();
    assert_eq!(changes("repo/sub"), ["sub/.codex/config.toml (new)"]);
    accept("repo/sub").unwrap();
    assert_eq!(changes("repo/sub"), [""; 0]);
    // The linked working tree has none of the files.
    assert_eq!(changes("tree").len(), 7);
    TrustedDirectories::add(
        &world.list(),
        &world.root.join("tree"),
        &world.root.join("tree"),
    )
    .unwrap();
    assert_eq!(changes("tree"), [""; 0]);
}

#[test]
fn file_that_cannot_be_hashed_ends_trust_and_cannot_be_trusted() {
    let world = World::new();
    let top = world.root.join("repo");
    let add = || TrustedDirectories::add(&world.list(), &top, &top);
    let trust = || {
        let list = TrustedDirectories::read(&world.list()).unwrap();
        trust_by(&top, &list, &UserConfig::read(&world.root)).unwrap()
    };
    add().unwrap();
    let path = top.join(".codex/rules/a.rules");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let cases: [&dyn Fn(); 3] = [
        &|| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        &|| fs::write(&path, vec![b'x'; 1024 * 1024 + 1]).unwrap(),
        &|| {
            fs::create_dir(&path).unwrap();
            for number in 0..300 {
                fs::write(path.join(number.to_string()), "").unwrap();
            }
        },
    ];
    for make in cases {
        make();
        let refused = add().unwrap_err();
        assert!(matches!(refused, TrustError::Unrecordable(_)), "{refused}");
        assert!(refused.to_string().contains("a.rules"), "{refused}");
        assert_eq!(trust().trust, Trust::Untrusted);
        assert!(trust().changes.unwrap().to_string().contains("a.rules"));
        let _ = fs::remove_file(&path);
    }
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(trust().trust, Trust::Trusted);
    // A link is hashed by the content of its target.
    fs::write(top.join("elsewhere"), "one").unwrap();
    symlink(top.join("elsewhere"), &path).unwrap();
    add().unwrap();
    assert_eq!(trust().trust, Trust::Trusted);
    fs::write(top.join("elsewhere"), "two").unwrap();
    assert_eq!(trust().trust, Trust::Untrusted);
}

/// A model can write such files into a directory at each level of a deep path.
#[test]
fn files_of_all_directories_are_hashed_up_to_one_limit() {
    let world = World::new();
    let top = world.root.join("repo");
    let sub = top.join("sub");
    let file = |directory: &Path, number: u32| {
        let path = directory.join(format!(".codex/rules/{number}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(path).unwrap();
        file.set_len(1024 * 1024).unwrap();
    };
    for number in 0..8 {
        file(&top, number);
        file(&sub, number);
    }
    let add = || TrustedDirectories::add(&world.list(), &sub, &top);
    assert_eq!(add().unwrap(), AddOutcome::New);
    file(&sub, 8);
    let refused = add().unwrap_err();
    assert!(matches!(refused, TrustError::Unrecordable(_)), "{refused}");
}

/// Six levels of ten links each: more than 100,000 directories to visit.
#[test]
fn search_through_circular_links_ends() {
    let world = World::new();
    let top = world.root.join("repo");
    let rules = top.join(".codex/rules");
    for level in 0..6 {
        let directory = match level {
            0 => rules.clone(),
            _ => top.join(format!("l{level}")),
        };
        fs::create_dir_all(&directory).unwrap();
        for number in 0..10 {
            let next = top.join(format!("l{}", level + 1));
            symlink(next, directory.join(number.to_string())).unwrap();
        }
    }
    let refused = TrustedDirectories::add(&world.list(), &top, &top).unwrap_err();
    assert!(refused.to_string().contains("2000 entries"), "{refused}");
}

/// A list without records accepts no file of its directories.
#[test]
fn entry_without_a_record_needs_to_be_confirmed() {
    let world = World::new();
    let top = world.root.join("repo");
    let list = world.list();
    fs::create_dir_all(list.parent().unwrap()).unwrap();
    fs::write(&list, format!("directories = [{top:?}]\n")).unwrap();
    fs::set_permissions(&list, fs::Permissions::from_mode(0o600)).unwrap();
    let codex = UserConfig::read(&world.root);
    let trust = || {
        let list = TrustedDirectories::read(&list).unwrap();
        trust_by(&top, &list, &codex).unwrap().trust
    };
    assert_eq!(trust(), Trust::Trusted);
    fs::write(top.join(".atm.toml"), "").unwrap();
    assert_eq!(trust(), Trust::Untrusted);
    TrustedDirectories::add(&list, &top, &top).unwrap();
    assert_eq!(trust(), Trust::Trusted);
}
