//! What there is: `list`, `show`, `prune`, and how jobs are named.

use std::collections::BTreeSet;

use job_queue::logic::Ending;
use job_queue::store::{NewJob, Request};

use super::*;
use crate::terminal::Terminal;

#[tokio::test]
async fn without_jobs_there_is_a_word_of_how_to_get_some() {
    let stage = Stage::new().await;
    assert!(stage.told(&["list"]).contains("There are no jobs yet"));
    assert_eq!(
        stage.json(&["list", "--json"]),
        json!({"jobs": [], "total": 0})
    );
    let filtered = stage.told(&["list", "--tool", "x"]);
    assert!(filtered.contains("There are no such jobs"), "{filtered}");
    let pruned = stage.told(&["prune"]);
    assert_eq!(pruned, "There is nothing to remove.\n");
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_can_be_chosen() {
    let stage = Stage::new().await;
    let failed = stage.ended("first", Ending::Failed).await;
    let elsewhere = stage
        .submit(Request {
            task_name: "else".to_owned(),
            ..Request::new("p", "/elsewhere")
        })
        .await;
    let queued = stage.queued("third").await;

    let table = stage.told(&["list"]);
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
            .told(&["list", "--limit", "2"])
            .ends_with("\n2 of 3\n")
    );
}

#[tokio::test]
async fn list_fits_a_terminal_and_is_whole_in_a_pipe() {
    let stage = Stage::new().await;
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

    let table = stage.told(&["list"]);
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
    let stage = Stage::new().await;
    let fine = stage.ended("fine", Ending::Completed).await;
    let troubled = stage.queued("troubled").await;
    let claim = stage.claim().await;
    let mut result = report();
    result["failed_steps"] = json!([{ "kind": "command", "what": "touch x",
        "outcome": "blocked", "exit_code": 1 }]);
    result["sandbox"] = json!("read-only");
    stage.finish(&claim, Ending::Completed, result).await;
    let table = stage.told(&["list"]);
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
    let page = stage.told(&["show", troubled.as_str()]);
    assert!(page.contains("with problems"), "{page}");
}

#[tokio::test]
async fn state_that_is_none_is_refused_with_those_that_there_are() {
    let stage = Stage::new().await;
    for none in ["ended", "interrupted"] {
        let said = stage.say(&["list", "--status", none]);
        assert_eq!(said.code, 3, "{}", said.stderr);
        let known = "queued, running, completed, failed, cancelled";
        assert!(said.stderr.contains(known), "{}", said.stderr);
    }
}

#[tokio::test]
async fn threads_of_jobs_are_listed_beside_those_of_servers() {
    let stage = Stage::new().await;
    stage
        .ended("find the sk-proj-0123456789abcdefghij", Ending::Completed)
        .await;
    let last = stage.ended("go on", Ending::Failed).await;
    let threads = |args: &[&str]| -> Value {
        let mut command = stage.command(&[]);
        let program = command.get_program().to_owned();
        let variables: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = Command::new(program);
        command
            .env_clear()
            .envs(variables)
            .current_dir(stage.home.work());
        let output = command
            .arg("threads")
            .arg("--json")
            .args(args)
            .output()
            .unwrap();
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
    let stage = Stage::new().await;
    let missing = stage.home.root().join("missing/jobs.db");
    let store = missing.to_str().unwrap();
    for args in [
        &["list", "--store", store][..],
        &["show", "--store", store, "aaaaaaaa"],
        &["prune", "--store", store],
    ] {
        let said = stage.say(args);
        assert_eq!((said.code, said.stdout.as_str()), (3, ""), "{args:?}");
        assert!(
            said.stderr.contains("there is no job store"),
            "{}",
            said.stderr
        );
        assert!(!missing.parent().unwrap().exists(), "{args:?}");
    }
}

#[tokio::test]
async fn a_job_is_named_by_how_its_id_begins() {
    let stage = Stage::new().await;
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
        let said = stage.say(&[verb, "aaaaaaaa"]);
        assert_eq!((said.code, said.stdout.as_str()), (3, ""), "{verb}");
        for end in ["1  queued", "2  queued", "several jobs begin with aaaaaaaa"] {
            assert!(said.stderr.contains(end), "{}", said.stderr);
        }
        assert!(!said.stderr.contains(['\u{1b}', '\u{9b}', '\u{7}']));
        let said = stage.say(&[verb, "bbbbbbbb"]);
        assert_eq!(said.code, 3, "{verb}");
        assert!(
            said.stderr.contains("there is no job bbbbbbbb"),
            "{}",
            said.stderr
        );
        for text in ["aaaaaaa", "aaaaaaa%", "../../etc/passwd"] {
            let said = stage.say(&[verb, text]);
            assert_eq!(said.code, 3, "{verb} {text}");
            assert!(said.stderr.contains("is no job"), "{}", said.stderr);
        }
    }
}

