//! `codex-mcp jobs show`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use codex_engine::logic::form::Field;
use codex_engine::logic::progress::without_shell;
use common::duration::ago;
use common::output::{self, Output};
use common::text::broken;
use common::timestamp::timestamp;
use git_probe::logic::git_state::ChangeKind;
use job_queue::job_json;
use job_queue::logic::{Cancellation, JobPrefix, JobState};
use job_queue::question::StoredQuestion;
use job_queue::report::{CommandReport, CommandStatus, FailureReport, Report};
use job_queue::service::Jobs;
use job_queue::store::{Job, Origin, Ownership, Question};

use super::failure::Failure;
use super::find::{self, short};
use super::list::owner;
use super::next_step::after_end;
use super::watcher::no_worker_warning;
use super::{show_run, state_style, with_thread_id};
use crate::cli::answer_commands;
use crate::cli::question_details::left_out;
use crate::cli::stored::complain;
use crate::cli::table::shortened;
use crate::cli::times::took;

/// How much is shown of the beginning and of the end of a prompt, in characters.
const PROMPT_BEGIN: usize = 1500;
const PROMPT_END: usize = 500;

/// How many commands and files are shown, and how much of a command, in characters.
const LINES: usize = 20;
const COMMAND: usize = 120;

/// The indent of texts below a heading.
const INDENT: &str = "  ";

