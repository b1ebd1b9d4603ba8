//! The sessions of all hosts, as the hosts tell them.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use common::sync::lock;
use host_process::connect::{self, ConnectError};
use host_process::endpoint::{HostEndpoint, HostRemains};
use host_process::logic::handshake::{
    Answer, SessionAct, SessionAnswer, SessionRequest, SessionSummary, WatchRequest,
};
use job_queue::question::NamedQuestion;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How often new hosts are looked for.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The pause before the next host of one that was killed is looked for, and started.
pub(crate) const NEXT_HOST_PAUSE: Duration = Duration::from_millis(100);

/// How long the next host of one that was killed is waited for. It takes less than a second, or longer
/// if hosts are killed again and again.
const NEXT_HOST_TIMEOUT: Duration = Duration::from_secs(15);

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

/// A host that answers, or that was killed and may be followed by another one.
#[derive(Debug, Default, PartialEq)]
struct KnownHost {
    /// Its sessions, as it told them last.
    sessions: Vec<Arc<LiveSession>>,
    /// When it was found to have gone, if the next one may have its sessions.
    lost: Option<Instant>,
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
    /// The hosts, by key.
    known: Mutex<BTreeMap<String, KnownHost>>,
    revision: watch::Sender<u64>,
}

impl Hosts {
    /// The hosts in a state directory. [`Hosts::follow`] has to run concurrently.
    #[must_use]
    pub fn new(state: PathBuf) -> Self {
        Self {
            state,
            bounded_to: None,
            known: Mutex::default(),
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

    /// All sessions. Those of a lost host are as it told them last.
    pub fn sessions(&self) -> Vec<Arc<LiveSession>> {
        let known = lock(&self.known);
        let all = known.values().flat_map(|host| &host.sessions);
        all.cloned().collect()
    }

    /// The session with this ID. One of a lost host is as it told it last.
    pub fn session(&self, id: &str) -> Option<Arc<LiveSession>> {
        let known = lock(&self.known);
        let mut all = known.values().flat_map(|host| &host.sessions);
        all.find(|one| one.summary.session == id).cloned()
    }

    /// The session with this ID. If its host was killed, the next one is waited for.
    ///
    /// # Errors
    ///
    /// [`ActError::Unknown`], and [`ConnectError::BetweenHosts`] if the next host does not come in time.
    pub async fn find(&self, id: &str) -> Result<Arc<LiveSession>, ActError> {
        self.find_by(Instant::now() + NEXT_HOST_TIMEOUT, id).await
    }

    async fn find_by(&self, deadline: Instant, id: &str) -> Result<Arc<LiveSession>, ActError> {
        let mut changes = self.changes();
        let finding = async {
            loop {
                let found = self.look_up(id);
                // Fails only without the sender, which this has.
                if !is_between_hosts(&found) || changes.changed().await.is_err() {
                    return found;
                }
            }
        };
        let found = timeout_at(deadline, finding).await;
        found.unwrap_or_else(|_| Err(ConnectError::BetweenHosts.into()))
    }

    /// The session with this ID, if its host is not lost.
    fn look_up(&self, id: &str) -> Result<Arc<LiveSession>, ActError> {
        if self.is_any_lost() {
            let known = lock(&self.known);
            let running = known.values().filter(|host| host.lost.is_none());
            let mut all = running.flat_map(|host| &host.sessions);
            let found = all.find(|one| one.summary.session == id).cloned();
            return found.ok_or_else(|| ConnectError::BetweenHosts.into());
        }
        self.session(id).ok_or(ActError::Unknown)
    }

    /// Whether a host was killed, and the next one may have its sessions.
    pub(crate) fn is_any_lost(&self) -> bool {
        lock(&self.known).values().any(|host| host.lost.is_some())
    }

    /// Whether the host of a session was killed, and the next one has not told its sessions yet.
    pub fn has_lost(&self, id: &str) -> bool {
        let known = lock(&self.known);
        let lost = known.values().filter(|host| host.lost.is_some());
        let mut sessions = lost.flat_map(|host| &host.sessions);
        sessions.any(|one| one.summary.session == id)
    }

    /// Completes when a host is lost.
    pub(crate) async fn until_one_is_lost(&self) {
        let mut changes = self.changes();
        while !self.is_any_lost() && changes.changed().await.is_ok() {}
    }

    /// Waits for the next host of each that is lost, for some seconds from its loss: a host of another
    /// environment may have no successor.
    pub async fn until_none_is_lost(&self) {
        let mut changes = self.changes();
        while let Some(until) = self.next_hosts_due() {
            // At the time limit, there may be another one, of a host that was lost meanwhile.
            if let Ok(Err(_)) = timeout_at(until, changes.changed()).await {
                return;
            }
        }
    }

    /// Until when the next hosts are waited for; `None` if there is nothing to wait for.
    fn next_hosts_due(&self) -> Option<Instant> {
        let known = lock(&self.known);
        let lost = known.values().filter_map(|host| host.lost);
        let due = lost.map(|at| at + NEXT_HOST_TIMEOUT);
        due.filter(|until| *until > Instant::now()).max()
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
                                hosts.follow_endpoint(&endpoint).await;
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

    /// Follows a host, and the next one each time that one was killed, until there is no next one.
    async fn follow_endpoint(&self, endpoint: &HostEndpoint) {
        loop {
            let followed = self.follow_one(endpoint).await;
            if let Err(error) = &followed {
                tracing::warn!("a host process cannot be watched: {error}");
            }
            let has_gone = followed.map_or_else(|error| error.is_of_lost_host(), |()| true);
            if !self.is_lost(endpoint, has_gone).await {
                break;
            }
            self.lose(endpoint.key());
            sleep(NEXT_HOST_PAUSE).await;
        }
        self.set(endpoint.key(), None);
    }

    /// Whether the next host may have the sessions of the last one, which could not be followed further.
    async fn is_lost(&self, endpoint: &HostEndpoint, has_gone: bool) -> bool {
        let was_lost = lock(&self.known)
            .get(endpoint.key())
            .map(|host| host.lost.is_some());
        let is_lost = match was_lost {
            // A host that ends by itself removes its socket first. The next one replaces the socket.
            Some(was_lost)
                if has_gone && (was_lost || endpoint.remains() != HostRemains::Nothing) =>
            {
                endpoint.is_between_hosts().await
            }
            // The lock alone does not count: the socket may be that of a host on another machine.
            _ => endpoint.awaits_host().await,
        };
        is_lost.unwrap_or_else(|error| {
            tracing::warn!("cannot look for the next host process: {error}");
            false
        })
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
            let told = KnownHost {
                sessions: live,
                lost: None,
            };
            self.set(endpoint.key(), Some(told));
        }
        Ok(())
    }

    /// The open questions of a session: those that are known, or else the host is asked. It is not asked
    /// while it waits for Codex to repeat some of them: it would answer seconds later, and until then none
    /// of its sessions would be listed. The summary changes when Codex has repeated them.
    async fn questions(
        &self,
        endpoint: &HostEndpoint,
        summary: &SessionSummary,
    ) -> Result<Vec<NamedQuestion>, ConnectError> {
        if summary.questions.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.session(&summary.session);
        if awaits_questions(summary) {
            let known = known.iter().flat_map(|known| &known.questions);
            let open = known.filter(|one| summary.questions.contains(&one.id));
            return Ok(open.cloned().collect());
        }
        if let Some(known) = known
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

    fn set(&self, key: &str, now: Option<KnownHost>) {
        let mut known = lock(&self.known);
        if known.get(key) == now.as_ref() {
            return;
        }
        match now {
            Some(now) => known.insert(key.to_owned(), now),
            None => known.remove(key),
        };
        drop(known);
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Notes that a host was killed. Its sessions stay, as the next one may have them.
    fn lose(&self, key: &str) {
        let mut known = lock(&self.known);
        let host = known.entry(key.to_owned()).or_default();
        let was_lost = host.lost.is_some();
        host.lost.get_or_insert_with(Instant::now);
        drop(known);
        if !was_lost {
            self.revision.send_modify(|revision| *revision += 1);
        }
    }

    /// A session that may be given more work here, as [`find`](Self::find) finds it.
    pub(crate) async fn workable(&self, id: &str) -> Result<Arc<LiveSession>, ActError> {
        let session = self.find(id).await?;
        self.check_bounds(&session)?;
        Ok(session)
    }

    fn check_bounds(&self, session: &LiveSession) -> Result<(), ActError> {
        match &self.bounded_to {
            Some(bounded) if !bounded.has(session) => Err(ActError::Refused(UNBOUND.to_owned())),
            _ => Ok(()),
        }
    }

    /// Has the host of a session do something that it only confirms. If the host was killed before it was
    /// asked, the next one is waited for.
    pub async fn act(&self, id: &str, act: SessionAct) -> Result<(), ActError> {
        let is_work = matches!(act, SessionAct::Answer { .. } | SessionAct::Steer { .. });
        let deadline = Instant::now() + NEXT_HOST_TIMEOUT;
        let mut changes = self.changes();
        loop {
            let session = self.find_by(deadline, id).await?;
            if is_work {
                self.check_bounds(&session)?;
            }
            let answer = ask(&session.endpoint, id, act.clone()).await;
            // It is not known here yet that the host was killed.
            if is_between_hosts(&answer) && timeout_at(deadline, changes.changed()).await.is_ok() {
                continue;
            }
            return match answer? {
                SessionAnswer::Done => Ok(()),
                _ => Err(ActError::UnexpectedAnswer),
            };
        }
    }
}

/// Whether the host has taken the session over and Codex has yet to repeat some of the questions. The host
/// does not know when such a question expires.
fn awaits_questions(summary: &SessionSummary) -> bool {
    summary.expiries.len() < summary.questions.len()
}

/// Whether nobody was asked, as the host was killed and the next one does not answer yet.
fn is_between_hosts<T>(done: &Result<T, ActError>) -> bool {
    matches!(done, Err(ActError::Host(ConnectError::BetweenHosts)))
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
    use std::os::unix::net::UnixListener as StdUnixListener;

    use host_process::endpoint::HostLock;
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
            expiries: vec![SystemTime::UNIX_EPOCH; questions.len()],
            directory: None,
            bounds: String::new(),
        }
    }

    /// The summary of a session that was taken over, before Codex has repeated these questions.
    fn awaiting(session: &str, questions: &[&str]) -> SessionSummary {
        SessionSummary {
            expiries: Vec::new(),
            ..summary(session, questions)
        }
    }

    #[tokio::test]
    async fn known_questions_stay_until_codex_has_repeated_them() {
        let question = json!({ "id": "req_1", "question":
            { "kind": "command", "text": "ls?", "decisions": ["accept"], "expires_at": "then" } });
        let question: NamedQuestion = serde_json::from_value(question).unwrap();
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let known = LiveSession {
            endpoint: endpoint.clone(),
            summary: summary("sess_1", &["req_1"]),
            questions: vec![question.clone()],
        };
        let hosts = Hosts::new(state.path().to_owned());
        let host = KnownHost {
            sessions: vec![Arc::new(known)],
            lost: Some(Instant::now()),
        };
        hosts.set(endpoint.key(), Some(host));
        let more = awaiting("sess_1", &["req_1", "req_2"]);
        let shown = hosts.questions(&endpoint, &more).await.unwrap();
        assert_eq!(shown, [question]);
        let other = awaiting("sess_1", &["req_2"]);
        let shown = hosts.questions(&endpoint, &other).await.unwrap();
        assert_eq!(shown, []);
    }

    #[tokio::test]
    async fn sessions_are_listed_before_codex_has_repeated_a_question() {
        let sessions = vec![awaiting("sess_1", &["req_1"]), summary("sess_2", &[])];
        let followed = FollowedHost::with(sessions);
        // It answers no other request.
        let host = followed.start(&"0".repeat(32)).await;
        followed.hosts.until_there("sess_2").await;
        let sessions = followed.hosts.sessions();
        let names = sessions.iter().map(|live| live.summary.session.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["sess_1", "sess_2"]);
        drop(host);
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

    /// A host with some sessions, and what follows it.
    struct FollowedHost {
        _state: tempfile::TempDir,
        endpoint: HostEndpoint,
        hosts: Arc<Hosts>,
        told: String,
    }

    impl FollowedHost {
        fn new() -> Self {
            Self::with(vec![summary("sess_1", &[])])
        }

        fn with(sessions: Vec<SessionSummary>) -> Self {
            let state = tempfile::tempdir().unwrap();
            let hosts = Arc::new(Hosts::new(state.path().to_owned()));
            tokio::spawn(Arc::clone(&hosts).follow());
            Self {
                endpoint: HostEndpoint::new(state.path(), "k".to_owned()),
                _state: state,
                hosts,
                told: json!(Answer::Sessions(sessions)).to_string(),
            }
        }

        /// Starts a host, which is asked for its sessions first.
        async fn start(&self, proof: &str) -> RunningHost {
            let lock = self.endpoint.take().unwrap().unwrap();
            let listener = lock.listen().unwrap();
            let watched = answer(&listener, proof, &self.told).await;
            RunningHost {
                listener,
                _watched: watched,
                _lock: lock,
            }
        }
    }

    struct RunningHost {
        listener: UnixListener,
        _watched: UnixStream,
        _lock: HostLock,
    }

    #[tokio::test]
    async fn act_on_a_session_of_a_killed_host_waits_for_the_next_one() {
        let followed = FollowedHost::new();
        let hosts = &followed.hosts;
        let host = followed.start(&"0".repeat(32)).await;
        hosts.until_there("sess_1").await;
        let guard = StdUnixListener::bind(followed.endpoint.new_adoption_socket()).unwrap();
        drop(host);
        let next = async {
            timeout(BEGIN_TIMEOUT, hosts.until_one_is_lost())
                .await
                .unwrap();
            assert_eq!(hosts.sessions().len(), 1);
            assert!(hosts.has_lost("sess_1"));
            let host = followed.start(&"1".repeat(32)).await;
            let done = json!(Answer::Session(SessionAnswer::Done)).to_string();
            drop(answer(&host.listener, &"2".repeat(32), &done).await);
            host
        };
        let (acted, host) = tokio::join!(hosts.act("sess_1", SessionAct::Interrupt), next);
        acted.unwrap();
        assert!(!hosts.is_any_lost());
        assert!(!hosts.has_lost("sess_1"));
        drop((host, guard));
    }

    #[tokio::test(start_paused = true)]
    async fn host_that_stays_lost_is_waited_for_once() {
        let hosts = Hosts::new("/nowhere".into());
        hosts.lose("k");
        let begun = Instant::now();
        hosts.until_none_is_lost().await;
        let waited = begun.elapsed();
        assert!(waited >= NEXT_HOST_TIMEOUT);
        hosts.lose("k");
        hosts.until_none_is_lost().await;
        hosts.lose("other");
        let told = async { hosts.set("other", Some(KnownHost::default())) };
        tokio::join!(hosts.until_none_is_lost(), told);
        assert_eq!(begun.elapsed(), waited);
    }

    #[tokio::test]
    async fn session_ends_with_a_host_that_leaves_no_app_server() {
        let followed = FollowedHost::new();
        let hosts = &followed.hosts;
        let host = followed.start(&"0".repeat(32)).await;
        hosts.until_there("sess_1").await;
        assert!(hosts.find("sess_1").await.is_ok());
        drop(host);
        let gone = timeout(BEGIN_TIMEOUT, hosts.until_gone("sess_1"));
        gone.await.unwrap();
        let unknown = hosts.find("sess_1").await.unwrap_err();
        assert!(matches!(unknown, ActError::Unknown), "{unknown}");
    }
}
