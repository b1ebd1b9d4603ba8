//! Programs and libraries in directories of search paths that Codex's commands can write,
//! with the real Codex.

use std::fs;
use std::path::{Path, PathBuf};

use scripted_model::{Reply, Script};
use serde_json::json;
use testkit::{Launch, McpClient, write_program};

use super::fixture::RepositoryFixture;
use super::recommended_commands::run_in_shell;

crate::on_both_releases!(
    git_in_an_active_environment_is_not_run,
    bwrap_in_an_active_environment_is_not_run,
);

const RUN_ARGS: [&str; 6] = [
    "--sandbox",
    "workspace-write",
    "--approve",
    "never",
    "--max-turns",
    "2",
];

const READ_ONLY_RUN: [&str; 7] = [
    "run",
    "--json",
    "x",
    "--sandbox",
    "read-only",
    "--max-turns",
    "1",
];

fn program(path: &Path, text: &str) {
    write_program(path, &format!("#!/bin/sh\n{text}\n"));
}

fn installed(name: &str) -> PathBuf {
    std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
        .unwrap()
}

fn real_git() -> PathBuf {
    installed("git")
}

/// A wrapper of git that writes `caught` if it can, and so shows that it ran outside of the
/// sandbox.
fn catching_git(stage: &RepositoryFixture) -> String {
    let caught = stage.caught();
    format!(
        "{{ echo x >> {}; }} 2>/dev/null\nexec {} \"$@\"",
        caught.display(),
        real_git().display()
    )
}

fn with_path(first: &str) -> String {
    format!("{first}:{}", std::env::var("PATH").unwrap())
}

/// Runs until the file `made` is there, with this PATH; returns what it has said.
async fn run_until_made(stage: &RepositoryFixture, path: &str) -> String {
    let args = [
        &["run", "--json", "x"][..],
        &RUN_ARGS,
        &["--until", "files=made"],
    ]
    .concat();
    let output = stage.command(&args).env("PATH", path).output().await;
    String::from_utf8_lossy(&output.unwrap().stderr).into_owned()
}

/// The control: a shell with this PATH runs the planted git.
fn assert_shell_is_attacked(stage: &RepositoryFixture, path: &str) {
    let command = format!("PATH={path}; git --version");
    run_in_shell(&stage.home, &stage.home.work(), &command);
    assert!(stage.was_attacked(), "the control shows the attack working");
    fs::remove_file(stage.caught()).unwrap();
}

async fn git_in_an_active_environment_is_not_run(release: &str) {
    let plant = "cp evil .venv/bin/git; \
        printf '#!/bin/sh\\necho ran > tool-ran\\n' > .venv/bin/planted-tool; \
        chmod +x .venv/bin/planted-tool; planted-tool; touch made";
    // A login shell sets its own PATH, which Codex sets back only if its snapshot of the shell is ready.
    let command = json!({"cmd": plant, "login": false});
    let script =
        Script::new().otherwise([Reply::call("exec_command", command), Reply::say("Done.")]);
    let stage = RepositoryFixture::new(release, script).await;
    let work = stage.home.work();
    fs::write(work.join(".gitignore"), ".venv\nevil\ntool-ran\n").unwrap();
    stage.home.git(&["add", ".gitignore"]);
    stage
        .home
        .git(&["commit", "--quiet", "--message", "ignore"]);
    program(&work.join("evil"), &catching_git(&stage));
    let environment = work.join(".venv/bin");
    let path = with_path(environment.to_str().unwrap());
    program(&environment.join("git"), &catching_git(&stage));
    assert_shell_is_attacked(&stage, &path);
    fs::remove_dir_all(work.join(".venv")).unwrap();
    fs::create_dir_all(&environment).unwrap();

    let stderr = run_until_made(&stage, &path).await;
    assert!(environment.join("git").exists(), "{stderr}");
    assert!(!stage.was_attacked(), "{stderr}");
    // Codex's commands have the user's PATH. In the older release, the snapshot has that of a login
    // shell.
    if release == testkit::codex::newest() {
        assert!(work.join("tool-ran").exists(), "{stderr}");
    }
}

async fn bwrap_in_an_active_environment_is_not_run(release: &str) {
    assert!(!planted_bwrap_runs(release, false).await);
    // The control: a user who sets PATH for commands gets what this release does with it.
    if release == "0.153.4" {
        assert!(planted_bwrap_runs(release, true).await);
    }
}