const HEADING: Style = Style::new().bold();
const WRONG: Style = AnsiColor::Red.on_default();

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    job: JobPrefix,

    /// Shorten nothing: show all of a long prompt, and all commands and files.
    #[arg(long)]
    full: bool,

    /// Print one JSON object, as the tool `call_status` does.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let job = find::job(jobs, &self.job).await?;
        if !job.summary.state.has_ended()
            && let Some(why) = jobs.ensure_worker().await
        {
            complain("warning", &no_worker_warning(&why.to_string()));
        }
        let questions = match job.summary.state {
            JobState::Running => jobs.questions(&job.summary.id).await?,
            _ => Vec::new(),
        };
        if self.json {
            let record = job_json::record_with_sandbox(jobs.store().await?, &job, &questions);
            output::json(&with_thread_id(record.await?))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut page = Page {
            out: output::stdout(),
            full: self.full,
            sandbox: job_json::sandbox_in_force(jobs.store().await?, &job).await?,
        };
        page.job(&job, &questions)?;
        page.out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The page that `show` prints for people.
struct Page<W> {
    out: Output<W>,
    full: bool,
    /// The sandbox in force, if it is known.
    sandbox: Option<String>,
}

impl<W: Write> Page<W> {
    fn job(&mut self, job: &Job, questions: &[Question]) -> Result<(), Failure> {
        self.head(job)?;
        self.times(job)?;
        self.settings(job)?;
        for question in questions {
            self.question(question)?;
        }
        let prompt = &job.request.prompt;
        self.text("Prompt", &abbreviated(prompt, self.full))?;
        for (name, lines) in show_run::sections(job) {
            let lines = self.first(lines);
            self.lines(name, &lines)?;
        }
        match job.result.clone().map(serde_json::from_value::<Report>) {
            None => {}
            Some(Ok(report)) => self.report(&report)?,
            Some(Err(error)) => self.text(
                "Report",
                &format!("It cannot be read: {error}. --json shows it as it is."),
            )?,
        }
        if let Some(error) = &job.summary.error {
            self.sentences(WRONG, "Failed", error)?;
        }
        self.sentences(HEADING, "Next", &next(job, questions))
    }

    /// Prints a question, and whether it can be answered here.
    fn question(&mut self, question: &Question) -> Result<(), Failure> {
        let Some(kept) = StoredQuestion::of(question) else {
            return self.styled(WRONG, "Codex asks", "It cannot be read: update codex-mcp.");
        };
        let name = shortened(&question.id, COMMAND);
        let heading = format!("Codex asks ({name}, declined at {})", kept.expires_at);
        let heading = shortened(&heading, usize::MAX);
        if question.origin == Origin::Unproven {
            let words = "It is not signed with the key of this machine: nothing shows that Codex \
                         asks this. It can be answered on the host of the worker.";
            return self.styled(WRONG, &heading, &format!("{words}\n{}", kept.text));
        }
        self.styled(WRONG, &heading, &kept.text)?;
        let details = self.first(left_out(&kept));
        self.lines("Details", &details)?;
        let fields: Vec<String> = kept.fields.iter().map(field_line).collect();
        self.lines("Fields", &fields)
    }

    fn head(&mut self, job: &Job) -> Result<(), Failure> {
        let summary = &job.summary;
        let style = state_style(summary.state);
        self.line("Job", summary.id.as_str())?;
        let wait = job_json::waiting(summary).map(|wait| format!(", {wait}"));
        let asked = match (summary.cancellation, summary.state) {
            (Cancellation::Requested, JobState::Running) => ", cancellation requested",
            _ if job_json::has_problems(job) => ", with problems (see below)",
            _ => wait.as_deref().unwrap_or_default(),
        };
        self.name("State")?;
        self.out.styled(style, summary.state)?;
        writeln!(self.out, "{asked}")?;
        self.line("Task", &summary.task_name)?;
        self.line("Directory", &summary.cwd)?;
        self.optional_line("Thread", summary.session_id.as_deref())?;
        let by = [&job.request.agent_source, &job.request.submitted_by];
        let by: Vec<&str> = by.into_iter().flatten().map(String::as_str).collect();
        self.optional_line("From", Some(by.join(", with the identity ").as_str()))?;
        match summary.owner.ownership {
            Ownership::Ours => Ok(()),
            Ownership::Others => self.line("Owner", &owner(&summary.owner)),
        }
    }

    fn times(&mut self, job: &Job) -> Result<(), Failure> {
        let summary = &job.summary;
        self.line("Created", &moment(summary.created_at))?;
        self.optional_line("Started", summary.started_at.map(moment).as_deref())?;
        let took = summary.duration().map(took);
        let ended = summary.completed_at.map(|at| match &took {
            Some(took) => format!("{}, after {took}", moment(at)),
            None => moment(at),
        });
        self.optional_line("Ended", ended.as_deref())?;
        if job.counted_attempts() == 0 {
            return Ok(());
        }
        let host = job.worker_host.as_deref().unwrap_or("a machine");
        let worker = job.worker.as_ref().map(ToString::to_string);
        let worker = worker.unwrap_or_else(|| "none now".to_owned());
        let most = job.request.retry.saturating_add(1);
        let attempts = job.counted_attempts();
        self.line(
            "Worker",
            &format!("{worker} on {host}, attempt {attempts} of {most}"),
        )
    }

    fn settings(&mut self, job: &Job) -> Result<(), Failure> {
        let request = &job.request;
        self.optional_line("Model", request.model_override.as_deref())?;
        let sandbox = self.sandbox.clone();
        let sandbox = sandbox.unwrap_or_else(|| configured_sandbox(job).to_owned());
        self.line("Sandbox", &sandbox)?;
        self.optional_line("Effort", request.effort.as_deref())?;
        self.optional_line("Profile", request.profile.as_deref())?;
        self.optional_line("Resumes", request.resume_session_id.as_deref())?;
        let images: Vec<String> = request
            .images
            .iter()
            .map(|image| shortened(image, COMMAND))
            .collect();
        self.optional_line("Pictures", Some(images.join(", ").as_str()))?;
        let limit = Duration::from_millis(request.timeout_ms.into());
        match request.run {
            // A run shows its own limits, which its worker's time exceeds.
            Some(_) => Ok(()),
            None => self.line("Limit", &took(limit)),
        }
    }

    fn report(&mut self, report: &Report) -> Result<(), Failure> {
        if let Some(message) = &report.response {
            self.text("Final message", message)?;
        }
        let problems = report.problems();
        if !problems.is_empty() {
            self.styled(WRONG, "Problems", &problems.join("\n"))?;
        }
        self.files(report)?;
        self.commands(report)?;
        self.diff(report)?;
        if let Some(usage) = &report.usage {
            let words = format!(
                "{} tokens read ({} from the cache), {} written",
                usage.input_tokens, usage.cached_input_tokens, usage.output_tokens
            );
            self.text("Usage of the thread", &words)?;
        }
        if !report.warnings.is_empty() {
            self.text("Warnings", &report.warnings.join("\n"))?;
        }
        match &report.failure {
            Some(_) if !report.stderr.trim().is_empty() => {
                self.text("Codex's stderr", &report.stderr)
            }
            _ => Ok(()),
        }
    }

    fn files(&mut self, report: &Report) -> Result<(), Failure> {
        let files = &report.changed_files;
        let word = |kind| match kind {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
        };
        let lines = files.iter().map(|file| {
            let path = shortened(&file.path, usize::MAX);
            format!("{:<8} {path}", word(file.kind))
        });
        let mut lines = self.first(lines.collect());
        if report.more_changed_files > 0 {
            lines.push(format!("and {} more", report.more_changed_files));
        }
        if let Some(why) = &report.changes_incomplete {
            lines.push(format!("git could not tell all of it: {why}"));
        }
        if let (Some(before), Some(after)) = (&report.head_before, &report.head_after)
            && before != after
        {
            lines.push(format!("commit   {before} → {after}"));
        }
        self.lines("Changed files", &lines)
    }

    fn commands(&mut self, report: &Report) -> Result<(), Failure> {
        let lines = report.commands.iter().map(|command| {
            let code = command_end(command, report.failure.as_ref());
            let most = if self.full { usize::MAX } else { COMMAND };
            let command = shortened(&without_shell(&command.command), most);
            format!("{code:<8} $ {command}")
        });
        let mut lines = self.first(lines.collect());
        let kept = u64::try_from(report.commands.len()).unwrap_or(u64::MAX);
        match report.evidence.commands.saturating_sub(kept) {
            0 => {}
            // The evidence of a run is a file.
            _ if report.run.is_some() => {}
            more => lines.push(format!("and {more} that are not kept")),
        }
        self.lines("Commands", &lines)
    }

    /// The beginning of the diff.
    fn diff(&mut self, report: &Report) -> Result<(), Failure> {
        let Some(diff) = &report.diff else {
            return Ok(());
        };
        let mut lines = self.first(diff.lines().map(str::to_owned).collect());
        if report.diff_truncated && self.full {
            lines.push("the rest of the diff is not kept".to_owned());
        }
        self.lines("Diff of Codex's patches", &lines)
    }

    /// The first lines of many, with a count of the rest.
    fn first(&self, mut lines: Vec<String>) -> Vec<String> {
        if !self.full && lines.len() > LINES {
            let more = lines.len() - LINES;
            lines.truncate(LINES);
            lines.push(format!("and {more} more; --full shows them"));
        }
        lines
    }

    fn optional_line(&mut self, name: &str, value: Option<&str>) -> Result<(), Failure> {
        match value {
            Some(value) if !value.is_empty() => self.line(name, value),
            _ => Ok(()),
        }
    }

    fn line(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let value = shortened(value, usize::MAX);
        self.name(name)?;
        writeln!(self.out, "{value}")?;
        Ok(())
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        self.out.styled(HEADING, format_args!("{name:<9}"))?;
        write!(self.out, " ")
    }

    fn lines(&mut self, name: &str, lines: &[String]) -> Result<(), Failure> {
        match lines.is_empty() {
            true => Ok(()),
            false => self.text(name, &lines.join("\n")),
        }
    }

    /// A text under a heading.
    fn text(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        self.styled(HEADING, name, text)
    }

    /// Sentences under a heading, which a terminal does not break within words.
    fn sentences(&mut self, style: Style, name: &str, text: &str) -> Result<(), Failure> {
        let columns = output::stdout_columns();
        let columns = columns.map(|columns| columns.saturating_sub(INDENT.len()));
        self.styled(style, name, &broken(text, columns))
    }

    fn styled(&mut self, style: Style, name: &str, text: &str) -> Result<(), Failure> {
        writeln!(self.out)?;
        self.out.styled(style, name)?;
        writeln!(self.out)?;
        for line in text.trim_end().lines() {
            writeln!(self.out, "{INDENT}{line}")?;
        }
        Ok(())
    }
}

/// The end of a command, in words. In a failed job, a command without an end may not have begun.
fn command_end(command: &CommandReport, failure: Option<&FailureReport>) -> String {
    match (command.status, command.exit_code) {
        (CommandStatus::Declined, _) => "denied".to_owned(),
        (_, Some(code)) => format!("exit {code}"),
        (CommandStatus::InProgress, None) if failure.is_none() => "killed".to_owned(),
        (CommandStatus::InProgress, None) => "no end".to_owned(),
        (CommandStatus::Completed | CommandStatus::Failed, None) => "no code".to_owned(),
    }
}

/// The sandbox of a job that has none yet.
fn configured_sandbox(job: &Job) -> &'static str {
    match job.request.run {
        Some(_) => "that of Codex's configuration",
        None => "that of Codex's configuration, else workspace-write",
    }
}

