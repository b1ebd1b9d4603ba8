//! `codex-mcp jobs wait`.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use common::text::visible_line;
use common::{duration, output};
use job_queue::activity::{JobActivity, TAIL};
use job_queue::logic::{JobId, JobPrefix, JobState, Wait};
use job_queue::service::Jobs;
use job_queue::shown;
use job_queue::store::{Job, JobSummary};
use job_queue::worker::ASKED;
use tokio::time::{Instant, sleep_until};

use super::failure::Failure;
use super::find::{self, short};
use super::watching::{Watching, unless_interrupted};
use super::{with_thread_id, words};
use crate::cli::exit::{self, COULD_NOT, INTERRUPTED, TIMED_OUT};
use crate::cli::stored::complain;
use crate::cli::teller::{Screen, Teller};
use crate::cli::times::took;

/// How many events are read at once, and how many of the past to find the last that
/// Codex did.
const PAGE: u32 = 50;
const PAST: u32 = TAIL;

const CODES: &str = "\
Exit codes: 0 all have completed, 1 one has failed, 2 one was cancelled, 3 it can't be told
(there is no such job, the store is away, the command line is wrong), 124 it took longer than
--timeout, 130 after Ctrl-C. Of several the one that tells most counts: 3, then 124, 1, 2.
Ctrl-C ends the waiting, not the job.";

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct Args {
    /// The jobs: their ids, or how these begin.
    #[arg(required = true, value_name = "ID")]
    jobs: Vec<JobPrefix>,

    /// Wait no longer than this, such as 90s or 2h. Default: until they have ended.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,

    /// Print each job as a JSON object in a line, whatever has come of it.
    #[arg(long)]
    json: bool,
}

/// What is printed of jobs that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Codex's final message.
    Message,
    /// All, as JSON.
    Json,
}

impl Form {
    /// As `--json` says.
    pub(super) fn of(json: bool) -> Self {
        match json {
            true => Self::Json,
            false => Self::Message,
        }
    }
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let ids = find::find_all(jobs, &self.jobs).await?;
        wait(jobs, &ids, self.timeout, Form::of(self.json)).await
    }
}

/// Waits for jobs, and prints what has come of them. The exit code tells too.
pub(super) async fn wait(
    jobs: &Jobs,
    ids: &[JobId],
    limit: Option<Duration>,
    form: Form,
) -> Result<ExitCode, Failure> {
    let mut teller = Teller::on_stderr();
    let ended = unless_interrupted(until_ended(jobs, ids, limit, &mut teller)).await?;
    teller.clear();
    if ended.is_none() {
        complain("interrupted", &goes_on(ids));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let mut codes = Vec::new();
    for id in ids {
        let job = jobs.store().await?.get(id).await?;
        codes.push(match &job {
            Some(job) => {
                print(job, form, ids.len())?;
                exit::of_job(job.summary.state)
            }
            None => {
                complain("error", &format!("job {id} was removed meanwhile"));
                COULD_NOT
            }
        });
    }
    if codes.contains(&TIMED_OUT) {
        complain("waited too long", &goes_on(ids));
    }
    Ok(ExitCode::from(exit::worst(codes)))
}

fn goes_on(ids: &[JobId]) -> String {
    let names: Vec<&str> = ids.iter().map(short).collect();
    let names = names.join(" ");
    format!("what is under way goes on; `codex-mcp jobs wait {names}` waits for it again")
}

/// A job that is waited for.
struct Waited<'a> {
    id: &'a JobId,
    /// How it stood last; `None` before the first look, and when it is gone.
    summary: Option<JobSummary>,
    standing: Standing,
    /// The number of the last event that was read.
    read: Option<u32>,
    /// The step that it is at.
    activity: JobActivity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    UnderWay,
    Over,
}

/// Waits until they have ended, or for so long.
async fn until_ended(
    jobs: &Jobs,
    ids: &[JobId],
    limit: Option<Duration>,
    teller: &mut Teller,
) -> Result<(), Failure> {
    let began = Instant::now();
    let until = limit.and_then(|limit| began.checked_add(limit));
    let mut watching = Watching::begin(jobs).await?;
    let mut all: Vec<Waited<'_>> = ids.iter().map(Waited::new).collect();
    loop {
        for one in all.iter_mut().filter(|one| one.is_under_way()) {
            one.look(&mut watching, teller).await?;
        }
        let is_late = until.is_some_and(|until| Instant::now() >= until);
        if is_late || !all.iter().any(Waited::is_under_way) {
            return Ok(());
        }
        teller.draw(&in_a_line(&all, began.elapsed()));
        watching.look_after(teller).await;
        match until {
            Some(until) => tokio::select! {
                () = watching.changed() => {}
                () = sleep_until(until) => {}
            },
            None => watching.changed().await,
        }
    }
}

