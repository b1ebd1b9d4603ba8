//! The lists, and what somebody does from them.

use std::sync::Arc;
use std::time::Duration;

use codex_engine::command::LONGEST_WAIT;
use codex_engine::logic::action::Decision;
use codex_engine::logic::cost::Prices;
use common::json::merged;
use common::text::one_line;
use goal_run::PAGE_CLIENT;
use host_process::connect::{self, ConnectError, Watch};
use host_process::logic::handshake::{Answer, Door, SessionAct, SessionAnswer, WatchRequest};
use job_queue::logic::JobPrefix;
use job_queue::run::spec::TOOL as RUN_TOOL;
use job_queue::service::{Response, decision_for};
use safe_files::off_runtime;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::hosts::{ActError, Hosts, LiveSession, NEXT_HOST_PAUSE};
use crate::jobs::JobBoard;
use crate::latest::{FILES_TIMEOUT, Latest};
use crate::link::{Connect, Remains, StartAwaited};
use crate::mail::MailBoard;
use crate::program::{Program, Resubmitted, RetryError, ThreadRecord};
use crate::tools;
use crate::work::{AllWork, Work};

/// The pause before a host that was lost is looked for again.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a session may be without a host: a host that was killed is followed by another one.
const LOST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a read of the jobs is waited for. It takes some milliseconds.
const JOBS_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval between two checks whether a host was killed that is not followed yet.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The pause after a host was started for waiting app-servers. It doubles with each further start, up to
/// the longest, so that a host that always fails is not restarted in a loop. App-servers wait longer.
const START_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_START_PAUSE: Duration = Duration::from_secs(10);

/// The time without a start after which the pause is the first one again. A start takes 20 s at most.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// The ways to a host.
pub struct Connections {
    /// As a client of the classic tools.
    pub classic: Arc<Connect>,
    /// As a client of the session tools.
    pub sessions: Arc<Connect>,
    /// As a client that only reads what the classic server offers. It has another identity than clients
    /// that work, as it may not be gone when the first of them comes.
    pub probe: Arc<Connect>,
    /// Returns the remains of the last host of these clients.
    pub remains: Arc<Remains>,
    /// Starts the next host of these clients, if app-servers of a killed one wait for it.
    pub start_awaited: Arc<StartAwaited>,
}

/// How long the end of a turn that takes no message any more may be unknown here, from when the message
/// was sent. It takes about 0.1 s. A message about which the host says nothing for longer may have
/// reached Codex, and is not sent again.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest part of a wrong decision in a message, in bytes.
const SHOWN: usize = 60;

/// A session to be started.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// The first prompt.
    pub prompt: String,
    /// The directory in which Codex works.
    pub directory: String,
    /// Codex's name of a sandbox.
    pub sandbox: String,
    /// Codex's name of a policy for approvals.
    pub approvals: String,
}

/// A run to be started.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// The task.
    pub task: String,
    /// The directory in which Codex works.
    pub directory: String,
    /// Codex's name of a sandbox.
    pub sandbox: String,
    /// The criteria, as the tool `codex_run` takes it.
    pub criteria: Map<String, Value>,
}

/// The outcome of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompted {
    /// It was added to the turn that runs.
    Steered,
    /// It has begun a turn.
    Sent,
}

/// All work, and the ways to act on it.
pub struct WorkBoard {
    /// The sessions.
    pub hosts: Arc<Hosts>,
    /// The jobs and runs.
    pub jobs: Arc<JobBoard>,
    /// The jobs and runs as they are listed.
    listed_jobs: Latest<Vec<Work>>,
    /// The recorded threads. Those who ask for them at the same time share a read.
    recorded_threads: Latest<Vec<ThreadRecord>>,
    /// The mail of the team.
    pub mail: MailBoard,
    /// The ways to a host.
    pub connections: Connections,
    program: Arc<dyn Program>,
    prices: Prices,
}

impl WorkBoard {
    /// A board of these hosts. [`WorkBoard::follow`] has to run concurrently.
    #[must_use]
    pub fn new(
        hosts: Hosts,
        jobs: JobBoard,
        mail: MailBoard,
        connections: Connections,
        program: Arc<dyn Program>,
        prices: Prices,
    ) -> Self {
        Self {
            hosts: Arc::new(hosts),
            jobs: Arc::new(jobs),
            listed_jobs: Latest::new(JOBS_TIMEOUT),
            recorded_threads: Latest::new(FILES_TIMEOUT),
            mail,
            connections,
            program,
            prices,
        }
    }

    /// Follows all hosts, and starts the next one when a host was killed, for ever.
    pub async fn follow(self: Arc<Self>) {
        tokio::join!(
            Arc::clone(&self.hosts).follow(),
            self.replace_killed_hosts()
        );
    }

