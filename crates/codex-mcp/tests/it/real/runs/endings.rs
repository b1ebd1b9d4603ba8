//! The beginning and end of runs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use scripted_model::{Gate, Reply, Script, Usage};
use serde_json::json;
use testkit::Signal;
use testkit::process::{signal, wait_until_gone};
use tokio::process::Child;

use super::super::{CodexFixture, on_oldest_and_newest};
use super::{commit, wait_while_running};

/// How long Codex may outlive a run that a second signal has ended.
const EXIT_LIMIT: Duration = Duration::from_secs(10);

on_oldest_and_newest!(
    ctrl_c_reports_partial_work,
    run_continues_an_existing_thread,
    grant_ends_with_its_run,
);

/// A model that commits, and sleeps then.
fn sleeping_model() -> Script {
    Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("sleep 1000"),
        Reply::say("never"),
    ])
}

/// A run of [`sleeping_model`] that has begun to sleep, and its process.
async fn run_until_it_sleeps(stage: &CodexFixture, args: &[&str]) -> (Child, u32) {
    let mut child = stage.run_command(args).spawn().unwrap();
    let pid = child.id().unwrap();
    let sleeps = || {
        let processes = stage.home.processes();
        let mut commands = processes.iter().map(|process| &process.command);
        commands.any(|command| command.ends_with("sleep 1000"))
    };
    wait_while_running(&mut child, "the sleep", sleeps).await;
    (child, pid)
}

async fn ctrl_c_reports_partial_work(release: &str) {
    let stage = CodexFixture::new(release, sleeping_model()).await;
    let args = [
        "--json",
        "--sandbox",
        stage.sandbox_for_commits(),
        "x",
        "--until",
        "commits=2",
    ];
    let (child, pid) = run_until_it_sleeps(&stage, &args).await;
    // The mount targets that the sandbox creates for protected paths that are missing.
    let targets = || [".agents", ".aws", ".codex"].map(|name| stage.file(name).exists());
    if release == testkit::codex::newest() {
        assert_eq!(targets(), [true; 3]);
    }
    signal(pid, Signal::SIGINT);
    let ran = stage.finish_run(child).await;
    ran.assert_not_done("cancelled");
    assert_eq!(ran.turns(), [("initial", "interrupted")]);
    assert_eq!(ran.artifact_kinds(), ["commit", "file"]);
    assert_eq!(targets(), [false; 3]);
}

