//! `codex-mcp logs` of a session.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use common::output;
use host_process::logic::handshake::{SessionAnswer, SessionEvent};
use job_queue::question::NamedQuestion;
use serde_json::Value;
use tokio::time::sleep;
use work_board::logic::step::gap_words;

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
        numbers: Numbers::default(),
        began: session.began().await,
    };
    let mut events = reader.read().await?;
    if let Some(tail) = form.tail {
        let tail = usize::try_from(tail).unwrap_or(usize::MAX);
        events.list.drain(..events.list.len().saturating_sub(tail));
    }
    loop {
        for line in &events.list {
            reader.show(line)?;
        }
        if !form.follow || !events.is_running {
            reader.show_new_beginning()?;
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
    numbers: Numbers,
    /// When the session began, or else its first known event.
    began: Option<SystemTime>,
}

struct Events {
    list: Vec<LogLine>,
    is_running: bool,
}

/// An event that is printed.
struct LogLine {
    /// What is no longer known of the events before it, in words.
    gaps: Vec<String>,
    event: SessionEvent,
}

/// The words for the events before those that a host has handled again when it took the session over.
const BEFORE_HOST: &str =
    "the events before the last start of the host process are no longer known";

/// The numbers of the events that were read. They rise by one, unless events are no longer known.
#[derive(Default)]
struct Numbers {
    /// The number of the next event.
    next: u64,
    /// Whether the log has begun anew since the last event that is printed.
    has_begun_anew: bool,
    /// How many events are missing since then.
    missing: u64,
}

impl Numbers {
    /// Notes the number of the first event that the log has ever had: a host that takes a session over
    /// begins it with a much higher number.
    fn begin(&mut self, first: u64) {
        if first > self.next {
            *self = Self {
                next: first,
                has_begun_anew: true,
                missing: 0,
            };
        }
    }

    /// The events of a page that are printed.
    fn lines(&mut self, page: Vec<SessionEvent>, is_json: bool) -> Vec<LogLine> {
        let mut lines = Vec::new();
        for event in page {
            let id = event.data.get("id").and_then(Value::as_u64);
            let id = id.unwrap_or(self.next);
            self.missing += id.saturating_sub(self.next);
            self.next = id.saturating_add(1);
            if is_json || event.words.is_some() {
                let gaps = self.take_gaps();
                lines.push(LogLine { gaps, event });
            }
        }
        lines
    }

    fn take_gaps(&mut self) -> Vec<String> {
        let has_begun_anew = std::mem::take(&mut self.has_begun_anew);
        let missing = std::mem::take(&mut self.missing);
        let before = has_begun_anew.then(|| BEFORE_HOST.to_owned());
        let gap = (missing > 0).then(|| gap_words(missing));
        before.into_iter().chain(gap).collect()
    }
}

impl LogReader<'_> {
    /// Reads the new events of the kinds that are printed.
    async fn read(&mut self) -> Result<Events, Failure> {
        let mut list = Vec::new();
        loop {
            let from = self.numbers.next;
            let answer = self.session.events(from).await?;
            let SessionAnswer::Events {
                events,
                next,
                first,
                is_running,
            } = answer
            else {
                return Err(Failure::UnexpectedAnswer);
            };
            self.numbers.begin(first);
            if events.is_empty() {
                return Ok(Events { list, is_running });
            }
            self.began = self.began.or_else(|| Some(events.first()?.at));
            list.extend(self.numbers.lines(events, self.form.json));
            self.numbers.next = next;
        }
    }

    fn show(&self, line: &LogLine) -> Result<(), Failure> {
        let LogLine { gaps, event } = line;
        if self.form.json {
            return Ok(output::json_line(&event.data.to_string())?);
        }
        let words = event.words.as_deref().unwrap_or_default();
        let since = self.began.unwrap_or(event.at);
        let after = event.at.duration_since(since).unwrap_or_default();
        let mut out = output::stdout();
        for gap in gaps {
            writeln!(out, "{:>7}  {gap}", "…")?;
        }
        writeln!(out, "{:>7}  {words}", took(after))?;
        // A reader of the pipe must see each event at once.
        out.flush()?;
        Ok(())
    }

    /// Tells of the earlier events also if no event follows them: a session that is being taken over has
    /// none yet.
    fn show_new_beginning(&self) -> Result<(), Failure> {
        if self.numbers.has_begun_anew && !self.form.json {
            writeln!(output::stdout(), "{:>7}  {BEFORE_HOST}", "…")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(id: u64, words: Option<&str>) -> SessionEvent {
        SessionEvent {
            at: SystemTime::UNIX_EPOCH,
            words: words.map(str::to_owned),
            data: json!({ "id": id }),
        }
    }

    /// The gaps before each event of a page that is printed.
    fn gaps(page: Vec<SessionEvent>, numbers: &mut Numbers, is_json: bool) -> Vec<Vec<String>> {
        let lines = numbers.lines(page, is_json);
        lines.into_iter().map(|line| line.gaps).collect()
    }

    #[test]
    fn missing_events_are_counted_before_the_next_line() {
        let missing = |count| vec![gap_words(count)];
        let first = || {
            vec![
                event(500, None),
                event(502, Some("a")),
                event(503, Some("b")),
            ]
        };
        let mut numbers = Numbers::default();
        let told = gaps(first(), &mut numbers, false);
        assert_eq!(told, [missing(501), vec![]]);
        let unprinted = gaps(vec![event(505, None)], &mut numbers, false);
        assert!(unprinted.is_empty());
        let next = vec![event(506, Some("c"))];
        assert_eq!(gaps(next, &mut numbers, false), [missing(1)]);
        let all = gaps(first(), &mut Numbers::default(), true);
        assert_eq!(all, [missing(500), missing(1), vec![]]);
    }

    #[test]
    fn events_of_a_killed_host_are_not_counted() {
        let mut numbers = Numbers::default();
        numbers.begin(0);
        let page = vec![event(0, Some("a"))];
        assert_eq!(gaps(page, &mut numbers, false), [Vec::<String>::new()]);
        numbers.begin(1_000_000);
        let page = vec![event(1_000_001, Some("b")), event(1_000_002, Some("c"))];
        let expected = [vec![BEFORE_HOST.to_owned(), gap_words(1)], vec![]];
        assert_eq!(gaps(page, &mut numbers, false), expected);
        numbers.begin(1_000_000);
        let page = vec![event(1_000_003, Some("d"))];
        assert_eq!(gaps(page, &mut numbers, false), [Vec::<String>::new()]);
    }
}
