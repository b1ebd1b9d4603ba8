//! The output on a terminal.

use job_queue::logic::Ending;

use super::*;
use crate::terminal::Terminal;

/// The sequences that codex-mcp itself writes: colours, and redrawing of a line.
const OURS: [&str; 9] = [
    "\u{1b}[0m",
    "\u{1b}[1m",
    "\u{1b}[31m",
    "\u{1b}[32m",
    "\u{1b}[33m",
    "\u{1b}[36m",
    "\u{1b}[K",
    "\u{1b}[?7l",
    "\u{1b}[?7h",
];

impl JobsFixture {
    fn on_terminal(&self, args: &[&str]) -> Terminal {
        Terminal::runs(self.command(args))
    }
}

#[track_caller]
fn assert_harmless(seen: &str) {
    let mut rest = seen.replace("\r\n", "\n");
    for ours in OURS {
        rest = rest.replace(ours, "");
    }
    // A carriage return begins a line that is redrawn.
    let rest = rest.replace('\r', "");
    let control = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    assert!(!rest.contains(control), "{rest:?}");
}

#[tokio::test]
async fn hostile_texts_are_harmless_on_a_terminal() {
    let stage = JobsFixture::new().await;
    let id = stage
        .submit(Request {
            task_name: HOSTILE.to_owned(),
            tool_name: HOSTILE.to_owned(),
            model_override: Some(HOSTILE.to_owned()),
            agent_source: Some(HOSTILE.to_owned()),
            images: vec![HOSTILE.to_owned()],
            ..Request::new(HOSTILE, format!("/{HOSTILE}"))
        })
        .await;
    let claim = stage.claim().await;
    let mut events = events();
    events.extend([message(HOSTILE), json!({"type": HOSTILE})]);
    stage.append(&claim, &events).await;
    let odd = NewEvent {
        kind: HOSTILE.to_owned(),
        data: HOSTILE.to_owned(),
    };
    stage.store.append(&claim, &[odd]).await.unwrap();
    let mut report = report();
    report["response"] = json!(HOSTILE);
    report["commands"][0]["command"] = json!(HOSTILE);
    report["changed_files"][0]["path"] = json!(HOSTILE);
    report["warnings"] = json!([HOSTILE]);
    report["stderr"] = json!(HOSTILE);
    report["failure"] = json!({"class": "x", "message": HOSTILE, "hint": HOSTILE});
    let how = FinishedJob {
        ending: Ending::Failed,
        error: Some(HOSTILE.to_owned()),
        session_id: Some(HOSTILE.to_owned()),
        exchange_id: None,
        result: Some(report.clone()),
    };
    stage.store.finish(&claim, &how).await.unwrap();
    let id = id.as_str();
    for (args, code) in [
        (&["list"][..], 0),
        (&["list", "--json"], 0),
        (&["show", id], 0),
        (&["show", "--full", id], 0),
        (&["show", "--json", id], 0),
        (&["logs", id], 0),
        (&["logs", "--json", id], 0),
        (&["wait", id], 1),
        (&["wait", "--json", id], 1),
        (&["resume", id, "p"], 3),
        (&["cancel", id], 1),
        (&["prune", "--older-than", "0s", "--dry-run"], 0),
    ] {
        let (seen, ended) = stage.on_terminal(args).ends().await;
        assert_eq!(ended, Some(code), "{args:?}: {seen}");
        assert!(!seen.is_empty(), "{args:?}");
        assert_harmless(&seen);
    }
    stage.queued("p").await;
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Completed, report).await;
    let id = claim.job.as_str();
    let (seen, code) = stage.on_terminal(&["wait", id]).ends().await;
    assert_eq!(code, Some(0));
    assert_harmless(&seen);
    // A pipe gets Codex's answer byte for byte.
    let output = stage.run(&["wait", id]);
    assert_eq!(output.stdout, format!("{HOSTILE}\n"));
}

#[tokio::test]
async fn states_are_coloured_and_submit_names_the_next_command() {
    let stage = JobsFixture::new().await;
    let id = stage.ended("p", Ending::Completed).await;
    for args in [&["list"][..], &["show", id.as_str()]] {
        let (seen, _) = stage.on_terminal(args).ends().await;
        assert!(seen.contains("\u{1b}[32mcompleted\u{1b}[0m"), "{seen:?}");
    }
    let (seen, code) = stage.on_terminal(&["submit", "q"]).ends().await;
    assert_eq!(code, Some(0), "{seen}");
    let id = seen.lines().next().unwrap().trim_end();
    let next = format!("codex-mcp jobs wait {}", &id[..8]);
    assert!(seen.contains(&next), "{seen}");
    let detached = stage.program(&["run", "--detach", "q"]);
    let (seen, code) = Terminal::runs(detached).ends().await;
    assert_eq!(code, Some(0), "{seen}");
    let id = &seen[..8];
    for verb in ["wait", "logs -f", "cancel"] {
        let next = format!("`codex-mcp jobs {verb} {id}`");
        assert!(seen.contains(&next), "{seen}");
    }
    let (seen, code) = stage.on_terminal(&["submit"]).ends().await;
    assert_eq!(code, Some(3));
    assert!(seen.contains("say what Codex is to do"), "{seen}");
}

/// `codex-mcp top` marks what `jobs list` marks.
#[tokio::test]
async fn completed_job_with_problems_is_marked_in_top() {
    let stage = JobsFixture::new().await;
    stage.completed_with_problems().await;
    let list = stage.stdout_of(&["list"]);
    assert!(list.contains(" completed* "), "{list}");
    let mut command = stage.home.command("bash");
    let sized = "stty rows 24 columns 80; exec \"$0\" top";
    command.args(["-c", sized, env!("CARGO_BIN_EXE_codex-mcp")]);
    command.env("CODEX_MCP_STORE", stage.location.with_secrets());
    let mut terminal = Terminal::runs(command).shows("completed*").await;
    terminal.types("q");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
}

#[tokio::test]
async fn progress_is_one_line_that_is_redrawn() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let terminal = stage.on_terminal(&["wait", short(&id)]);
    let terminal = terminal.shows("queued 0s").await;
    let claim = stage.claim().await;
    let terminal = terminal.shows("running").await;
    stage.append(&claim, &[command("started", None)]).await;
    let terminal = terminal.shows("running make test, 1 s").await;
    stage.finish(&claim, Ending::Completed, report()).await;
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.ends_with("done.\r\n"), "{seen:?}");
    // Only the last state and the two lines of the message stay.
    assert_eq!(seen.matches('\n').count(), 3, "{seen:?}");
    assert_harmless(&seen);
}
