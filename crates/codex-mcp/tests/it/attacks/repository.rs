//! Programs, refs and submodules that Codex leaves in a git directory (C1), with the real Codex.

use std::fs;
use std::path::Path;

use scripted_model::{Reply, Script};
use serde_json::json;
use testkit::AppServer;

use super::fixture::{COMMITTING_RUN, RUN_PLANT, RepositoryFixture, commit, protected};
use crate::on_each_release;

on_each_release!(commits_leave_no_program_behind);

/// C1. The control is Codex itself with a writable `.git`.
async fn commits_leave_no_program_behind(release: &str) {
    let plant = Reply::shell(RUN_PLANT);
    let script = Script::new()
        .on("control 1", [plant.clone(), Reply::say("done")])
        .on("control 2", [Reply::say("done")])
        .on("words only", [commit("b.txt"), Reply::say("Done.")])
        .on("not complete", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([plant, commit("a.txt"), Reply::say("Later.")]);
    let stage = RepositoryFixture::new(release, script).await;
    stage.write_plant(&stage.plant());
    let before = protected(&stage.git_dir());
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=2"];
    let (code, result, stderr) = stage.run(&args).await;
    if release == "0.104.0" {
        // The sandbox of this release leaves `.git` writable in any case.
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.contains("update Codex"), "{stderr}");
    } else {
        assert_eq!(code, Some(0), "{result:#}\n{stderr}");
        assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "3");
        assert_eq!(
            stage.home.git(&["rev-parse", "--abbrev-ref", "HEAD"]),
            "main"
        );
        assert_eq!(stage.home.git(&["show", "main:b.txt"]), "made");
    }
    assert_eq!(stage.home.git(&["status", "--porcelain"]), "");
    stage
        .home
        .git(&["commit", "--quiet", "--allow-empty", "--message", "mine"]);
    assert!(
        !stage.was_attacked(),
        "{:?}",
        fs::read_to_string(stage.caught())
    );
    assert_eq!(protected(&stage.git_dir()), before);
    assert_eq!(stage.home.git(&["fsck", "--strict"]), "");

    let server = AppServer::real(release, &stage.home).await;
    let thread = server
        .start_thread(json!({
            "cwd": stage.home.work(),
            "sandbox": "workspace-write",
            "approvalPolicy": "never",
            "config": { "sandbox_workspace_write.writable_roots": [stage.git_dir()] },
        }))
        .await;
    let mut news = server.notifications(&thread);
    server.turn(&thread, &mut news, "control 1").await;
    server.turn(&thread, &mut news, "control 2").await;
    stage.wait_until_attacked().await;
}

/// Plants files that git itself would not write, and a process that keeps changing the directory.
const HOSTILE_PLANT: &str = r#"
cd "$GIT_DIR"
mkfifo refs/heads/pipe logs/pipe objects/pack/pack-0123456789012345678901234567890123456789.pack
ln -s "$HOME/secret" refs/heads/link
ln -s "$HOME" refs/tags/home
printf 'ref: ../../outside\n' > refs/heads/symref
printf '0123456789012345678901234567890123456789 ../../../outside\n' >> packed-refs
id=$(git rev-parse HEAD)
mkdir -p refs/codex-mcp && echo "$id" > refs/codex-mcp/x
echo /nowhere > objects/info/alternates.new
(while :; do
    printf '[core]\n\tfsmonitor = \"touch %s; true\"\n' "$HOME/caught" >> config
    touch "$GIT_WORK_TREE/README.md"
    sleep 0.01
done) > /dev/null 2>&1 &
"#;

