//! `codex-mcp jobs logs`.

use std::io::Write;
use std::process::ExitCode;
use std::time::SystemTime;

use common::output;
use job_queue::logic::{JobId, JobPrefix, JobState};
use job_queue::service::Jobs;
use job_queue::store::{JobSummary, StoredEvent};
use job_queue::{event_line, job_json};
use serde_json::Value;

use super::failure::Failure;
use super::find::{self, short};
use super::wait::{OutputForm, ended_in_words};
use super::watcher::JobWatcher;
use crate::cli::exit::INTERRUPTED;
use crate::cli::progress::ProgressLine;
use crate::cli::runtime::unless_interrupted;
use crate::cli::stored::complain;
use crate::cli::times::took;
use crate::cli::values::number_within;

/// The number of events that are read at once. It is small, as each event may be long.
const PAGE: u32 = 50;

const MEANING: &str = "\
Each line begins with the time since the job began. `$` is a command that Codex runs, followed \
by its exit code when it has ended. With --follow, Ctrl-C ends the output, not the job.";

#[derive(Debug, clap::Args)]
#[command(after_help = MEANING)]
pub(super) struct Args {
    /// The job: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    job: JobPrefix,

    #[command(flatten)]
    form: LogForm,
}

/// Which events are printed, and how.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(in crate::cli) struct LogForm {
    /// Follow new events until the work has ended.
    #[arg(long, short)]
    pub(in crate::cli) follow: bool,

    /// Begin with the last NUMBER events.
    #[arg(
        long, value_name = "NUMBER",
        value_parser = number_within(0..=100_000_u32),
    )]
    pub(in crate::cli) tail: Option<u32>,

    /// Print the events as Codex sent them, one JSON object per line.
    #[arg(long)]
    pub(in crate::cli) json: bool,
}

/// Prints the events of a job.
pub(in crate::cli) async fn logs(
    jobs: &Jobs,
    job: JobPrefix,
    form: LogForm,
) -> Result<ExitCode, Failure> {
    Args { job, form }.act(jobs).await
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let id = find::find(jobs, &self.job).await?;
        let mut progress = ProgressLine::on_stderr();
        let looking = unless_interrupted(self.look(jobs, &id, &mut progress));
        let looked = looking.await.map_err(Failure::Runtime)?.transpose()?;
        if looked.is_none() {
            let id = short(&id);
            complain(
                "interrupted",
                &format!("the job continues; `codex-mcp jobs logs --follow {id}` shows it again"),
            );
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn look(
        &self,
        jobs: &Jobs,
        id: &JobId,
        progress: &mut ProgressLine,
    ) -> Result<(), Failure> {
        let mut watcher = JobWatcher::begin(jobs).await?;
        let mut reading = LogReader {
            id,
            form: OutputForm::of(self.form.json),
            read: self.before(jobs, id).await?,
            first: first_event(jobs, id).await?,
            shown: 0,
        };
        loop {
            // The state is read first: if it says that the job has ended, all its events are
            // stored.
            let summary = watcher.store().summary(id).await;
            if let Some(summary) = watcher.answer(summary, progress)? {
                let summary = summary.ok_or_else(|| Failure::NotFound(self.job.clone()))?;
                reading.read_on(&summary, &mut watcher, progress).await?;
                if !self.form.follow || summary.state.has_ended() {
                    reading.close(&summary, self.form.follow, progress);
                    return Ok(());
                }
            }
            watcher.look_after(progress).await;
            watcher.changed().await;
        }
    }

    /// The number of the last event before those that are shown.
    async fn before(&self, jobs: &Jobs, id: &JobId) -> Result<u32, Failure> {
        let Some(tail) = self.form.tail else {
            return Ok(0);
        };
        let last = jobs.tail(id, 1).await?;
        let last = last.last().map_or(0, |event| event.sequence);
        Ok(last.saturating_sub(tail))
    }
}

/// Reads and prints events, and remembers the last one.
struct LogReader<'a> {
    id: &'a JobId,
    form: OutputForm,
    read: u32,
    /// When the first event was stored.
    first: Option<SystemTime>,
    shown: u64,
}

impl LogReader<'_> {
    /// Prints all stored events.
    async fn read_on(
        &mut self,
        job: &JobSummary,
        watcher: &mut JobWatcher<'_>,
        progress: &mut ProgressLine,
    ) -> Result<(), Failure> {
        loop {
            let events = watcher.store().events(self.id, self.read, PAGE).await;
            let Some(events) = watcher.answer(events, progress)? else {
                // The rest is printed when the store is available again, also for an ended job.
                watcher.changed().await;
                continue;
            };
            let Some(last) = events.last() else {
                return Ok(());
            };
            self.read = last.sequence;
            for event in &events {
                self.show(job, event)?;
            }
        }
    }

    fn show(&mut self, job: &JobSummary, event: &StoredEvent) -> Result<(), Failure> {
        self.shown += 1;
        if self.form == OutputForm::Json {
            return Ok(output::json_line(&typed(event))?);
        }
        let Some(words) = event_line::line(event) else {
            return Ok(());
        };
        let first = *self.first.get_or_insert(event.at);
        // The start is that of the last attempt.
        let since = job.started_at.map_or(first, |started| started.min(first));
        let mut out = output::stdout();
        writeln!(out, "{:>7}  {words}", after(since, event.at))?;
        // A reader of the pipe must see each event at once.
        out.flush()?;
        Ok(())
    }

    fn close(&self, job: &JobSummary, follow: bool, progress: &mut ProgressLine) {
        let wait = job_json::waiting(job);
        if let Some(wait) = wait {
            progress.say(&format!("the job {wait}"));
        }
        match (job.state, self.shown) {
            (JobState::Queued, _) if wait.is_some() => {}
            (JobState::Queued, 0) => progress.say("nothing yet: the job waits for a worker"),
            (JobState::Running, 0) => progress.say("nothing yet: Codex has not said anything"),
            (_, 0) => progress.say("there are no events of this job"),
            _ => {}
        }
        // No event reports these ends.
        let is_unreported = match job.state {
            JobState::Cancelled => true,
            JobState::Failed => self.shown == 0,
            _ => false,
        };
        if follow || is_unreported {
            progress.say(&ended_in_words(job));
        }
    }
}

async fn first_event(jobs: &Jobs, id: &JobId) -> Result<Option<SystemTime>, Failure> {
    let first = jobs.store().await?.events(id, 0, 1).await?;
    Ok(first.first().map(|event| event.at))
}

fn after(since: SystemTime, at: SystemTime) -> String {
    took(at.duration_since(since).unwrap_or_default())
}

/// The event as Codex sent it; our own events get a `type` member.
fn typed(event: &StoredEvent) -> String {
    match serde_json::from_str::<Value>(&event.data) {
        Ok(Value::Object(mut members)) if !members.contains_key("type") => {
            members.insert("type".to_owned(), event.kind.as_str().into());
            Value::Object(members).to_string()
        }
        Ok(_) if !event.data.contains('\n') => event.data.clone(),
        Ok(value) => value.to_string(),
        Err(_) => serde_json::json!({ "type": event.kind, "text": event.data }).to_string(),
    }
}
