//! Criteria about commits, branches, uncommitted files and changed files.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use goal_run::logic::artifacts::{self, Artifact};
use goal_run::logic::snapshot::Preexisting;

use super::{Scene, beginnings, told};

const ALL: [&str; 6] = [
    "commits=2",
    "commits=1@new",
    "branch=old",
    "branch=new",
    "clean",
    "diff_within=src,README.md",
];

#[tokio::test]
async fn git_criterion_is_found_when_it_is_met() {
    let scene = Scene::new();
    scene.git(&["branch", "old"]);
    scene.write("mine.txt", "was here before");
    let run = scene.run(&ALL).await;
    assert_eq!(
        beginnings(&run.judged().await),
        ["no", "no", "no", "no", "no", "yes"]
    );

    scene.git(&["checkout", "--quiet", "-b", "new"]);
    scene.write("src/a.rs", "fn a() {}");
    scene.commit("README.md");
    scene.git(&["branch", "--force", "old"]);
    scene.commit("README.md");
    let now = run.looker.now().await;
    assert_eq!(
        beginnings(&told(&run.verdict(&now, Preexisting::Ignored))),
        ["yes"; 5].into_iter().chain(["no"]).collect::<Vec<_>>(),
        "mine.txt was committed too"
    );
    let head = now.head.get().unwrap();
    assert_eq!(head.branch.as_deref(), Some("new"));
    assert_eq!((head.history.total, head.history.new), (3, 2));
    let found = artifacts::new_artifacts(&run.start, &now);
    let commits = found.iter().filter_map(|artifact| match artifact {
        Artifact::Commit { id, .. } => Some(id.clone()),
        _ => None,
    });
    assert_eq!(
        commits.collect::<Vec<_>>(),
        [
            scene.git(&["rev-parse", "new"]),
            scene.git(&["rev-parse", "new~"])
        ]
    );
}

/// Each branch is changed while the first one is checked out again for the look.
#[tokio::test]
async fn changes_on_named_branches_are_judged() {
    let scene = Scene::new();
    scene.write("src/a.rs", "fn a() {}");
    scene.commit("check.sh");
    scene.git(&["branch", "old"]);
    scene.git(&["tag", "v1"]);
    scene.commit("later.txt");
    let run = scene
        .run(&["commits=1@old", "branch=new", "diff_within=src"])
        .await;
    let commit = |branch: &[&str], path: &str| {
        scene.git(&[&["checkout", "--quiet"], branch].concat());
        scene.commit(path);
        scene.git(&["checkout", "--quiet", "main"]);
    };
    // Main has a file that neither branch has: it was not changed there.
    commit(&["-b", "new", "v1"], "src/a.rs");
    commit(&["old"], "src/a.rs");
    assert_eq!(beginnings(&run.judged().await), ["yes"; 3]);

    for branch in ["old", "new"] {
        commit(&[branch], "check.sh");
        let judged = run.judged().await;
        assert_eq!(beginnings(&judged), ["yes", "yes", "no"]);
        let words = format!("no: 1 file is changed on the branch {branch} outside of");
        assert!(judged[2].starts_with(&words), "{judged:?}");
        assert!(judged[2].ends_with(": \"check.sh\""), "{judged:?}");
        scene.git(&[
            "branch",
            "--quiet",
            "--force",
            branch,
            &format!("{branch}~"),
        ]);
    }
    assert_eq!(beginnings(&run.judged().await), ["yes"; 3]);

    // An old commit, with a file that the branch did not have.
    scene.git(&["branch", "--quiet", "--force", "old", "main"]);
    let judged = run.judged().await;
    assert_eq!(beginnings(&judged), ["no", "yes", "no"]);
    assert!(judged[2].ends_with(": \"later.txt\""), "{judged:?}");
}

/// A commit that came from elsewhere makes a branch new, too.
#[tokio::test]
async fn changes_on_a_fetched_branch_are_judged() {
    let scene = Scene::new();
    let theirs = scene.clone_of(&scene.with_remote());
    let run = scene.run(&["branch=new", "diff_within=src"]).await;
    scene.commit_in(&theirs, "check.sh");
    let from = theirs.to_str().unwrap();
    scene.git(&["fetch", "--quiet", from, "main:new"]);
    assert_eq!(beginnings(&run.judged().await), ["yes", "no"]);
}

