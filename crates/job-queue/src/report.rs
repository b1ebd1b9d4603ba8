//! The report of an ended job: its worker stores it, and clients read it as `metadata`.

use codex_engine::logic::progress::without_shell;
use codex_engine::logic::work::event::TokensUsed;
use codex_engine::logic::work::{
    ChangedFile, Changes, Command, Digest, Evidence, FailedStep, Failure, StepFailure,
};
use codex_protocol::codex::StepStatus;
use common::text::one_line;
use goal_run::logic::outcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use supervise::exit::Exit;

use super::call::{CallOutcome, Stream};

/// The report of an ended job. All fields are bounded, see [`CallOutcome`]: with its stream, a
/// report has less than 10 MiB of JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Codex's final message.
    pub response: Option<String>,
    /// The failure, if the job failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
    /// The effective sandbox: a mode, or the name of permissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The exit of Codex's process, if it ended during the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The tokens that the thread has used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Counts of the steps that Codex really executed.
    pub evidence: EvidenceReport,
    /// The first commands that Codex ran.
    pub commands: Vec<CommandReport>,
    /// The first steps that failed or were refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_steps: Vec<FailedStep>,
    /// How many more steps failed or were refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_failed_steps: u64,
    /// The failure of the last command, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_command_failure: Option<FailedStep>,
    /// The first changed files, by their paths from the top of the repository, or else by
    /// absolute paths.
    pub changed_files: Vec<ChangedFile>,
    /// How many more files changed.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_changed_files: usize,
    /// The changes by Codex's own patches, as a unified diff, without the changes by its
    /// commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Whether the end of the diff is left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub diff_truncated: bool,
    /// The commit that was checked out at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_before: Option<String>,
    /// The commit that was checked out at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_after: Option<String>,
    /// Why git could not report all changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes_incomplete: Option<String>,
    /// Codex's warnings, and the notifications of the end that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The end of Codex's stderr; only in jobs of older releases, where each job had its own
    /// Codex.
    pub stderr: String,
    /// The part of Codex's stdout that is not events, cut; only in jobs of older releases.
    pub stdout: String,
    /// The first events, if the stream was requested, without those that are nested too deep to be
    /// read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_events: Option<Vec<Value>>,
    /// How many more events there were.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_stream_events: u64,
    /// The results of the notifications of the end, `{to, error?}` for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notified: Option<Value>,
    /// The result of a run, see [`result`](super::run::result).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Value>,
}

/// The limit of the diff, in bytes.
const DIFF_LIMIT: usize = 64 * 1024;

/// The most problems that are reported.
const PROBLEMS: usize = 10;

/// The limit of a command in a problem, in bytes.
const COMMAND: usize = 200;

/// The limit of a line about a failed notification, in bytes.
const NOTIFICATION: usize = 400;

/// `COMMAND: REASON (exit code N)`.
fn words(step: &FailedStep) -> String {
    let mut words = one_line(&without_shell(&step.what), COMMAND);
    if let Some(reason) = &step.reason {
        words = format!("{words}: {reason}");
    }
    match step.exit_code {
        Some(code) => format!("{words} (exit code {code})"),
        None => words,
    }
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// Why a job failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// The name of the [`FailureClass`](codex_engine::logic::work::FailureClass).
    pub class: String,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// When a limit is reset, in the words of Codex's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<String>,
}

/// Counts of used tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens from the cache.
    pub cached_input_tokens: u64,
    /// Output tokens, including reasoning tokens.
    pub output_tokens: u64,
    /// Reasoning tokens.
    pub reasoning_output_tokens: u64,
}

/// Counts of the steps that Codex really executed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EvidenceReport {
    /// Started commands.
    pub commands: u64,
    /// Declined steps.
    pub declined: u64,
    /// Changes of files by Codex's own tool.
    pub file_changes: u64,
    /// Calls of tools of MCP servers.
    pub tool_calls: u64,
    /// Searches of the web.
    pub searches: u64,
}

