//! `codex-mcp jobs wait`.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use common::text::visible_line;
use common::{duration, output};
use job_queue::activity::{JobActivity, TAIL};
use job_queue::logic::{JobId, JobPrefix, JobState, Wait};
use job_queue::service::Jobs;
use job_queue::store::{Job, JobSummary, StoredEvent};
use job_queue::worker::ASKED;
use job_queue::{event_line, job_json};
use tokio::time::{Instant, sleep_until};

use super::failure::Failure;
use super::find::{self, short};
use super::watcher::JobWatcher;
use super::with_thread_id;
use crate::cli::exit::{self, COULD_NOT, INTERRUPTED, TIMED_OUT};
use crate::cli::progress::{ProgressLine, Screen};
use crate::cli::runtime::unless_interrupted;
use crate::cli::stored::complain;
use crate::cli::times::took;

/// The number of events that are read at once, and of past events that are searched for the latest
/// step.
const PAGE: u32 = 50;
const PAST: u32 = TAIL;

const CODES: &str = "\
Exit codes: 0 all have completed, 1 one has failed, 2 one was cancelled, 3 the state is unknown \
(there is no such job, the store cannot be reached, the command line is wrong), 124 the --timeout \
has passed, 130 after Ctrl-C. If several apply, the first of 3, 124, 1, 2 counts. Ctrl-C ends the \
waiting, not the job.";

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct Args {
    /// The jobs: their IDs, or prefixes of them.
    #[arg(required = true, value_name = "ID")]
    jobs: Vec<JobPrefix>,

    /// Wait no longer than this, such as 90s or 2h. Default: until they have ended.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,

    /// Print each job as one line of JSON, whatever its outcome.
    #[arg(long)]
    json: bool,
}

/// The output for jobs that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputForm {
    /// Codex's final message.
    Message,
    /// The whole job as JSON.
    Json,
}

impl OutputForm {
    /// The form that `--json` selects.
    pub(super) fn of(json: bool) -> Self {
        match json {
            true => Self::Json,
            false => Self::Message,
        }
    }
}

/// The events that are printed while a job is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventsFrom {
    /// All events: the job was submitted just now.
    Beginning,
    /// The latest event, and those that follow.
    Now,
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let ids = find::find_all(jobs, &self.jobs).await?;
        let form = OutputForm::of(self.json);
        wait(jobs, &ids, EventsFrom::Now, self.timeout, form).await
    }
}

