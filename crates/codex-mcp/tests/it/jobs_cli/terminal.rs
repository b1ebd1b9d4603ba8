//! What a person sees in a terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use codex_mcp_core::job::Ending;
use nix::pty::openpty;

use super::*;

/// What our own programs write to a terminal: colours, and how a line is drawn again.
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

/// A program whose streams are a terminal.
struct Terminal {
    child: Child,
    screen: File,
    seen: String,
}

impl Stage {
    fn on_terminal(&self, args: &[&str]) -> Terminal {
        let pty = openpty(None, None).unwrap();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let child = self
            .command(args)
            .env("TERM", "xterm-256color")
            .stdin(end(&pty.slave))
            .stdout(end(&pty.slave))
            .stderr(end(&pty.slave))
            .spawn()
            .unwrap();
        Terminal {
            child,
            screen: pty.master.into(),
            seen: String::new(),
        }
    }
}

impl Terminal {
    /// Reads until this was shown.
    fn shows(&mut self, words: &str) {
        while !self.seen.contains(words) {
            assert!(self.read(), "it ended without {words:?}: {:?}", self.seen);
        }
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // Linux answers EIO when nobody has the other end any more.
        let length = self.screen.read(&mut bytes).unwrap_or(0);
        self.seen
            .push_str(&String::from_utf8_lossy(&bytes[..length]));
        length > 0
    }

    /// All that was shown, and the exit code.
    fn ends(mut self) -> (String, Option<i32>) {
        while self.read() {}
        (self.seen, self.child.wait().unwrap().code())
    }
}

#[track_caller]
fn assert_harmless(seen: &str) {
    let mut rest = seen.replace("\r\n", "\n");
    for ours in OURS {
        rest = rest.replace(ours, "");
    }
    // A line that is drawn again begins so.
    let rest = rest.replace('\r', "");
    let control = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    assert!(!rest.contains(control), "{rest:?}");
}

#[tokio::test]
async fn nothing_that_is_shown_does_something_to_the_terminal() {
    let stage = Stage::new().await;
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
    let how = Finished {
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
        let (seen, ended) = stage.on_terminal(args).ends();
        assert_eq!(ended, Some(code), "{args:?}: {seen}");
        assert!(!seen.is_empty(), "{args:?}");
        assert_harmless(&seen);
    }
    stage.queued("p").await;
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Completed, report).await;
    let id = claim.job.as_str();
    let (seen, code) = stage.on_terminal(&["wait", id]).ends();
    assert_eq!(code, Some(0));
    assert_harmless(&seen);
    // For a program it is as Codex has said it.
    let said = stage.say(&["wait", id]);
    assert_eq!(said.stdout, format!("{HOSTILE}\n"));
}

#[tokio::test]
async fn states_have_colours_and_a_job_a_word_of_what_to_do_next() {
    let stage = Stage::new().await;
    let id = stage.ended("p", Ending::Completed).await;
    for args in [&["list"][..], &["show", id.as_str()]] {
        let (seen, _) = stage.on_terminal(args).ends();
        assert!(seen.contains("\u{1b}[32mcompleted\u{1b}[0m"), "{seen:?}");
    }
    let (seen, code) = stage.on_terminal(&["submit", "q"]).ends();
    assert_eq!(code, Some(0), "{seen}");
    let id = seen.lines().next().unwrap().trim_end();
    let next = format!("codex-mcp jobs wait {}", &id[..8]);
    assert!(seen.contains(&next), "{seen}");
    let (seen, code) = stage.on_terminal(&["submit"]).ends();
    assert_eq!(code, Some(3));
    assert!(seen.contains("say what Codex is to do"), "{seen}");
}

#[tokio::test]
async fn progress_is_one_line_that_is_drawn_again() {
    let stage = Stage::new().await;
    let id = stage.queued("p").await;
    let mut terminal = stage.on_terminal(&["wait", short(&id)]);
    terminal.shows("queued 0s");
    let claim = stage.claim().await;
    terminal.shows("running");
    stage.append(&claim, &[command("started", None)]).await;
    terminal.shows("$ make test");
    stage.finish(&claim, Ending::Completed, report()).await;
    let (seen, code) = terminal.ends();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.ends_with("done.\r\n"), "{seen:?}");
    // No line stays but that of the end, and the message.
    assert_eq!(seen.matches('\n').count(), 3, "{seen:?}");
    assert_harmless(&seen);
}
