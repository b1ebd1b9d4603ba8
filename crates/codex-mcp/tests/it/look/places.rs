//! The directories in which a run can work.

use std::fs;

use goal_run::look::LookError;

use super::{Scene, beginnings};

#[tokio::test]
async fn subdirectory_belongs_to_its_repository() {
    let scene = Scene::new();
    scene.write("src/deep/a.rs", "a");
    let run = scene
        .run_in(
            &scene.work().join("src/deep"),
            &["files=src/*.rs", "commits=1"],
        )
        .await;
    assert_eq!(run.looker.top(), scene.work());
    scene.write("src/b.rs", "b");
    scene.commit("c");
    assert_eq!(beginnings(&run.judged().await), ["yes", "yes"]);
}

#[tokio::test]
async fn linked_working_tree_is_judged_by_its_own_commits() {
    let scene = Scene::new();
    let linked = scene.home.root().join("linked");
    let text = linked.to_str().unwrap();
    scene.git(&["worktree", "add", "--quiet", "-b", "side", text]);
    let run = scene.run_in(&linked, &["commits=1", "clean"]).await;
    assert_eq!(run.looker.top(), linked);
    scene.commit("on-main");
    assert_eq!(beginnings(&run.judged().await), ["no", "yes"]);
    scene.commit_in(&linked, "on-side");
    assert_eq!(beginnings(&run.judged().await), ["yes", "yes"]);
}

#[tokio::test]
async fn submodule_is_a_repository_of_its_own() {
    let scene = Scene::new();
    let bare = scene.with_remote();
    let url = bare.to_str().unwrap();
    scene.git(&["submodule", "--quiet", "add", url, "sub"]);
    scene.git(&["commit", "--quiet", "--message", "sub"]);
    let outer = scene.run(&["clean", "commits=1", "files=sub/new"]).await;
    let sub = scene.work().join("sub");
    let inner = scene.run_in(&sub, &["commits=1", "files=new"]).await;
    assert_eq!(inner.looker.top(), sub);
    scene.commit_in(&sub, "new");
    assert_eq!(beginnings(&inner.judged().await), ["yes", "yes"]);
    let judged = outer.judged().await;
    assert_eq!(beginnings(&judged), ["yes", "no", "no"], "{judged:?}");
}

#[tokio::test]
async fn files_and_commands_are_found_outside_of_a_repository() {
    let scene = Scene::new();
    let directory = scene.home.root().join("tmp");
    let run = scene
        .run_in(&directory, &["files=*.txt", "command=test -e a.txt"])
        .await;
    assert_eq!(run.looker.top(), directory);
    assert_eq!(beginnings(&run.judged().await), ["no", "no"]);
    fs::write(directory.join("a.txt"), "x").unwrap();
    let limit = std::time::Duration::from_secs(60);
    assert_eq!(
        beginnings(&run.judged_with_commands(limit).await),
        ["yes", "yes"]
    );
}

#[tokio::test]
async fn criterion_that_cannot_be_judged_is_refused_at_once() {
    let mut scene = Scene::new();
    let directory = scene.home.root().join("tmp");
    let shown = |error: LookError| {
        let root = scene.home.root().to_str().unwrap();
        error.to_string().replace(root, "ROOT")
    };
    let mut table = String::new();
    for criterion in [
        "commits=1",
        "branch=x",
        "pushed",
        "pr",
        "clean",
        "diff_within=a",
    ] {
        let refused = scene.try_at(&directory, &[criterion]).await.unwrap_err();
        table += &format!("{}\n", shown(refused));
    }
    let absent = directory.join("absent");
    table += &format!("{}\n", shown(scene.try_at(&absent, &[]).await.unwrap_err()));
    scene.set("PATH", "/nowhere");
    for criterion in ["commits=1", "issue_comment=o/r#1"] {
        let refused = scene.try_at(&scene.work(), &[criterion]).await.unwrap_err();
        table += &format!("{refused}\n");
    }
    insta::assert_snapshot!(table);
}
