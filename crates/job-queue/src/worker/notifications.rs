//! Notifications of the end of a job, also of one that has lost its worker, and alerts of a stalled
//! one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_team::Member;
use agent_team::logic::{AgentName, TeamName};
use codex_engine::logic::session::{Alert, AlertKind};
use common::text::one_line;
use goal_run::logic::criteria::Criteria;
use goal_run::logic::notifier::Notifier;
use goal_run::logic::outcome::blocked;
use goal_run::notify::{self, Alerts, Notice, NotifierContext, Timeouts};
use serde_json::{Value, json};

use super::cancel_handle::{CancelHandle, CancelReason};
use super::mail_question::JobQuestion;
use super::result::AttemptResult;
use super::{Options, admission, attempt_spec};
use crate::call_settings::CallSettings;
use crate::logic::{Ending, JobId, JobState};
use crate::report::FailureReport;
use crate::run::result;
use crate::run::spec::StoredRun;
use crate::store::{Job, Origin};

/// The time limit of each notifier after a cancellation, as the user waits for the end of the
/// job.
const CANCELLED_TIMEOUT: Duration = Duration::from_secs(4);

/// The time limit of each notifier of a job that its worker has given up. A worker that is ending
/// waits for these notifiers.
pub(super) const GIVEN_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The limit of a task name in a notification, in bytes.
const TASK: usize = 200;

/// The length of the ID prefix in a notification, in characters: enough for the command line.
const ID: usize = 8;

/// The notifiers of the user's settings. They are used for jobs that name no notifiers.
#[derive(Debug, Clone)]
pub struct UsualNotifiers {
    /// The notifiers.
    pub notify: Vec<Notifier>,
    /// The kinds of alerts that they get.
    pub kinds: Vec<AlertKind>,
    /// Whether agents among them may answer questions by mail.
    pub answer_by_mail: bool,
    /// The identity that the user has configured, which cannot answer.
    pub user_identity: Option<AgentName>,
    /// The home directory of teams.
    pub atm_home: PathBuf,
    /// The size at which the audit log of a sender is set aside, in bytes, also for the notifiers
    /// that a job names.
    pub audit_limit: u64,
}

/// Sends the notifications of a job.
pub(super) struct JobNotifier<'a> {
    job: &'a Job,
    notify: &'a [Notifier],
    /// The kinds of alerts that the notifiers get; all if `None`.
    kinds: Option<&'a [AlertKind]>,
    /// Whether agents among them may answer questions by mail.
    answer_by_mail: bool,
    /// The identity that the user has configured, which cannot answer.
    user_identity: Option<&'a AgentName>,
    team: Option<TeamName>,
    /// The home directory of teams.
    atm_home: PathBuf,
    /// The size at which the audit log of the sender is set aside, in bytes.
    audit_limit: u64,
    /// The directory in which commands run.
    directory: PathBuf,
}

/// The alerts of a running job.
pub(super) struct JobAlerts {
    alerts: Alerts,
    kinds: Option<Vec<AlertKind>>,
    answer_by_mail: bool,
}

impl JobAlerts {
    pub(super) fn give(&self, job: &JobId, alert: &Alert) {
        if includes(self.kinds.as_deref(), alert.kind()) {
            self.alerts.give(notice(job, alert));
        }
    }

    /// Tells of a question, which agents may answer by mail if the user allows it. One that an earlier
    /// worker has announced is mailed again, as nobody reads the answers to that mail any more.
    pub(super) fn ask(&self, question: JobQuestion) {
        if !self.answer_by_mail {
            if !question.is_announced {
                self.give(&question.job, &question.alert);
            }
        } else if includes(self.kinds.as_deref(), question.alert.kind()) {
            let notice = notice(&question.job, &question.alert);
            self.alerts.ask(notice, Arc::new(question));
        }
    }
}

fn includes(kinds: Option<&[AlertKind]>, kind: AlertKind) -> bool {
    kinds.is_none_or(|kinds| kinds.contains(&kind))
}

/// The notification of a job's end.
pub(super) struct EndNotice {
    pub(super) line: String,
    pub(super) result: Value,
}

