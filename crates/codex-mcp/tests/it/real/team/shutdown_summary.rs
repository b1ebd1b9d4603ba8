//! Summaries at the end of a server, and `--resume`.

use std::fs;
use std::path::PathBuf;

use scripted_model::{Gate, Reply, Script};
use serde_json::{Value, json};
use testkit::process::{descendants, signal};
use testkit::wait::wait_for;
use testkit::{McpClient, Signal};

use super::super::{CodexFixture, quiet_client, structured, text, thread_of};
use super::{identity_directory, on_both_backends, wait_until, wait_until_processes_end};

/// The beginning of each request for a summary.
const REQUEST: &str = "The session ends now.";

fn script(summaries: Reply) -> Script {
    Script::new()
        .on(REQUEST, [summaries])
        .otherwise([Reply::say("ok")])
}

fn summarizing_model() -> Script {
    script(Reply::with(|request| {
        let asked = request.user_messages().join(" ");
        let which = if asked.contains("second") {
            "second"
        } else {
            "first"
        };
        Reply::say(format!("SUMMARY of the {which}"))
    }))
}

async fn client(stage: &CodexFixture, args: &[&str]) -> McpClient {
    let launch = stage.launch(args).env("CODEX_MCP_SUMMARIES", "true");
    quiet_client(&launch).await
}

async fn begin(client: &mut McpClient, prompt: &str) -> String {
    let begun = client.call_tool("codex", json!({"prompt": prompt})).await;
    thread_of(&begun)
}

fn summary_file(stage: &CodexFixture, thread: &str) -> PathBuf {
    identity_directory(stage, "arch")
        .join(thread)
        .join("summary.md")
}

fn status_of(stage: &CodexFixture, thread: &str) -> Value {
    entry_of(stage, thread)["status"].clone()
}

fn entry_of(stage: &CodexFixture, thread: &str) -> Value {
    let file = identity_directory(stage, "arch").join("registry.arch.json");
    let registry: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let threads = registry["threads"].as_array().unwrap();
    let entry = threads.iter().find(|entry| entry["thread_id"] == thread);
    entry.unwrap().clone()
}

#[tokio::test]
async fn threads_are_summarized_and_the_next_server_resumes_them() {
    on_both_backends(summarizing_model, async |stage, args| {
        // The end of input ends the server like a signal.
        for signal in [Some(Signal::SIGTERM), None] {
            let mut server = client(stage, args).await;
            let first = begin(&mut server, "first").await;
            let second = begin(&mut server, "second").await;
            match signal {
                Some(signal) => {
                    server.signal(signal);
                    assert!(server.exited().await.success());
                }
                None => assert!(server.finish().await.success()),
            }
            assert_eq!(stage.home.processes(), []);
            for (thread, which) in [(&first, "first"), (&second, "second")] {
                let summary = fs::read_to_string(summary_file(stage, thread)).unwrap();
                assert_eq!(summary.trim(), format!("SUMMARY of the {which}"));
                assert_eq!(status_of(stage, thread), "ended");
            }

            let instructions = |prompt: &str| -> String {
                let requests = stage.model.requests();
                let mut of_prompt = requests.iter().filter(|one| one.prompt() == prompt);
                of_prompt
                    .next_back()
                    .unwrap()
                    .developer_messages()
                    .join("\n")
            };
            let resume = [args, &["--no-summaries", "--resume"]].concat();
            let mut server = client(stage, &[&resume[..], &[&first]].concat()).await;
            let mine = json!({"prompt": "third", "developer-instructions": "MINE"});
            server.call_tool("codex", mine).await;
            let said = instructions("third");
            let places = ["SUMMARY of the first", "MINE", "Session context"];
            let places = places.map(|part| said.find(part).unwrap_or_else(|| panic!("{said}")));
            assert!(places.is_sorted(), "{said}");
            begin(&mut server, "fourth").await;
            assert!(!instructions("fourth").contains("SUMMARY"));
            server.finish().await;
        }
    })
    .await;
}

