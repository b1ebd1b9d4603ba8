//! `list`, `show`, `prune`, and jobs named by ID prefixes.

use std::collections::BTreeSet;

use job_queue::logic::Ending;
use job_queue::store::{NewJob, Request};

use super::*;
use crate::terminal::Terminal;

#[tokio::test]
async fn empty_store_is_reported_by_list_and_prune() {
    let stage = JobsFixture::new().await;
    let words = format!("There are no jobs yet in {}.", stage.location);
    let listed = stage.stdout_of(&["list"]);
    assert!(listed.starts_with(&words), "{listed}");
    assert_eq!(
        stage.json(&["list", "--json"]),
        json!({"jobs": [], "total": 0})
    );
    let filtered = stage.stdout_of(&["list", "--tool", "x"]);
    assert!(filtered.contains("There are no such jobs"), "{filtered}");
    let pruned = stage.stdout_of(&["prune"]);
    assert_eq!(pruned, "There is nothing to remove.\n");
}

#[tokio::test]
async fn jobs_are_shown_and_cancelled_though_a_setting_is_wrong() {
    let stage = JobsFixture::new().await;
    let job = stage.queued("first").await;
    let directory = stage.home.atm_home().join(".config/atm");
    std::fs::create_dir_all(&directory).unwrap();
    let text = "[plugins.codex-mcp]\nnotify_on = [\"starts\"]\n";
    std::fs::write(directory.join("config.toml"), text).unwrap();
    for verb in ["list", "show", "cancel"] {
        let args = match verb {
            "list" => vec![verb],
            _ => vec![verb, job.as_str()],
        };
        let said = stage.run(&args);
        assert_eq!(said.code, 0, "{verb}: {}", said.stderr);
        assert!(
            said.stderr
                .contains("`notify_on`: element 1 must be one of")
        );
        assert!(said.stdout.contains(short(&job)), "{verb}");
    }
}

#[tokio::test]
async fn thread_that_only_a_job_has_is_listed_though_a_setting_is_wrong() {
    let stage = JobsFixture::new().await;
    stage.ended("first", Ending::Completed).await;
    let directory = stage.home.atm_home().join(".config/atm");
    std::fs::create_dir_all(&directory).unwrap();
    let listed = |line: &str| {
        let text = format!("[plugins.codex-mcp]\n{line}\n");
        std::fs::write(directory.join("config.toml"), text).unwrap();
        let said: CommandOutput = stage.program(&["threads"]).output().unwrap().into();
        assert_eq!(said.code, 0, "{}", said.stderr);
        (said.stdout.contains(SESSION), said.stderr)
    };
    let (is_listed, warnings) = listed("notify = \"desktop\"");
    assert!(is_listed && warnings.contains("`notify`: "), "{warnings}");
    // The default could be another store.
    let (is_listed, warnings) = listed("store = 7");
    let told = warnings.contains("The threads of jobs are left out.");
    assert!(!is_listed && told, "{warnings}");
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_can_be_filtered() {
    let stage = JobsFixture::new().await;
    let failed = stage.ended("first", Ending::Failed).await;
    let elsewhere = stage
        .submit(Request {
            task_name: "else".to_owned(),
            ..Request::new("p", "/elsewhere")
        })
        .await;
    let queued = stage.queued("third").await;

    let table = stage.stdout_of(&["list"]);
    let lines: Vec<&str> = table.lines().collect();
    let words: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(
        words,
        ["JOB", "STATE", "AGE", "TOOK", "TASK", "DIRECTORY", "ERROR"]
    );
    for (line, id) in lines[1..4].iter().zip([&queued, &elsewhere, &failed]) {
        assert!(line.starts_with(short(id)), "{line}");
    }
    assert!(lines[2].contains("queued") && lines[2].contains("else"));
    assert!(lines[3].contains("failed"), "{table}");
    assert!(lines[3].ends_with("the model is away"), "{table}");
    assert_eq!(lines[4..], ["", "3 of 3"]);
    assert!(!table.contains('\u{1b}'));

    let ids = |args: &[&str]| {
        let listed = stage.json(&[&["list", "--json"], args].concat());
        let jobs = listed["jobs"].as_array().unwrap().clone();
        let ids = jobs
            .iter()
            .map(|job| job["job_id"].as_str().unwrap().to_owned());
        (ids.collect::<Vec<_>>(), listed["total"].as_u64().unwrap())
    };
    assert_eq!(
        ids(&["--status", "queued"]).0,
        [queued.as_str(), elsewhere.as_str()]
    );
    assert_eq!(ids(&["--cwd", "."]).0, [queued.as_str(), failed.as_str()]);
    assert_eq!(ids(&["--limit", "1"]), (vec![queued.to_string()], 3));
    assert_eq!(ids(&["--tool", "' OR 1=1 --"]).1, 0);
    assert!(
        stage
            .stdout_of(&["list", "--limit", "2"])
            .ends_with("\n2 of 3\n")
    );
}

#[tokio::test]
async fn list_is_cut_on_a_terminal_and_whole_in_a_pipe() {
    let stage = JobsFixture::new().await;
    for cwd in [
        "/a/rather/deep/directory/of/a/repository/with/a/long/path",
        "/short",
    ] {
        let request = Request {
            task_name: "a task whose name is as long as names of tasks get".to_owned(),
            ..Request::new("p", cwd)
        };
        stage.submit(request).await;
    }
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Failed, json!({})).await;
    let (table, _) = Terminal::runs(stage.command(&["list", "--color", "never"]))
        .ends()
        .await;
    for line in table.lines().map(str::trim_end) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(table.contains("a task whose"), "{table}");
    assert!(table.contains("/long/path"), "{table}");
    assert!(table.contains("the model"), "{table}");

    let table = stage.stdout_of(&["list"]);
    for whole in [
        "a task whose name is as long as names of tasks get",
        "/a/rather/deep/directory/of/a/repository/with/a/long/path",
        "the model is away",
        claim.job.as_str(),
    ] {
        assert!(table.contains(whole), "{whole}: {table}");
    }
}

