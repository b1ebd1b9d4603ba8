//! `codex-mcp jobs logs`.

use std::io::Write;
use std::process::ExitCode;
use std::time::SystemTime;

use common::output;
use job_queue::logic::{JobId, JobPrefix, JobState};
use job_queue::service::Jobs;
use job_queue::shown;
use job_queue::store::{JobSummary, StoredEvent};
use serde_json::Value;

use super::failure::Failure;
use super::find::{self, short};
use super::wait::{Form, ended_in_words};
use super::watching::{Watching, unless_interrupted};
use super::words;
use crate::cli::exit::INTERRUPTED;
use crate::cli::stored::complain;
use crate::cli::teller::Teller;
use crate::cli::times::took;

/// How many events are read at once: each may be long.
const PAGE: u32 = 50;

const MEANING: &str = "\
Each line begins with the time since the job began. `$` is a command that Codex runs, followed
by its exit code when it has ended. With --follow, Ctrl-C ends the looking, not the job.";

#[derive(Debug, clap::Args)]
#[command(after_help = MEANING)]
pub(super) struct Args {
    /// The job: its id, or how it begins.
    #[arg(value_name = "ID")]
    job: JobPrefix,

    /// Go on with what comes, until the job has ended.
    #[arg(long, short)]
    follow: bool,

    /// Begin with the last so many events.
    #[arg(
        long, value_name = "NUMBER",
        value_parser = clap::value_parser!(u32).range(0..=100_000),
    )]
    tail: Option<u32>,

    /// Print the events as Codex gave them, a JSON object in a line.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let id = find::find(jobs, &self.job).await?;
        let mut teller = Teller::on_stderr();
        let looked = unless_interrupted(self.look(jobs, &id, &mut teller)).await?;
        if looked.is_none() {
            let id = short(&id);
            complain(
                "interrupted",
                &format!("the job goes on; `codex-mcp jobs logs --follow {id}` shows it again"),
            );
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn look(&self, jobs: &Jobs, id: &JobId, teller: &mut Teller) -> Result<(), Failure> {
        let mut watching = Watching::begin(jobs).await?;
        let mut reading = Reading {
            id,
            form: Form::of(self.json),
            read: self.before(jobs, id).await?,
            shown: 0,
        };
        loop {
            // First how it stands: all that there is of an ended job is there then.
            let summary = watching.store().summary(id).await;
            if let Some(summary) = watching.answer(summary, teller)? {
                let summary = summary.ok_or_else(|| Failure::NotFound(self.job.clone()))?;
                reading.read_on(&summary, &mut watching, teller).await?;
                if !self.follow || summary.state.has_ended() {
                    reading.close(&summary, self.follow, teller);
                    return Ok(());
                }
            }
            watching.look_after(teller).await;
            watching.changed().await;
        }
    }

    /// The number of the last event that is not to be shown.
    async fn before(&self, jobs: &Jobs, id: &JobId) -> Result<u32, Failure> {
        let Some(tail) = self.tail else {
            return Ok(0);
        };
        let last = jobs.tail(id, 1).await?;
        let last = last.last().map_or(0, |event| event.sequence);
        Ok(last.saturating_sub(tail))
    }
}

/// How far the events have been shown.
struct Reading<'a> {
    id: &'a JobId,
    form: Form,
    read: u32,
    shown: u64,
}

impl Reading<'_> {
    /// Shows all that there is.
    async fn read_on(
        &mut self,
        job: &JobSummary,
        watching: &mut Watching<'_>,
        teller: &mut Teller,
    ) -> Result<(), Failure> {
        loop {
            let events = watching.store().events(self.id, self.read, PAGE).await;
            let Some(events) = watching.answer(events, teller)? else {
                // The rest is shown when it is there again, also of an ended job.
                watching.changed().await;
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
        if self.form == Form::Json {
            return Ok(output::json_line(&typed(event))?);
        }
        let Some(words) = words::line(event) else {
            return Ok(());
        };
        let since = job.started_at.unwrap_or(job.created_at);
        let mut out = output::stdout();
        writeln!(out, "{:>7}  {words}", after(since, event.at))?;
        // Where it is piped, what there is has to be seen at once too.
        out.flush()?;
        Ok(())
    }

    fn close(&self, job: &JobSummary, follow: bool, teller: &mut Teller) {
        let wait = shown::waiting(job);
        if let Some(wait) = wait {
            teller.say(&format!("the job {wait}"));
        }
        match (job.state, self.shown) {
            (JobState::Queued, _) if wait.is_some() => {}
            (JobState::Queued, 0) => teller.say("nothing yet: the job waits for a worker"),
            (JobState::Running, 0) => teller.say("nothing yet: Codex has not said anything"),
            (_, 0) => teller.say("there are no events of this job"),
            _ => {}
        }
        if follow {
            teller.say(&ended_in_words(job));
        }
    }
}

/// An attempt before the last began earlier than that.
fn after(since: SystemTime, at: SystemTime) -> String {
    took(at.duration_since(since).unwrap_or_default())
}

/// It as it came. Our own events have no type in them.
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
