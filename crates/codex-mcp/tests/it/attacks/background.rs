//! Processes that the model leaves in the background, and that change the repository between
//! a look of ours and what we do by it, with the real Codex.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use scripted_model::{Reply, Script, Shell};
use serde_json::Value;

use super::repository::{Stage, commit};

crate::on_both_releases!(
    tracked_script_is_not_swapped_before_it_is_run,
    repository_is_not_changed_after_the_verdict,
    processes_that_keep_forking_do_not_run_during_a_look,
);

const WANTED: [&str; 8] = [
    "first",
    "--sandbox",
    "workspace-write",
    "--until",
    "commits=1",
    "--until",
    "diff_within=a.txt",
    "--max-turns",
];

/// How long the background process has to begin.
const BEGIN_PATIENCE: Duration = Duration::from_secs(30);

/// A file of the home directory, which the model can read.
fn file_of(stage: &Stage, name: &str, text: &str) -> PathBuf {
    let path = stage.home.home().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// Has git ignore a file that tests write.
fn exclude(stage: &Stage, names: &str) {
    let exclude = stage.git_dir().join("info/exclude");
    fs::create_dir_all(exclude.parent().unwrap()).unwrap();
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(exclude)
        .unwrap();
    file.write_all(names.as_bytes()).unwrap();
}

async fn stage(release: &str, background: impl FnOnce(&Stage) -> PathBuf) -> Stage {
    // The model's script needs a path that is known only then.
    let commands = [
        Reply::shell(
            Shell::new("sh \"$HOME/start\" & sleep 60").waiting(Duration::from_millis(300)),
        ),
        Reply::shell(
            Shell::new("for i in $(seq 3000); do [ -e began ] && exit; sleep 0.01; done")
                .waiting(BEGIN_PATIENCE),
        ),
        commit("a.txt"),
        Reply::say("Done."),
    ];
    let script = Script::new()
        .on("first", commands)
        .otherwise([Reply::say("Done.")]);
    let stage = Stage::new(release, script).await;
    exclude(&stage, "began\n");
    let background = background(&stage);
    file_of(
        &stage,
        "start",
        &format!("exec sh {}\n", background.display()),
    );
    stage
}

/// Fails where the background process has not begun before the look: nothing is shown then.
fn assert_began(stage: &Stage, stderr: &str) {
    assert!(stage.home.work().join("began").exists(), "{stderr}");
}

fn assert_verified(result: &Value, stderr: &str) {
    assert_eq!(
        result["verified"],
        Value::Bool(true),
        "{result:#}\n{stderr}"
    );
}

/// Waits for the file `started`, which the first command of a criterion makes, writes the
/// second one, and says so by the file `swapped`.
fn swapping(stage: &Stage) -> String {
    let work = stage.home.work();
    let (work, caught) = (work.display(), stage.caught());
    format!(
        "touch {work}/began\nuntil [ -e {work}/started ]; do sleep 0.01; done\n\
         printf '#!/bin/sh\\necho x >> {caught}\\n' > {work}/check.sh\n\
         touch {work}/swapped\n",
        caught = caught.display()
    )
}

/// Gives the model's process time to swap the script; at most 3 s.
fn waiting(stage: &Stage) -> String {
    let work = stage.home.work();
    let work = work.display();
    format!(
        "#!/bin/sh\ntouch {work}/started\nfor i in $(seq 150); do\n\
         [ -e {work}/swapped ] && exit 0\nsleep 0.02\ndone\nexit 0\n"
    )
}

/// The control runs the same scripts without Codex.
async fn tracked_script_is_not_swapped_before_it_is_run(release: &str) {
    let stage = stage(release, |stage| file_of(stage, "swap", &swapping(stage))).await;
    let check = stage.home.work().join("check.sh");
    fs::write(&check, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&check, Permissions::from_mode(0o755)).unwrap();
    stage.home.git(&["add", "check.sh"]);
    stage.home.git(&["commit", "--quiet", "--message", "check"]);
    exclude(&stage, "started\nswapped\n");
    let wait = file_of(&stage, "wait", &waiting(&stage));

    let swap = stage.home.home().join("swap");
    let mut background = Command::new("sh").arg(swap).spawn().unwrap();
    let waited = Command::new(&wait).status().unwrap();
    assert!(waited.success() && background.wait().unwrap().success());
    Command::new(&check).status().unwrap();
    stage.until_attacked().await;
    for name in ["started", "swapped", "began"] {
        fs::remove_file(stage.home.work().join(name)).unwrap();
    }
    stage.home.git(&["checkout", "--quiet", "check.sh"]);

    // The commands are run in alphabetical order.
    let wait = format!("command={}", wait.display());
    let commands = ["2", "--until", &wait, "--until", "command=sh check.sh"];
    let (_, result, stderr) = stage.run(&[&WANTED[..], &commands].concat()).await;
    assert_verified(&result, &stderr);
    assert_began(&stage, &stderr);
    assert!(stage.home.work().join("started").exists(), "{stderr}");
    assert!(!stage.was_attacked(), "{stderr}");
    assert_eq!(stage.home.git(&["status", "--short"]), "");
}

/// Waits until the commit of the turn has been taken over, which happens while it is
/// stopped, and changes a file then.
fn late(stage: &Stage) -> String {
    let work = stage.home.work();
    let work = work.display();
    format!(
        "cd {work}\ntip=.git/refs/heads/main\nold=$(cat $tip)\ntrap 'echo late > README.md' TERM\n\
         touch began\nuntil [ \"$(cat $tip)\" != \"$old\" ]; do :; done\necho late > README.md\n"
    )
}

/// The control runs the script without Codex.
async fn repository_is_not_changed_after_the_verdict(release: &str) {
    let stage = stage(release, |stage| file_of(stage, "late", &late(stage))).await;
    let mut background = Command::new("sh")
        .arg(stage.home.home().join("late"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !stage.home.work().join("began").exists() {
        assert_eq!(background.try_wait().unwrap(), None);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stage
        .home
        .git(&["commit", "--quiet", "--allow-empty", "--message", "control"]);
    assert!(background.wait().unwrap().success());
    assert_ne!(stage.home.git(&["status", "--short"]), "");
    stage.home.git(&["checkout", "--quiet", "README.md"]);
    fs::remove_file(stage.home.work().join("began")).unwrap();

    let (_, result, stderr) = stage
        .run(&[&WANTED[..], &["1", "--until", "clean"]].concat())
        .await;
    assert_verified(&result, &stderr);
    assert_began(&stage, &stderr);
    assert_eq!(stage.home.git(&["status", "--short"]), "");
}

/// Each of its processes starts the next one, in a session of its own, and exits. It ends
/// when the file `go` has gone.
fn hopping(stage: &Stage) -> String {
    let work = stage.home.work();
    let work = work.display();
    format!(
        "exec perl -MPOSIX -e 'my $n = 0; while (-e \"{work}/go\") {{\n\
         my $pid = fork; POSIX::_exit(0) if $pid; POSIX::setsid();\n\
         if ($n++ % 10 == 0) {{ open(my $f, \">>\", \"{work}/beats\"); print $f \"x\"; close $f }} }}'\n"
    )
}

/// A git that waits a moment before each look at the working tree, and records how far
/// `beats` comes meanwhile. Otherwise it is the real one.
fn recording_git(stage: &Stage) -> String {
    let path = std::env::var("PATH").unwrap();
    let git = std::env::split_paths(&path)
        .map(|directory| directory.join("git"))
        .find(|git| git.is_file())
        .unwrap();
    let directory = stage.home.root().join("recording");
    fs::create_dir(&directory).unwrap();
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
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    format!("{}:{path}", directory.display())
}

async fn processes_that_keep_forking_do_not_run_during_a_look(release: &str) {
    let stage = stage(release, |stage| {
        let hop = file_of(stage, "hop", &hopping(stage));
        let work = stage.home.work();
        let four = format!(
            "cd {}\nfor i in 1 2 3 4; do sh {} & done\n\
             until [ \"$(cat beats | wc -c)\" -gt 10 ]; do sleep 0.01; done\ntouch began\nwait\n",
            work.display(),
            hop.display()
        );
        file_of(stage, "hops", &four)
    })
    .await;
    exclude(&stage, "go\nbeats\n");
    fs::write(stage.home.work().join("go"), "").unwrap();
    let path = recording_git(&stage);
    let mut command = stage.command(&[&["run", "--json"], &WANTED[..], &["1"]].concat());
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

/// An MCP server of the user's that changes the repository when Codex ends, as nothing of
/// the model's can do it then.
#[tokio::test]
async fn change_after_the_verdict_is_reported() {
    let script = Script::new()
        .on("first", [commit("a.txt"), Reply::say("Done.")])
        .otherwise([Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let readme = stage.home.work().join("README.md");
    let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}"#;
    let server = format!(
        "#!/bin/sh\ntrap '' TERM\nread line\necho '{answer}'\nwhile read line; do :; done\necho late > {}\n",
        readme.display()
    );
    let server = file_of(&stage, "server", &server);
    let config = stage.home.codex_home().join("config.toml");
    let mut config = OpenOptions::new().append(true).open(config).unwrap();
    writeln!(
        config,
        "\n[mcp_servers.late]\ncommand = \"{}\"",
        server.display()
    )
    .unwrap();

    let (code, result, stderr) = stage
        .run(&[&WANTED[..], &["1", "--until", "clean"]].concat())
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