/// A command that Codex ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReport {
    /// The command line.
    pub command: String,
    /// Its exit code, if it has one.
    pub exit_code: Option<i32>,
    /// The state of the command at the end of the turn.
    pub status: CommandStatus,
    /// The beginning of its output.
    pub output: String,
}

/// The state of a command at the end of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandStatus {
    /// It has ended with success.
    Completed,
    /// It has failed.
    Failed,
    /// It was declined.
    Declined,
    /// It had not ended.
    InProgress,
}

impl Report {
    /// The report of a call's outcome, with its stream if that was kept.
    #[must_use]
    pub fn of(outcome: CallOutcome, keep_stream: bool) -> Self {
        let CallOutcome {
            failure,
            digest,
            sandbox,
            exit,
            lost_codex: _,
            leaves_threads: _,
            changes,
            stream,
            diff,
            limit: _,
            took: _,
        } = outcome;
        let report = Self {
            failure: failure.as_ref().map(FailureReport::of),
            sandbox,
            exit,
            ..Self::default()
        };
        let report = report.with_digest(digest).with_changes(changes);
        let report = report.with_diff(&diff);
        match keep_stream {
            true => report.with_stream(&stream),
            false => report,
        }
    }

    /// The problems that qualify the answer, a line each: refused and blocked steps, commands that
    /// were killed because Codex answered while they ran, and the last command if it failed. At
    /// most 10 lines.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let steps = self.failed_steps.iter();
        let blocked = steps.filter(|step| self.outcome_of(step) != StepFailure::Failed);
        let last = self.last_command_failure.as_ref();
        let last = last.filter(|step| self.outcome_of(step) == StepFailure::Failed);
        let mut lines: Vec<String> = blocked.map(|step| self.in_a_line(step)).collect();
        let most = PROBLEMS - 2;
        if lines.len() > most {
            let more = lines.len() - (most - 1);
            lines.truncate(most - 1);
            lines.push(format!("{more} more steps were refused or blocked"));
        }
        lines.extend(self.killed_commands());
        lines.extend(last.map(|step| format!("the last command failed: {}", words(step))));
        lines
    }

    /// The line about commands that still ran when Codex answered: they end with the job. A job
    /// that has failed says so itself, and its commands may not even have begun.
    fn killed_commands(&self) -> Option<String> {
        let commands = self.commands.iter();
        let mut running = commands.filter(|command| command.status == CommandStatus::InProgress);
        let first = running.next().filter(|_| self.failure.is_none())?;
        let command = one_line(&without_shell(&first.command), COMMAND);
        let more = match running.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!(
            "still ran when Codex answered, and was killed: {command}{more}"
        ))
    }

    /// The notifications of the end that failed, a line each.
    #[must_use]
    pub fn failed_notifications(&self) -> Vec<String> {
        let deliveries = self.notified.as_ref().and_then(Value::as_array);
        let failed = |delivery: &Value| {
            let text = |name| delivery.get(name).and_then(Value::as_str);
            let (to, error) = (text("to")?, text("error")?);
            let words = format!("cannot notify {to}: {error}");
            Some(one_line(&words, NOTIFICATION))
        };
        deliveries
            .into_iter()
            .flatten()
            .filter_map(failed)
            .collect()
    }

    fn in_a_line(&self, step: &FailedStep) -> String {
        let words = words(step);
        match (self.outcome_of(step), &self.sandbox) {
            (StepFailure::Blocked, Some(sandbox)) => {
                format!("blocked by the sandbox {sandbox}: {words}")
            }
            (StepFailure::Blocked, None) => format!("blocked by the sandbox: {words}"),
            (StepFailure::Refused, _) => format!("refused: {words}"),
            (StepFailure::Failed, _) => format!("failed: {words}"),
        }
    }

    /// The outcome of a step. Without a sandbox, no step was blocked by one.
    fn outcome_of(&self, step: &FailedStep) -> StepFailure {
        match (step.outcome, self.sandbox.as_deref()) {
            (StepFailure::Blocked, Some("danger-full-access")) => StepFailure::Failed,
            (outcome, _) => outcome,
        }
    }

    fn with_digest(self, digest: Digest) -> Self {
        Self {
            response: digest.message,
            usage: digest.usage.map(Usage::from),
            evidence: digest.evidence.into(),
            commands: digest.commands.into_iter().map(Into::into).collect(),
            failed_steps: digest.failed_steps,
            more_failed_steps: digest.more_failed_steps,
            last_command_failure: digest.last_command_failure,
            warnings: digest.warnings,
            ..self
        }
    }

    fn with_diff(self, diff: &str) -> Self {
        let end = diff.floor_char_boundary(DIFF_LIMIT);
        let kept = diff.get(..end).filter(|kept| !kept.is_empty());
        Self {
            diff: kept.map(str::to_owned),
            diff_truncated: diff.len() > DIFF_LIMIT,
            ..self
        }
    }

    fn with_changes(self, changes: Changes) -> Self {
        Self {
            changed_files: changes.files,
            more_changed_files: changes.more,
            head_before: changes.head_before,
            head_after: changes.head_after,
            changes_incomplete: changes.incomplete,
            ..self
        }
    }

    fn with_stream(self, stream: &Stream) -> Self {
        // Each line was serialized from JSON. But the arguments of a tool may be nested so deeply
        // that they cannot be read back from the report, where they are two levels deeper:
        // serde_json reads 127 levels.
        let in_report = |line: &String| {
            let nested = serde_json::from_str::<[[Value; 1]; 1]>(&format!("[[{line}]]"));
            nested.map(|[[event]]| event).ok()
        };
        let events: Vec<Value> = stream.lines.iter().filter_map(in_report).collect();
        let too_deep = stream.lines.len().saturating_sub(events.len());
        let too_deep = u64::try_from(too_deep).unwrap_or(u64::MAX);
        Self {
            stream_events: Some(events),
            more_stream_events: stream.dropped.saturating_add(too_deep),
            ..self
        }
    }
}

