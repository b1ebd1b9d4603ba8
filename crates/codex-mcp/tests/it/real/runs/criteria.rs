//! Exit criteria, with the real Codex.

use scripted_model::{Reply, Script};
use testkit::write_program;

use super::super::CodexFixture;
use super::{commit, kinds, path_with};

/// A sandbox in which commands reach the remote, which is outside the work directory.
const ANYWHERE: [&str; 2] = ["--sandbox", "danger-full-access"];

impl CodexFixture {
    async fn run_anywhere(&self, args: &[&str]) -> super::RunOutput {
        let args = [&["--json"], &ANYWHERE[..], args].concat();
        let gh = self.home.root().join("bin");
        let mut command = self.run_command(&args);
        command.env("PATH", path_with(&gh));
        self.finish_run(command.spawn().unwrap()).await
    }
}

#[tokio::test]
async fn push_is_verified_at_the_remote() {
    let push = "git push --quiet origin HEAD:refs/heads/'a$(b)'";
    let script = Script::new()
        .on("not complete", [Reply::shell(push), Reply::say("Pushed.")])
        .otherwise([commit("a.txt"), Reply::say("Committed and pushed!")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    stage.home.add_remote(&stage.home.root().join("remote.git"));
    let ran = stage.run_anywhere(&["x", "--until", "pushed"]).await;
    ran.assert_done(&["initial", "continuation"]);
    assert_eq!(ran.artifact_kinds(), ["push", "commit", "file"]);
    assert_eq!(ran.result["artifacts"][0]["branch"], "a$(b)");
}

/// A stand-in for `gh`, which would need an account.
const GH: &str = r#"#!/bin/sh
state="$HOME/gh"
mkdir -p "$state"
printf '%s\n' "$@" >> "$state/calls"
case "$1 $2" in
"auth status") exit 0 ;;
"pr create") echo made > "$state/pr" ; echo https://github.example/o/r/pull/7 ;;
"pr list")
    if [ -e "$state/pr" ]; then
        tip=$(git rev-parse HEAD)
        echo '[{"number":7,"url":"https://github.example/o/r/pull/7","createdAt":"2099-01-01T00:00:00Z","headRefName":"main","headRefOid":"'"$tip"'"}]'
    else
        echo '[]'
    fi ;;
*)
    printf 'HTTP/2.0 200 OK\r\nDate: Sat, 01 Jan 2050 00:00:00 GMT\r\nContent-Type: application/json\r\n\r\n{"login":"me","id":1}\n' ;;
esac
"#;

#[tokio::test]
async fn pull_request_is_verified_with_gh() {
    // The command names the path, as a login shell sets its own PATH.
    let create = "\"$HOME/../bin/gh\" pr create --title t --body b";
    let script = Script::new()
        .on(
            "not complete",
            [Reply::shell(create), Reply::say("Opened #7.")],
        )
        .otherwise([
            commit("a.txt"),
            Reply::say("PR #12 opened: https://github.example/12"),
        ]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let bin = stage.home.root().join("bin");
    write_program(&bin.join("gh"), GH);
    stage.home.add_remote(&stage.home.root().join("remote.git"));
    let ran = stage.run_anywhere(&["x", "--until", "pr"]).await;
    ran.assert_done(&["initial", "continuation"]);
    assert_eq!(ran.artifact_kinds(), ["pr", "commit", "file"]);
    let url = &ran.result["artifacts"][0]["url"];
    assert_eq!(url, "https://github.example/o/r/pull/7");
}

#[tokio::test]
async fn preexisting_files_are_no_work() {
    let script =
        Script::new().otherwise([Reply::shell("cat README.md"), Reply::say("It is there.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let until = ["--until", "files=README.md", "--until", "branch=main"];
    let ran = stage.run(&[&["x"][..], &until].concat()).await;
    ran.assert_not_done("stalled");
    let ran = stage
        .run(&[&["x", "--allow-preexisting"][..], &until].concat())
        .await;
    ran.assert_done(&["initial"]);
    assert_eq!(ran.artifact_kinds(), [""; 0]);
}

#[tokio::test]
async fn command_and_diff_criteria_are_judged_after_each_turn() {
    let script = Script::new()
        .on(
            "not complete",
            [
                Reply::shell("echo good > ok.txt; rm outside.txt"),
                Reply::say("Now."),
            ],
        )
        .on(
            "ran into errors",
            [
                Reply::shell("echo good > ok.txt; rm outside.txt"),
                Reply::say("Now."),
            ],
        )
        .otherwise([
            Reply::shell("echo bad > ok.txt; echo x > outside.txt"),
            Reply::say("Done."),
        ]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let until = [
        "--until",
        "command=grep -q good ok.txt",
        "--until",
        "diff_within=ok.txt",
        "--until",
        "files=*.txt",
    ];
    let ran = stage.run(&[&["x"][..], &until].concat()).await;
    ran.assert_done(&["initial", "continuation"]);
    assert_eq!(ran.artifact_kinds(), ["file", "command"]);
    let first = kinds(&ran.result["evidence"]["log"][0]["criteria"]);
    let state = |name: &str| {
        let found = first
            .iter()
            .find(|(criterion, _)| criterion.starts_with(name));
        found.unwrap_or_else(|| panic!("{first:?}")).1.clone()
    };
    assert_eq!(state("files"), "satisfied");
    assert_eq!(state("diff_within"), "not_yet");
    assert_eq!(state("command"), "not_run");
}

/// Codex writes a script that a criterion runs, and which undoes or exceeds the work.
#[tokio::test]
async fn criteria_are_judged_by_the_state_after_the_commands() {
    for (script, criterion, missing) in [
        (
            "rm src/a.txt",
            "files=src/a.txt",
            "the file src/a.txt does not exist",
        ),
        (
            "echo x > outside.txt",
            "diff_within=src,check.sh",
            "1 file is changed outside of what may be changed: \"outside.txt\"",
        ),
    ] {
        let work = format!("mkdir src && echo made > src/a.txt && echo '{script}' > check.sh");
        let model = Script::new().otherwise([Reply::shell(work), Reply::say("Done.")]);
        let stage = CodexFixture::new(testkit::codex::newest(), model).await;
        let until = ["--until", criterion, "--until", "command=sh check.sh"];
        let ran = stage
            .run(&[&["x", "--max-turns", "1"][..], &until].concat())
            .await;
        ran.assert_not_done("max_turns_exceeded");
        assert_eq!(ran.result["missing"][0], missing, "{:#}", ran.result);
        let made = ran.result["partial"].to_string();
        assert_eq!(
            made.contains("src/a.txt"),
            stage.file("src/a.txt").exists(),
            "{made}"
        );
    }
}

#[tokio::test]
async fn changes_on_a_branch_that_is_not_checked_out_are_judged() {
    let work = "git checkout --quiet -b feature && echo made > check.sh && git add check.sh && \
                git commit --quiet --message work && git checkout --quiet main";
    let script = Script::new().otherwise([Reply::shell(work), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let until = ["--until", "branch=feature", "--until", "diff_within=src"];
    let ran = stage
        .run(&[&["x", "--max-turns", "1"][..], &until].concat())
        .await;
    ran.assert_not_done("max_turns_exceeded");
    assert_eq!(
        ran.result["missing"][0],
        "1 file is changed on the branch feature outside of what may be changed: \"check.sh\"",
        "{:#}",
        ran.result
    );
}
