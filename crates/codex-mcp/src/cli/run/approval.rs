//! Answers to Codex's approval requests at a shell.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::time::Duration;

use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::approval_text;
use codex_protocol::codex::Ask;
use goal_run::spec::Approve;
use goal_run::watcher::WriteConsent;
use nix::sys::termios::{FlushArg, tcflush};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, timeout};

/// The time that the next line may take to reach us if it was typed before a question.
const IN_TRANSIT: Duration = Duration::from_millis(50);

/// How many unread lines are kept.
const LINES: usize = 64;

/// How often the time left to answer is shown.
const TICK: Duration = Duration::from_secs(1);

/// The question to a person whose run needs to write but has a read-only sandbox.
const READ_ONLY: &str = "\
The sandbox is read-only here, and what is asked for has to be written.
  Go on with --sandbox workspace-write, for this run and its thread? [y/N]";

/// The advice where questions are declined because nobody can be asked.
pub(super) const NO_TERMINAL: &str = "Codex's questions are declined, as there is no terminal to \
    ask you; --approve always allows what it asks for";

/// The answers to a question.
const ALLOW: &str = "  Allow it? y: yes, a: yes, also for similar ones, n: no";

/// The output for questions to a person.
pub(super) trait Dialog {
    /// Shows lines that stay.
    fn put(&self, lines: &str);

    /// Shows how much time is left to answer, where a line can be drawn again.
    fn count_down(&self, left: Duration);
}

/// Answers approval requests, by policy or by asking a person.
pub(super) struct Approver {
    approve: Approve,
    /// Whether the policy is the default, as the command line names none.
    is_default: bool,
    /// Whether a question was declined because there is no terminal.
    missed_terminal: Cell<bool>,
    /// The lines that the person types, used by one question at a time. No line is read before the
    /// first question.
    person: Mutex<Option<mpsc::Receiver<String>>>,
}

impl Approver {
    /// Answers by the policy that the user has chosen, or else by the usual one.
    pub(super) fn new(chosen: Option<Approve>, usual: Approve) -> Self {
        Self {
            approve: chosen.unwrap_or(usual),
            is_default: chosen.is_none(),
            missed_terminal: Cell::new(false),
            person: Mutex::new(None),
        }
    }

    /// Whether a question was declined because there is no terminal.
    pub(super) fn missed_terminal(&self) -> bool {
        self.missed_terminal.get()
    }

    /// Decides on an approval request, by the time `until` at the latest.
    pub(super) async fn decide(
        &self,
        ask: &Ask,
        until: Instant,
        dialog: &impl Dialog,
    ) -> (DecidedBy, Decision) {
        match self.approve {
            Approve::Always => (DecidedBy::Settings, Decision::Accept),
            Approve::Never => {
                if self.is_default && !self.missed_terminal.replace(true) {
                    dialog.put(&format!("  {NO_TERMINAL}"));
                }
                (DecidedBy::Settings, Decision::Decline)
            }
            Approve::Ask => self.ask(ask, until, dialog).await,
        }
    }

    /// Asks a person at a terminal whether Codex may write.
    pub(super) async fn allows_writing(&self, dialog: &impl Dialog) -> WriteConsent {
        if self.approve != Approve::Ask || !io::stdin().is_terminal() {
            return WriteConsent::Refused;
        }
        let mut person = self.person.lock().await;
        let lines = person.get_or_insert_with(read_on);
        discard_typed_lines(lines).await;
        dialog.put(READ_ONLY);
        let answer = lines.recv().await.unwrap_or_default();
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => WriteConsent::Granted,
            _ => WriteConsent::Refused,
        }
    }

    async fn ask(&self, ask: &Ask, until: Instant, dialog: &impl Dialog) -> (DecidedBy, Decision) {
        let mut person = self.person.lock().await;
        let lines = person.get_or_insert_with(read_on);
        if io::stdin().is_terminal() {
            discard_typed_lines(lines).await;
        }
        dialog.put(&approval_text::question(ask));
        loop {
            dialog.put(ALLOW);
            let answer = match line(lines, until, dialog).await {
                TypedLine::Typed(answer) => answer,
                TypedLine::Closed => return (DecidedBy::Nobody, Decision::Decline),
                TypedLine::TooLate => {
                    dialog.put("  not answered in time, so it is declined");
                    return (DecidedBy::Nobody, Decision::Decline);
                }
            };
            let decision = match answer.trim().to_lowercase().as_str() {
                "y" | "yes" => Decision::Accept,
                "a" | "always" => Decision::AcceptForSession,
                "n" | "no" => Decision::Decline,
                _ => {
                    dialog.put("  Type y, a or n, then Enter.");
                    continue;
                }
            };
            return (DecidedBy::Terminal, decision);
        }
    }
}

/// A line that a person typed, or its absence.
enum TypedLine {
    Typed(String),
    /// Stdin is closed.
    Closed,
    TooLate,
}

/// The next line, at `until` at the latest. The time left is shown meanwhile.
async fn line(
    lines: &mut mpsc::Receiver<String>,
    until: Instant,
    dialog: &impl Dialog,
) -> TypedLine {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return TypedLine::TooLate;
        }
        dialog.count_down(left);
        tokio::select! {
            line = lines.recv() => return line.map_or(TypedLine::Closed, TypedLine::Typed),
            () = sleep(left.min(TICK)) => {}
        }
    }
}

/// Reads what is typed, line by line, from now on.
fn read_on() -> mpsc::Receiver<String> {
    let (tell, lines) = mpsc::channel(LINES);
    tokio::spawn(async move {
        let mut lines = BufReader::new(stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if tell.send(line).await.is_err() {
                break;
            }
        }
    });
    lines
}

/// Discards lines that were typed before a question: they may answer an earlier question that has
/// timed out. While lines keep coming, as from a key that is held down, nothing is asked.
async fn discard_typed_lines(lines: &mut mpsc::Receiver<String>) {
    if let Err(error) = tcflush(io::stdin(), FlushArg::TCIFLUSH) {
        tracing::debug!("cannot discard the partly typed line: {error}");
    }
    // The reader may have more lines than it can give at once.
    while let Ok(Some(_)) = timeout(IN_TRANSIT, lines.recv()).await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_that_the_reader_still_has_are_discarded() {
        let (tell, mut lines) = mpsc::channel(LINES);
        let reader = tokio::spawn(async move {
            for _ in 0..3 * LINES {
                tell.send("y".to_owned()).await.unwrap();
            }
            // The channel stays open, as stdin does.
            tell
        });
        discard_typed_lines(&mut lines).await;
        assert!(reader.is_finished());
        assert!(lines.try_recv().is_err());
    }
}