/// Waits for jobs and prints their results. The exit code is that of the worst result.
pub(super) async fn wait(
    jobs: &Jobs,
    ids: &[JobId],
    from: EventsFrom,
    limit: Option<Duration>,
    form: OutputForm,
) -> Result<ExitCode, Failure> {
    let mut progress = ProgressLine::on_stderr();
    let waited = ids.iter().map(|id| WaitedJob::new(id, from)).collect();
    let ended = unless_interrupted(until_ended(jobs, waited, limit, &mut progress));
    let ended = ended.await.map_err(Failure::Runtime)?.transpose()?;
    progress.clear();
    if ended.is_none() {
        complain("interrupted", &wait_again_hint(ids));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let mut codes = Vec::new();
    for id in ids {
        let job = jobs.store().await?.get(id).await?;
        codes.push(match &job {
            Some(job) => {
                print(job, form, ids.len())?;
                exit::job_code(job.summary.state)
            }
            None => {
                complain("error", &format!("job {id} was removed meanwhile"));
                COULD_NOT
            }
        });
    }
    if codes.contains(&TIMED_OUT) {
        complain("waited too long", &wait_again_hint(ids));
    }
    Ok(ExitCode::from(exit::worst(codes)))
}

fn wait_again_hint(ids: &[JobId]) -> String {
    let names: Vec<&str> = ids.iter().map(short).collect();
    let names = names.join(" ");
    let (what, them) = match ids {
        [_] => ("the job continues", "it"),
        _ => ("the jobs continue", "them"),
    };
    format!("{what}; `codex-mcp jobs wait {names}` waits for {them} again")
}

/// A job that is waited for.
struct WaitedJob<'a> {
    id: &'a JobId,
    /// Its last known state; `None` before the first read, and when the job was removed.
    summary: Option<JobSummary>,
    wait_state: WaitState,
    /// The number of the last event that was read; `None` before the first look, unless all events
    /// are printed.
    read: Option<u32>,
    /// The current step.
    activity: JobActivity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitState {
    Waiting,
    Finished,
}

/// Waits until the jobs have ended, or until the limit.
async fn until_ended(
    jobs: &Jobs,
    mut all: Vec<WaitedJob<'_>>,
    limit: Option<Duration>,
    progress: &mut ProgressLine,
) -> Result<(), Failure> {
    let began = Instant::now();
    let until = limit.and_then(|limit| began.checked_add(limit));
    let mut watcher = JobWatcher::begin(jobs).await?;
    loop {
        for one in all.iter_mut().filter(|one| one.is_under_way()) {
            one.print_news(&mut watcher, progress).await?;
        }
        let is_late = until.is_some_and(|until| Instant::now() >= until);
        if is_late || !all.iter().any(WaitedJob::is_under_way) {
            return Ok(());
        }
        progress.draw(&progress_text(&all, began.elapsed()));
        watcher.look_after(progress).await;
        match until {
            Some(until) => tokio::select! {
                () = watcher.changed() => {}
                () = sleep_until(until) => {}
            },
            None => watcher.changed().await,
        }
    }
}

fn progress_text(all: &[WaitedJob<'_>], elapsed: Duration) -> String {
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

impl<'a> WaitedJob<'a> {
    fn new(id: &'a JobId, from: EventsFrom) -> Self {
        Self {
            id,
            summary: None,
            wait_state: WaitState::Waiting,
            read: match from {
                EventsFrom::Beginning => Some(0),
                EventsFrom::Now => None,
            },
            activity: JobActivity::default(),
        }
    }

    fn is_under_way(&self) -> bool {
        self.wait_state == WaitState::Waiting
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
        job_json::waiting(self.summary.as_ref()?)
    }

    /// Reads what is new about the job and prints it.
    async fn print_news(
        &mut self,
        watcher: &mut JobWatcher<'_>,
        progress: &mut ProgressLine,
    ) -> Result<(), Failure> {
        // The earlier events are read before the state, so that everything a queued job does later
        // is printed.
        let earlier = match self.read {
            Some(_) => None,
            None => {
                let events = watcher.store().tail(self.id, PAST).await;
                let Some(events) = watcher.answer(events, progress)? else {
                    return Ok(());
                };
                Some(events)
            }
        };
        let summary = watcher.store().summary(self.id).await;
        let Some(summary) = watcher.answer(summary, progress)? else {
            return Ok(());
        };
        let before = (self.state(), self.wait());
        self.summary = summary;
        if before != (self.state(), self.wait()) {
            let was_waiting = match before {
                (Some(state), _) => state == JobState::Queued,
                (None, _) => earlier.is_none(),
            };
            self.print_state(was_waiting, progress);
        }
        if let Some(earlier) = earlier {
            self.begin(&earlier, progress);
        }
        match self.state() {
            None => self.wait_state = WaitState::Finished,
            Some(JobState::Queued) => {}
            Some(JobState::Running) => {
                self.listen(watcher, progress).await?;
            }
            Some(_) => self.end(watcher, progress).await?,
        }
        Ok(())
    }

    /// Prints the state; the final one is printed after the events. A job that was `was_waiting` and
    /// has ended ran between two looks.
    fn print_state(&self, was_waiting: bool, progress: &mut ProgressLine) {
        let Some(summary) = &self.summary else {
            return;
        };
        let has_run = was_waiting && summary.started_at.is_some();
        let state = match summary.state.has_ended() {
            true if has_run => JobState::Running,
            true => return,
            false => summary.state,
        };
        if progress.screen() == Screen::Plain {
            let wait = job_json::waiting(summary).map(|wait| format!(", {wait}"));
            let wait = wait.unwrap_or_default();
            progress.say(&format!("{} {state}{wait}", short(self.id)));
        }
    }

    /// Takes the events before the first look. If the job runs, its open questions and the latest
    /// event are printed.
    fn begin(&mut self, earlier: &[StoredEvent], progress: &mut ProgressLine) {
        self.read = Some(earlier.last().map_or(0, |event| event.sequence));
        if self.state() == Some(JobState::Running) {
            let is_shown =
                |event: &StoredEvent| event.kind != ASKED && event_line::line(event).is_some();
            let latest = earlier.iter().rposition(is_shown);
            self.print(earlier, latest.unwrap_or(earlier.len()), progress);
        }
    }

    /// Prints the next events, and returns their number; `None` while the store cannot be reached.
    async fn listen(
        &mut self,
        watcher: &mut JobWatcher<'_>,
        progress: &mut ProgressLine,
    ) -> Result<Option<usize>, Failure> {
        let read = self.read.unwrap_or_default();
        let events = watcher.store().events(self.id, read, PAGE).await;
        let Some(events) = watcher.answer(events, progress)? else {
            return Ok(None);
        };
        self.read = Some(events.last().map_or(read, |event| event.sequence));
        self.print(&events, 0, progress);
        Ok(Some(events.len()))
    }

    /// Prints the rest of the events of a job that has ended, and its outcome. All events are stored
    /// by then.
    async fn end(
        &mut self,
        watcher: &mut JobWatcher<'_>,
        progress: &mut ProgressLine,
    ) -> Result<(), Failure> {
        loop {
            match self.listen(watcher, progress).await? {
                // The next look continues.
                None => return Ok(()),
                Some(0) => break,
                Some(_) => {}
            }
        }
        self.wait_state = WaitState::Finished;
        if let Some(summary) = &self.summary {
            progress.say(&ended_in_words(summary));
        }
        Ok(())
    }

    /// Prints events: the questions of a job that runs, and, where lines cannot be drawn again, all
    /// from the position `from` on.
    fn print(&mut self, events: &[StoredEvent], from: usize, progress: &mut ProgressLine) {
        let id = short(self.id);
        let is_running = self.state() == Some(JobState::Running);
        for (position, event) in events.iter().enumerate() {
            self.activity.take(event);
            let Some(words) = event_line::line(event) else {
                continue;
            };
            if event.kind == ASKED && is_running {
                progress.say(&format!(
                    "{id} {words}; `codex-mcp jobs show {id}` shows it"
                ));
            } else if position >= from && progress.screen() == Screen::Plain {
                progress.say(&format!("{id} {words}"));
            }
        }
    }
}

/// The outcome of a job and its duration, as text.
pub(super) fn ended_in_words(job: &JobSummary) -> String {
    let id = short(&job.id);
    let state = job.state;
    let after = match job.duration() {
        Some(time) => format!(" after {}", took(time)),
        None => String::new(),
    };
    match (&job.error, state) {
        (Some(error), JobState::Failed) => format!(
            "{id} {state}{after}: {}; `codex-mcp jobs show {id}` has the details",
            error.trim_end().trim_end_matches('.')
        ),
        _ => format!("{id} {state}{after}"),
    }
}

fn print(job: &Job, form: OutputForm, of: usize) -> Result<(), Failure> {
    if form == OutputForm::Json {
        return Ok(output::json_line(
            &with_thread_id(job_json::record(job, &[])).to_string(),
        )?);
    }
    let report = job_json::report_of(job);
    let mut warnings = report.failed_notifications();
    if job.summary.state == JobState::Completed {
        warnings.extend(report.problems());
    }
    for warning in warnings {
        let id = short(&job.summary.id);
        complain("warning", &format!("{id} {}", visible_line(&warning)));
    }
    if job.summary.state != JobState::Completed {
        return Ok(());
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