    /// Sessions may have no client that would start the next host.
    async fn replace_killed_hosts(&self) {
        let mut last_start = None;
        loop {
            let pause = match (self.connections.start_awaited)().await {
                Ok(false) => {
                    let _ = timeout(LOOK_AFTER, self.hosts.until_one_is_lost()).await;
                    NEXT_HOST_PAUSE
                }
                Ok(true) => pause_after_start(&mut last_start),
                Err(error) => {
                    tracing::warn!("the next host process cannot be started: {error}");
                    pause_after_start(&mut last_start)
                }
            };
            sleep(pause).await;
        }
    }

    /// All work now, the newest first. Jobs that cannot be listed now, and sessions whose host was killed,
    /// are shown as they were last, so that a question that somebody is answering does not look closed.
    pub async fn work(&self) -> AllWork {
        let jobs = Arc::clone(&self.jobs);
        let listing = async move { jobs.list().await };
        let (mut work, failure) = self.listed_jobs.read(listing).await;
        let failure = failure.map(|why| {
            format!("the jobs cannot be listed now; some may have changed or be missing: {why}")
        });
        // The jobs may have taken a while.
        let sessions = self.hosts.sessions();
        let lost = self.hosts.is_any_lost().then(|| {
            let why = ConnectError::BetweenHosts;
            format!("some sessions may have changed or be missing: {why}")
        });
        let failure = match (failure, lost) {
            (Some(jobs), Some(sessions)) => Some(format!("{jobs}; {sessions}")),
            (jobs, sessions) => jobs.or(sessions),
        };
        work.extend(sessions.iter().map(|one| self.work_of(one)));
        work.sort_by_key(|one| std::cmp::Reverse(one.created));
        AllWork { work, failure }
    }

    /// The session as work, if a host has it, or had it when it was killed.
    #[must_use]
    pub fn session(&self, id: &str) -> Option<Work> {
        self.hosts.session(id).map(|live| self.work_of(&live))
    }

    /// The session as work. If its host was killed, the next one is waited for.
    ///
    /// # Errors
    ///
    /// Those of [`Hosts::find`].
    pub async fn find_session(&self, id: &str) -> Result<Work, ActError> {
        let live = self.hosts.find(id).await?;
        Ok(self.work_of(&live))
    }

    fn work_of(&self, session: &LiveSession) -> Work {
        Work::of_session(session, &self.prices)
    }

    /// Follows a session, from one host to the next, until it has been without one for a minute.
    /// `next` tells the number of the first event that is not known yet.
    pub async fn follow_session(
        &self,
        id: &str,
        next: impl Fn() -> u64,
        mut take: impl FnMut(SessionAnswer),
    ) {
        let mut follower = self.follower(id);
        while let Some(answer) = follower.next(&next).await {
            take(answer);
        }
    }

    /// Follows a session at the pace of the caller. The host waits for a caller that is slow.
    #[must_use]
    pub fn follower(&self, id: &str) -> SessionFollower {
        SessionFollower {
            hosts: Arc::clone(&self.hosts),
            session: id.to_owned(),
            told: None,
            lost: Instant::now(),
        }
    }

    /// Answers a question of a session.
    ///
    /// # Errors
    ///
    /// [`ActError`], such as that somebody else was first, with the decision and where it was made.
    pub async fn answer(
        &self,
        id: &str,
        question: &str,
        response: Response,
        door: Door,
    ) -> Result<(), ActError> {
        let live = self.hosts.find(id).await?;
        let open = live.questions.iter().find(|one| one.id == question);
        let decision = match open {
            Some(open) => decision_for(question, &open.question, response)
                .map(Some)
                .map_err(|error| ActError::Wrong(error.to_string()))?,
            // The host knows more: that it is open, or how it was closed, and by whom.
            None => decision_of(response)?,
        };
        let act = SessionAct::Answer {
            question: question.to_owned(),
            decision: json!(decision),
            reason: None,
            door,
        };
        self.hosts.act(id, act).await
    }