#[tokio::test]
async fn completed_job_with_problems_has_a_mark() {
    let stage = JobsFixture::new().await;
    let fine = stage.ended("fine", Ending::Completed).await;
    let troubled = stage.completed_with_problems().await;
    let table = stage.stdout_of(&["list"]);
    let line = |id: &JobId| {
        table
            .lines()
            .find(|line| line.starts_with(short(id)))
            .unwrap()
    };
    assert!(line(&troubled).contains("completed*"), "{table}");
    assert!(!line(&fine).contains('*'), "{table}");
    assert!(
        table.contains("* with problems: `codex-mcp jobs show ID`"),
        "{table}"
    );
    let page = stage.stdout_of(&["show", troubled.as_str()]);
    assert!(page.contains("with problems"), "{page}");
}

#[tokio::test]
async fn sandbox_of_a_running_job_is_that_of_its_thread() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let claim = stage.claim().await;
    let page = stage.stdout_of(&["show", id.as_str()]);
    assert!(
        page.contains("Sandbox   that of Codex's configuration"),
        "{page}"
    );
    let begun = json!({ "type": "thread.started", "thread_id": SESSION, "sandbox": "read-only" });
    stage.append(&claim, &[begun]).await;
    let page = stage.stdout_of(&["show", id.as_str()]);
    assert!(page.contains("Sandbox   read-only\n"), "{page}");
    let record = stage.json(&["show", "--json", id.as_str()]);
    assert_eq!(record["sandbox_in_force"], "read-only");
}

#[tokio::test]
async fn unknown_state_is_refused_with_the_known_states() {
    let stage = JobsFixture::new().await;
    for none in ["ended", "interrupted"] {
        let output = stage.run(&["list", "--status", none]);
        assert_eq!(output.code, 3, "{}", output.stderr);
        let known = "queued, running, completed, failed, cancelled";
        assert!(output.stderr.contains(known), "{}", output.stderr);
    }
}

#[tokio::test]
async fn threads_of_jobs_are_listed_beside_those_of_servers() {
    let stage = JobsFixture::new().await;
    stage
        .ended("find the sk-proj-0123456789abcdefghij", Ending::Completed)
        .await;
    let last = stage.ended("go on", Ending::Failed).await;
    let threads = |args: &[&str]| -> Value {
        let mut program = stage.program(&[&["threads", "--json"], args].concat());
        let output = program.output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        listed["threads"].clone()
    };
    let all = threads(&[]);
    let [thread] = all.as_array().unwrap().as_slice() else {
        panic!("{all:#}");
    };
    assert_eq!(thread["thread_id"], SESSION);
    assert_eq!(thread["job_id"], last.as_str());
    assert_eq!(thread["last_turn"], "failed");
    assert_eq!(thread["turns"], 2);
    let prompt = thread["prompt"].as_str().unwrap();
    assert!(prompt.starts_with("find the "), "{prompt}");
    assert!(!prompt.contains("0123456789"), "{prompt}");
    assert_eq!(threads(&["--status", "active"]), json!([]));
    assert_eq!(threads(&["--repo", "nothing"]), json!([]));
    assert_eq!(threads(&["--prune", "--older-than", "0s"]), json!([]));
}