#[tokio::test]
async fn commits_of_other_branches_and_tags_are_not_new() {
    let scene = Scene::new();
    scene.git(&["checkout", "--quiet", "-b", "other"]);
    scene.commit("a");
    scene.git(&["tag", "--annotate", "--message", "x", "v1"]);
    scene.commit("b");
    scene.git(&["checkout", "--quiet", "main"]);
    let run = scene.run(&["commits=1"]).await;
    scene.git(&["merge", "--quiet", "--ff-only", "v1"]);
    run.assert_first(
        &run.judged().await,
        "no: the checked-out branch has 0 new commits",
    );
    scene.git(&["merge", "--quiet", "other"]);
    let now = run.looker.now().await;
    assert_eq!(now.head.get().unwrap().history.new, 0);
    assert_eq!(now.head.get().unwrap().history.total, 3);
    let counted = told(&run.verdict(&now, Preexisting::Counts));
    assert_eq!(counted, ["yes: the checked-out branch has 3 commits"]);
    scene.git(&["reset", "--quiet", "--hard", "other~"]);
    assert_eq!(run.looker.now().await.head.get().unwrap().history.total, 2);
}

#[tokio::test]
async fn all_commits_are_new_in_an_empty_repository() {
    let scene = Scene::new();
    let directory = scene.home.root().join("fresh");
    fs::create_dir(&directory).unwrap();
    scene.git_in(&directory, &["init", "--quiet", "--initial-branch=main"]);
    fs::write(directory.join("there"), "x").unwrap();
    let run = scene
        .run_in(&directory, &["commits=1", "clean", "diff_within=a"])
        .await;
    assert_eq!(beginnings(&run.judged().await), ["no", "no", "yes"]);
    scene.commit_in(&directory, "a");
    let judged = run.judged().await;
    assert_eq!(beginnings(&judged), ["yes", "yes", "no"], "{judged:?}");
    let head = run.looker.now().await.head.get().unwrap().clone();
    assert_eq!((head.history.new, head.history.total), (1, 1));
}

#[tokio::test]
async fn detached_head_has_commits_and_no_branch() {
    let scene = Scene::new();
    scene.git(&["checkout", "--quiet", "--detach"]);
    let run = scene.run(&["commits=1", "branch=x"]).await;
    scene.commit("a");
    assert_eq!(beginnings(&run.judged().await), ["yes", "no"]);
    let head = run.looker.now().await.head.get().unwrap().clone();
    assert_eq!(head.branch, None);
    scene.git(&["branch", "x"]);
    assert_eq!(beginnings(&run.judged().await), ["yes", "yes"]);
}

#[tokio::test]
async fn discarded_history_is_counted_anew() {
    let scene = Scene::new();
    let run = scene.run(&["commits=1"]).await;
    scene.git(&["checkout", "--quiet", "--orphan", "else"]);
    scene.commit("a");
    scene.git(&["branch", "--quiet", "-D", "main"]);
    scene.git(&["reflog", "expire", "--expire=now", "--all"]);
    scene.git(&["gc", "--quiet", "--prune=now"]);
    let now = run.looker.now().await;
    let line = &now.head.get().unwrap().history;
    assert_eq!((line.new, line.total), (1, 1));
}

/// More input than fits into a pipe at once, so that git writes output while it reads.
#[tokio::test]
async fn commits_of_thousands_of_branches_are_not_new() {
    let scene = Scene::new();
    let commits = (0..3000).map(|number| {
        let date = 1_700_000_000 + number;
        format!("commit refs/heads/b{number}\ncommitter T <t@x> {date} +0000\ndata 1\nx\n")
    });
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet"])
        .current_dir(scene.work())
        .envs(scene.home.env())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = import.stdin.take().unwrap();
    stdin
        .write_all(commits.collect::<String>().as_bytes())
        .unwrap();
    drop(stdin);
    assert!(import.wait().unwrap().success());
    let run = scene.run(&["commits=1"]).await;
    scene.git(&["checkout", "--quiet", "--detach", "b2999"]);
    assert_eq!(beginnings(&run.judged().await), ["no"]);
    scene.commit("a");
    scene.git(&[
        "merge",
        "--quiet",
        "--no-edit",
        "--allow-unrelated-histories",
        "b17",
    ]);
    let now = run.looker.now().await;
    assert_eq!(now.head.get().unwrap().history.new, 2);
    assert_eq!(now.head.get().unwrap().history.total, 4);
}