fn moment(at: SystemTime) -> String {
    let now = SystemTime::now();
    let age = ago(now.duration_since(at).unwrap_or_default());
    format!("{} ({age})", timestamp(at))
}

/// Leaves out the middle of a long text, unless `full`.
fn abbreviated(text: &str, full: bool) -> String {
    let length = text.chars().count();
    if full || length <= PROMPT_BEGIN + PROMPT_END {
        return text.to_owned();
    }
    let begin: String = text.chars().take(PROMPT_BEGIN).collect();
    let end: String = text.chars().skip(length - PROMPT_END).collect();
    let left_out = length - PROMPT_BEGIN - PROMPT_END;
    format!("{begin}\n[… {left_out} characters left out; --full shows them]\n{end}")
}

/// The commands that apply to the job now.
fn next(job: &Job, questions: &[Question]) -> String {
    let id = short(&job.summary.id);
    match job.summary.state {
        JobState::Queued if job_json::waiting(&job.summary).is_some() => format!(
            "It runs by itself then. `codex-mcp jobs wait {id}` waits for its end, \
             `codex-mcp jobs cancel {id}` cancels it."
        ),
        JobState::Queued => {
            format!("It waits for a worker. `codex-mcp jobs wait {id}` waits for its end.")
        }
        JobState::Running if !questions.is_empty() => how_to_answer(id, questions),
        JobState::Running => format!(
            "`codex-mcp jobs wait {id}` waits for its end, `codex-mcp jobs logs -f {id}` shows \
             what Codex does, `codex-mcp jobs cancel {id}` cancels it."
        ),
        JobState::Completed | JobState::Failed | JobState::Cancelled => {
            let clauses = after_end(job).into_iter();
            clauses.map(|clause| format!("{clause}.\n")).collect()
        }
    }
}

