//! Processes that the model leaves in the background and that change the repository between our
//! inspection and our use of its result, with the real Codex.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use scripted_model::{Reply, Script, Shell};
use serde_json::Value;
use testkit::write_program;

use super::fixture::{RepositoryFixture, commit};
use crate::jobs::wait_for;

crate::on_both_releases!(
    tracked_script_is_not_swapped_before_it_is_run,
    repository_is_not_changed_after_the_verdict,
    processes_that_keep_forking_do_not_run_during_a_look,
);

const RUN_ARGS: [&str; 8] = [
    "first",
    "--sandbox",
    "workspace-write",
    "--until",
    "commits=1",
    "--until",
    "diff_within=a.txt",
    "--max-turns",
];

/// The limit for the start of the background process.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);

/// A file of the home directory, which the model can read.
fn write_home_file(stage: &RepositoryFixture, name: &str, text: &str) -> PathBuf {
    let path = stage.home.home().join(name);
    write_program(&path, text);
    path
}

/// Has git ignore a file that tests write.
fn exclude(stage: &RepositoryFixture, names: &str) {
    let exclude = stage.git_dir().join("info/exclude");
    fs::create_dir_all(exclude.parent().unwrap()).unwrap();
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(exclude)
        .unwrap();
    file.write_all(names.as_bytes()).unwrap();
}

async fn stage(
    release: &str,
    background: impl FnOnce(&RepositoryFixture) -> PathBuf,
) -> RepositoryFixture {
    // The model's script needs a path that is known only after the stage exists.
    let commands = [
        Reply::shell(
            Shell::new("sh \"$HOME/start\" & sleep 60").waiting(Duration::from_millis(300)),
        ),
        Reply::shell(
            Shell::new("for i in $(seq 3000); do [ -e began ] && exit; sleep 0.01; done")
                .waiting(BEGIN_LIMIT),
        ),
        commit("a.txt"),
        Reply::say("Done."),
    ];
    let script = Script::new()
        .on("first", commands)
        .otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(release, script).await;
    exclude(&stage, "began\n");
    let background = background(&stage);
    write_home_file(
        &stage,
        "start",
        &format!("exec sh {}\n", background.display()),
    );
    stage
}

/// Fails if the background process had not begun before the look, as the test shows nothing then.
fn assert_began(stage: &RepositoryFixture, stderr: &str) {
    assert!(stage.home.work().join("began").exists(), "{stderr}");
}

fn assert_verified(result: &Value, stderr: &str) {
    assert_eq!(
        result["verified"],
        Value::Bool(true),
        "{result:#}\n{stderr}"
    );
}

/// A script that waits for the file `started`, which the first command of a criterion creates, then
/// replaces the second command and creates `swapped`.
fn swap_script(stage: &RepositoryFixture) -> String {
    let work = stage.home.work();
    let (work, caught) = (work.display(), stage.caught());
    format!(
        "touch {work}/began\nuntil [ -e {work}/started ]; do sleep 0.01; done\n\
         printf '#!/bin/sh\\necho x >> {caught}\\n' > {work}/check.sh\n\
         touch {work}/swapped\n",
        caught = caught.display()
    )
}

/// A command that gives the model's process up to 3 s to swap the script.
fn waiting_script(stage: &RepositoryFixture) -> String {
    let work = stage.home.work();
    let work = work.display();
    format!(
        "#!/bin/sh\ntouch {work}/started\nfor i in $(seq 150); do\n\
         [ -e {work}/swapped ] && exit 0\nsleep 0.02\ndone\nexit 0\n"
    )
}

/// The control runs the same scripts without Codex.
async fn tracked_script_is_not_swapped_before_it_is_run(release: &str) {
    let stage = stage(release, |stage| {
        write_home_file(stage, "swap", &swap_script(stage))
    })
    .await;
    let check = stage.home.work().join("check.sh");
    write_program(&check, "#!/bin/sh\nexit 0\n");
    stage.home.git(&["add", "check.sh"]);
    stage.home.git(&["commit", "--quiet", "--message", "check"]);
    exclude(&stage, "started\nswapped\n");
    let wait = write_home_file(&stage, "wait", &waiting_script(&stage));

    let swap = stage.home.home().join("swap");
    let mut background = Command::new("sh").arg(swap).spawn().unwrap();
    let waited = Command::new(&wait).status().unwrap();
    assert!(waited.success() && background.wait().unwrap().success());
    Command::new(&check).status().unwrap();
    stage.wait_until_attacked().await;
    for name in ["started", "swapped", "began"] {
        fs::remove_file(stage.home.work().join(name)).unwrap();
    }
    stage.home.git(&["checkout", "--quiet", "check.sh"]);

    // The commands are run in alphabetical order.
    let wait = format!("command={}", wait.display());
    let commands = ["2", "--until", &wait, "--until", "command=sh check.sh"];
    let (_, result, stderr) = stage.run(&[&RUN_ARGS[..], &commands].concat()).await;
    assert_verified(&result, &stderr);
    assert_began(&stage, &stderr);
    assert!(stage.home.work().join("started").exists(), "{stderr}");
    assert!(!stage.was_attacked(), "{stderr}");
    assert_eq!(stage.home.git(&["status", "--short"]), "");
}

/// A script that changes a file once the commit of the turn has been taken over. The takeover
/// happens while the script is stopped.
fn late_script(stage: &RepositoryFixture) -> String {
    let work = stage.home.work();
    let work = work.display();
    format!(
        "cd {work}\ntip=.git/refs/heads/main\nold=$(cat $tip)\ntrap 'echo late > README.md' TERM\n\
         touch began\nuntil [ \"$(cat $tip)\" != \"$old\" ]; do :; done\necho late > README.md\n"
    )
}

