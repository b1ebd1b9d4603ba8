use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use super::directory::{Directory, DirectoryError};
use super::state::Entry;
use super::*;
use crate::real_git::guarded_bounds;

/// A repository `top` with these submodules, which have git directories of their own, and
/// its state directory. A place outside of it is `outside`.
struct Repository {
    _temporary: tempfile::TempDir,
    root: PathBuf,
    top: PathBuf,
    git: Git,
}

impl Repository {
    async fn with(submodules: &[&str]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        let top = root.join("top");
        fs::create_dir_all(root.join("outside")).unwrap();
        git(&root, &["init", "--quiet", "top"]);
        for path in submodules {
            git(&top, &["init", "--quiet", path]);
            let commit = ["commit", "--quiet", "--allow-empty", "--message", "x"];
            git(&top.join(path), &commit);
            git(&top, &["add", path]);
        }
        let bounds = guarded_bounds();
        let env = environment(&root).map(|(name, value)| (OsString::from(name), value));
        let git = Git::begin(&top, &env, bounds).await.unwrap();
        Self {
            _temporary: temporary,
            root,
            top,
            git,
        }
    }

    async fn noted(&self) -> Submodules {
        let (submodules, warnings) = Submodules::note(&self.git).await.unwrap();
        assert_eq!(warnings, [] as [&str; 0]);
        submodules
    }

    /// Continues a run as another process does.
    async fn continuing(&self, record: &SubmodulesRecord) -> Result<Submodules, GitError> {
        let record = serde_json::to_string(record).unwrap();
        let record = serde_json::from_str(&record).unwrap();
        Submodules::continuing(&self.git, record).await
    }

    /// Adds a file in a directory `plain` to the index.
    fn add_plain_directory(&self) {
        self.write("plain/x", "x");
        git(&self.top, &["add", "plain/x"]);
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.top.join(path)).unwrap_or_default()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The names in a directory that were moved aside.
    fn moved(&self, path: &str) -> Vec<String> {
        let names = fs::read_dir(self.top.join(path)).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names
            .filter(|name| name.contains("-moved-aside-"))
            .collect();
        names.sort();
        names
    }

    fn has_notes(&self) -> bool {
        let all = fs::read_dir(self.root.join("state/codex-mcp/git-submodules"));
        all.into_iter().flatten().count() > 0
    }
}

