//! The sessions of all hosts, as the hosts tell them.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use common::sync::lock;
use host_process::connect::{self, ConnectError};
use host_process::endpoint::HostEndpoint;
use host_process::logic::handshake::{
    Answer, SessionAct, SessionAnswer, SessionRequest, SessionSummary, WatchRequest,
};
use job_queue::question::NamedQuestion;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How often new hosts are looked for.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// How long a session that has just begun is waited for. It takes about 0.1 s.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// By how much two beginnings of a step of the same words may differ to be the same.
const SAME_STEP: Duration = Duration::from_millis(200);

/// A session of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveSession {
    /// The host that has it.
    pub endpoint: HostEndpoint,
    /// The host's summary of it.
    pub summary: SessionSummary,
    /// Its open questions.
    pub questions: Vec<NamedQuestion>,
}

impl LiveSession {
    /// Whether the known questions are those of a summary, with the same expiry.
    fn has_questions_of(&self, summary: &SessionSummary) -> bool {
        let known = self.questions.iter().map(|one| &one.id);
        known.eq(&summary.questions) && self.summary.expiries == summary.expiries
    }
}

/// Why something cannot be done with a session.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// No host has the session.
    #[error("there is no such session; it may have ended with its host process")]
    Unknown,
    /// The request makes no sense.
    #[error("{0}")]
    Wrong(String),
    /// It cannot be done now.
    #[error("{0}")]
    Refused(String),
    /// It cannot be done while a turn runs.
    #[error("{0}")]
    Busy(String),
    /// The host cannot be reached.
    #[error(transparent)]
    Host(#[from] ConnectError),
    /// A call of a tool failed.
    #[error("{0}")]
    Failed(String),
    /// The host's answer has no known form.
    #[error("unexpected answer from the host process")]
    UnexpectedAnswer,
}

/// Why a session that began under other bounds is given no more work.
const UNBOUND: &str = "this session may exceed the configured bounds (max_sandbox, allow_commands, allow_dirs): \
    here it can only be interrupted and ended; use `codex-mcp approve` or `codex-mcp steer` at a shell";

/// Which sessions may be given more work.
#[derive(Debug)]
struct Bounded {
    /// The key of their host.
    host: String,
    /// The bounds under which they began, as [`SessionSummary`] has them.
    bounds: String,
}

impl Bounded {
    fn has(&self, session: &LiveSession) -> bool {
        session.endpoint.key() == self.host && session.summary.bounds == self.bounds
    }
}

/// The hosts of the user.
#[derive(Debug)]
pub struct Hosts {
    state: PathBuf,
    /// The only sessions that may be given more work; all if `None`.
    bounded_to: Option<Bounded>,
    /// The sessions, by the key of their host.
    sessions: Mutex<BTreeMap<String, Vec<Arc<LiveSession>>>>,
    revision: watch::Sender<u64>,
}

impl Hosts {
    /// The hosts in a state directory. [`Hosts::follow`] has to run concurrently.
    #[must_use]
    pub fn new(state: PathBuf) -> Self {
        Self {
            state,
            bounded_to: None,
            sessions: Mutex::default(),
            revision: watch::Sender::new(0),
        }
    }

    /// Gives more work only to the sessions of the host with this key that began under these bounds,
    /// as [`SessionSummary`] has them: others may exceed the bounds of this process.
    #[must_use]
    pub fn bounded_to(mut self, host: String, bounds: String) -> Self {
        self.bounded_to = Some(Bounded { host, bounds });
        self
    }

    /// All sessions.
    pub fn sessions(&self) -> Vec<Arc<LiveSession>> {
        lock(&self.sessions).values().flatten().cloned().collect()
    }

    /// The session with this ID.
    pub fn session(&self, id: &str) -> Option<Arc<LiveSession>> {
        let all = lock(&self.sessions);
        let found = all.values().flatten().find(|one| one.summary.session == id);
        found.cloned()
    }