/// The control runs the script without Codex.
async fn repository_is_not_changed_after_the_verdict(release: &str) {
    let stage = stage(release, |stage| {
        write_home_file(stage, "late", &late_script(stage))
    })
    .await;
    let mut background = Command::new("sh")
        .arg(stage.home.home().join("late"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the beginning of the script", async || {
        assert_eq!(background.try_wait().unwrap(), None);
        stage.home.work().join("began").exists().then_some(())
    })
    .await;
    stage
        .home
        .git(&["commit", "--quiet", "--allow-empty", "--message", "control"]);
    assert!(background.wait().unwrap().success());
    assert_ne!(stage.home.git(&["status", "--short"]), "");
    stage.home.git(&["checkout", "--quiet", "README.md"]);
    fs::remove_file(stage.home.work().join("began")).unwrap();

    let (_, result, stderr) = stage
        .run(&[&RUN_ARGS[..], &["1", "--until", "clean"]].concat())
        .await;
    assert_verified(&result, &stderr);
    assert_began(&stage, &stderr);
    assert_eq!(stage.home.git(&["status", "--short"]), "");
}

/// A script whose processes each start the next one, in a new session, and exit. The chain ends
/// when the file `go` is removed.
fn forking_script(stage: &RepositoryFixture) -> String {
    let work = stage.home.work();
    let work = work.display();
    format!(
        "exec perl -MPOSIX -e 'my $n = 0; while (-e \"{work}/go\") {{\n\
         my $pid = fork; POSIX::_exit(0) if $pid; POSIX::setsid();\n\
         if ($n++ % 10 == 0) {{ open(my $f, \">>\", \"{work}/beats\"); print $f \"x\"; close $f }} }}'\n"
    )
}

/// A wrapper of git that waits before each look at the working tree and records how far `beats`
/// grows meanwhile.
fn recording_git(stage: &RepositoryFixture) -> String {
    let path = std::env::var("PATH").unwrap();
    let git = std::env::split_paths(&path)
        .map(|directory| directory.join("git"))
        .find(|git| git.is_file())
        .unwrap();
    let directory = stage.home.root().join("recording");
    let work = stage.home.work();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *porcelain=v2*)\n\
         if [ -e {beats} ]; then\n\
         one=$(wc -c < {beats}); sleep 0.3; echo $one $(wc -c < {beats}) >> {seen}\nfi;;\nesac\n\
         exec {git} \"$@\"\n",
        beats = work.join("beats").display(),
        seen = stage.home.root().join("seen").display(),
        git = git.display(),
    );
    let program = directory.join("git");
    write_program(&program, &script);
    format!("{}:{path}", directory.display())
}

async fn processes_that_keep_forking_do_not_run_during_a_look(release: &str) {
    let stage = stage(release, |stage| {
        let hop = write_home_file(stage, "hop", &forking_script(stage));
        let work = stage.home.work();
        let four = format!(
            "cd {}\nfor i in 1 2 3 4; do sh {} & done\n\
             until [ \"$(cat beats | wc -c)\" -gt 10 ]; do sleep 0.01; done\ntouch began\nwait\n",
            work.display(),
            hop.display()
        );
        write_home_file(stage, "hops", &four)
    })
    .await;
    exclude(&stage, "go\nbeats\n");
    fs::write(stage.home.work().join("go"), "").unwrap();
    let path = recording_git(&stage);
    let mut command = stage.command(&[&["run", "--json"], &RUN_ARGS[..], &["1"]].concat());
    let output = command.env("PATH", path).output().await.unwrap();
    fs::remove_file(stage.home.work().join("go")).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_verified(&result, &stderr);
    assert_began(&stage, &stderr);
    let seen = fs::read_to_string(stage.home.root().join("seen")).unwrap();
    for look in seen.lines() {
        let (one, other) = look.split_once(' ').unwrap();
        assert_eq!(one, other, "{seen}");
    }
    assert_ne!(seen, "", "there were looks while the processes ran");
}

/// An MCP server of the user changes the repository when Codex ends: no process of the model could
/// do so then.
#[tokio::test]
async fn change_after_the_verdict_is_reported() {
    let script = Script::new()
        .on("first", [commit("a.txt"), Reply::say("Done.")])
        .otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let readme = stage.home.work().join("README.md");
    let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}"#;
    let server = format!(
        "#!/bin/sh\ntrap '' TERM\nread line\necho '{answer}'\nwhile read line; do :; done\necho late > {}\n",
        readme.display()
    );
    let server = write_home_file(&stage, "server", &server);
    let config = stage.home.codex_home().join("config.toml");
    let mut config = OpenOptions::new().append(true).open(config).unwrap();
    writeln!(
        config,
        "\n[mcp_servers.late]\ncommand = \"{}\"",
        server.display()
    )
    .unwrap();

    let (code, result, stderr) = stage
        .run(&[&RUN_ARGS[..], &["1", "--until", "clean"]].concat())
        .await;
    assert_eq!(fs::read_to_string(readme).unwrap(), "late\n", "{stderr}");
    assert_eq!(code, Some(2), "{result:#}\n{stderr}");
    assert_eq!(result["verified"], Value::Bool(false));
    assert_eq!(result["reason"], "unconfirmed");
    assert!(
        result["why"].as_str().unwrap().contains("README.md"),
        "{result:#}"
    );
}
