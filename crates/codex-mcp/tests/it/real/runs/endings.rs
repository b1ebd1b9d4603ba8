//! How a run begins and ends.

use std::fs;

use scripted_model::{Reply, Script, Usage};
use serde_json::json;
use testkit::Signal;

use super::super::{Stage, on_each_release};
use super::{commit, kill, until};

on_each_release!(
    ctrl_c_reports_what_is_there,
    a_thread_is_hopped_into,
    a_grant_ends_with_its_run,
);

async fn ctrl_c_reports_what_is_there(release: &str) {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("sleep 1000"),
        Reply::say("never"),
    ]);
    let stage = Stage::new(release, script).await;
    let args = [
        "--json",
        "--sandbox",
        stage.sandbox_for_commits(),
        "x",
        "--until",
        "commits=2",
    ];
    let mut child = stage.run_command(&args).spawn().unwrap();
    let pid = child.id().unwrap();
    let sleeps = || {
        let processes = stage.home.processes();
        processes
            .iter()
            .any(|one| one.command.ends_with("sleep 1000"))
    };
    until(&mut child, sleeps).await;
    // What the sandbox mounts on, where it protects a path that is missing.
    let targets = || [".agents", ".aws", ".codex"].map(|name| stage.file(name).exists());
    if release == testkit::codex::newest() {
        assert_eq!(targets(), [true; 3]);
    }
    kill(pid, Signal::SIGINT);
    let ran = stage.ended(child).await;
    ran.assert_not_done("cancelled");
    assert_eq!(ran.turns(), [("initial", "interrupted")]);
    assert_eq!(ran.made(), ["commit", "file"]);
    assert_eq!(targets(), [false; 3]);
}

