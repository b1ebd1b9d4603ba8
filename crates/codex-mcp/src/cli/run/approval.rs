//! What Codex's questions are answered at a shell.

use std::io::{self, IsTerminal};
use std::time::Duration;

use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::approval_text;
use codex_protocol::codex::Ask;
use goal_run::order::Approve;
use goal_run::watcher::Leave;
use nix::sys::termios::{FlushArg, tcflush};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep};

/// How long a line that was typed before a question may be on its way to us.
const ON_ITS_WAY: Duration = Duration::from_millis(50);

/// How many lines are kept that answer nothing yet.
const LINES: usize = 64;

/// How often the time left to answer is shown.
const TICK: Duration = Duration::from_secs(1);

/// What a person is asked whose run needs to write and may not.
const READ_ONLY: &str = "\
The sandbox is read-only here, and what is asked for has to be written.
  Go on with --sandbox workspace-write, for this run alone? [y/N]";

/// Where questions are put to a person.
pub(super) trait Dialog {
    /// Shows lines that stay.
    fn put(&self, lines: &str);

    /// Shows how much time is left to answer, where a line can be drawn again.
    fn count_down(&self, left: Duration);
}

/// Answers.
pub(super) struct Approver {
    approve: Approve,
    /// Who is asked, one question at a time. Nothing is read before the first.
    person: Mutex<Option<mpsc::Receiver<String>>>,
}

impl Approver {
    pub(super) fn new(approve: Approve) -> Self {
        Self {
            approve,
            person: Mutex::new(None),
        }
    }

    /// The answer, at the latest at `until`.
    pub(super) async fn decide(
        &self,
        ask: &Ask,
        until: Instant,
        dialog: &impl Dialog,
    ) -> (DecidedBy, Decision) {
        match self.approve {
            Approve::Always => (DecidedBy::Settings, Decision::Accept),
            Approve::Never => (DecidedBy::Settings, Decision::Decline),
            Approve::Ask => self.ask(ask, until, dialog).await,
        }
    }

    /// Whether Codex may write, by what a person at a terminal says.
    pub(super) async fn lets_write(&self, dialog: &impl Dialog) -> Leave {
        if self.approve != Approve::Ask || !io::stdin().is_terminal() {
            return Leave::Refused;
        }
        let mut person = self.person.lock().await;
        let lines = person.get_or_insert_with(read_on);
        forget_what_was_typed(lines).await;
        dialog.put(READ_ONLY);
        let answer = lines.recv().await.unwrap_or_default();
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Leave::Given,
            _ => Leave::Refused,
        }
    }

    async fn ask(&self, ask: &Ask, until: Instant, dialog: &impl Dialog) -> (DecidedBy, Decision) {
        let mut person = self.person.lock().await;
        let lines = person.get_or_insert_with(read_on);
        if io::stdin().is_terminal() {
            forget_what_was_typed(lines).await;
        }
        let question = approval_text::question(ask);
        loop {
            dialog.put(&format!(
                "{question}\n  Allow it? y: yes, a: yes, for the like of it too, n: no"
            ));
            let answer = match line(lines, until, dialog).await {
                Line::Typed(answer) => answer,
                Line::Nobody => return (DecidedBy::Nobody, Decision::Decline),
                Line::TooLate => {
                    dialog.put("  not answered in time, so it is declined");
                    return (DecidedBy::Nobody, Decision::Decline);
                }
            };
            let decision = match answer.trim().to_lowercase().as_str() {
                "y" | "yes" => Decision::Accept,
                "a" | "always" => Decision::AcceptForSession,
                "n" | "no" => Decision::Decline,
                _ => continue,
            };
            return (DecidedBy::Terminal, decision);
        }
    }
}

/// What a person has typed.
enum Line {
    Typed(String),
    /// Nobody types any more.
    Nobody,
    TooLate,
}

/// The next line, at the latest at `until`. The time left is shown meanwhile.
async fn line(lines: &mut mpsc::Receiver<String>, until: Instant, dialog: &impl Dialog) -> Line {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Line::TooLate;
        }
        dialog.count_down(left);
        tokio::select! {
            line = lines.recv() => return line.map_or(Line::Nobody, Line::Typed),
            () = sleep(left.min(TICK)) => {}
        }
    }
}

/// Reads what is typed, line by line, from now on.
fn read_on() -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::channel(LINES);
    tokio::spawn(async move {
        let mut lines = BufReader::new(stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if tell.send(line).await.is_err() {
                break;
            }
        }
    });
    told
}

/// What was typed before a question is no answer to it: it may have been meant for one
/// that nobody waits for any more.
async fn forget_what_was_typed(lines: &mut mpsc::Receiver<String>) {
    if let Err(error) = tcflush(io::stdin(), FlushArg::TCIFLUSH) {
        tracing::debug!("what was typed half is still there: {error}");
    }
    sleep(ON_ITS_WAY).await;
    while lines.try_recv().is_ok() {}
}
