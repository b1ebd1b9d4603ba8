//! The criterion of pushed commits, and commits of others.

use std::fs;

use goal_run::logic::artifacts::{self, Artifact};

use super::{Scene, beginnings};

#[tokio::test]
async fn push_is_seen_at_the_remote() {
    let scene = Scene::new();
    let bare = scene.with_remote();
    let run = scene.run(&["pushed", "clean"]).await;
    run.assert_first(
        &run.judged().await,
        "no: the remote had the checked-out commit",
    );
    scene.commit("a");
    run.assert_first(&run.judged().await, "no: no branch of the remote is at");
    scene.git(&["push", "--quiet"]);
    run.assert_first(&run.judged().await, "yes: \"main\" of the remote is at");
    let now = run.looker.now().await;
    assert_eq!(now.head.get().unwrap().history.new, 1, "pushed, and new");

    fs::rename(&bare, bare.with_extension("gone")).unwrap();
    run.assert_first(
        &run.judged().await,
        "unknown: cannot list the branches of the remote: git exited with",
    );
}

#[tokio::test]
async fn branch_is_looked_up_at_its_push_remote() {
    let scene = Scene::new();
    let bare = scene.with_remote();
    let text = bare.to_str().unwrap();
    scene.git(&["remote", "add", "fork", "/nowhere"]);
    scene.git(&["config", "remote.fork.pushurl", text]);
    scene.git(&["config", "remote.origin.url", "/nowhere"]);
    scene.git(&["config", "branch.main.pushRemote", "fork"]);
    let run = scene.run(&["pushed"]).await;
    scene.commit("a");
    scene.git(&["push", "--quiet", "fork", "main"]);
    run.assert_first(&run.judged().await, "yes");
}

#[tokio::test]
async fn pulled_commits_are_not_new_and_pushed_ones_stay_pushed() {
    let scene = Scene::new();
    let theirs = scene.clone_of(&scene.with_remote());
    let run = scene.run(&["commits=1"]).await;
    let new = async || run.looker.now().await.head.get().unwrap().history.new;

    scene.commit_in(&theirs, "theirs-1");
    scene.git_in(&theirs, &["push", "--quiet"]);
    scene.git(&["pull", "--quiet"]);
    assert_eq!(new().await, 0, "a fast-forward");

    scene.commit("ours-1");
    scene.commit_in(&theirs, "theirs-2");
    scene.git_in(&theirs, &["push", "--quiet"]);
    scene.git(&["pull", "--quiet", "--no-rebase", "--no-edit"]);
    assert_eq!(new().await, 2, "a merge: it and ours");
    scene.git(&["push", "--quiet"]);
    assert_eq!(new().await, 2, "pushed");

    scene.git_in(&theirs, &["pull", "--quiet"]);
    scene.commit_in(&theirs, "theirs-3");
    scene.git_in(&theirs, &["push", "--quiet"]);
    scene.git(&["pull", "--quiet"]);
    assert_eq!(new().await, 2, "theirs on ours");

    scene.commit("ours-2");
    scene.commit_in(&theirs, "theirs-4");
    scene.git_in(&theirs, &["push", "--quiet"]);
    scene.git(&["pull", "--quiet", "--rebase"]);
    assert_eq!(new().await, 3, "ours on theirs");
}

#[tokio::test]
async fn pulled_commits_of_others_are_no_push() {
    let scene = Scene::new();
    let theirs = scene.clone_of(&scene.with_remote());
    let run = scene.run(&["pushed"]).await;
    scene.commit_in(&theirs, "theirs-1");
    scene.git_in(&theirs, &["push", "--quiet"]);
    scene.git(&["pull", "--quiet"]);
    let judged = run.judged().await;
    assert_eq!(beginnings(&judged), ["no"], "{judged:?}");
    assert!(judged[0].contains("was only fetched"), "{judged:?}");
    let made = artifacts::new_artifacts(&run.start, &run.looker.now().await);
    let is_push = |one: &Artifact| matches!(one, Artifact::Push { .. });
    assert!(!made.iter().any(is_push), "{made:?}");

    scene.commit("ours-1");
    scene.git(&["push", "--quiet"]);
    assert_eq!(beginnings(&run.judged().await), ["yes"]);

    scene.git_in(&theirs, &["pull", "--quiet"]);
    scene.commit_in(&theirs, "theirs-2");
    scene.git_in(&theirs, &["push", "--quiet"]);
    scene.git(&["pull", "--quiet"]);
    assert_eq!(beginnings(&run.judged().await), ["yes"], "theirs on ours");
}

