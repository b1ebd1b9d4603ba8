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
        for name in ["repo/.git/worktrees/tree", "repo/sub", "tree", "plain/sub"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("repo/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let own = root.join("repo/.git/worktrees/tree");
        fs::write(own.join("HEAD"), "ref: refs/heads/tree\n").unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        let link = |path: PathBuf| format!("{}\n", path.display());
        fs::write(own.join("gitdir"), link(root.join("tree/.git"))).unwrap();
        let there = format!("gitdir: {}\n", own.display());
        fs::write(root.join("tree/.git"), there).unwrap();
        Self {
            _directory: directory,
            root,
        }
    }

    fn list(&self) -> PathBuf {
        self.root.join("config/codex-mcp/trust.toml")
    }

    /// Trust by the list of that name and these levels in Codex's configuration.
    fn trust(&self, directory: &str, listed: &[&str], codex: &[(&str, &str)]) -> Trust {
        self.asked(directory, listed, codex).trust
    }

    fn asked(&self, directory: &str, listed: &[&str], codex: &[(&str, &str)]) -> DirectoryTrust {
        let listed = listed.iter().map(|name| self.root.join(name));
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

#[test]
fn codex_is_told_of_every_path_that_it_may_look_up() {
    let world = World::new();
    let untrusted = |directory: &str| {
        let paths = world.asked(directory, &[], &[]).told;
        // Above the test's own directory, others may have made one named .git.
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
    // Git doesn't take this for a repository, and Codex does.
    fs::create_dir(world.root.join("plain/.git")).unwrap();
    assert_eq!(untrusted("plain/sub"), ["plain", "plain/sub"]);
    assert_eq!(world.asked("repo", &["repo"], &[]).told.len(), 1);
}

#[test]
fn list_is_written_for_the_user_alone() {
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
    assert!(TrustedDirectories::add(&path, one).unwrap());
    assert!(TrustedDirectories::add(&path, other).unwrap());
    assert!(!TrustedDirectories::add(&path, one).unwrap());
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
        TrustedDirectories::add(&path, Path::new("/a")).unwrap_err();
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
    TrustedDirectories::add(&path, Path::new("/a")).unwrap();
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
fn list_lies_in_the_users_configuration() {
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
    assert_eq!(path(&[]), None);
}

#[test]
fn unreadable_configuration_of_codex_trusts_nothing() {
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
