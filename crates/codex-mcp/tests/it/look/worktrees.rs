//! Worktrees of runs: creation and removal.

use std::fs;
use std::path::{Path, PathBuf};

use goal_run::worktree::{KeptWorktree, Worktree, WorktreeError};
use testkit::write_program;

use super::Scene;

impl Scene {
    fn worktrees(&self) -> PathBuf {
        self.home.root().join("worktrees")
    }

    async fn try_worktree(&self, directory: &Path) -> Result<Worktree, WorktreeError> {
        Worktree::make(directory, &self.worktrees(), self.means.clone()).await
    }

    async fn worktree(&self) -> Worktree {
        self.try_worktree(&self.work()).await.unwrap()
    }

    fn branches(&self) -> String {
        self.git(&["branch", "--format=%(refname:short)"])
    }

    /// The number of worktrees, with the user's own.
    fn count(&self) -> usize {
        self.git(&["worktree", "list"]).lines().count()
    }
}

#[tokio::test]
async fn unchanged_worktree_is_removed() {
    let scene = Scene::new();
    fs::create_dir(scene.work().join("below")).unwrap();
    scene.commit("below/a");
    scene.write("mine", "not committed");
    let worktree = scene.try_worktree(&scene.work().join("below")).await;
    let worktree = worktree.unwrap();
    assert!(worktree.directory.join("a").is_file());
    assert!(!worktree.top.join("mine").exists());
    assert_eq!(scene.git_in(&worktree.top, &["status", "--short"]), "");
    assert_eq!(KeptWorktree::after_cleanup(worktree, false).await, None);
    assert_eq!((scene.count(), scene.branches().as_str()), (1, "main"));
}

#[tokio::test]
async fn second_attempt_continues_in_the_same_worktree() {
    let scene = Scene::new();
    let make = async || {
        let (work, home) = (scene.work(), scene.worktrees());
        Worktree::of(&work, &home, "0123456789", scene.means.clone()).await
    };
    let first = make().await.unwrap();
    fs::write(first.top.join("made"), "x").unwrap();
    let second = make().await.unwrap();
    assert_eq!(second.top, first.top);
    assert!(second.top.join("made").is_file());

    // A directory that is no worktree does not count as one.
    fs::remove_dir_all(&first.top).unwrap();
    fs::create_dir(&first.top).unwrap();
    assert!(make().await.is_err());
}

#[tokio::test]
async fn checkout_that_was_killed_is_begun_anew() {
    let scene = Scene::new();
    scene.commit("a");
    let make = async || {
        let (work, home) = (scene.work(), scene.worktrees());
        Worktree::of(&work, &home, "0123456789", scene.means.clone()).await
    };
    let top = make().await.unwrap().top;
    let git_dir = scene.git_in(&top, &["rev-parse", "--absolute-git-dir"]);
    let index = Path::new(&git_dir).join("index");
    fs::rename(&index, index.with_extension("lock")).unwrap();
    fs::remove_file(top.join("a")).unwrap();
    make().await.unwrap();
    assert_eq!(scene.git_in(&top, &["status", "--short"]), "");
    assert!(top.join("a").is_file());
}

/// Even if the run has made nothing: others may have worked in it.
#[tokio::test]
async fn worktree_with_unsaved_work_is_not_removed() {
    let scene = Scene::new();
    scene.write(".gitignore", "*.tmp\n");
    scene.commit("a");
    for what in ["ignored", "untracked", "committed", "detached"] {
        let worktree = scene.worktree().await;
        let top = worktree.top.clone();
        match what {
            "ignored" => fs::write(top.join("x.tmp"), "x").unwrap(),
            "untracked" => fs::write(top.join("x"), "x").unwrap(),
            "committed" => drop(scene.commit_in(&top, "x")),
            _ => {
                scene.git_in(&top, &["checkout", "--quiet", "--detach"]);
                scene.commit_in(&top, "x");
            }
        }
        let branch = worktree.branch.clone();
        let kept = KeptWorktree::after_cleanup(worktree, false).await.unwrap();
        assert_eq!(
            (kept.path.as_ref(), kept.branch),
            (Some(&top), branch),
            "{what}"
        );
        assert!(top.join("a").is_file(), "{what}");
    }
}

#[tokio::test]
async fn kept_branch_is_reported_without_a_directory() {
    let scene = Scene::new();
    scene.commit("a");
    let worktree = scene.worktree().await;
    scene.git(&["checkout", "--quiet", "--detach", "HEAD~1"]);
    let (top, branch) = (worktree.top.clone(), worktree.branch.clone());
    let kept = KeptWorktree::after_cleanup(worktree, false).await;
    let left = KeptWorktree { path: None, branch };
    assert_eq!(kept.as_ref(), Some(&left));
    assert!(!top.exists());
    assert!(scene.branches().contains(&left.branch));
    let told = serde_json::to_value(kept).unwrap();
    assert_eq!(told, serde_json::json!({ "branch": left.branch }));
}