#[tokio::test]
async fn hostile_private_directory_is_taken_over_without_harm() {
    let release = testkit::codex::newest();
    let script = Script::new()
        .on("words only", [commit("b.txt"), Reply::say("Done.")])
        .on("not complete", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([
            commit("a.txt"),
            Reply::shell(RUN_PLANT),
            Reply::say("Later."),
        ]);
    let stage = RepositoryFixture::new(release, script).await;
    stage.write_plant(HOSTILE_PLANT);
    fs::write(stage.home.home().join("secret"), "x").unwrap();
    let before = protected(&stage.git_dir());
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=2"];
    let (code, result, stderr) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    let refs = stage.home.git(&["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs, "refs/heads/main");
    assert_eq!(protected(&stage.git_dir()), before);
    assert_eq!(stage.home.git(&["fsck", "--strict"]), "");
    assert_eq!(stage.home.git(&["status", "--porcelain"]), "");
    assert!(!stage.was_attacked());
}

/// Git follows links when it writes reflogs and refs. The control is git itself.
#[tokio::test]
async fn links_in_the_git_directory_are_not_written_through() {
    let script = || Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    for (link, more) in [
        ("logs/HEAD", None),
        ("logs/refs/heads/codex-mcp", Some("--worktree")),
    ] {
        let stage = RepositoryFixture::new(testkit::codex::newest(), script()).await;
        let target = stage.home.home().join("profile");
        let link = stage.git_dir().join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        let is_directory = more.is_some();
        if is_directory {
            fs::create_dir(&target).unwrap();
        } else {
            fs::write(&target, "").unwrap();
        }
        std::os::unix::fs::symlink(&target, &link).unwrap();
        stage
            .home
            .git(&["config", "user.name", "$(touch ~/caught)"]);
        let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
        let args: Vec<&str> = args.into_iter().chain(more).collect();
        let (code, _, stderr) = stage.run(&args).await;
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.contains("is a symbolic link"), "{stderr}");
        let written = || match is_directory {
            true => fs::read_dir(&target).unwrap().count() > 0,
            false => !fs::read(&target).unwrap().is_empty(),
        };
        assert!(!written(), "{stderr}");
        let branch = ["branch", "codex-mcp/run-x"];
        let commit = ["commit", "--quiet", "--allow-empty", "--message", "x"];
        stage.home.git(if is_directory {
            &branch[..]
        } else {
            &commit[..]
        });
        assert!(written(), "the control shows git writing there");
        let left = stage.home.state_home().join("codex-mcp/git-private");
        assert_eq!(
            fs::read_dir(left).into_iter().flatten().count(),
            0,
            "{stderr}"
        );
    }
}

/// Git reads the settings of a directory that is a submodule. The user still gets the commits, by
/// the command in the warning. The control puts the planted repository back.
#[tokio::test]
async fn submodule_with_settings_of_codex_is_not_taken_over() {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell(RUN_PLANT),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let caught = stage.caught();
    let plant = format!(
        "unset $(git rev-parse --local-env-vars)\ngit init --quiet sub\ncd sub\n\
         git -c user.name=x -c user.email=x commit --quiet --allow-empty --message x\n\
         git config core.fsmonitor 'touch {}; true'\ncd ..\n\
         export GIT_DIR=$(ls -d {}/*/private) GIT_WORK_TREE=$PWD\n\
         export GIT_COMMON_DIR=${{GIT_DIR%private}}common\n\
         git add sub && git commit --quiet --message sub\n\
         git push --quiet origin HEAD:refs/heads/side\n",
        caught.display(),
        stage
            .home
            .state_home()
            .join("codex-mcp/git-private")
            .display(),
    );
    stage.write_plant(&plant);
    stage.home.add_remote(&stage.home.tmp().join("remote.git"));
    fs::write(stage.home.work().join("mine.txt"), "mine").unwrap();
    let (code, result, stderr) = stage.run(&COMMITTING_RUN).await;
    assert_eq!(code, Some(2), "{result:#}\n{stderr}");
    assert!(stderr.contains("add the submodule \"sub\""), "{stderr}");
    let before_turns = "uncommitted changes of yours (1: mine.txt)";
    assert!(stderr.contains(before_turns), "{stderr}");
    let pushed = "is at the remote all the same: origin/side";
    assert!(stderr.contains(pushed), "{stderr}");
    assert_eq!(stage.home.git(&["ls-files", "sub"]), "");
    let advice = "Its commits make submodules of sub: before you merge or check them out";
    assert!(stderr.contains(advice), "{stderr}");
    let fetch = stderr.split("run `git fetch ").nth(1).unwrap();
    let copy = fetch.split(" REF").next().unwrap();
    stage.home.git(&["fetch", "--quiet", copy, "main"]);
    // Git does not overwrite an untracked file.
    fs::remove_file(stage.home.work().join("a.txt")).unwrap();
    stage.home.git(&["merge", "--quiet", "FETCH_HEAD"]);
    let entry = stage.home.git(&["ls-files", "--stage", "sub"]);
    assert!(entry.starts_with("160000"), "{entry}");
    stage.home.git(&["status"]);
    assert!(!stage.was_attacked(), "{stderr}");

    let sub = stage.home.work().join("sub");
    let rename_back = |directory: &Path, begin: &str, name: &str| {
        let entries = fs::read_dir(directory).unwrap().flatten();
        let is_moved = |name: &str| name.starts_with(&format!("{begin}-moved-aside-"));
        let mut moved = entries.filter(|entry| is_moved(entry.file_name().to_str().unwrap()));
        fs::rename(moved.next().unwrap().path(), directory.join(name)).unwrap();
    };
    rename_back(&sub, "git", ".git");
    rename_back(&sub.join(".git"), "HEAD", "HEAD");
    stage.home.git(&["status"]);
    stage.wait_until_attacked().await;
}

#[tokio::test]
async fn branches_that_codex_deletes_stay() {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("git branch -D precious; git update-ref -d refs/tags/v1"),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    stage.home.git(&["branch", "precious"]);
    stage.home.git(&["tag", "v1"]);
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
    let (code, result, stderr) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    assert!(
        stderr.contains("refs/heads/precious, which Codex has deleted"),
        "{stderr}"
    );
    stage.home.git(&["rev-parse", "precious", "v1"]);

    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("rm \"$GIT_DIR/packed-refs\""),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    stage.home.git(&["branch", "precious"]);
    let more = ["--max-turns", "1"];
    let (code, _, stderr) = stage.run(&[&args[..], &more].concat()).await;
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("cannot be taken over"), "{stderr}");
    stage.home.git(&["rev-parse", "precious"]);
    assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "1");
}