#[tokio::test]
async fn resume_without_a_thread_takes_the_last_one() {
    on_both_backends(summarizing_model, async |stage, args| {
        let mut server = client(stage, args).await;
        begin(&mut server, "first").await;
        let second = begin(&mut server, "second").await;
        begin(&mut server, "another").await;
        let reply = json!({"prompt": "more", "threadId": second});
        server.call_tool("codex-reply", reply).await;
        server.finish().await;
        let mut server = client(stage, &[args, &["--no-summaries", "--resume"]].concat()).await;
        // A refused call does not use up the summary.
        let nowhere = json!({"prompt": "x", "sandbox": "made-up"});
        let refused = server.call_tool("codex", nowhere).await;
        assert_eq!(refused["isError"], true, "{refused:#}");
        begin(&mut server, "third").await;
        let requests = stage.model.requests();
        let instructions = requests.last().unwrap().developer_messages().join("\n");
        assert!(
            instructions.contains("SUMMARY of the second"),
            "{instructions}"
        );
        server.finish().await;
    })
    .await;
}

#[tokio::test]
async fn killed_server_leaves_no_summary_and_resume_warns() {
    on_both_backends(summarizing_model, async |stage, args| {
        let mut server = client(stage, args).await;
        let thread = begin(&mut server, "first").await;
        server.signal(Signal::SIGKILL);
        server.exited().await;
        drop(server);
        wait_until_processes_end(stage).await;
        assert!(!summary_file(stage, &thread).exists());
        let mut server = client(stage, &[args, &["--resume"]].concat()).await;
        let is_interrupted = || status_of(stage, &thread) == "interrupted";
        wait_until("the thread is interrupted", is_interrupted).await;
        let begun = server.call_tool("codex", json!({"prompt": "again"})).await;
        assert_eq!(text(&begun, 0), "ok");
        let warned = format!("without a summary: {thread} has none");
        assert!(server.stderr().contains(&warned), "{}", server.stderr());
        server.signal(Signal::SIGTERM);
        server.exited().await;
    })
    .await;
}

#[tokio::test]
async fn unknown_thread_to_resume_is_a_warning() {
    on_both_backends(summarizing_model, async |stage, args| {
        let unknown = "0199a213-81c0-7800-8aa1-bbab2a035a53";
        let resume = [args, &["--no-summaries", "--resume", unknown]].concat();
        let mut server = client(stage, &resume).await;
        let begun = server.call_tool("codex", json!({"prompt": "again"})).await;
        assert_eq!(text(&begun, 0), "ok");
        let status = server.call_tool("codex_status", json!({})).await;
        let warnings = structured(&status)["warnings"].to_string();
        for told in [&warnings, &server.stderr()] {
            assert!(
                told.contains("there is no thread") && told.contains("codex-mcp threads"),
                "{told}"
            );
        }
        server.finish().await;
    })
    .await;
}

/// The server asks all threads at the same time: three hanging ones are asked before it gives up on
/// any.
#[tokio::test]
async fn hanging_threads_are_summarized_at_the_same_time() {
    let gate = Gate::new();
    on_both_backends(
        || script(Reply::say("too late").behind(&gate)),
        async |stage, args| {
            let mut server = client(stage, args).await;
            for prompt in ["one", "two", "three"] {
                begin(&mut server, prompt).await;
            }
            let before = gate.arrivals();
            server.signal(Signal::SIGTERM);
            gate.reached(before + 3).await;
            assert!(server.exited().await.success());
            assert_eq!(stage.home.processes(), []);
        },
    )
    .await;
}

/// A summary from before the last turn of a thread is outdated.
#[tokio::test]
async fn outdated_summary_is_not_used() {
    on_both_backends(summarizing_model, async |stage, args| {
        let mut server = client(stage, args).await;
        let thread = begin(&mut server, "first").await;
        server.finish().await;
        assert_eq!(status_of(stage, &thread), "ended");
        // Only this backend can resume a thread after a restart.
        if args.contains(&"app-server") {
            let mut server = client(stage, args).await;
            let reply = json!({"prompt": "more", "threadId": thread});
            server.call_tool("codex-reply", reply).await;
            server.call_tool("codex_threads", json!({})).await;
            server.signal(Signal::SIGKILL);
            server.exited().await;
            drop(server);
            wait_until_processes_end(stage).await;
            let mut server = client(stage, &[args, &["--no-summaries", "--resume"]].concat()).await;
            begin(&mut server, "again").await;
            let requests = stage.model.requests();
            let instructions = requests.last().unwrap().developer_messages().join("\n");
            assert!(!instructions.contains("SUMMARY"), "{instructions}");
            server.finish().await;
        }
    })
    .await;
}

