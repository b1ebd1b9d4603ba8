//! Telling others of the end of a job, and that it has stalled.

use std::path::PathBuf;
use std::time::Duration;

use agent_team::Member;
use agent_team::logic::TeamName;
use codex_engine::logic::session::Alert;
use common::text::one_line;
use goal_run::logic::criteria::Criteria;
use goal_run::logic::notifier::Notifier;
use goal_run::logic::outcome::blocked;
use goal_run::notify::{self, Alerts, Notice, Patience, Teller};
use serde_json::{Value, json};

use super::cancel_handle::{CancelHandle, CancelReason};
use super::result::AttemptResult;
use super::{Options, admission, order};
use crate::call_settings::CallSettings;
use crate::logic::{Ending, JobId, JobState};
use crate::report::FailureReport;
use crate::run::order::Kept;
use crate::store::Job;

/// How long each is waited for where somebody waits for the end of a job that they
/// have called off.
const HASTE: Duration = Duration::from_secs(4);

/// How much of the name of a task is told, in bytes.
const TASK: usize = 200;

/// How many characters of a job's id are told: they name it at the command line.
const ID: usize = 8;

/// Who is told, and for whom.
pub(super) struct Telling<'a> {
    pub(super) job: &'a Job,
    pub(super) notify: &'a [Notifier],
    pub(super) team: Option<TeamName>,
    /// The home directory of teams.
    pub(super) atm_home: PathBuf,
    /// Where commands are run.
    pub(super) directory: PathBuf,
}

/// What is told.
pub(super) struct News {
    pub(super) line: String,
    pub(super) result: Value,
}

impl<'a> Telling<'a> {
    fn of_call(job: &'a Job, settings: &'a CallSettings) -> Self {
        Self {
            job,
            notify: &settings.notify,
            team: settings.team.clone(),
            atm_home: settings.atm_home.clone().unwrap_or_default(),
            directory: job.request.cwd.clone().into(),
        }
    }

    pub(super) fn of_run(job: &'a Job, kept: &'a Kept) -> Self {
        Self {
            job,
            notify: &kept.order.notify,
            team: kept.team.clone(),
            atm_home: kept.atm_home.clone().unwrap_or_default().into(),
            directory: kept.order.repo.clone(),
        }
    }

    /// Begins to tell them what happens while the job runs, if there is somebody to tell.
    pub(super) fn alerts(&self) -> Option<Alerts> {
        let notify = self.notify.to_vec();
        let teller = self.teller(Patience::default());
        (!notify.is_empty()).then(|| Alerts::start(notify, teller))
    }

    /// Tells it; what became of it, as JSON. A worker that ends tells nobody any more,
    /// so that what has come of the job is written down.
    pub(super) async fn tell(
        &self,
        cancel: &CancelHandle,
        news: impl Future<Output = News>,
    ) -> Option<Value> {
        match cancel.why() {
            Some(CancelReason::Unwanted) => {
                let patience = Patience {
                    mail: HASTE,
                    irc: HASTE,
                    command: HASTE,
                };
                Some(self.to_all(&news.await, patience).await)
            }
            _ => {
                let telling = async { self.to_all(&news.await, Patience::default()).await };
                cancel.token.run_until_cancelled(telling).await
            }
        }
    }

    async fn to_all(&self, news: &News, patience: Patience) -> Value {
        let telling = notify::Telling {
            line: &news.line,
            result: &news.result,
        };
        let told = notify::tell_all(self.notify, telling, &self.teller(patience)).await;
        for told in &told {
            if let Err(error) = &told.came {
                tracing::warn!("{} was not told: {error}", told.to);
            }
        }
        json!(told)
    }

    /// In the name of who has submitted the job.
    fn teller(&self, patience: Patience) -> Teller {
        let identity = self.job.request.submitted_by.as_deref();
        let identity = identity.and_then(|identity| identity.parse().ok());
        Teller {
            member: identity.map(|identity| Member {
                identity,
                team: self.team.clone(),
            }),
            mail_client: None,
            atm_home: self.atm_home.clone(),
            directory: self.directory.clone(),
            env: Vec::new(),
            patience,
        }
    }
}

/// Tells those whom a call names that its job has stalled, if it names any.
pub(super) fn alerts_of_call(job: &Job, options: &Options) -> Option<Alerts> {
    let settings = settings_of_call(job, options)?;
    Telling::of_call(job, &settings).alerts()
}

/// The settings of a call that names notifiers which may be run here.
fn settings_of_call(job: &Job, options: &Options) -> Option<CallSettings> {
    let settings = CallSettings::of(&job.request).ok()?;
    admission::check(job, options).ok()?;
    let bounds = order::bounds(job, options).ok()?;
    let criteria = Criteria::default();
    bounds.check_run(&criteria, &settings.notify, false).ok()?;
    (!settings.notify.is_empty()).then_some(settings)
}

/// What is told of a job that runs.
pub(super) fn notice(job: &JobId, alert: &Alert) -> Notice {
    let names = json!({ "job_id": job });
    Notice::of(&format!("job {}", short(job)), &names, alert)
}

fn short(job: &JobId) -> &str {
    let id = job.as_str();
    id.get(..ID).unwrap_or(id)
}

/// Tells those whom a call names how it ends; what became of it. What may not be run here
/// tells nobody.
pub(super) async fn of_call(
    job: &Job,
    options: &Options,
    ending: Ending,
    done: &AttemptResult,
    cancel: &CancelHandle,
) -> Option<Value> {
    let settings = settings_of_call(job, options)?;
    let telling = Telling::of_call(job, &settings);
    telling
        .tell(cancel, async { news(job, ending, done) })
        .await
}

/// `DONE job ID :: TASK` or `BLOCKED :: job ID: WHY`.
fn news(job: &Job, ending: Ending, done: &AttemptResult) -> News {
    let report = &done.report;
    let problems = report.problems();
    let id = job.summary.id.as_str();
    let short = short(&job.summary.id);
    let failure = report.failure.as_ref().map(FailureReport::in_words);
    let line = match ending {
        Ending::Completed => {
            let task = one_line(&job.summary.task_name, TASK);
            let but = match problems.len() {
                0 => String::new(),
                number => format!(" (problems: {number})"),
            };
            format!("DONE job {short} :: {task}{but}")
        }
        Ending::Failed => {
            let why = failure.as_deref().unwrap_or("failed");
            blocked(&format!("job {short}: {why}"))
        }
        Ending::Cancelled => blocked(&format!("job {short}: cancelled")),
    };
    let result = json!({
        "job_id": id,
        "status": JobState::from(ending),
        "task_name": job.summary.task_name,
        "cwd": job.summary.cwd,
        "session_id": done.session,
        "response": report.response,
        "error": failure,
        "problems": problems,
    });
    News { line, result }
}