fn in_a_line(all: &[Waited<'_>], elapsed: Duration) -> String {
    let time = took(Duration::from_secs(elapsed.as_secs()));
    let time = time.replace(".0s", "s");
    match all {
        [one] => {
            let state = one.state().map_or("", JobState::as_str);
            let doing = one.doing().unwrap_or_default();
            format!("{} {state} {time}  {doing}", short(one.id))
        }
        several => {
            let under_way: Vec<_> = several.iter().filter(|one| one.is_under_way()).collect();
            let ended = several.len() - under_way.len();
            let doing = under_way.iter().find_map(|one| one.doing());
            let doing = doing.unwrap_or_default();
            format!("{ended} of {} have ended {time}  {doing}", several.len())
        }
    }
}

impl<'a> Waited<'a> {
    fn new(id: &'a JobId) -> Self {
        Self {
            id,
            summary: None,
            standing: Standing::UnderWay,
            read: None,
            activity: JobActivity::default(),
        }
    }

    fn is_under_way(&self) -> bool {
        self.standing == Standing::UnderWay
    }

    /// The current step and its duration, or until when it waits.
    fn doing(&self) -> Option<String> {
        if let Some(wait) = self.wait() {
            return Some(wait.to_string());
        }
        let step = self.activity.step(SystemTime::now());
        step.map(|step| step.to_string())
    }

    fn state(&self) -> Option<JobState> {
        self.summary.as_ref().map(|summary| summary.state)
    }

    fn wait(&self) -> Option<Wait> {
        shown::waiting(self.summary.as_ref()?)
    }

    /// Looks how it stands, and tells what is new.
    async fn look(
        &mut self,
        watching: &mut Watching<'_>,
        teller: &mut Teller,
    ) -> Result<(), Failure> {
        let summary = watching.store().summary(self.id).await;
        let Some(summary) = watching.answer(summary, teller)? else {
            return Ok(());
        };
        let before = (self.state(), self.wait());
        self.summary = summary;
        let is_new = before != (self.state(), self.wait());
        match &self.summary {
            Some(summary) if summary.state.has_ended() => {
                self.standing = Standing::Over;
                teller.say(&ended_in_words(summary));
                return Ok(());
            }
            Some(summary) if is_new && teller.screen() == Screen::Plain => {
                let wait = shown::waiting(summary).map(|wait| format!(", {wait}"));
                let wait = wait.unwrap_or_default();
                teller.say(&format!("{} {}{wait}", short(self.id), summary.state));
            }
            Some(_) => {}
            None => self.standing = Standing::Over,
        }
        if self.state() == Some(JobState::Running) {
            self.listen(watching, teller).await?;
        }
        Ok(())
    }

    async fn listen(
        &mut self,
        watching: &mut Watching<'_>,
        teller: &mut Teller,
    ) -> Result<(), Failure> {
        let store = watching.store();
        let events = match self.read {
            None => store.tail(self.id, PAST).await,
            Some(read) => store.events(self.id, read, PAGE).await,
        };
        let Some(events) = watching.answer(events, teller)? else {
            return Ok(());
        };
        self.read = events.last().map(|event| event.sequence).or(self.read);
        for event in &events {
            self.activity.take(event);
            if event.kind == ASKED
                && let Some(asks) = words::line(event)
            {
                let id = short(self.id);
                teller.say(&format!("{id} {asks}; `codex-mcp jobs show {id}` shows it"));
            }
        }
        let others = events.iter().rev().filter(|event| event.kind != ASKED);
        if teller.screen() == Screen::Plain
            && let Some(did) = others.filter_map(words::line).next()
        {
            teller.say(&format!("{} {did}", short(self.id)));
        }
        Ok(())
    }
}

/// How a job has ended, and after how long.
pub(super) fn ended_in_words(job: &JobSummary) -> String {
    let id = short(&job.id);
    let state = job.state;
    let after = match job.duration() {
        Some(time) => format!(" after {}", took(time)),
        None => String::new(),
    };
    match (&job.error, state) {
        (Some(error), JobState::Failed) => format!(
            "{id} {state}{after}: {}; `codex-mcp jobs show {id}` tells all of it",
            error.trim_end().trim_end_matches('.')
        ),
        _ => format!("{id} {state}{after}"),
    }
}

fn print(job: &Job, form: Form, of: usize) -> Result<(), Failure> {
    if form == Form::Json {
        return Ok(output::json_line(
            &with_thread_id(shown::record(job, &[])).to_string(),
        )?);
    }
    if job.summary.state != JobState::Completed {
        return Ok(());
    }
    for problem in shown::report_of(job).problems() {
        let id = short(&job.summary.id);
        complain("warning", &format!("{id} {}", visible_line(&problem)));
    }
    if of > 1 {
        let Job { summary, .. } = job;
        writeln!(output::stdout(), "--- {} {}", summary.id, summary.task_name)?;
    }
    let response = job
        .result
        .as_ref()
        .and_then(|report| report.get("response"));
    match response.and_then(|response| response.as_str()) {
        Some(message) => Ok(output::answer(message)?),
        None => Ok(()),
    }
}