    /// Changes when a session has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Follows all hosts, also those that are started later, for ever.
    pub async fn follow(self: Arc<Self>) {
        let followed: Arc<Mutex<HashSet<String>>> = Arc::default();
        loop {
            match HostEndpoint::all(&self.state) {
                Ok(endpoints) => {
                    for endpoint in endpoints {
                        let key = endpoint.key().to_owned();
                        if lock(&followed).insert(key.clone()) {
                            let (hosts, followed) = (Arc::clone(&self), Arc::clone(&followed));
                            tokio::spawn(async move {
                                if let Err(error) = hosts.follow_one(&endpoint).await {
                                    tracing::warn!("a host process cannot be watched: {error}");
                                }
                                hosts.set(&key, Vec::new());
                                lock(&followed).remove(&key);
                            });
                        }
                    }
                }
                Err(error) => tracing::warn!("cannot look for host processes: {error}"),
            }
            sleep(LOOK_AFTER).await;
        }
    }

    /// Follows a host until it has gone.
    async fn follow_one(&self, endpoint: &HostEndpoint) -> Result<(), ConnectError> {
        let Some(mut told) = connect::watch(endpoint, WatchRequest::Sessions).await? else {
            return Ok(());
        };
        while let Some(Answer::Sessions(sessions)) = told.next().await? {
            let mut live = Vec::new();
            for summary in sessions {
                let questions = self.questions(endpoint, &summary).await?;
                live.push(Arc::new(LiveSession {
                    endpoint: endpoint.clone(),
                    summary: self.with_known_step(summary),
                    questions,
                }));
            }
            self.set(endpoint.key(), live);
        }
        Ok(())
    }

    /// The open questions of a session: those that are known, or else the host is asked.
    async fn questions(
        &self,
        endpoint: &HostEndpoint,
        summary: &SessionSummary,
    ) -> Result<Vec<NamedQuestion>, ConnectError> {
        if summary.questions.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(known) = self.session(&summary.session)
            && known.has_questions_of(summary)
        {
            return Ok(known.questions.clone());
        }
        match ask(endpoint, &summary.session, SessionAct::Look).await {
            Ok(SessionAnswer::Found { questions, .. }) => {
                let read = |question| serde_json::from_value(question).ok();
                Ok(questions.into_iter().filter_map(read).collect())
            }
            // The answer is too long or malformed, which must not hide the host's other sessions.
            Err(ActError::Host(error @ ConnectError::Unclear(_))) => {
                tracing::warn!("the questions of a session cannot be read: {error}");
                Ok(Vec::new())
            }
            Err(ActError::Host(error)) => Err(error),
            // It has ended meanwhile.
            Ok(_) | Err(_) => Ok(Vec::new()),
        }
    }

    /// The summary with the beginning of its step as it is known: a host works that out anew each
    /// time, with a difference of microseconds.
    fn with_known_step(&self, mut summary: SessionSummary) -> SessionSummary {
        let known = self.session(&summary.session);
        let known = known.as_ref().and_then(|known| known.summary.step.as_ref());
        if let (Some(known), Some(step)) = (known, &mut summary.step)
            && known.words == step.words
            && is_about(known.since, step.since)
        {
            step.since = known.since;
        }
        summary
    }

    /// Completes when no host has a session, or none has it any longer.
    pub async fn until_gone(&self, id: &str) {
        let mut changes = self.changes();
        // Fails only without the sender, which this has.
        while self.session(id).is_some() && changes.changed().await.is_ok() {}
    }

    /// Whether no turn of a session runs, at some time before a deadline that is still to come.
    pub(crate) async fn turn_has_ended_by(&self, deadline: Instant, id: &str) -> bool {
        let mut changes = self.changes();
        let runs = || {
            self.session(id)
                .is_none_or(|live| live.summary.step.is_some())
        };
        let waiting = async { while runs() && changes.changed().await.is_ok() {} };
        Instant::now() < deadline && timeout_at(deadline, waiting).await.is_ok()
    }

    /// Waits until a host has a session that has just begun, for some seconds.
    pub async fn until_there(&self, id: &str) {
        let mut changes = self.changes();
        let waiting =
            async { while self.session(id).is_none() && changes.changed().await.is_ok() {} };
        // A page that is opened too early says that there is no such session.
        let _ = timeout(BEGIN_TIMEOUT, waiting).await;
    }