#[tokio::test]
async fn commit_from_before_the_run_counts_when_it_is_pushed() {
    let scene = Scene::new();
    scene.with_remote();
    scene.commit("a");
    let run = scene.run(&["pushed"]).await;
    assert_eq!(beginnings(&run.judged().await), ["no"]);
    scene.git(&["push", "--quiet"]);
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
}

#[tokio::test]
async fn commit_of_the_remote_is_not_pushed_under_another_name() {
    let scene = Scene::new();
    scene.with_remote();
    let run = scene.run(&["pushed"]).await;
    scene.git(&["push", "--quiet", "origin", "HEAD:refs/heads/x"]);
    run.assert_first(
        &run.judged().await,
        "no: the remote had the checked-out commit",
    );
    scene.commit("a");
    scene.git(&["push", "--quiet", "origin", "HEAD:refs/heads/y"]);
    run.assert_first(&run.judged().await, "yes: \"y\" of the remote is at");
}

#[tokio::test]
async fn earlier_commit_of_the_remote_is_not_pushed_under_another_name() {
    let scene = Scene::new();
    scene.with_remote();
    scene.commit("a");
    scene.git(&["push", "--quiet"]);
    let run = scene.run(&["pushed"]).await;
    scene.git(&["checkout", "--quiet", "HEAD~1"]);
    scene.git(&["push", "--quiet", "origin", "HEAD:refs/heads/x"]);
    run.assert_first(
        &run.judged().await,
        "no: the remote had the checked-out commit",
    );
    scene.commit("b");
    scene.git(&["push", "--quiet", "origin", "HEAD:refs/heads/y"]);
    run.assert_first(&run.judged().await, "yes: \"y\" of the remote is at");
}

#[tokio::test]
async fn branches_of_others_are_not_new() {
    let scene = Scene::new();
    let bare = scene.with_remote();
    let theirs = scene.clone_of(&bare);
    let run = scene.run(&["commits=1", "commits=1@other"]).await;
    scene.git_in(&theirs, &["checkout", "--quiet", "-b", "other"]);
    scene.commit_in(&theirs, "a");
    scene.commit_in(&theirs, "b");
    scene.git_in(&theirs, &["push", "--quiet", "origin", "other"]);
    scene.git(&["fetch", "--quiet", "origin", "other:other"]);
    scene.git(&["checkout", "--quiet", "other"]);
    assert_eq!(beginnings(&run.judged().await), ["no", "no"]);

    scene.git(&["checkout", "--quiet", "main"]);
    scene.git(&["branch", "--quiet", "-D", "other"]);
    scene.git(&["remote", "remove", "origin"]);
    scene.git(&["pull", "--quiet", bare.to_str().unwrap(), "other"]);
    assert_eq!(beginnings(&run.judged().await), ["no", "no"]);
    scene.commit("c");
    assert_eq!(beginnings(&run.judged().await), ["yes", "no"]);
}

#[tokio::test]
async fn pushed_criterion_needs_a_remote() {
    let scene = Scene::new();
    let refused = scene.try_at(&scene.work(), &["pushed"]).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "`pushed` needs the remote \"origin\", which this repository doesn't have; \
         add it with git remote add"
    );
    scene.git(&["remote", "add", "origin", "/nowhere"]);
    let mut looker = scene.try_at(&scene.work(), &["pushed"]).await.unwrap();
    let refused = looker.start().await.unwrap_err().to_string();
    let beginning =
        "`pushed` cannot be judged here: cannot list the branches of the remote: git exited";
    assert!(refused.starts_with(beginning), "{refused}");
}