/// The app-server is restarted; Codex's own MCP server could not resume its threads.
#[tokio::test]
async fn crashed_codex_is_restarted_for_summaries() {
    on_both_backends(summarizing_model, async |stage, args| {
        let mut server = client(stage, args).await;
        let thread = begin(&mut server, "first").await;
        let before = stage.model.requests().len();
        // The first descendant is the guard, the second Codex.
        let codex = descendants(server.pid())[1];
        signal(codex, Signal::SIGKILL);
        wait_for("the end of Codex", async || {
            let status = super::call_ok(&mut server, "codex_status", json!({})).await;
            (status["codex"]["state"] != "ready").then_some(())
        })
        .await;
        server.finish().await;
        let asked = stage.model.requests().len() - before;
        let expected = match args.contains(&"app-server") {
            true => (1, "ended"),
            false => (0, "interrupted"),
        };
        let status = status_of(stage, &thread);
        assert_eq!((asked, status.as_str().unwrap()), expected);
    })
    .await;
}

/// The server waits ten seconds for a summary.
#[tokio::test]
async fn thread_without_a_summary_in_time_is_interrupted() {
    let gate = Gate::new();
    let hangs = Reply::say("too late").behind(&gate);
    on_both_backends(
        || {
            let hangs = hangs.clone();
            script(Reply::with(move |request| {
                match request.user_messages().join(" ").contains("second") {
                    true => hangs.clone(),
                    false => Reply::say("SUMMARY"),
                }
            }))
        },
        async |stage, args| {
            let mut server = client(stage, args).await;
            let hanging = begin(&mut server, "second").await;
            let quick = begin(&mut server, "first").await;
            server.signal(Signal::SIGTERM);
            assert!(server.exited().await.success());
            assert_eq!(status_of(stage, &hanging), "interrupted");
            assert_eq!(
                entry_of(stage, &hanging)["no_summary"],
                "Codex gave none in time"
            );
            assert!(!summary_file(stage, &hanging).exists());
            assert_eq!(status_of(stage, &quick), "ended");
            assert_eq!(stage.home.processes(), []);

            // A second signal ends the wait at once.
            let mut server = client(stage, args).await;
            let hanging = begin(&mut server, "second").await;
            server.signal(Signal::SIGTERM);
            let asked = || {
                let requests = stage.model.requests();
                let asked = requests
                    .iter()
                    .filter(|one| one.prompt().starts_with(REQUEST));
                asked.filter(|one| one.thread_id() == hanging).count()
            };
            wait_until("the question for a summary", || asked() > 0).await;
            server.signal(Signal::SIGTERM);
            assert!(server.exited().await.success());
            assert_eq!(status_of(stage, &hanging), "interrupted");
        },
    )
    .await;
}

/// The server ends the turn first, as the request would otherwise become part of it.
#[tokio::test]
async fn thread_in_the_middle_of_a_turn_is_summarized() {
    let gate = Gate::new();
    on_both_backends(
        || {
            Script::new()
                .on(REQUEST, [Reply::say("SUMMARY")])
                .on(
                    "hang",
                    [Reply::stream(["So far"]).then(Reply::say("").behind(&gate))],
                )
                .otherwise([Reply::say("ok")])
        },
        async |stage, args| {
            let mut server = client(stage, args).await;
            let thread = begin(&mut server, "first").await;
            let reached = gate.arrivals();
            let reply = json!({"prompt": "hang", "threadId": thread});
            let call = server.request_tool("codex-reply", reply);
            gate.reached(reached + 1).await;
            server.signal(Signal::SIGTERM);
            let answer = server.result(&call).await;
            assert_eq!(answer["isError"], true);
            assert!(server.exited().await.success());
            assert_eq!(status_of(stage, &thread), "ended");
            let summary = fs::read_to_string(summary_file(stage, &thread)).unwrap();
            assert_eq!(summary.trim(), "SUMMARY");
        },
    )
    .await;
}