    /// Adds a message to the turn that runs, or begins the next turn with it.
    ///
    /// # Errors
    ///
    /// [`ActError`].
    pub async fn prompt(&self, id: &str, text: String) -> Result<Prompted, ActError> {
        let live = self.hosts.workable(id).await?;
        if live.summary.step.is_some() {
            let deadline = Instant::now() + END_TIMEOUT;
            let steer = SessionAct::Steer { text: text.clone() };
            let Err(error) = self.hosts.act(id, steer).await else {
                return Ok(Prompted::Steered);
            };
            let is_refusal = matches!(error, ActError::Refused(_));
            if !is_refusal || !self.hosts.turn_has_ended_by(deadline, id).await {
                return Err(error);
            }
        }
        let arguments = json!({ "sessionId": id, "prompt": text });
        let host = Some(live.endpoint.clone());
        match tools::call(&*self.connections.sessions, host, "codex_reply", arguments).await {
            Ok(_) => Ok(Prompted::Sent),
            // A turn has just begun, which is not known here yet.
            Err(busy @ ActError::Busy(_)) => {
                match self.hosts.act(id, SessionAct::Steer { text }).await {
                    Ok(()) => Ok(Prompted::Steered),
                    Err(ActError::Refused(_)) => Err(busy),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Forks a session, and returns the ID of the new one.
    ///
    /// # Errors
    ///
    /// [`ActError`].
    pub async fn fork(&self, id: &str) -> Result<String, ActError> {
        let live = self.hosts.workable(id).await?;
        let arguments = json!({ "action": "fork", "sessionId": id });
        let host = Some(live.endpoint.clone());
        let connect = &*self.connections.sessions;
        let forked = tools::call(connect, host, "codex_session", arguments).await?;
        self.begun(&forked).await
    }

    /// Starts a session, and returns its ID.
    ///
    /// # Errors
    ///
    /// [`ActError`].
    pub async fn start(&self, new: NewSession) -> Result<String, ActError> {
        let connect = &*self.connections.sessions;
        let started = tools::call(connect, None, "codex", new.arguments()).await;
        self.begun(&started.map_err(tools::about_form)?).await
    }

    /// The recorded threads, those that were used last first.
    ///
    /// # Errors
    ///
    /// Why they cannot be read, for a person.
    pub async fn threads(&self) -> Result<Vec<ThreadRecord>, String> {
        let program = Arc::clone(&self.program);
        let reading = async move {
            match off_runtime::run(move || program.threads()).await {
                Ok(read) => read,
                Err(error) => Err(error.to_string()),
            }
        };
        let (mut records, failure) = self.recorded_threads.read(reading).await;
        if let Some(why) = failure {
            return Err(why);
        }
        let sessions = self.hosts.sessions();
        let sessions = sessions.iter().map(|live| self.work_of(live));
        let live: Vec<Work> = sessions.filter(|work| !work.is_cancelled()).collect();
        for record in &mut records {
            let mut live = live.iter();
            if let Some(work) = live.find(|work| work.thread.as_ref() == Some(&record.thread)) {
                record.status.clone_from(&work.state);
                record.session = Some(work.id.clone());
            }
        }
        Ok(records)
    }

    /// Opens a thread that no host has, and returns the ID of its session.
    ///
    /// # Errors
    ///
    /// [`ActError`].
    pub async fn resume(&self, thread: &str, directory: Option<&str>) -> Result<String, ActError> {
        let arguments = resume_arguments(thread, directory);
        let connect = &*self.connections.sessions;
        let resumed = tools::call(connect, None, "codex_session", arguments).await;
        self.begun(&resumed.map_err(tools::about_form)?).await
    }

    /// Starts the run of a form on the page, and returns the ID of its job.
    ///
    /// # Errors
    ///
    /// [`ActError`].
    pub async fn start_run(&self, new: NewRun) -> Result<String, ActError> {
        let arguments = json!({
            "task": new.task,
            "repo": new.directory,
            "sandbox": new.sandbox,
            "exit_criteria": new.criteria,
        });
        let submitted = self.submit_run_as(PAGE_CLIENT, arguments).await;
        submitted.map_err(tools::about_form)
    }

    /// Starts a run with the arguments of the tool `codex_run`, and returns the ID of its job.
    ///
    /// # Errors
    ///
    /// [`ActError`].
    pub async fn submit_run(&self, arguments: Value) -> Result<String, ActError> {
        self.submit_run_as(tools::CLIENT, arguments).await
    }

    async fn submit_run_as(&self, client: &str, arguments: Value) -> Result<String, ActError> {
        let arguments = merged(arguments, json!({ "wait_ms": 0 }));
        let connect = &*self.connections.classic;
        let started = tools::call_as(client, connect, None, RUN_TOOL, arguments).await?;
        let id = started.get("job_id").and_then(Value::as_str);
        let id = id.ok_or(ActError::UnexpectedAnswer)?;
        Ok(id.to_owned())
    }

    /// Submits a job that has ended once more, for a person at this door.
    ///
    /// # Errors
    ///
    /// [`ActError::Refused`] with the reason.
    pub async fn retry(&self, job: JobPrefix, door: Door) -> Result<Resubmitted, RetryError> {
        self.program.retry(job, door).await
    }

    /// The command that logs Codex in, if it has no login, without which new jobs fail.
    pub async fn missing_login(&self) -> Option<String> {
        self.program.missing_login().await
    }

    /// The ID of a session that has just begun, when a host has it.
    async fn begun(&self, answer: &Value) -> Result<String, ActError> {
        let id = answer["sessionId"]
            .as_str()
            .ok_or(ActError::UnexpectedAnswer)?;
        self.hosts.until_there(id).await;
        Ok(id.to_owned())
    }
}

/// Follows a session, from one host to the next.
#[derive(Debug)]
pub struct SessionFollower {
    hosts: Arc<Hosts>,
    session: String,
    /// The connection to the present host.
    told: Option<Watch>,
    /// When the last host was lost, or this was created.
    lost: Instant,
}

impl SessionFollower {
    /// What a host tells next; `None` when the session has been without a host for a minute. `next`
    /// tells the number of the first event that is not known yet.
    pub async fn next(&mut self, next: impl Fn() -> u64) -> Option<SessionAnswer> {
        loop {
            if let Some(told) = &mut self.told {
                let answer = tokio::select! {
                    answer = told.next() => answer,
                    () = self.hosts.until_gone(&self.session) => Ok(None),
                };
                match answer {
                    Ok(Some(Answer::Session(answer @ SessionAnswer::News { .. }))) => {
                        return Some(answer);
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!("a session cannot be watched: {error}"),
                }
                self.told = None;
                self.lost = Instant::now();
                sleep(PAUSE).await;
            }
            if self.lost.elapsed() >= LOST_TIMEOUT {
                return None;
            }
            match self.connect(next()).await {
                Some(told) => self.told = Some(told),
                None => sleep(PAUSE).await,
            }
        }
    }

    /// Connects to the host that has the session.
    async fn connect(&self, from: u64) -> Option<Watch> {
        let live = self.hosts.session(&self.session)?;
        let session = self.session.clone();
        let request = WatchRequest::Session { session, from };
        match connect::watch(&live.endpoint, request).await {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!("a session cannot be watched: {error}");
                None
            }
        }
    }
}

impl NewSession {
    /// The arguments of the tool `codex`.
    fn arguments(&self) -> Value {
        json!({
            "prompt": self.prompt,
            "cwd": self.directory,
            "sandbox": self.sandbox,
            "approvalPolicy": self.approvals,
            "advanced": unattended(),
        })
    }
}

/// The arguments of the tool `codex_session` that open a thread.
fn resume_arguments(thread: &str, directory: Option<&str>) -> Value {
    let arguments = json!({ "action": "resume", "threadId": thread, "advanced": unattended() });
    match directory {
        Some(directory) => merged(arguments, json!({ "cwd": directory })),
        None => arguments,
    }
}

/// The settings of a session that no client watches: people look at the page now and then, and its
/// looks do not count as showing a question.
fn unattended() -> Value {
    json!({ "approvalTimeoutMs": LONGEST_WAIT.as_secs() * 1000 })
}

/// The decision of a response that names one.
fn decision_of(response: Response) -> Result<Option<Decision>, ActError> {
    match response {
        Response::Decision(decision) => Ok(Some(decision)),
        Response::Json(given) => {
            let given = one_line(&given.to_string(), SHOWN);
            Err(ActError::Wrong(format!(
                "{given} is no decision; `decisions` of an open question has those that it offers"
            )))
        }
        Response::Rule | Response::Words(_) | Response::Text(_) => Ok(None),
    }
}

/// The pause after a host was started, or could not be. `last` has the time of the start before, and the
/// pause after it.
fn pause_after_start(last: &mut Option<(Instant, Duration)>) -> Duration {
    let recent = last.filter(|(at, _)| at.elapsed() < SETTLED_AFTER);
    let pause = recent.map_or(START_PAUSE, |(_, pause)| {
        pause.saturating_mul(2).min(LONGEST_START_PAUSE)
    });
    *last = Some((Instant::now(), pause));
    pause
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn host_that_is_killed_twice_is_replaced_soon_and_one_that_always_fails_is_not() {
        let mut last = None;
        assert!(pause_after_start(&mut last) < Duration::from_secs(1));
        let pauses: Vec<_> = (0..8).map(|_| pause_after_start(&mut last)).collect();
        assert!(pauses.is_sorted());
        assert_eq!(pauses.last(), Some(&LONGEST_START_PAUSE));
        advance(SETTLED_AFTER).await;
        assert_eq!(pause_after_start(&mut last), START_PAUSE);
    }

    #[test]
    fn questions_of_sessions_of_the_page_stay_open_for_a_day() {
        let new = NewSession {
            prompt: "work".to_owned(),
            directory: "/w".to_owned(),
            sandbox: "read-only".to_owned(),
            approvals: "untrusted".to_owned(),
        };
        let day = json!({ "approvalTimeoutMs": 86_400_000 });
        assert_eq!(new.arguments().get("advanced"), Some(&day));
        let resumed = resume_arguments("t", Some("/w"));
        let expected = json!({ "action": "resume", "threadId": "t", "cwd": "/w", "advanced": day });
        assert_eq!(resumed, expected);
        assert_eq!(resume_arguments("t", None).get("advanced"), Some(&day));
    }
}
