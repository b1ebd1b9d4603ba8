//! `codex-mcp logs` of a session.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use common::output;
use host_process::logic::handshake::{SessionAct, SessionAnswer, SessionEvent};
use job_queue::question::NamedQuestion;
use tokio::time::sleep;

use super::Failure;
use super::session::HostedSession;
use crate::cli::answer_commands::how_to_answer;
use crate::cli::exit::INTERRUPTED;
use crate::cli::jobs::LogForm;
use crate::cli::question_details::left_out;
use crate::cli::runtime::unless_interrupted;
use crate::cli::stored::complain;
use crate::cli::times::took;

/// The pause before the host is asked again, with --follow.
const PAUSE: Duration = Duration::from_millis(300);

/// Prints the events of a session, those of its running turn too.
pub(super) async fn print(session: &HostedSession, form: LogForm) -> Result<ExitCode, Failure> {
    let printing = print_all(session, form);
    match unless_interrupted(printing)
        .await
        .map_err(Failure::Runtime)?
    {
        Some(printed) => printed.map(|()| ExitCode::SUCCESS),
        None => {
            complain("interrupted", "the session continues");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

async fn print_all(session: &HostedSession, form: LogForm) -> Result<(), Failure> {
    let mut reader = LogReader {
        session,
        form,
        next: 0,
        first: None,
    };
    let mut events = reader.read().await?;
    if let Some(tail) = form.tail {
        let tail = usize::try_from(tail).unwrap_or(usize::MAX);
        events.list.drain(..events.list.len().saturating_sub(tail));
    }
    loop {
        for event in &events.list {
            reader.show(event)?;
        }
        if !form.follow || !events.is_running {
            return show_questions(session, form);
        }
        sleep(PAUSE).await;
        events = reader.read().await?;
    }
}

/// Prints the open questions in full, so that nobody decides on the beginning of a command.
fn show_questions(session: &HostedSession, form: LogForm) -> Result<(), Failure> {
    // With --follow, the turn that asked has ended.
    if !form.json && !form.follow {
        for NamedQuestion { id, question } in session.questions() {
            let how = how_to_answer("codex-mcp", session.short(), (id.as_str(), question));
            let mut out = output::stdout();
            writeln!(out, "\nCodex asks ({id}):\n{}", question.text)?;
            for line in left_out(question) {
                writeln!(out, "{line}")?;
            }
            writeln!(out, "{how}")?;
        }
    }
    Ok(())
}

/// Reads and prints events, and remembers the last one.
struct LogReader<'a> {
    session: &'a HostedSession,
    form: LogForm,
    /// The number of the next event.
    next: u64,
    /// When the first event happened.
    first: Option<SystemTime>,
}

struct Events {
    list: Vec<SessionEvent>,
    is_running: bool,
}

impl LogReader<'_> {
    /// Reads the new events of the kinds that are printed.
    async fn read(&mut self) -> Result<Events, Failure> {
        let mut list = Vec::new();
        loop {
            let from = self.next;
            let answer = self.session.ask(SessionAct::Events { from }).await?;
            let SessionAnswer::Events {
                events,
                next,
                is_running,
            } = answer
            else {
                return Err(Failure::UnexpectedAnswer);
            };
            if events.is_empty() {
                return Ok(Events { list, is_running });
            }
            self.next = next;
            self.first = self.first.or_else(|| Some(events.first()?.at));
            let is_json = self.form.json;
            list.extend(
                events
                    .into_iter()
                    .filter(|one| is_json || one.words.is_some()),
            );
        }
    }

    fn show(&self, event: &SessionEvent) -> Result<(), Failure> {
        if self.form.json {
            return Ok(output::json_line(&event.data.to_string())?);
        }
        let words = event.words.as_deref().unwrap_or_default();
        let since = self.first.unwrap_or(event.at);
        let after = event.at.duration_since(since).unwrap_or_default();
        let mut out = output::stdout();
        writeln!(out, "{:>7}  {words}", took(after))?;
        // A reader of the pipe must see each event at once.
        out.flush()?;
        Ok(())
    }
}