#[tokio::test]
async fn commits_of_rewritten_branches_and_moved_tags_are_kept() {
    let script = Script::new().otherwise([
        Reply::shell(
            "git checkout -q --orphan new; git commit -q -m rewritten; git branch -f main; \
             git checkout -q main; git tag -f v1; git update-ref refs/heads/-x HEAD; \
             git update-ref refs/heads/HEAD HEAD",
        ),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    stage.home.git(&["tag", "v1"]);
    let before = stage.home.git(&["rev-parse", "main"]);
    let (_, result, stderr) = stage.run(&COMMITTING_RUN).await;
    assert!(
        stderr.contains("Codex has rewritten refs/heads/main"),
        "{result:#}\n{stderr}"
    );
    assert!(
        stderr.contains("refs/tags/v1 was there before and is not moved"),
        "{stderr}"
    );
    let refs = stage
        .home
        .git(&["for-each-ref", "--format=%(objectname) %(refname)"]);
    let kept = refs
        .lines()
        .find(|line| line.ends_with("/before/heads/main"));
    assert_eq!(
        kept.and_then(|line| line.split(' ').next()),
        Some(before.as_str()),
        "{refs}"
    );
    assert_eq!(stage.home.git(&["rev-parse", "v1"]), before);
    assert_ne!(stage.home.git(&["rev-parse", "main"]), before);
    for name in ["refs/heads/-x", "refs/heads/HEAD"] {
        assert!(!refs.contains(name), "{refs}");
    }
    assert_eq!(stage.home.git(&["status", "--porcelain"]), "");
}

#[tokio::test]
async fn repository_that_codex_creates_below_the_top_is_named() {
    let script = Script::new().otherwise([
        Reply::shell("git init -q vendor; echo x > vendor/file; touch made"),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let args = ["x", "--sandbox", "workspace-write", "--until", "files=made"];
    let (code, result, stderr) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    assert!(
        stderr.contains("vendor/ is a git repository of its own"),
        "{stderr}"
    );
}