impl<'a> JobNotifier<'a> {
    fn of_call(job: &'a Job, settings: &'a CallSettings, usual: &'a UsualNotifiers) -> Self {
        Self {
            team: settings.team.clone(),
            atm_home: settings.atm_home.clone().unwrap_or_default(),
            directory: job.request.cwd.clone().into(),
            ..Self::of(job, &settings.notify, usual)
        }
        .or(usual)
    }

    pub(super) fn of_run(job: &'a Job, stored: &'a StoredRun, usual: &'a UsualNotifiers) -> Self {
        Self {
            team: stored.team.clone(),
            atm_home: stored.atm_home.clone().unwrap_or_default().into(),
            directory: stored.spec.repo.clone(),
            ..Self::of(job, &stored.spec.notify, usual)
        }
        .or(usual)
    }

    fn of(job: &'a Job, notify: &'a [Notifier], usual: &'a UsualNotifiers) -> Self {
        Self {
            job,
            notify,
            kinds: None,
            answer_by_mail: false,
            user_identity: usual.user_identity.as_ref(),
            team: None,
            atm_home: PathBuf::new(),
            audit_limit: usual.audit_limit,
            directory: PathBuf::new(),
        }
    }

    /// Takes the usual notifiers if the job names none.
    fn or(self, usual: &'a UsualNotifiers) -> Self {
        match self.notify {
            [] => Self {
                notify: &usual.notify,
                kinds: Some(&usual.kinds),
                // The sender of the mail, whose inbox is read, is only known of our own jobs.
                answer_by_mail: usual.answer_by_mail && self.job.origin == Origin::ThisMachine,
                atm_home: usual.atm_home.clone(),
                ..self
            },
            _ => self,
        }
    }

    /// Starts the alerts of a running job, if anybody is to be notified.
    pub(super) fn alerts(&self) -> Option<JobAlerts> {
        let notify = self.notify.to_vec();
        let notifiers = self.notifiers(Timeouts::default());
        (!notify.is_empty()).then(|| JobAlerts {
            alerts: Alerts::start(notify, notifiers),
            kinds: self.kinds.map(<[AlertKind]>::to_vec),
            answer_by_mail: self.answer_by_mail,
        })
    }

    /// Sends the notification of the job's end, and returns the results as JSON. An ending worker
    /// sends none, so that it can store the result of the job in time.
    pub(super) async fn send(
        &self,
        cancel: &CancelHandle,
        news: impl Future<Output = EndNotice>,
    ) -> Option<Value> {
        if !self.is_told_of_ends() {
            return None;
        }
        match cancel.why() {
            Some(CancelReason::JobCancelled) => {
                let timeouts = within(CANCELLED_TIMEOUT);
                Some(self.send_to_all(&news.await, timeouts).await)
            }
            _ => {
                let notifier = async { self.send_to_all(&news.await, Timeouts::default()).await };
                cancel.token.run_until_cancelled(notifier).await
            }
        }
    }

    /// Sends the notification of a job that has ended without a result.
    async fn send_without_result(&self, timeouts: Timeouts) {
        if self.is_told_of_ends() {
            self.send_to_all(&news_without_result(self.job), timeouts)
                .await;
        }
    }

    fn is_told_of_ends(&self) -> bool {
        !self.notify.is_empty() && includes(self.kinds, AlertKind::Ends)
    }

    async fn send_to_all(&self, news: &EndNotice, timeouts: Timeouts) -> Value {
        let notifier = notify::Notification {
            line: &news.line,
            result: &news.result,
        };
        let told = notify::notify_all(self.notify, notifier, &self.notifiers(timeouts)).await;
        for told in &told {
            if let Err(error) = &told.result {
                tracing::warn!("cannot notify {}: {error}", told.to);
            }
        }
        json!(told)
    }