impl FailureReport {
    /// The report of a failure that [`judge`](codex_engine::logic::work::judge) has found.
    #[must_use]
    pub fn of(failure: &Failure) -> Self {
        Self {
            class: failure.class.name().to_owned(),
            message: failure.message.clone(),
            hint: failure.hint(),
            reset: failure.reset.clone(),
        }
    }

    /// The message and the hint, in one text.
    #[must_use]
    pub fn in_words(&self) -> String {
        let message = self.message.trim_end_matches('.');
        format!("{message}. {}", self.hint)
    }
}

impl From<outcome::Usage> for Usage {
    fn from(usage: outcome::Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            cached_input_tokens: usage.cached_input_tokens,
            output_tokens: usage.output_tokens,
            reasoning_output_tokens: usage.reasoning_output_tokens,
        }
    }
}

impl From<TokensUsed> for Usage {
    fn from(usage: TokensUsed) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            cached_input_tokens: usage.cached_input_tokens,
            output_tokens: usage.output_tokens,
            reasoning_output_tokens: usage.reasoning_output_tokens,
        }
    }
}

impl From<Evidence> for EvidenceReport {
    fn from(evidence: Evidence) -> Self {
        Self {
            commands: evidence.commands,
            declined: evidence.declined,
            file_changes: evidence.file_changes,
            tool_calls: evidence.tool_calls,
            searches: evidence.searches,
        }
    }
}