async fn a_thread_is_hopped_into(release: &str) {
    let script = Script::new()
        .on("and now", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([Reply::shell("cat README.md"), Reply::say("Read it.")]);
    let stage = Stage::new(release, script).await;
    let first = stage.run(&["the number is 7"]).await;
    first.assert_done(&["initial"]);
    let thread = first.result["thread_id"].as_str().unwrap();
    // What it takes is allowed from now on.
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

/// A thread that Codex does not have is an error before anything is started; the beginning
/// of an id stands for it.
#[tokio::test]
async fn thread_is_found_by_the_beginning_of_its_id_or_refused() {
    let script = Script::new().otherwise([Reply::shell("cat README.md"), Reply::say("Read it.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
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
        assert!(refused.told.contains(words), "{}", refused.told);
    }
    let refused = stage.run(&["z", "--profile", "nope"]).await;
    assert_eq!(refused.code, Some(3));
    assert!(
        refused.told.contains("there is no profile nope"),
        "{}",
        refused.told
    );
    assert_eq!(stage.model.request_count(), requests);
}

/// In the registry a run's thread is "interrupted", as nobody has asked for a summary.
#[tokio::test]
async fn finished_run_is_listed_with_a_completed_turn() {
    let script = Script::new().otherwise([Reply::shell("cat README.md"), Reply::say("Read it.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    stage
        .run(&["Read the README"])
        .await
        .assert_done(&["initial"]);
    let listed = stage.program(&["threads"]).output().await.unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let row = listed.lines().nth(1).unwrap();
    assert!(row.contains("  ended  completed  no  "), "{listed}");
    assert!(row.contains("Read the README"), "{listed}");
    assert!(!listed.contains("interrupted"), "{listed}");
}

/// What one run was allowed, another one isn't, though newer releases remember it.
async fn a_grant_ends_with_its_run(release: &str) {
    let script = Script::new()
        .on("once more", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = Stage::new(release, script).await;
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
    assert_eq!(second.made(), expected, "{:#}", second.result);
}

#[tokio::test]
async fn a_directory_of_a_repository_stands_for_all_of_it() {
    let script = Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
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

/// What the sandbox makes impossible isn't tried.
#[tokio::test]
async fn a_read_only_sandbox_is_refused_at_once() {
    let script = Script::new().otherwise([Reply::say("I can't.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
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
    let ran = stage.ended(stage.run_command(&args).spawn().unwrap()).await;
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
    let ran = stage.ended(stage.run_command(&args).spawn().unwrap()).await;
    ran.assert_not_done("stalled");
}

/// The next run may change files, unless the sandbox was named.
#[tokio::test]
async fn read_only_run_that_fails_names_the_sandbox_and_is_resumed_with_a_wider_one() {
    let script = Script::new().otherwise([Reply::shell("false"), Reply::say("I can't.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
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
        let resumed = shown.lines().find(|line| line.starts_with("to go on: "));
        let flag = format!(" --sandbox {sandbox} ");
        assert!(resumed.unwrap().contains(&flag), "{shown}");
    }
}

#[tokio::test]
async fn run_without_a_codex_says_how_to_get_one() {
    let stage = Stage::new(testkit::codex::newest(), Script::new()).await;
    let empty = stage.home.root().join("empty");
    fs::create_dir(&empty).unwrap();
    let mut command = stage.run_command(&["--json", "x"]);
    // Git is looked for on PATH too.
    std::os::unix::fs::symlink("/usr/bin/git", empty.join("git")).unwrap();
    command
        .env_remove("CODEX_MCP_CODEX_BIN")
        .env("PATH", &empty);
    let ran = stage.ended(command.spawn().unwrap()).await;
    assert_eq!(ran.code, Some(3), "{}", ran.told);
    assert_eq!(
        ran.result["why"],
        "no `codex` found on PATH; install Codex with `npm install -g @openai/codex`, or name it \
         with --codex-bin or CODEX_MCP_CODEX_BIN"
    );
    assert_eq!(ran.told.matches("npm install").count(), 1, "{}", ran.told);
}

/// The arguments of the first example in a help.
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

/// As somebody new would: a repository that Codex doesn't trust and that has no commit.
#[tokio::test]
async fn first_example_of_the_help_works_in_a_fresh_repository() {
    let stage = Stage::new(testkit::codex::newest(), writes_a_readme()).await;
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
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{told}");
        assert!(fresh.join("README.md").is_file(), "{told}");
    }
    let config = stage.home.codex_home().join("config.toml");
    let config = fs::read_to_string(config).unwrap();
    assert!(!config.contains("trust_level"), "{config}");
}

/// The second turn goes past the limit, in the middle of its work.
#[tokio::test]
async fn used_up_tokens_end_a_run_that_tells_its_usage_and_how_to_go_on() {
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
    let stage = Stage::new(testkit::codex::newest(), script).await;
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

    // Pasted into a shell, but for the name of the program and the limit.
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
    // The thread had used tokens before.
    assert!(shown.contains("\ntokens: 220 ("), "{shown}");
    assert!(shown.contains("rate limits: 42 % of 5h used"), "{shown}");
    let thread = ran.result["thread_id"].as_str().unwrap();
    assert!(shown.contains(&format!("--thread {thread}")), "{shown}");
}

/// Each is known before Codex is asked anything.
#[tokio::test]
async fn what_a_run_needs_and_lacks_is_told_before_the_first_turn() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    for (flag, value, why) in [
        ("--until", "command=no-such-program x", "no-such-program"),
        ("--notify", "command:no-such-program", "no-such-program"),
        ("--notify", "mail:nobody@nowhere", "nowhere"),
        ("--evidence", "/nowhere/evidence.jsonl", "/nowhere"),
        ("--evidence", "/", "evidence"),
    ] {
        let ran = stage.run(&["x", flag, value]).await;
        assert_eq!(ran.code, Some(3), "{}", ran.told);
        let told = ran.result["why"].as_str().unwrap();
        assert!(told.contains(why), "{told}");
    }
    assert_eq!(stage.model.request_count(), 0);
}

/// Nobody can be asked there, and nothing was asked for that has to be written.
#[tokio::test]
async fn read_only_runs_say_which_flag_to_add() {
    let script = Script::new().otherwise([Reply::shell("ls"), Reply::say("Looked.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let child = stage.run_command(&["--json", "x"]).spawn().unwrap();
    let ran = stage.ended(child).await;
    ran.assert_done(&["initial"]);
    let warning = ran.told.find("add --sandbox workspace-write");
    let turn = ran.told.find("turn 1 of 10");
    assert!(warning.is_some() && warning < turn, "{}", ran.told);
}

/// Who reads no more of it changes nothing of how it ended.
#[tokio::test]
async fn a_reader_that_goes_away_does_not_make_it_done() {
    let script = Script::new().otherwise([Reply::say("I will.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    for json in [&[][..], &["--json"]] {
        let args = ["x", "--until", "command=false", "--max-turns", "1"];
        let mut child = stage.run_command(&[&args, json].concat()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().await.unwrap().code(), Some(2));
    }
}

/// As in a hook of git's, which tells where it belongs to.
#[tokio::test]
async fn git_is_that_of_the_directory() {
    let script = Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
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
    let ran = stage.ended(command.spawn().unwrap()).await;
    ran.assert_done(&["initial"]);
    assert_eq!(stage.home.git(&["log", "-1", "--format=%s"]), "Add a.txt");
}

#[tokio::test]
async fn a_worktree_leaves_the_users_own_alone() {
    let script = Script::new()
        .on("do nothing", [Reply::shell("true"), Reply::say("Nothing.")])
        .otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
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

    // One in which nothing was made is removed again.
    let ran = stage.run(&["do nothing", "--worktree"]).await;
    ran.assert_done(&["initial"]);
    assert!(ran.result.get("worktree").is_none(), "{:#}", ran.result);
    assert_eq!(stage.home.git(&["worktree", "list"]).lines().count(), 2);
}

/// No shell ever sees it.
#[tokio::test]
async fn a_hostile_task_is_plain_words() {
    let script = Script::new().otherwise([
        Reply::shell("echo x > '-$(touch pwned)\" name.txt'"),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
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
    // The line is one argument of the program.
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
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let ran = stage.run(&["make a file"]).await;
    let thread = ran.result["thread_id"].as_str().unwrap();
    let output = stage.program(&["summary", thread]).output().await.unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let words = "no summary: runs, and servers with `--no-summaries`, don't ask for one.";
    assert!(told.contains(words), "{told}");
}