/// Has Codex plant the program that makes its sandbox in an active environment, and run one more
/// command. Codex skips programs in the working directory, so the planted one is a link.
async fn planted_bwrap_runs(release: &str, user_sets_path: bool) -> bool {
    let outside = tempfile::tempdir_in("/tmp").unwrap();
    let program_there = outside.path().join("bwrap");
    let plant = format!(
        "cp evil {0} && ln -s {0} .venv/bin/bwrap",
        program_there.display()
    );
    let replies = [&plant, "touch made"].map(Reply::shell);
    let script = Script::new().otherwise(replies.into_iter().chain([Reply::say("Done.")]));
    let stage = RepositoryFixture::new(release, script).await;
    let work = stage.home.work();
    fs::write(work.join(".gitignore"), ".venv\nevil\n").unwrap();
    stage.home.git(&["add", ".gitignore"]);
    stage
        .home
        .git(&["commit", "--quiet", "--message", "ignore"]);
    let catch = format!("{{ echo x >> {}; }} 2>/dev/null", stage.caught().display());
    program(&work.join("evil"), &catch);
    let environment = work.join(".venv/bin");
    fs::create_dir_all(&environment).unwrap();
    let path = with_path(environment.to_str().unwrap());
    if user_sets_path {
        let set = format!("\n[shell_environment_policy.set]\nPATH = {path:?}\n");
        let config = stage.home.codex_home().join("config.toml");
        let before = fs::read_to_string(&config).unwrap();
        fs::write(config, before + &set).unwrap();
    }

    let stderr = run_until_made(&stage, &path).await;
    assert!(environment.join("bwrap").exists(), "{stderr}");
    assert!(work.join("made").exists() || user_sets_path, "{stderr}");
    stage.was_attacked()
}

/// Codex runs git outside of its sandbox, and one Codex serves threads in all directories.
#[tokio::test]
async fn codex_runs_no_git_of_an_unknown_repository() {
    let plant = Reply::shell("mv evil .venv/bin/git");
    let script = Script::new()
        .on("first", [plant, Reply::say("Done.")])
        .otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let work = stage.home.work();
    let environment = work.join(".venv/bin");
    let path = with_path(environment.to_str().unwrap());
    program(&environment.join("git"), &catching_git(&stage));
    assert_shell_is_attacked(&stage, &path);
    fs::rename(environment.join("git"), work.join("evil")).unwrap();

    let launch = Launch::new(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["serve"])
        .envs(stage.home.env())
        .env("CODEX_MCP_CODEX_BIN", stage.codex())
        .env("PATH", path)
        .current_dir(stage.home.root());
    let mut client = McpClient::connect(&launch, crate::VERSION, json!({})).await;
    for prompt in ["first", "second"] {
        let call = json!({
            "prompt": prompt,
            "cwd": work,
            "sandbox": "workspace-write",
            "approval-policy": "never",
        });
        let result = client.call_tool("codex", call).await;
        assert_ne!(result["isError"], true, "{result:#}");
    }
    client.finish().await;
    assert!(environment.join("git").exists());
    assert!(!stage.was_attacked());
}

/// A client's directory that is no repository. The host has another directory than its clients.
#[tokio::test]
async fn codex_in_the_directory_of_a_client_is_not_run() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let codex = stage.codex();
    let (project, tools) = (
        stage.home.root().join("project"),
        stage.home.root().join("tools"),
    );
    let real = format!("exec {} \"$@\"", codex.display());
    let caught = stage.caught();
    program(
        &project.join("bin/codex"),
        &format!("echo x >> {}\n{real}", caught.display()),
    );
    program(&tools.join("codex"), &real);
    let path = with_path(&format!("{}/bin:{}", project.display(), tools.display()));
    let command = format!("PATH={path}; codex --version");
    run_in_shell(&stage.home, &project, &command);
    assert!(stage.was_attacked(), "the control shows the attack working");
    fs::remove_file(&caught).unwrap();

    for mode in ["--no-host", "--host"] {
        let launch = Launch::new(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve", mode])
            .envs(stage.home.env())
            .env("PATH", &path)
            .current_dir(&project);
        let mut client = McpClient::connect(&launch, crate::VERSION, json!({})).await;
        let call = json!({ "prompt": "x", "sandbox": "read-only", "approval-policy": "never" });
        let result = client.call_tool("codex", call).await;
        assert_ne!(result["isError"], true, "{mode}: {result:#}");
        client.finish().await;
        assert!(!stage.was_attacked(), "{mode}");
    }
    let stopped = stage.codex_mcp(&["host", "stop"]).await;
    assert!(stopped.status.success());
}

#[tokio::test]
async fn git_in_a_relative_path_entry_is_not_run() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let git = stage.home.work().join("node_modules/.bin/git");
    program(&git, &catching_git(&stage));
    stage.home.git(&["add", "--all", "--force"]);
    stage.home.git(&["commit", "--quiet", "--message", "git"]);
    let path = with_path("./node_modules/.bin:");
    assert_shell_is_attacked(&stage, &path);
    let output = stage
        .command(&READ_ONLY_RUN)
        .env("PATH", path)
        .output()
        .await;
    let stderr = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(!stage.was_attacked(), "{stderr}");
}

/// A program that records the variables that could have made it run other code, and then executes
/// `real`.
fn recording(stage: &RepositoryFixture, name: &str, real: &Path) -> PathBuf {
    let path = stage.home.root().join("recording").join(name);
    let seen = stage.home.root().join(format!("seen-by-{name}"));
    let record = format!(
        "echo \"$LD_LIBRARY_PATH|$LD_PRELOAD|$LD_AUDIT|$GIT_EXEC_PATH|$PATH\" >> {}\n\
         exec {} \"$@\"",
        seen.display(),
        real.display()
    );
    program(&path, &record);
    path
}