fn environment(root: &Path) -> [(&'static str, OsString); 4] {
    [
        ("HOME", root.into()),
        ("XDG_STATE_HOME", root.join("state").into()),
        ("XDG_CONFIG_HOME", root.join("config").into()),
        ("GIT_CONFIG_NOSYSTEM", "1".into()),
    ]
}

fn git(directory: &Path, args: &[&str]) {
    let own = [
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@example.com",
        "-c",
        "advice.addEmbeddedRepo=false",
    ];
    let mut command = Command::new("git");
    command.args(own).args(args).current_dir(directory);
    command.envs(environment(directory));
    assert!(command.status().unwrap().success(), "{args:?}");
}

const PLANTED: &str = "[core]\n\tfsmonitor = evil\n";

#[tokio::test]
async fn second_run_at_once_uses_the_state_that_the_first_one_has_recorded() {
    let repository = Repository::with(&["own"]).await;
    let before = repository.read("own/.git/config");
    let first = repository.noted().await;
    repository.write("own/.git/config", PLANTED);
    let second = repository.noted().await;
    assert_eq!(first.finish().await.len(), 1);
    assert_eq!(repository.read("own/.git/config"), before);
    assert_eq!(second.finish().await, [] as [&str; 0]);
    assert_eq!(repository.read("own/.git/config"), before);
    assert!(!repository.has_notes());
}

#[tokio::test]
async fn next_run_restores_what_a_killed_run_has_left() {
    let repository = Repository::with(&["own"]).await;
    let before = repository.read("own/.git/config");
    drop(repository.noted().await);
    repository.write("own/.git/config", PLANTED);
    let (next, warnings) = Submodules::note(&repository.git).await.unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(repository.read("own/.git/config"), before);
    assert_eq!(next.finish().await, [] as [&str; 0]);
    assert!(!repository.has_notes());
}

#[tokio::test]
async fn hooks_are_restored_one_by_one() {
    let repository = Repository::with(&["own"]).await;
    for (name, text) in [
        ("mine", "mine"),
        ("changed", "before"),
        ("d/x", "x"),
        ("gone", ""),
    ] {
        repository.write(&format!("own/.git/hooks/{name}"), text);
    }
    let submodules = repository.noted().await;
    fs::remove_file(repository.top.join("own/.git/hooks/gone")).unwrap();
    for name in ["changed", "new", "d/x", "d/y", "e/z"] {
        repository.write(&format!("own/.git/hooks/{name}"), "evil");
    }
    assert_eq!(submodules.restore().await.len(), 1);
    let hook = |name: &str| repository.read(&format!("own/.git/hooks/{name}"));
    assert_eq!(
        ["mine", "changed", "d/x"].map(hook),
        ["mine", "before", "x"]
    );
    assert_eq!(["new", "d/y", "e/z", "gone"].map(hook), [""; 4]);
    assert_eq!(repository.moved("own/.git/hooks"), [] as [&str; 0]);
    assert_eq!(repository.moved("own/.git").len(), 5);
    assert_eq!(submodules.finish().await, [] as [&str; 0]);
}

#[tokio::test]
async fn git_directories_behind_a_link_and_commondir_are_restored() {
    let repository = Repository::with(&["linked", "sharing"]).await;
    let outside = repository.root.join("outside");
    fs::rename(repository.top.join("linked/.git"), outside.join("git")).unwrap();
    symlink(outside.join("git"), repository.top.join("linked/.git")).unwrap();
    let sharing = repository.top.join("sharing");
    git(
        &sharing,
        &["worktree", "add", "--quiet", "--detach", "../tree"],
    );
    fs::remove_dir_all(repository.top.join("tree")).unwrap();
    fs::rename(sharing.join(".git"), outside.join("shared")).unwrap();
    let worktree = outside.join("shared/worktrees/tree");
    repository.write("sharing/.git", &format!("gitdir: {}\n", worktree.display()));
    let configs = ["git/config", "shared/config"].map(|path| outside.join(path));
    let before = configs.each_ref().map(|path| fs::read(path).unwrap());
    let submodules = repository.noted().await;
    for config in &configs {
        fs::write(config, PLANTED).unwrap();
    }
    let warnings = submodules.restore().await;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(
        configs.each_ref().map(|path| fs::read(path).unwrap()),
        before
    );
    fs::write(worktree.join("commondir"), "../../../git\n").unwrap();
    assert_eq!(submodules.finish().await.len(), 1);
    let commondir = fs::read_to_string(worktree.join("commondir")).unwrap();
    assert_eq!(commondir, "../..\n");
}

#[tokio::test]
async fn git_file_with_changed_white_space_is_restored() {
    let repository = Repository::with(&["sub", "other"]).await;
    repository.write("empty/x", "");
    let modules = repository.top.join(".git/modules");
    fs::create_dir_all(&modules).unwrap();
    fs::rename(repository.top.join("sub/.git"), modules.join("sub")).unwrap();
    let config = modules.join("sub/config");
    let set = [
        "config",
        "--file",
        config.to_str().unwrap(),
        "core.worktree",
        "../../../sub",
    ];
    git(&repository.top, &set);
    let submodules = repository.noted().await;
    // The user checks it out.
    repository.write("sub/.git", "gitdir: ../.git/modules/sub\n");
    assert_eq!(submodules.restore().await, [] as [&str; 0]);
    for planted in [
        "gitdir: ../.git/modules/sub \n",
        "gitdir:  ../.git/modules/sub\n",
        "gitdir: ../.git\n",
        "gitdir: ../.git/modules\n",
    ] {
        repository.write("sub/.git", planted);
        assert_eq!(submodules.restore().await.len(), 1, "{planted:?}");
        assert_eq!(repository.read("sub/.git"), "", "{planted:?}");
    }
    // Its settings name another submodule.
    fs::remove_dir_all(repository.top.join("other/.git")).unwrap();
    repository.write("other/.git", "gitdir: ../.git/modules/sub\n");
    assert_eq!(submodules.finish().await.len(), 1);
    assert_eq!(repository.read("other/.git"), "");
}

#[tokio::test]
async fn recorded_submodule_is_visited_whatever_another_index_lists() {
    let repository = Repository::with(&["a", "z"]).await;
    let submodules = repository.noted().await;
    let head =
        repository.read("a/.git/refs/heads/master") + &repository.read("a/.git/refs/heads/main");
    let listed: String = (0..=LIMIT)
        .map(|number| format!("160000 {} 0\tb{number}\n", head.trim()))
        .collect();
    let list = repository.root.join("list");
    fs::write(&list, listed).unwrap();
    let mut update = Command::new("git");
    update
        .args(["update-index", "--index-info"])
        .current_dir(repository.top.join("a"))
        .stdin(fs::File::open(&list).unwrap());
    assert!(update.status().unwrap().success());
    let before = repository.read("z/.git/config");
    repository.write("z/.git/config", PLANTED);
    let warnings = submodules.finish().await;
    assert_eq!(repository.read("z/.git/config"), before);
    let unchecked = warnings
        .iter()
        .any(|text| text.contains("not checked") && text.contains("a/b"));
    assert!(unchecked, "{warnings:?}");
}

fn file(text: &str) -> Entry {
    Entry::File {
        bytes: Bytes(text.into()),
        mode: 0o640,
    }
}

#[test]
fn entry_moved_aside_is_no_repository_and_file_is_written_with_its_mode() {
    let temporary = tempfile::tempdir().unwrap();
    let top = temporary.path().canonicalize().unwrap();
    fs::create_dir_all(top.join(".git")).unwrap();
    fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let directory = Directory::open(&top).unwrap();
    let name = OsStr::new(DOT_GIT);
    let aside = directory.replace(name, &directory, b"gitdir: x", 0o640);
    let aside = aside.unwrap().unwrap();
    assert_eq!(directory.entry(name, Some(100)).unwrap(), file("gitdir: x"));
    assert!(aside.path.is_dir());
    assert!(!aside.path.join("HEAD").exists());
    assert_eq!(aside.renamed.len(), 1);
    assert_eq!(fs::read_dir(&top).unwrap().count(), 2);
}

/// Otherwise the user's file would be lost.
#[test]
fn entry_is_moved_aside_only_once_its_replacement_is_written() {
    let temporary = tempfile::tempdir().unwrap();
    let top = temporary.path().canonicalize().unwrap();
    let removed = top.join("removed");
    fs::create_dir(&removed).unwrap();
    fs::write(top.join("config"), PLANTED).unwrap();
    let directory = Directory::open(&top).unwrap();
    let aside = Directory::open(&removed).unwrap();
    fs::remove_dir(&removed).unwrap();
    let error = directory.replace(OsStr::new("config"), &aside, b"x", 0o600);
    assert!(error.unwrap_err().moved.is_none());
    assert_eq!(fs::read_to_string(top.join("config")).unwrap(), PLANTED);
    assert_eq!(fs::read_dir(&top).unwrap().count(), 1);
}

/// A file that could not be written is written at the next look.
#[tokio::test]
async fn unwritten_file_is_written_by_the_next_run() {
    let repository = Repository::with(&["own"]).await;
    let config = repository.top.join("own/.git/config");
    let before = fs::read(&config).unwrap();
    let mode = fs::metadata(&config).unwrap().permissions().mode();
    let mut submodules = repository.noted().await;
    fs::remove_file(&config).unwrap();
    assert_eq!(submodules.restore().await, [] as [&str; 0]);
    let watch = submodules.watch.take().unwrap();
    watch.lock.release(vec![Bytes::of(&config)]).unwrap();
    assert!(!config.exists());
    let (next, _) = Submodules::note(&repository.git).await.unwrap();
    assert_eq!(fs::read(&config).unwrap(), before);
    assert_eq!(fs::metadata(&config).unwrap().permissions().mode(), mode);
    assert_eq!(next.finish().await, [] as [&str; 0]);
    assert!(!repository.has_notes());
}

#[test]
fn link_in_the_path_is_not_followed() {
    let temporary = tempfile::tempdir().unwrap();
    let top = temporary.path().canonicalize().unwrap();
    fs::create_dir_all(top.join("real/sub")).unwrap();
    symlink("real", top.join("link")).unwrap();
    let directory = Directory::open(&top).unwrap();
    let below = |path: &str| directory.below(Path::new(path));
    assert!(below("real/sub").is_ok());
    let refused = below("link/sub").unwrap_err();
    assert!(matches!(refused, DirectoryError::Link(path) if path == top.join("link")));
    assert!(matches!(below("real/none"), Err(DirectoryError::Gone)));
    assert!(matches!(below("../x"), Err(DirectoryError::Gone)));
}

#[test]
fn warning_shows_no_control_characters_and_how_to_undo() {
    let visit = VisitResult {
        actions: vec!["a is now b".to_owned()],
        ..VisitResult::default()
    };
    let warning = visit.warning(Path::new("sub\u{1b}")).unwrap();
    assert!(warning.contains("sub\\u{1b}"), "{warning}");
    assert!(
        warning.contains("If it is yours, rename it back"),
        "{warning}"
    );
}

#[tokio::test]
async fn changes_between_a_kill_and_the_continuation_are_restored() {
    let repository = Repository::with(&["own"]).await;
    repository.add_plain_directory();
    let before = repository.read("own/.git/config");
    let noted = repository.noted().await;
    let record = noted.record();
    drop(noted);
    repository.write("own/.git/config", PLANTED);
    repository.write("own/.git/hooks/planted", "evil");
    repository.write("plain/.git/config", PLANTED);
    let continued = repository.continuing(&record).await.unwrap();
    assert_eq!(repository.read("own/.git/config"), PLANTED);
    assert_eq!(repository.read("plain/.git/config"), PLANTED);
    let warnings = continued.finish().await;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(repository.read("own/.git/config"), before);
    let planted = ["own/.git/hooks/planted", "plain/.git/config"];
    assert_eq!(planted.map(|path| repository.read(path)), [""; 2]);
    assert!(!repository.has_notes());
}

/// The control of the test before: a run that begins anew takes the planted repository for the user's.
#[tokio::test]
async fn repository_planted_before_a_new_run_counts_as_one_from_before() {
    let repository = Repository::with(&["own"]).await;
    repository.add_plain_directory();
    drop(repository.noted().await);
    repository.write("plain/.git/config", PLANTED);
    let anew = repository.noted().await;
    assert_eq!(anew.finish().await, [] as [&str; 0]);
    assert_eq!(repository.read("plain/.git/config"), PLANTED);
}

#[tokio::test]
async fn continued_run_shares_the_notes_of_a_run_that_has_begun_since() {
    let repository = Repository::with(&["own"]).await;
    let before = repository.read("own/.git/config");
    let noted = repository.noted().await;
    let record = noted.record();
    drop(noted);
    let other = repository.noted().await;
    let continued = repository.continuing(&record).await.unwrap();
    repository.write("own/.git/config", PLANTED);
    assert_eq!(other.finish().await.len(), 1);
    assert_eq!(repository.read("own/.git/config"), before);
    let third = repository.noted().await;
    assert_eq!(continued.finish().await, [] as [&str; 0]);
    assert!(repository.has_notes());
    assert_eq!(third.finish().await, [] as [&str; 0]);
    assert!(!repository.has_notes());
}

#[tokio::test]
async fn unwritten_file_is_written_by_the_continued_run() {
    let repository = Repository::with(&["own"]).await;
    let config = repository.top.join("own/.git/config");
    let before = fs::read(&config).unwrap();
    let noted = repository.noted().await;
    let watch = noted.watch.as_ref().unwrap();
    watch.context.unwritten().insert(config.clone());
    let record = noted.record();
    drop(noted);
    fs::remove_file(&config).unwrap();
    let continued = repository.continuing(&record).await.unwrap();
    assert!(!config.exists());
    continued.finish().await;
    assert_eq!(fs::read(&config).unwrap(), before);
    assert!(!repository.has_notes());
}

#[tokio::test]
async fn run_without_notes_is_not_continued() {
    let repository = Repository::with(&["own"]).await;
    let noted = repository.noted().await;
    let record = noted.record();
    assert_eq!(noted.finish().await, [] as [&str; 0]);
    let error = repository.continuing(&record).await.unwrap_err();
    assert!(error.to_string().contains("is gone"), "{error}");
    assert!(!repository.has_notes());
}

#[tokio::test]
async fn run_outside_of_a_repository_or_without_submodules_is_continued() {
    let repository = Repository::with(&[]).await;
    let none = repository.continuing(&Submodules::none().record()).await;
    assert!(none.unwrap().plain.is_none());
    let noted = repository.noted().await;
    let continued = repository.continuing(&noted.record()).await.unwrap();
    assert!(continued.watch.is_none() && continued.plain.is_some());
    assert_eq!(continued.finish().await, [] as [&str; 0]);
    assert!(!repository.has_notes());
}