    fn set(&self, key: &str, sessions: Vec<Arc<LiveSession>>) {
        let before = match sessions.is_empty() {
            true => lock(&self.sessions).remove(key),
            false => lock(&self.sessions).insert(key.to_owned(), sessions.clone()),
        };
        if before.unwrap_or_default() != sessions {
            self.revision.send_modify(|revision| *revision += 1);
        }
    }

    /// A session that may be given more work here.
    pub(crate) fn workable(&self, id: &str) -> Result<Arc<LiveSession>, ActError> {
        let session = self.session(id).ok_or(ActError::Unknown)?;
        match &self.bounded_to {
            Some(bounded) if !bounded.has(&session) => Err(ActError::Refused(UNBOUND.to_owned())),
            _ => Ok(session),
        }
    }

    /// Has the host of a session do something that it only confirms.
    pub async fn act(&self, id: &str, act: SessionAct) -> Result<(), ActError> {
        let session = match act {
            SessionAct::Answer { .. } | SessionAct::Steer { .. } => self.workable(id)?,
            _ => self.session(id).ok_or(ActError::Unknown)?,
        };
        match ask(&session.endpoint, id, act).await? {
            SessionAnswer::Done => Ok(()),
            _ => Err(ActError::UnexpectedAnswer),
        }
    }
}

fn is_about(one: SystemTime, other: SystemTime) -> bool {
    let apart = one
        .duration_since(other)
        .or_else(|_| other.duration_since(one));
    apart.is_ok_and(|apart| apart < SAME_STEP)
}

async fn ask(
    endpoint: &HostEndpoint,
    session: &str,
    act: SessionAct,
) -> Result<SessionAnswer, ActError> {
    let request = SessionRequest {
        session: session.to_owned(),
        act,
    };
    match connect::act(endpoint, &request).await? {
        SessionAnswer::Unknown => Err(ActError::Unknown),
        SessionAnswer::Refused { why } => Err(ActError::Refused(why)),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{UnixListener, UnixStream};

    use super::*;

    /// Takes a request, and answers it with a line.
    async fn answer(listener: &UnixListener, proof: &str, line: &str) -> UnixStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let challenge = format!("{{\"file\":\"{proof}.proof\"}}\n");
        stream.write_all(challenge.as_bytes()).await.unwrap();
        let mut reader = BufReader::new(stream);
        let mut request = String::new();
        reader.read_line(&mut request).await.unwrap();
        let mut stream = reader.into_inner();
        let line = format!("{line}\n");
        stream.write_all(line.as_bytes()).await.unwrap();
        stream
    }

    fn summary(session: &str, questions: &[&str]) -> SessionSummary {
        SessionSummary {
            session: session.to_owned(),
            thread: "t".to_owned(),
            title: None,
            state: "waiting_approval".to_owned(),
            created: SystemTime::UNIX_EPOCH,
            step: None,
            tokens: None,
            usage: None,
            questions: questions.iter().map(|&id| id.to_owned()).collect(),
            expiries: Vec::new(),
            directory: None,
            bounds: String::new(),
        }
    }

    #[tokio::test]
    async fn unreadable_questions_hide_no_session_of_their_host() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let listener = lock.listen().unwrap();
        let sessions = vec![summary("sess_1", &["req_1"]), summary("sess_2", &[])];
        let told = json!(Answer::Sessions(sessions)).to_string();
        let host = async {
            let watched = answer(&listener, &"0".repeat(32), &told).await;
            drop(answer(&listener, &"1".repeat(32), "not JSON").await);
            drop(watched);
        };
        let hosts = Hosts::new(state.path().to_owned());
        let (followed, ()) = tokio::join!(hosts.follow_one(&endpoint), host);
        followed.unwrap();
        let sessions = hosts.sessions();
        let names = sessions.iter().map(|live| live.summary.session.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["sess_1", "sess_2"]);
    }
}