/// Nor are programs run that the configuration names only for branches of worktrees.
#[tokio::test]
async fn repository_programs_are_not_run_for_a_worktree() {
    let scene = Scene::new();
    scene.write(".gitattributes", "* filter=x\n*.y filter=y\n");
    scene.commit("a.y");
    let caught = scene.home.root().join("caught");
    let hooks = scene.work().join(".git/hooks");
    let script = format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", caught.display());
    let trap = |path: &Path| write_program(path, &script);
    for hook in [
        "post-checkout",
        "reference-transaction",
        "post-index-change",
    ] {
        trap(&hooks.join(hook));
    }
    let program = scene.home.root().join("trap");
    trap(&program);
    let program = program.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.pager",
        "filter.x.smudge",
        "filter.x.clean",
    ] {
        scene.git(&["config", key, program]);
    }
    // Git before 2.54 knows no such hooks, so this proves nothing there.
    scene.git(&["config", "hook.x.command", program]);
    for event in ["post-checkout", "reference-transaction"] {
        scene.git(&["config", "--add", "hook.x.event", event]);
    }
    let included = scene.home.root().join("included");
    let filter = format!("[filter \"y\"]\n\tsmudge = {program}\n\tclean = {program}\n");
    fs::write(&included, filter).unwrap();
    let condition = "includeIf.onbranch:codex-mcp/**.path";
    scene.git(&["config", condition, included.to_str().unwrap()]);
    // The trace of the programs in the settings.
    let _ = fs::remove_file(&caught);

    let worktree = scene.worktree().await;
    assert!(worktree.top.join("a.y").is_file());
    assert_eq!(KeptWorktree::after_cleanup(worktree, false).await, None);
    assert_eq!(fs::read_to_string(&caught).unwrap_or_default(), "");
    assert!(!worktrees_are_left(&scene));

    scene.git(&["checkout", "--quiet", "-b", "codex-mcp/x"]);
    assert!(caught.exists(), "the trap works");
}

fn worktrees_are_left(scene: &Scene) -> bool {
    let entries = fs::read_dir(scene.worktrees());
    entries.is_ok_and(|mut entries| entries.next().is_some())
}

#[tokio::test]
async fn missing_worktree_is_explained() {
    let mut scene = Scene::new();
    let nowhere = scene.home.root().join("nowhere");
    fs::create_dir(&nowhere).unwrap();
    let refused = async |scene: &Scene, directory: &Path| {
        let refused = scene.try_worktree(directory).await;
        refused.unwrap_err().to_string()
    };
    let told = refused(&scene, &nowhere).await;
    assert!(told.contains("is in no git repository"), "{told}");
    scene.git_in(&nowhere, &["init", "--quiet"]);
    let told = refused(&scene, &nowhere).await;
    assert!(
        told.contains("no commit yet") && told.contains("commit something first"),
        "{told}"
    );

    scene.means.halt.cancel();
    let told = refused(&scene, &scene.work()).await;
    assert_eq!(told, "cancelled before the worktree was created");
    assert!(!worktrees_are_left(&scene));
    scene.means.halt = Default::default();

    // This variable serves git's own tests only.
    scene.set("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1");
    let told = refused(&scene, &scene.work()).await;
    assert!(
        told.contains("safe.directory") && told.contains("belongs to another user"),
        "{told}"
    );
    scene.set("PATH", scene.home.tmp());
    let told = refused(&scene, &scene.work()).await;
    assert!(told.contains("git, which is not on the PATH"), "{told}");
}

#[tokio::test]
async fn git_dir_in_the_environment_is_ignored() {
    let mut scene = Scene::new();
    let other = scene.home.root().join("other");
    fs::create_dir(&other).unwrap();
    scene.git_in(&other, &["init", "--quiet", "--initial-branch=theirs"]);
    scene.commit_in(&other, "b");
    scene.set("GIT_DIR", other.join(".git"));
    scene.set("GIT_WORK_TREE", &other);
    let worktree = scene.worktree().await;
    assert!(worktree.top.join("README.md").is_file());
    assert_eq!(
        scene.git_in(&other, &["branch", "--format=%(refname:short)"]),
        "theirs"
    );

    // The same variables in the environment of the program.
    let nowhere = scene.home.root().join("nowhere");
    fs::create_dir(&nowhere).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["run", "--worktree", "x"])
        .current_dir(&nowhere)
        .env_clear()
        .envs(scene.home.env())
        .env("GIT_DIR", other.join(".git"))
        .env("GIT_WORK_TREE", &nowhere)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("is in no git repository"), "{told}");
    assert_eq!(
        scene.git_in(&other, &["branch", "--format=%(refname:short)"]),
        "theirs"
    );
}