impl From<Command> for CommandReport {
    fn from(command: Command) -> Self {
        Self {
            command: command.command,
            exit_code: command.exit_code,
            status: match command.status {
                StepStatus::Completed => CommandStatus::Completed,
                StepStatus::Failed => CommandStatus::Failed,
                StepStatus::Declined => CommandStatus::Declined,
                StepStatus::InProgress => CommandStatus::InProgress,
            },
            output: command.output,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_is_read_back() {
        let report = Report {
            response: Some("Done.".to_owned()),
            failure: Some(FailureReport {
                class: "rate_limit".to_owned(),
                message: "You've hit your usage limit.".to_owned(),
                hint: "Wait.".to_owned(),
                reset: Some("in 20s".to_owned()),
            }),
            exit: Some(Exit::Code(1)),
            commands: vec![CommandReport {
                command: "make".to_owned(),
                exit_code: None,
                status: CommandStatus::InProgress,
                output: String::new(),
            }],
            stream_events: Some(vec![json!({ "type": "turn.started" })]),
            more_stream_events: 7,
            ..Report::default()
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert_eq!(
            report.failure.unwrap().in_words(),
            "You've hit your usage limit. Wait."
        );
    }

    #[test]
    fn event_that_is_nested_too_deep_is_left_out_of_the_report() {
        let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let mut stream = Stream::default();
        stream.lines.extend([nested(125), nested(126)]);
        let events = stream.lines.iter();
        let events = events.map(|line| serde_json::from_str::<Value>(line).unwrap());
        // The control: with all events, the report cannot be read back.
        let whole = Report {
            stream_events: Some(events.collect()),
            ..Report::default()
        };
        let text = serde_json::to_string(&whole).unwrap();
        serde_json::from_str::<Report>(&text).unwrap_err();

        let report = Report::default().with_stream(&stream);
        let kept = report.stream_events.as_ref().map(Vec::len);
        assert_eq!((kept, report.more_stream_events), (Some(1), 1));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn problems_list_blocked_and_refused_steps_and_the_last_failure() {
        let step = |what: &str, outcome: &str, code: Option<i32>| {
            serde_json::from_value::<FailedStep>(json!({ "kind": "command", "what": what,
                "outcome": outcome, "exit_code": code, "reason": "why" }))
            .unwrap()
        };
        let blocked = step("bash -lc 'touch x'", "blocked", Some(1));
        let mut report = Report {
            sandbox: Some("read-only".to_owned()),
            failed_steps: vec![
                step("a", "failed", Some(1)),
                blocked.clone(),
                step("b", "refused", None),
            ],
            last_command_failure: Some(step("make", "failed", Some(2))),
            ..Report::default()
        };
        assert_eq!(
            report.problems(),
            [
                "blocked by the sandbox read-only: touch x: why (exit code 1)",
                "refused: b: why",
                "the last command failed: make: why (exit code 2)",
            ]
        );
        report.sandbox = Some("danger-full-access".to_owned());
        report.last_command_failure = Some(blocked.clone());
        assert_eq!(
            report.problems(),
            [
                "refused: b: why",
                "the last command failed: touch x: why (exit code 1)",
            ]
        );
        report.sandbox = None;
        report.failed_steps = vec![blocked; 50];
        report.commands = vec![running("make")];
        report.last_command_failure = Some(step("make", "failed", Some(2)));
        assert_eq!(report.problems().len(), PROBLEMS);
    }

    fn running(command: &str) -> CommandReport {
        CommandReport {
            command: command.to_owned(),
            exit_code: None,
            status: CommandStatus::InProgress,
            output: String::new(),
        }
    }

    #[test]
    fn command_that_was_killed_as_codex_answered_is_a_problem() {
        let mut report = Report {
            commands: vec![running("bash -lc 'make all'")],
            ..Report::default()
        };
        let line = "still ran when Codex answered, and was killed: make all";
        assert_eq!(report.problems(), [line]);
        report.commands.push(running("sleep 9"));
        assert_eq!(report.problems(), [format!("{line} (and 1 more)")]);
        report.failure = Some(FailureReport::default());
        assert_eq!(report.problems(), Vec::<String>::new());
    }

    #[test]
    fn failed_notifications_are_reported() {
        let report = Report {
            notified: Some(json!([
                { "to": "mail:lead" },
                { "to": "command:false", "error": "it exited\nwith code 1" },
            ])),
            ..Report::default()
        };
        assert_eq!(
            report.failed_notifications(),
            ["cannot notify command:false: it exited with code 1"]
        );
        let none = Report::default().failed_notifications();
        assert_eq!(none, Vec::<String>::new());
    }

    /// A newer program may write more fields, an older one fewer.
    #[test]
    fn report_of_another_version_is_read() {
        let report: Report = serde_json::from_value(json!({ "new": 1 })).unwrap();
        assert_eq!(report, Report::default());
    }
}