#[tokio::test]
async fn missing_store_is_an_error_unless_a_job_is_submitted() {
    let stage = JobsFixture::new().await;
    let missing = stage.home.root().join("missing/jobs.db");
    let store = missing.to_str().unwrap();
    for args in [
        &["list", "--store", store][..],
        &["show", "--store", store, "aaaaaaaa"],
        &["prune", "--store", store],
    ] {
        let output = stage.run(args);
        assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{args:?}");
        assert!(
            output.stderr.contains("there is no job store"),
            "{}",
            output.stderr
        );
        assert!(!missing.parent().unwrap().exists(), "{args:?}");
    }
}

#[tokio::test]
async fn submitted_job_makes_no_directory_for_a_named_store() {
    let stage = JobsFixture::new().await;
    let missing = stage.home.root().join("missing/jobs.db");
    let output = stage.run(&["submit", "p", "--store", missing.to_str().unwrap()]);
    assert_eq!((output.code, output.stdout.as_str()), (3, ""));
    assert!(
        output.stderr.contains("there is no directory"),
        "{}",
        output.stderr
    );
    assert!(!missing.parent().unwrap().exists());
}

#[tokio::test]
async fn directory_of_a_store_that_a_setting_names_must_exist() {
    let stage = JobsFixture::new().await;
    let missing = stage.home.root().join("missing/jobs.db");
    for (args, code) in [
        (&["jobs", "list"][..], 3),
        (&["jobs", "submit", "p"], 3),
        (&["jobs", "prune"], 3),
        (&["cancel", "12345678"], 3),
        (&["logs", "12345678"], 3),
        (&["steer", "12345678", "x"], 3),
        (&["approve", "12345678"], 3),
        (&["ps", "--json"], 1),
        (&["threads"], 0),
    ] {
        let mut command = stage.program(args);
        let output = command.env("CODEX_MCP_STORE", &missing).output().unwrap();
        let output = CommandOutput::from(output);
        assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
        let words = "for the job store; correct $CODEX_MCP_STORE, or make the directory";
        assert!(output.stderr.contains(words), "{}", output.stderr);
        assert!(!missing.parent().unwrap().exists(), "{args:?}");
    }
}

#[tokio::test]
async fn job_is_resolved_by_id_prefix() {
    let stage = JobsFixture::new().await;
    for id in [
        "aaaaaaaa-0000-4000-8000-000000000001",
        "aaaaaaaa-0000-4000-8000-000000000002",
        "aaaaaaab-0000-4000-8000-000000000003",
    ] {
        let id = id.parse().unwrap();
        let request = Request {
            task_name: format!("task {HOSTILE}"),
            ..Request::new("p", "/repo")
        };
        stage.store.submit(&NewJob { id, request }).await.unwrap();
    }
    let shown = stage.json(&["show", "--json", "AAAAAAAB"]);
    assert_eq!(shown["job_id"], "aaaaaaab-0000-4000-8000-000000000003");
    for verb in ["show", "logs", "wait", "cancel", "resume", "retry"] {
        let output = stage.run(&[verb, "aaaaaaaa"]);
        assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{verb}");
        for end in ["1  queued", "2  queued", "several jobs begin with aaaaaaaa"] {
            assert!(output.stderr.contains(end), "{}", output.stderr);
        }
        assert!(!output.stderr.contains(['\u{1b}', '\u{9b}', '\u{7}']));
        let output = stage.run(&[verb, "bbbbbbbb"]);
        assert_eq!(output.code, 3, "{verb}");
        assert!(
            output.stderr.contains("there is no job bbbbbbbb"),
            "{}",
            output.stderr
        );
        for text in ["aaaaaaa", "aaaaaaa%", "../../etc/passwd"] {
            let output = stage.run(&[verb, text]);
            assert_eq!(output.code, 3, "{verb} {text}");
            assert!(
                output.stderr.contains("is not a job ID"),
                "{}",
                output.stderr
            );
        }
    }
}

#[tokio::test]
async fn job_is_shown_with_its_results_and_the_next_command() {
    let stage = JobsFixture::new().await;
    let prompt = format!("begin{}end", "ß".repeat(5000));
    let id = stage.ended(&prompt, Ending::Completed).await;
    let page = stage.stdout_of(&["show", short(&id)]);
    for words in [
        id.as_str(),
        "State     completed",
        "Thread    01a200a4",
        "attempt 1 of 1",
        "begin",
        "characters left out; --full",
        "end\n",
        "Final message\n  It is\n  done.\n",
        "Changed files\n  added    src/a b.rs\n",
        "Commands\n  exit 3   $ make test\n  and 2 that are not kept\n",
        "Usage of the thread\n  200 tokens read (40 from the cache), 20 written",
        "Warnings\n  an old model",
        "codex-mcp jobs resume",
    ] {
        assert!(page.contains(words), "{words:?} is missing: {page}");
    }
    assert!(!page.contains(&prompt) && !page.contains("Failed"));
    assert!(
        stage
            .stdout_of(&["show", "--full", short(&id)])
            .contains(&prompt)
    );

    let failed = stage.ended("p", Ending::Failed).await;
    let page = stage.stdout_of(&["show", failed.as_str()]);
    assert!(
        page.contains("Failed\n  the model is away\n  more\n"),
        "{page}"
    );
    assert!(page.contains("codex-mcp jobs retry"), "{page}");

    let shown = stage.json(&["show", "--json", short(&id)]);
    assert_eq!(shown["response"], "It is\ndone.");
    assert_eq!(shown["prompt"], prompt.as_str());
    assert_eq!(shown["metadata"], report());
    assert_eq!(shown["session_id"], SESSION);
}