#[tokio::test]
async fn libraries_of_the_working_tree_are_not_loaded() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let git = recording(&stage, "git", &real_git());
    let codex = recording(&stage, "codex", &stage.codex());
    let work = stage.home.work();
    let lib = work.join("lib");
    let path = with_path(&format!(
        "{}:{}",
        lib.display(),
        git.parent().unwrap().display()
    ));
    let mut command = stage.command(&READ_ONLY_RUN);
    command.env("PATH", path).env("CODEX_MCP_CODEX_BIN", codex);
    command.env("LD_LIBRARY_PATH", format!("{}:/usr/lib", lib.display()));
    command.env("LD_AUDIT", lib.join("audit.so"));
    command.env("LD_PRELOAD", lib.join("preload.so"));
    command.env("GIT_EXEC_PATH", &lib);
    let output = command.output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    for name in ["git", "codex"] {
        let seen = stage.home.root().join(format!("seen-by-{name}"));
        let seen = fs::read_to_string(seen).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        for line in seen.lines() {
            // The control: entries outside of the working tree are passed on.
            assert!(line.starts_with("/usr/lib||||"), "{name}: {line}");
            assert!(line.contains("/recording"), "{name}: {line}");
            assert!(!line.contains(lib.to_str().unwrap()), "{name}: {line}");
        }
    }
}

#[tokio::test]
async fn notifier_is_not_run_from_the_working_tree() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let bin = stage.home.work().join("bin");
    let catch = format!("echo x >> {}", stage.caught().display());
    program(&bin.join("tell-me"), &catch);
    let own = stage.home.root().join("own");
    let told_by = stage.home.root().join("told");
    program(
        &own.join("tell-me"),
        &format!("echo x >> {}", told_by.display()),
    );
    let path = with_path(&format!("{}:{}", bin.display(), own.display()));
    run_in_shell(
        &stage.home,
        &stage.home.work(),
        &format!("PATH={path}; tell-me"),
    );
    assert!(stage.was_attacked(), "the control shows the attack working");
    fs::remove_file(stage.caught()).unwrap();
    let notify = ["--notify", "command:tell-me"];
    let mut command = stage.command(&[&READ_ONLY_RUN[..], &notify].concat());
    let output = command.env("PATH", path).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stage.was_attacked(), "{stderr}");
    assert!(told_by.exists(), "{stderr}");
}

/// The control: a shell with this PATH runs the planted program of this name.
fn assert_planted_runs(stage: &RepositoryFixture, path: &str, name: &str) {
    let command = format!("PATH={path}; {name}");
    run_in_shell(&stage.home, &stage.home.work(), &command);
    assert!(stage.was_attacked(), "the control shows the attack working");
    fs::remove_file(stage.caught()).unwrap();
}

#[tokio::test]
async fn setup_runs_no_program_of_the_working_tree() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let environment = stage.home.work().join(".venv/bin");
    let catch = format!("echo x >> {}", stage.caught().display());
    let own = stage.home.root().join("recording");
    let path = with_path(&format!("{}:{}", environment.display(), own.display()));
    for (name, real) in [
        ("claude", PathBuf::from("true")),
        ("codex", PathBuf::from("true")),
        ("codex-mcp", PathBuf::from(env!("CARGO_BIN_EXE_codex-mcp"))),
        ("env", installed("env")),
    ] {
        program(&environment.join(name), &catch);
        assert_planted_runs(&stage, &path, name);
        recording(&stage, name, &real);
    }
    // The commands of clients are run only to make a file.
    fs::remove_file(stage.home.codex_home().join("config.toml")).unwrap();
    for place in [None, Some("--project")] {
        let mut args = vec!["setup", "codex", "claude-code", "--yes"];
        args.extend(place);
        let output = stage.command(&args).env("PATH", &path).output().await;
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!stage.was_attacked(), "{output:?}");
    }
    for name in ["claude", "codex", "codex-mcp", "env"] {
        // The control: programs outside of the working tree are found and run.
        let seen = stage.home.root().join(format!("seen-by-{name}"));
        let seen = fs::read_to_string(seen).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(seen.contains(own.to_str().unwrap()), "{name}: {seen}");
        assert!(
            !seen.contains(environment.to_str().unwrap()),
            "{name}: {seen}"
        );
    }
}

/// An entry of a repository names `codex-mcp` without a directory.
#[tokio::test]
async fn setup_checks_with_its_own_program_instead_of_a_planted_one() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let environment = stage.home.work().join(".venv/bin");
    let catch = format!("echo x >> {}", stage.caught().display());
    program(&environment.join("codex-mcp"), &catch);
    let path = format!("{}:/usr/bin:/bin", environment.display());
    assert_planted_runs(&stage, &path, "codex-mcp");
    let args = ["setup", "codex", "claude-code", "--project", "--yes"];
    let output = stage.command(&args).env("PATH", path).output().await;
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!stage.was_attacked(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.matches("answers, with").count(), 2, "{stdout}");
}