fn how_to_answer(job: &str, questions: &[Question]) -> String {
    if let [question] = questions
        && let Some(stored) = StoredQuestion::of(question)
    {
        return answer_commands::how_to_answer(
            "codex-mcp jobs",
            job,
            (question.id.as_str(), &stored),
        );
    }
    format!(
        "Name the question: `codex-mcp jobs approve {job} QUESTION` allows what Codex asks for, \
         `codex-mcp jobs decline {job} QUESTION` declines it."
    )
}

/// A field with what it asks, and how it is answered.
fn field_line(field: &Field) -> String {
    let values = field.options.iter().map(|option| option.value.as_str());
    let values: Vec<&str> = values.collect();
    let options = (!values.is_empty()).then(|| format!(" [{}]", values.join(" / ")));
    let hint = field.hint().map(|hint| format!(" ({hint})"));
    let (options, hint) = (options.unwrap_or_default(), hint.unwrap_or_default());
    let line = match field.label == field.id {
        true => format!("{}{options}{hint}", field.id),
        false => format!("{}: {}{options}{hint}", field.id, field.label),
    };
    shortened(&line, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_command_names_the_question() {
        let question = |id: &str, kind: &str| Question {
            id: id.to_owned(),
            asked_at: std::time::UNIX_EPOCH,
            question: serde_json::json!({ "kind": kind, "text": "Which?",
                "decisions": ["accept"], "expires_at": "" }),
            origin: Origin::ThisMachine,
        };
        let [a, b] = ["req_a", "req_b"].map(|id| question(id, "command"));
        for (questions, command) in [
            (vec![a.clone()], "codex-mcp jobs approve 1 req_a`"),
            (vec![a, b], "codex-mcp jobs approve 1 QUESTION`"),
            (
                vec![question("req_c", "of a newer program")],
                "codex-mcp jobs approve 1 QUESTION`",
            ),
        ] {
            let next = how_to_answer("1", &questions);
            assert!(next.contains(command), "{command}: {next}");
        }
    }

    #[test]
    fn field_is_shown_with_its_question_and_options() {
        let question = serde_json::json!({ "kind": "user_input", "text": "?", "decisions": [],
            "expires_at": "", "fields": ["plain", { "id": "n", "label": "How\u{1b} many?",
                "kind": "choice", "options": [{ "value": "1", "label": "one" }] }] });
        let stored: StoredQuestion = serde_json::from_value(question).unwrap();
        let lines: Vec<String> = stored.fields.iter().map(field_line).collect();
        let expected = [
            "plain (may be left empty)",
            "n: How\\u{1b} many? [1] (may be left empty)",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn command_of_a_failed_job_is_not_said_to_be_killed() {
        let command = CommandReport {
            command: "git push".to_owned(),
            exit_code: None,
            status: CommandStatus::InProgress,
            output: String::new(),
        };
        let failure = FailureReport::default();
        assert_eq!(command_end(&command, Some(&failure)), "no end");
        assert_eq!(command_end(&command, None), "killed");
    }

    #[test]
    fn long_prompt_loses_its_middle() {
        let text = format!("a{}z", "ß".repeat(PROMPT_BEGIN + PROMPT_END));
        let cut = abbreviated(&text, false);
        assert!(cut.starts_with("aß") && cut.ends_with("ßz"), "{cut}");
        assert!(cut.contains("[… 2 characters left out"), "{cut}");
        assert_eq!(abbreviated(&text, true), text);
        assert_eq!(abbreviated("short", false), "short");
    }
}
