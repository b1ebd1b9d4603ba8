//! The log on stderr: stdout is reserved for the protocol.

use std::process::ExitCode;
use std::time::Duration;
use std::{fmt, io};

use anstyle::{AnsiColor, Style};
use common::output::{self, Colours, Verbosity};
use safe_files::off_runtime;
use safe_files::own_log::OwnLog;
use tokio::time::sleep;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Chooses what is logged, in `tracing-subscriber`'s filter syntax.
const VARIABLE: &str = "CODEX_MCP_LOG";

/// rmcp logs each message at `info`, and sqlx slow statements: too much for this log.
const DEFAULT: &str = "info,rmcp=warn,sqlx=warn";

/// The interval between two checks of a log's size.
const LOOK_AFTER: Duration = Duration::from_secs(10);

/// Sets the log of a background process aside whenever it has become too long.
pub(super) async fn bound(log: Option<OwnLog>) {
    let Some(log) = log else {
        return;
    };
    loop {
        let own = log.clone();
        match off_runtime::run(move || own.bound()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("cannot rotate the log: {error}"),
            Err(error) => tracing::debug!("cannot check the log: {error}"),
        }
        sleep(LOOK_AFTER).await;
    }
}

/// Suppresses the reports of panics, as stderr is stdout and must carry only the protocol.
pub(super) fn silence() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// The level where a person reads other output.
const QUIET: &str = "warn";

/// The filters of `--quiet` and `--verbose`.
const ERRORS: &str = "error";
const DETAILS: &str = "debug,rmcp=warn,sqlx=warn,hyper=warn,hyper_util=warn";

/// The format of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventFormat {
    /// A line of a log, with time, level and module.
    Log,
    /// A message to a person; see [`Messages`].
    Message,
}

/// Starts logging.
pub(super) fn start() {
    start_with(DEFAULT, EventFormat::Log);
}

/// Starts logging for a server that a person may have started at a terminal by hand.
pub(super) fn start_for_client() {
    let format = match output::stderr_is_terminal() {
        true => EventFormat::Message,
        false => EventFormat::Log,
    };
    start_with(DEFAULT, format);
}

/// Starts logging warnings and errors only, for verbs with other output.
pub(super) fn start_quietly() {
    start_with(QUIET, EventFormat::Message);
}

/// The exit code of a server's result; logs the error if there is one.
pub(super) fn exit(served: io::Result<ExitCode>) -> ExitCode {
    match served {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn start_with(usual: &'static str, format: EventFormat) {
    let verbosity = output::verbosity();
    let usual = match verbosity {
        Verbosity::Quiet => ERRORS,
        Verbosity::Usual => usual,
        Verbosity::Verbose => DETAILS,
    };
    let asked = EnvFilter::try_from_env(VARIABLE);
    let wrong = std::env::var_os(VARIABLE).and(asked.as_ref().err().map(ToString::to_string));
    // A flag takes precedence over the variable.
    let asked = asked.ok().filter(|_| verbosity == Verbosity::Usual);
    // The variable and `--verbose` are for debugging, which needs times and modules.
    let is_usual = asked.is_none() && verbosity != Verbosity::Verbose;
    let styles = output::stderr_colours();
    let log = tracing_subscriber::fmt()
        .with_env_filter(asked.unwrap_or_else(|| EnvFilter::new(usual)))
        .with_writer(move || output::log(styles))
        .with_ansi(styles == Colours::On)
        // Otherwise, a line that cannot be written would be reported with `eprintln!`, which panics
        // if stderr is the log itself, on a full disk.
        .log_internal_errors(false);
    match format {
        EventFormat::Message if is_usual => log.event_format(Messages).init(),
        EventFormat::Message | EventFormat::Log => log.init(),
    }
    if let Some(error) = wrong {
        tracing::warn!("{VARIABLE} is not a filter such as {usual}, and is ignored: {error}");
    }
}

/// Formats events as the verbs print messages to a person: `warning: …`.
struct Messages;

impl<S, N> FormatEvent<S, N> for Messages
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (kind, colour) = kind(*event.metadata().level());
        let style = match writer.has_ansi_escapes() {
            true => colour.on_default().bold(),
            false => Style::new(),
        };
        write!(writer, "{style}{kind}:{style:#} ")?;
        let fields = context.field_format();
        fields.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// The word and the colour of a level.
fn kind(level: Level) -> (&'static str, AnsiColor) {
    match level {
        Level::ERROR => ("error", AnsiColor::Red),
        Level::WARN => ("warning", AnsiColor::Yellow),
        Level::INFO => ("note", AnsiColor::Cyan),
        _ => ("detail", AnsiColor::Cyan),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    /// The output for these events, with styles or without.
    fn written(has_styles: bool, events: impl FnOnce()) -> String {
        let mut file = tempfile::tempfile().unwrap();
        let log = tracing_subscriber::fmt()
            .with_writer(file.try_clone().unwrap())
            .with_ansi(has_styles)
            .event_format(Messages)
            .finish();
        tracing::subscriber::with_default(log, events);
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn event_is_a_message_without_time_and_module() {
        let events = || {
            tracing::error!("e");
            tracing::warn!("w");
            tracing::info!("i");
        };
        assert_eq!(written(false, events), "error: e\nwarning: w\nnote: i\n");
    }

    #[test]
    fn message_has_no_styles_of_others() {
        let hostile = || tracing::warn!("a\u{1b}[2Jb");
        let text = written(true, hostile);
        let warning = AnsiColor::Yellow.on_default().bold();
        assert_eq!(text, format!("{warning}warning:{warning:#} a\\x1b[2Jb\n"));
    }
}