    /// The context of the notifiers, with the job's submitter as the sender.
    fn notifiers(&self, timeouts: Timeouts) -> NotifierContext {
        let identity = self.job.request.submitted_by.as_deref();
        let identity = identity.and_then(|identity| identity.parse().ok());
        NotifierContext {
            member: identity.map(|identity| Member {
                identity,
                team: self.team.clone(),
            }),
            user_identity: self.user_identity.cloned(),
            mail_client: None,
            atm_home: self.atm_home.clone(),
            audit_limit: self.audit_limit,
            directory: self.directory.clone(),
            env: Vec::new(),
            timeouts,
        }
    }
}

/// Starts the alerts of a call, if anybody is to be notified.
pub(super) fn alerts_of_call(job: &Job, options: &Options) -> Option<JobAlerts> {
    let settings = settings_of_call(job, options)?;
    JobNotifier::of_call(job, &settings, &options.notifiers).alerts()
}

/// The settings of a call, if it and the notifiers that it names may run here.
fn settings_of_call(job: &Job, options: &Options) -> Option<CallSettings> {
    let settings = CallSettings::of(&job.request).ok()?;
    may_run_here(job, &settings.notify, options).then_some(settings)
}

/// Whether a job and its notifiers may run here.
fn may_run_here(job: &Job, notify: &[Notifier], options: &Options) -> bool {
    let criteria = Criteria::default();
    admission::check(job, options).is_ok()
        && attempt_spec::bounds(job, options)
            .is_ok_and(|bounds| bounds.check_run(&criteria, notify, false).is_ok())
}

/// The same time limit for each kind of notifier.
pub(super) fn within(limit: Duration) -> Timeouts {
    Timeouts {
        mail: limit,
        irc: limit,
        command: limit,
        web: limit,
    }
}

/// The notice of an alert of a running job.
fn notice(job: &JobId, alert: &Alert) -> Notice {
    let names = json!({ "job_id": job });
    Notice::of(&format!("job {}", short(job)), &names, alert)
}

fn short(job: &JobId) -> &str {
    let id = job.as_str();
    id.get(..ID).unwrap_or(id)
}

/// Sends the notifications of the end of a call, and returns the results. Nothing is sent for a
/// call that may not run here.
pub(super) async fn of_call(
    job: &Job,
    options: &Options,
    ending: Ending,
    done: &AttemptResult,
    cancel: &CancelHandle,
) -> Option<Value> {
    let settings = settings_of_call(job, options)?;
    let notifier = JobNotifier::of_call(job, &settings, &options.notifiers);
    notifier
        .send(cancel, async { news(job, ending, done) })
        .await
}

/// Sends the notification of the end of a call or a run whose worker was lost or has given it up.
/// Sends nothing for a job that may not run here. Except for its state and error, `job` must be as
/// it was before it ended, as ending it masks credentials in its notifiers and removes its
/// signature.
pub(super) async fn of_lost(job: &Job, options: &Options, timeouts: Timeouts) {
    let usual = &options.notifiers;
    match StoredRun::of(&job.request) {
        Some(Ok(stored)) if may_run_here(job, &stored.spec.notify, options) => {
            let notifier = JobNotifier::of_run(job, &stored, usual);
            notifier.send_without_result(timeouts).await;
        }
        Some(_) => {}
        None => {
            if let Some(settings) = settings_of_call(job, options) {
                let notifier = JobNotifier::of_call(job, &settings, usual);
                notifier.send_without_result(timeouts).await;
            }
        }
    }
}

/// `BLOCKED :: job ID: WHY`.
fn news_without_result(job: &Job) -> EndNotice {
    let summary = &job.summary;
    let why = summary.error.as_deref().unwrap_or(summary.state.as_str());
    let result = result::of(job).unwrap_or_else(|| {
        json!({
            "job_id": summary.id,
            "status": summary.state,
            "task_name": summary.task_name,
            "cwd": summary.cwd,
            "session_id": summary.session_id,
            "response": null,
            "error": summary.error,
            "problems": [],
        })
    });
    EndNotice {
        line: blocked(&format!("job {}: {why}", short(&summary.id))),
        result,
    }
}

/// `DONE job ID :: TASK` or `BLOCKED :: job ID: WHY`.
fn news(job: &Job, ending: Ending, done: &AttemptResult) -> EndNotice {
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
    EndNotice { line, result }
}