#[tokio::test]
async fn a_job_is_shown_with_all_that_has_come_of_it() {
    let stage = Stage::new().await;
    let prompt = format!("begin{}end", "ß".repeat(5000));
    let id = stage.ended(&prompt, Ending::Completed).await;
    let page = stage.told(&["show", short(&id)]);
    for words in [
        id.as_str(),
        "State     completed",
        "Session   01a200a4",
        "attempt 1 of 1",
        "begin",
        "characters left out; --full",
        "end\n",
        "Final message\n  It is\n  done.\n",
        "Changed files\n  added    src/a b.rs\n",
        "Commands\n  exit 3   $ make test\n  and 2 that are not kept\n",
        "200 tokens read (40 from the cache), 20 written",
        "Warnings\n  an old model",
        "codex-mcp jobs resume",
    ] {
        assert!(page.contains(words), "{words:?} is missing: {page}");
    }
    assert!(!page.contains(&prompt) && !page.contains("Failed"));
    assert!(
        stage
            .told(&["show", "--full", short(&id)])
            .contains(&prompt)
    );

    let failed = stage.ended("p", Ending::Failed).await;
    let page = stage.told(&["show", failed.as_str()]);
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

/// A worker of a newer program may write what we can't read.
#[tokio::test]
async fn a_report_that_cannot_be_read_is_no_obstacle() {
    let stage = Stage::new().await;
    let id = stage.queued("p").await;
    let claim = stage.claim().await;
    stage
        .finish(&claim, Ending::Completed, json!({"commands": 7}))
        .await;
    let page = stage.told(&["show", id.as_str()]);
    assert!(page.contains("It can't be read: "), "{page}");
    let said = stage.say(&["wait", id.as_str()]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
}

#[tokio::test]
async fn old_jobs_are_removed_and_said() {
    let stage = Stage::new().await;
    let mut ended = Vec::new();
    for ending in [Ending::Completed, Ending::Failed, Ending::Cancelled] {
        ended.push(stage.ended("p", ending).await.to_string());
    }
    let queued = stage.queued("waits").await;
    assert_eq!(stage.told(&["prune"]), "There is nothing to remove.\n");
    let told = stage.told(&["prune", "--older-than", "0s", "--dry-run"]);
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
    let told = stage.told(&["prune", "--older-than", "0s"]);
    assert!(told.starts_with("Removing 21 jobs:\n\nJOB "), "{told}");
    assert!(told.ends_with("\nand 1 older ones\n"), "{told}");
    assert_eq!(stage.json(&["list", "--json"])["total"], 1);
}

#[tokio::test]
async fn what_is_no_store_is_said() {
    let stage = Stage::new().await;
    let directory = stage.home.work();
    let not = directory.join("README.md");
    for args in [&["list"][..], &["wait", "aaaaaaaa"], &["submit", "p"]] {
        let said = stage.say(&[args, &["--store", not.to_str().unwrap()]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (3, ""), "{args:?}");
        assert!(said.stderr.contains("is no job store"), "{}", said.stderr);
    }
    let said = stage.say(&["list", "--store", "redis://x"]);
    assert_eq!(said.code, 3);
    assert!(said.stderr.contains("there is no store at redis"));
    let output = stage.command(&["list"]).env_clear().output().unwrap();
    let said = Said::from(output);
    assert_eq!(said.code, 3);
    assert!(said.stderr.contains("neither ATM_HOME nor HOME"));
}

/// More than a pipe holds, to a reader that is gone.
#[tokio::test]
async fn a_reader_that_has_read_enough_is_no_failure() {
    let stage = Stage::new().await;
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