async fn run_continues_an_existing_thread(release: &str) {
    let script = Script::new()
        .on("and now", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([Reply::shell("cat README.md"), Reply::say("Read it.")]);
    let stage = CodexFixture::new(release, script).await;
    let first = stage.run(&["the number is 7"]).await;
    first.assert_done(&["initial"]);
    let thread = first.result["thread_id"].as_str().unwrap();
    // The criterion allows commits from this turn on.
    let args = ["and now?", "--thread", thread, "--until", "commits=1"];
    let second = stage.run(&args).await;
    second.assert_done(&["initial"]);
    assert_eq!(second.result["thread_id"], thread);
    let last = stage.model.requests().pop().unwrap();
    let before = last.user_messages();
    assert!(
        before.iter().any(|text| text.contains("the number is 7")),
        "{before:?}"
    );
}

/// An ID prefix names a thread. An unknown thread is an error before any turn.
#[tokio::test]
async fn thread_is_resolved_by_id_prefix_or_refused() {
    let script = Script::new().otherwise([Reply::shell("cat README.md"), Reply::say("Read it.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let first = stage.run(&["x"]).await;
    first.assert_done(&["initial"]);
    let thread = first.result["thread_id"].as_str().unwrap();
    let second = stage.run(&["y", "--thread", &thread[..8]]).await;
    second.assert_done(&["initial"]);
    assert_eq!(second.result["thread_id"], thread);

    let requests = stage.model.request_count();
    let unknown = "01234567-89ab-7def-8123-456789abcdef";
    for (thread, words) in [
        (unknown, "there is no thread 01234567-89ab"),
        ("01234567", "there is no thread 01234567 in"),
    ] {
        let refused = stage.run(&["z", "--thread", thread]).await;
        assert_eq!(refused.code, Some(3));
        assert_eq!(refused.result["reason"], "could_not_run");
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    let refused = stage.run(&["z", "--profile", "nope"]).await;
    assert_eq!(refused.code, Some(3));
    assert!(
        refused.stderr.contains("there is no profile nope"),
        "{}",
        refused.stderr
    );
    assert_eq!(stage.model.request_count(), requests);
}

/// The registry has the thread of a run as "interrupted", since runs ask for no summary.
#[tokio::test]
async fn finished_run_is_listed_with_a_completed_turn() {
    let script = Script::new().otherwise([Reply::shell("cat README.md"), Reply::say("Read it.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    stage
        .run(&["Read the README"])
        .await
        .assert_done(&["initial"]);
    let listed = stage.program(&["threads"]).output().await.unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let row = listed.lines().nth(1).unwrap();
    assert!(row.contains("  ended  completed  no  "), "{listed}");
    assert!(row.ends_with("  Read the README"), "{listed}");
    assert!(!listed.contains("interrupted"), "{listed}");
}

#[tokio::test]
async fn second_run_in_a_repository_is_warned() {
    let gate = Gate::new();
    let script = Script::new()
        .on("first", [Reply::say("One.").behind(&gate)])
        .otherwise([Reply::say("Two.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let first = stage.run_command(&["--json", "first"]).spawn().unwrap();
    gate.reached(1).await;
    let mut second = stage.run_command(&["--json", "second"]);
    let second = second.output().await.unwrap();
    let words = "another run works in this repository";
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(told.contains(words), "{told}");
    gate.release();
    let first = stage.finish_run(first).await;
    assert!(!first.stderr.contains(words), "{}", first.stderr);
}

/// A grant of one run does not apply to the next, though newer releases remember it.
async fn grant_ends_with_its_run(release: &str) {
    let script = Script::new()
        .on("once more", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = CodexFixture::new(release, script).await;
    let first = stage.run(&["x", "--until", "commits=1"]).await;
    first.assert_done(&["initial"]);
    let thread = first.result["thread_id"].as_str().unwrap();
    let args = ["once more", "--thread", thread, "--until", "files=b.txt"];
    let second = stage.run(&args).await;
    second.assert_done(&["initial"]);
    let expected: &[&str] = match release {
        "0.104.0" => &["commit", "file"],
        _ => &["file"],
    };
    assert_eq!(second.artifact_kinds(), expected, "{:#}", second.result);
}

#[tokio::test]
async fn subdirectory_as_repo_means_the_whole_repository() {
    let script = Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    fs::create_dir(stage.file("sub")).unwrap();
    let until = ["--until", "files=a.txt", "--until", "commits=1"];
    let ran = stage
        .run(&[&["x", "--repo", "sub"][..], &until].concat())
        .await;
    ran.assert_done(&["initial"]);
    let prompt = &stage.prompts()[0];
    let top = stage.home.work().display().to_string();
    assert!(prompt.contains(&format!("Work in {top}.")), "{prompt}");
}

/// A run whose criteria the sandbox makes impossible is not started.
#[tokio::test]
async fn read_only_sandbox_is_refused_at_once() {
    let script = Script::new().otherwise([Reply::say("I can't.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let notify = "command:sh -c 'echo \"$0\" > told'";
    let args = [
        "--json",
        "x",
        "--until",
        "commits=1",
        "--sandbox",
        "read-only",
        "--notify",
        notify,
    ];
    let ran = stage
        .finish_run(stage.run_command(&args).spawn().unwrap())
        .await;
    assert_eq!(ran.code, Some(3));
    assert_eq!(ran.result["reason"], "could_not_run");
    let told = fs::read_to_string(stage.file("told")).unwrap();
    assert!(
        told.starts_with("BLOCKED :: Codex's sandbox is read-only"),
        "{told}"
    );
    let why = ran.result["why"].as_str().unwrap();
    assert!(why.contains("--sandbox workspace-write"), "{why}");
    assert!(!why.contains("sandbox:"), "{why}");
    assert_eq!(stage.model.request_count(), 0);
    assert_eq!(stage.threads().await, json!([]));
    let args = [
        "--json",
        "x",
        "--sandbox",
        "read-only",
        "--until",
        "command=true",
    ];
    let ran = stage
        .finish_run(stage.run_command(&args).spawn().unwrap())
        .await;
    ran.assert_not_done("stalled");
}

/// Our setting is not applied where a profile of Codex's is named.
#[tokio::test]
async fn profile_that_makes_the_sandbox_read_only_is_named() {
    let stage = CodexFixture::new(testkit::codex::newest(), Script::new()).await;
    let profile = stage.home.codex_home().join("careful.config.toml");
    fs::write(profile, "sandbox_mode = \"read-only\"\n").unwrap();
    for (profile, cause) in [
        (
            &["--profile", "careful"][..],
            "Codex's profile careful says so",
        ),
        (&[], "sandbox ($CODEX_MCP_SANDBOX) says so"),
    ] {
        let args = [&["--json", "x", "--until", "commits=1"], profile].concat();
        let mut command = stage.run_command(&args);
        let child = command.env("CODEX_MCP_SANDBOX", "read-only").spawn();
        let ran = stage.finish_run(child.unwrap()).await;
        assert_eq!(ran.result["reason"], "could_not_run");
        let why = ran.result["why"].as_str().unwrap();
        assert!(why.contains(cause), "{why}");
    }
    assert_eq!(stage.model.request_count(), 0);
}

/// Codex may read and answer in such a run, which is enough while the command succeeds.
#[tokio::test]
async fn read_only_run_ends_after_the_first_refused_change_that_a_criterion_needs() {
    let script = Script::new()
        .on("look around", [Reply::shell("ls"), Reply::say("Looked.")])
        .otherwise([Reply::shell("touch made.txt"), Reply::say("I can't.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let ended = async |task: &str, until: &str| {
        let sandbox = ["--sandbox", "read-only", "--max-turns", "2"];
        let args = [&["--json", task, "--until", until][..], &sandbox].concat();
        let child = stage.run_command(&args).spawn().unwrap();
        stage.finish_run(child).await
    };
    let ran = ended("make it", "command=test -e made.txt").await;
    ran.assert_not_done("read_only");
    assert_eq!(ran.result["turns"], 1);
    let why = ran.result["why"].as_str().unwrap();
    assert!(
        why.contains("`--sandbox read-only` says so; use --sandbox workspace-write"),
        "{why}"
    );
    let resumed = ran.result["resume_command"].as_str().unwrap();
    assert!(resumed.contains("--sandbox workspace-write"), "{resumed}");
    ended("make it", "command=true")
        .await
        .assert_done(&["initial"]);
    let ran = ended("look around", "command=test -e made.txt").await;
    ran.assert_not_done("max_turns_exceeded");
    let rules = stage.home.codex_home().join("rules");
    fs::create_dir_all(&rules).unwrap();
    let rule = "prefix_rule(pattern = [\"make\"], decision = \"allow\")\n";
    fs::write(rules.join("default.rules"), rule).unwrap();
    let ran = ended("make it", "command=test -e made.txt").await;
    ran.assert_not_done("max_turns_exceeded");
}

/// The second signal comes before the first one has ended the run.
#[tokio::test]
async fn second_signal_reports_worktree_and_commits() {
    let stage = CodexFixture::new(testkit::codex::newest(), sleeping_model()).await;
    let args = [
        "--sandbox",
        "workspace-write",
        "--worktree",
        "x",
        "--until",
        "commits=2",
    ];
    let (child, pid) = run_until_it_sleeps(&stage, &args).await;
    // Two signals of one kind could be delivered as one.
    signal(pid, Signal::SIGINT);
    signal(pid, Signal::SIGTERM);
    let ended = child.wait_with_output().await.unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    let (_, message) = stderr.split_once("changes are kept in ").unwrap();
    let (worktree, message) = message.split_once("; ").unwrap();
    assert!(Path::new(worktree).join("a.txt").is_file(), "{stderr}");
    assert!(message.contains("imports Codex's commits"), "{stderr}");
    let left = stage.home.processes();
    let left: Vec<u32> = left.iter().map(|process| process.pid).collect();
    assert_eq!(wait_until_gone(&left, EXIT_LIMIT).await, []);
}

/// The printed command for the next run has a wider sandbox, unless the user named one.
#[tokio::test]
async fn failed_read_only_run_names_the_sandbox_and_how_to_widen_it() {
    let script = Script::new().otherwise([Reply::shell("false"), Reply::say("I can't.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    for (more, advice, sandbox) in [
        (
            &[][..],
            "the command below has --sandbox workspace-write",
            "workspace-write",
        ),
        (
            &["--sandbox", "read-only"],
            "as --sandbox says",
            "read-only",
        ),
    ] {
        let args = [&["x", "--max-turns", "1"][..], more].concat();
        let ended = stage.run_command(&args).output().await.unwrap();
        let shown = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{shown}");
        assert!(shown.contains("Codex's sandbox was read-only"), "{shown}");
        assert!(shown.contains(advice), "{shown}");
        let resumed = shown.lines().find(|line| line.starts_with("to continue: "));
        let flag = format!(" --sandbox {sandbox} ");
        assert!(resumed.unwrap().contains(&flag), "{shown}");
    }
}

/// The result is JSON, which has texts only.
#[tokio::test]
async fn evidence_file_whose_path_is_not_utf8_is_reported() {
    let script = Script::new().otherwise([Reply::shell("ls"), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let file = OsStr::from_bytes(b"evidence\xff.jsonl");
    let file = stage.home.root().join(file);
    let mut command = stage.run_command(&["--json", "x", "--evidence"]);
    let ran = stage.finish_run(command.arg(&file).spawn().unwrap()).await;
    ran.assert_done(&["initial"]);
    let shown = ran.result["evidence_file"].as_str().unwrap();
    assert!(shown.ends_with("/evidence\u{fffd}.jsonl"), "{shown}");
    let lines = fs::read_to_string(file).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
}

#[tokio::test]
async fn run_without_a_codex_says_how_to_install_one() {
    let stage = CodexFixture::new(testkit::codex::newest(), Script::new()).await;
    let empty = stage.home.root().join("empty");
    fs::create_dir(&empty).unwrap();
    let mut command = stage.run_command(&["--json", "x"]);
    // The run needs git on PATH.
    std::os::unix::fs::symlink("/usr/bin/git", empty.join("git")).unwrap();
    command
        .env_remove("CODEX_MCP_CODEX_BIN")
        .env("PATH", &empty);
    let ran = stage.finish_run(command.spawn().unwrap()).await;
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(
        ran.result["why"],
        "no `codex` found on PATH; install Codex with `npm install -g @openai/codex`, or name it \
         with --codex-bin or CODEX_MCP_CODEX_BIN"
    );
    assert_eq!(
        ran.stderr.matches("npm install").count(),
        1,
        "{}",
        ran.stderr
    );
}

/// The arguments of the first example in a help text.
fn first_example(help: &str) -> Vec<String> {
    let (_, examples) = help.split_once("Examples:\n").unwrap();
    let first = examples.lines().next().unwrap();
    let words = shlex::split(first).unwrap();
    assert_eq!(words[0], "codex-mcp", "{first}");
    words[1..].to_vec()
}

fn writes_a_readme() -> Script {
    Script::new().otherwise([Reply::shell("echo x > README.md"), Reply::say("Done.")])
}

/// The repository of a new user: Codex does not trust it, and it has no commit.
#[tokio::test]
async fn first_example_of_the_help_works_in_a_fresh_repository() {
    let stage = CodexFixture::new(testkit::codex::newest(), writes_a_readme()).await;
    for (verb, more) in [(&["run"][..], None), (&["jobs", "submit"], Some("--wait"))] {
        let fresh = stage.home.root().join(verb.concat());
        stage
            .home
            .git(&["init", "--quiet", fresh.to_str().unwrap()]);
        let help = [verb, &["--help"]].concat();
        let help = stage.program(&help).output().await.unwrap().stdout;
        let example = first_example(&String::from_utf8(help).unwrap());
        let example: Vec<&str> = example.iter().map(String::as_str).chain(more).collect();
        let mut program = stage.program(&example);
        let ended = program.current_dir(&fresh).output().await.unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{stderr}");
        assert!(fresh.join("README.md").is_file(), "{stderr}");
    }
    let config = stage.home.codex_home().join("config.toml");
    let config = fs::read_to_string(config).unwrap();
    assert!(!config.contains("trust_level"), "{config}");
}

/// The second turn exceeds the limit in the middle of its work.
#[tokio::test]
async fn token_limit_ends_a_run_with_usage_and_resume_command() {
    let usage = Usage {
        input: 900,
        cached_input: 400,
        output: 100,
        reasoning: 30,
    };
    let script = Script::new()
        .header("x-codex-primary-used-percent", "42")
        .header("x-codex-primary-window-minutes", "300")
        .on(
            "Go on with the task",
            [Reply::shell("echo x > 'a b.txt'"), Reply::say("Done.")],
        )
        .on(
            "not complete",
            [
                Reply::shell("ls").using(usage),
                Reply::shell("sleep 1000").using(usage),
                Reply::say("never"),
            ],
        )
        .otherwise([
            Reply::shell("ls").using(usage),
            Reply::say("Looked.").using(usage),
        ]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let until = ["--until", "files=a b.txt", "--max-tokens", "4000"];
    let ran = stage.run(&[&["x"][..], &until].concat()).await;
    ran.assert_not_done("max_tokens_exceeded");
    let ends: Vec<&str> = ran.turns().iter().map(|(_, end)| *end).collect();
    assert_eq!(ends, ["completed", "interrupted"]);
    let first = &ran.result["evidence"]["log"][0]["usage"];
    assert_eq!(first["total_tokens"], 2000, "{:#}", ran.result);
    let expected = json!({ "total_tokens": 4000, "input_tokens": 3600,
        "cached_input_tokens": 1600, "output_tokens": 400, "reasoning_output_tokens": 120 });
    assert_eq!(ran.result["usage"], expected);
    let limits = &ran.result["rate_limits"]["primary"];
    assert_eq!(
        limits["usedPercent"].as_f64(),
        Some(42.0),
        "{:#}",
        ran.result
    );

    // The test runs the printed command with a higher limit.
    let command = ran.result["resume_command"].as_str().unwrap();
    assert!(command.contains("'files=a b.txt'"), "{command}");
    let words = shlex::split(command).unwrap();
    let words = words.iter().map(String::as_str).map(|word| match word {
        "4000" => "1000000",
        word => word,
    });
    let words: Vec<&str> = words.skip(1).collect();
    let output = stage.program(&words).output().await.unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    // The tokens that the thread used before do not count.
    assert!(shown.contains("\ntokens: 220 ("), "{shown}");
    assert!(shown.contains("rate limits: 42 % of 5h used"), "{shown}");
    let thread = ran.result["thread_id"].as_str().unwrap();
    assert!(shown.contains(&format!("--thread {thread}")), "{shown}");
}

/// The run finds each missing requirement before it asks Codex.
#[tokio::test]
async fn missing_requirements_are_reported_before_the_first_turn() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    for (flag, value, why) in [
        ("--until", "command=no-such-program x", "no-such-program"),
        ("--notify", "command:no-such-program", "no-such-program"),
        ("--notify", "mail:nobody@nowhere", "nowhere"),
        ("--evidence", "/nowhere/evidence.jsonl", "/nowhere"),
        ("--evidence", "/", "evidence"),
        (
            "--evidence",
            "evidence.jsonl",
            "name a file outside of the repository",
        ),
    ] {
        let ran = stage.run(&["x", flag, value]).await;
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        let told = ran.result["why"].as_str().unwrap();
        assert!(told.contains(why), "{told}");
    }
    assert!(!stage.file("evidence.jsonl").exists());
    assert_eq!(stage.model.request_count(), 0);
}

/// Without a terminal nobody can be asked, and no criterion needs write access.
#[tokio::test]
async fn read_only_run_names_the_flag_to_use() {
    let script = Script::new().otherwise([Reply::shell("ls"), Reply::say("Looked.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let child = stage.run_command(&["--json", "x"]).spawn().unwrap();
    let ran = stage.finish_run(child).await;
    ran.assert_done(&["initial"]);
    let warning = ran.stderr.find("use --sandbox workspace-write");
    let turn = ran.stderr.find("turn 1 of 10");
    assert!(warning.is_some() && warning < turn, "{}", ran.stderr);
}

/// A closed reader of stdout does not change the exit code.
#[tokio::test]
async fn closed_stdout_does_not_change_the_exit_code() {
    let script = Script::new().otherwise([Reply::say("I will.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    for json in [&[][..], &["--json"]] {
        let args = ["x", "--until", "command=false", "--max-turns", "1"];
        let mut child = stage.run_command(&[&args, json].concat()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().await.unwrap().code(), Some(2));
    }
}

/// Git hooks set GIT_DIR for all that they start.
#[tokio::test]
async fn git_dir_variable_does_not_change_the_repository() {
    let script = Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let other = stage.home.root().join("other");
    stage
        .home
        .git(&["clone", "--quiet", ".", other.to_str().unwrap()]);
    let args = [
        "--json",
        "--sandbox",
        "workspace-write",
        "x",
        "--until",
        "commits=1",
    ];
    let mut command = stage.run_command(&args);
    command.env("GIT_DIR", other.join(".git"));
    let ran = stage.finish_run(command.spawn().unwrap()).await;
    ran.assert_done(&["initial"]);
    assert_eq!(stage.home.git(&["log", "-1", "--format=%s"]), "Add a.txt");
}

#[tokio::test]
async fn worktree_run_leaves_the_working_tree_unchanged() {
    let script = Script::new()
        .on("do nothing", [Reply::shell("true"), Reply::say("Nothing.")])
        .otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    fs::write(stage.file("mine.txt"), "not committed").unwrap();
    let before = stage.home.git(&["status", "--porcelain"]);
    let ran = stage
        .run(&[
            "x",
            "--worktree",
            "--until",
            "commits=1",
            "--until",
            "clean",
        ])
        .await;
    ran.assert_done(&["initial"]);
    assert_eq!(stage.home.git(&["status", "--porcelain"]), before);
    assert!(!stage.file("a.txt").exists());
    let kept = &ran.result["worktree"];
    let branch = kept["branch"].as_str().unwrap();
    assert_eq!(
        stage.home.git(&["log", "-1", "--format=%s", branch]),
        "Add a.txt"
    );
    assert!(
        std::path::Path::new(kept["path"].as_str().unwrap())
            .join("a.txt")
            .is_file()
    );

    // A worktree without changes is removed again.
    let ran = stage.run(&["do nothing", "--worktree"]).await;
    ran.assert_done(&["initial"]);
    assert!(ran.result.get("worktree").is_none(), "{:#}", ran.result);
    assert_eq!(stage.home.git(&["worktree", "list"]).lines().count(), 2);
}

/// No shell interprets the task or the criteria.
#[tokio::test]
async fn hostile_task_is_plain_text() {
    let script = Script::new().otherwise([
        Reply::shell("echo x > '-$(touch pwned)\" name.txt'"),
        Reply::say("Done."),
    ]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let task = "--help\n'; touch pwned; \"$(touch pwned)` {task} {{";
    let until = "files=-$(touch pwned)\" name.txt";
    let notify = "command:touch told";
    let args = ["--until", until, "--notify", notify, "--", task];
    let ran = stage.run(&args).await;
    ran.assert_done(&["initial"]);
    assert!(
        stage.prompts()[0].starts_with(task),
        "{:?}",
        stage.prompts()
    );
    assert!(!stage.file("pwned").exists());
    assert!(stage.file("told").exists(), "{:#}", ran.result);
    // The notifier's program gets the line as one argument.
    let line = fs::read_dir(stage.home.work()).unwrap();
    let names: Vec<String> = line
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names.iter().any(|name| name.starts_with("DONE #1 :: ")),
        "{names:?}"
    );
}

#[tokio::test]
async fn thread_of_a_run_says_why_it_has_no_summary() {
    let script = Script::new().otherwise([Reply::shell("echo x > new.txt"), Reply::say("Done.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let ran = stage.run(&["make a file"]).await;
    let thread = ran.result["thread_id"].as_str().unwrap();
    let output = stage.program(&["summary", thread]).output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let words = "no summary: runs, and servers with `--no-summaries`, don't ask for one.";
    assert!(stderr.contains(words), "{stderr}");
}