/// A worker of a newer release may write a report that this release cannot parse.
#[tokio::test]
async fn job_with_an_unreadable_report_is_shown() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let claim = stage.claim().await;
    stage
        .finish(&claim, Ending::Completed, json!({"commands": 7}))
        .await;
    let page = stage.stdout_of(&["show", id.as_str()]);
    assert!(page.contains("It cannot be read: "), "{page}");
    let output = stage.run(&["wait", id.as_str()]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""));
}

#[tokio::test]
async fn old_jobs_are_pruned_and_listed() {
    let stage = JobsFixture::new().await;
    let mut ended = Vec::new();
    for ending in [Ending::Completed, Ending::Failed, Ending::Cancelled] {
        ended.push(stage.ended("p", ending).await.to_string());
    }
    let queued = stage.queued("waits").await;
    assert_eq!(stage.stdout_of(&["prune"]), "There is nothing to remove.\n");
    let told = stage.stdout_of(&["prune", "--older-than", "0s", "--dry-run"]);
    assert!(told.starts_with("Would remove 3 jobs:\n\nJOB "), "{told}");
    for id in &ended {
        assert!(told.contains(&id[..8]), "{told}");
    }
    let removed = stage.json(&["prune", "--older-than", "0s", "--json"]);
    assert_eq!(
        (&removed["removed"], &removed["total"]),
        (&json!(3), &json!(3))
    );
    let named = removed["jobs"].as_array().unwrap();
    let named: BTreeSet<&str> = named
        .iter()
        .map(|job| job["job_id"].as_str().unwrap())
        .collect();
    assert_eq!(named, ended.iter().map(String::as_str).collect());
    let left = stage.json(&["list", "--json"]);
    assert_eq!(left["jobs"][0]["job_id"], queued.as_str());
    assert_eq!(left["total"], 1);

    stage.claim().await;
    for _ in 0..21 {
        stage.ended("p", Ending::Completed).await;
    }
    let told = stage.stdout_of(&["prune", "--older-than", "0s"]);
    assert!(told.starts_with("Removing 21 jobs:\n\nJOB "), "{told}");
    assert!(told.ends_with("\nand 1 older ones\n"), "{told}");
    assert_eq!(stage.json(&["list", "--json"])["total"], 1);
}

#[tokio::test]
async fn location_without_a_store_is_refused() {
    let stage = JobsFixture::new().await;
    let directory = stage.home.work();
    let not = directory.join("README.md");
    for args in [&["list"][..], &["wait", "aaaaaaaa"], &["submit", "p"]] {
        let output = stage.run(&[args, &["--store", not.to_str().unwrap()]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{args:?}");
        assert!(
            output.stderr.contains("is not a job store"),
            "{}",
            output.stderr
        );
    }
    assert!(!directory.join("README.md.lock").exists());
    let output = stage.run(&["list", "--store", "redis://x"]);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("there is no store at redis"));
    let output = stage.command(&["list"]).env_clear().output().unwrap();
    let output = CommandOutput::from(output);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("neither ATM_HOME nor HOME"));
}

/// The output is larger than a pipe holds, and its reader is gone.
#[tokio::test]
async fn closed_stdout_is_no_failure() {
    let stage = JobsFixture::new().await;
    let id = stage.queued(&"long ".repeat(50_000)).await;
    let claim = stage.claim().await;
    let long = message(&"word ".repeat(100));
    stage.append(&claim, &vec![long; 2000]).await;
    stage
        .finish(
            &claim,
            Ending::Completed,
            json!({"response": "x".repeat(1 << 20)}),
        )
        .await;
    for verb in [
        &["show", "--full"][..],
        &["show", "--json"],
        &["logs"],
        &["logs", "--json"],
        &["wait"],
    ] {
        let mut running = stage.start(&[verb, &[id.as_str()]].concat());
        drop(running.child.stdout.take());
        let mut stderr = String::new();
        running.stderr.read_to_string(&mut stderr).unwrap();
        let code = running.child.wait().unwrap().code();
        assert_eq!(code, Some(0), "{verb:?}: {stderr}");
        assert!(!stderr.contains("error"), "{verb:?}: {stderr}");
    }
}
