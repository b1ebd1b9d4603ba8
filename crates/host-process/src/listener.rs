//! The host's side: takes clients until it is told to end, or has had none for a while.

use std::cell::Cell;
use std::io;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::process;
use std::rc::Rc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use serde_json::Value;
use supervise::private_socket::check_peer;
use supervise::proof::{Challenge, ProofName};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::endpoint::HostLock;
use crate::line;
use crate::logic::handshake::{
    Answer, HostStatus, LINE_LIMIT, Request, ServeRequest, SessionAnswer, SessionRequest,
    SessionSummary, WatchRequest,
};

/// How long a client may take to say what it wants.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a watcher may take to read an answer. Nothing waits for it meanwhile.
const TELL_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause after a failure to accept a client, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long further failures to answer a client are only counted.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

/// The clients of a host, counted.
#[derive(Debug, Clone)]
pub struct Clients {
    count: Rc<watch::Sender<usize>>,
    since: Instant,
}

/// A client while it is served.
#[derive(Debug)]
pub struct Client {
    count: Rc<watch::Sender<usize>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            count: Rc::new(watch::Sender::new(0)),
            since: Instant::now(),
        }
    }
}

impl Clients {
    fn enter(&self) -> Client {
        self.count.send_modify(|count| *count += 1);
        Client {
            count: Rc::clone(&self.count),
        }
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            pid: process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: self.since.elapsed(),
            clients: *self.count.borrow(),
        }
    }

    /// Completes when there has been no client for this long.
    async fn idle_for(&self, idle: Duration) {
        let mut count = self.count.subscribe();
        loop {
            let is_empty = *count.borrow_and_update() == 0;
            let deadline = Instant::now() + idle;
            tokio::select! {
                // Fails only without the sender, which this has.
                _ = count.changed() => {}
                () = sleep_until(deadline), if is_empty => return,
            }
        }
    }

    /// Completes when there is no client.
    async fn gone(&self) {
        let mut count = self.count.subscribe();
        // Fails only without the sender, which this has.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

/// How a host restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// It ends at once, and the next host takes over its app-servers.
    HandOver,
    /// It ends as usual: there is nothing to take over, and no turn that would end.
    End,
    /// The host refuses: this many turns would end.
    Refuse {
        /// How many.
        turns: usize,
    },
}

/// How a host has stopped taking clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEnd {
    /// Its clients have gone, and its app-servers end with it.
    Complete,
    /// It still has its clients. The next host takes over its app-servers.
    HandOver,
}

/// The work of a host.
pub trait HostService: 'static {
    /// Begins to serve a client, on a task of its own, which ends when the host closes.
    fn serve(&self, request: ServeRequest, stream: UnixStream, client: Client);

    /// All sessions.
    fn sessions(&self) -> Vec<SessionSummary>;

    /// Whether there is work for which the host stays, even without a client.
    fn is_at_work(&self) -> bool;

    /// Does something with a session.
    fn act(&self, request: SessionRequest) -> impl Future<Output = SessionAnswer>;

    /// Does something with a task.
    fn act_on_task(&self, request: Value) -> impl Future<Output = Value>;

    /// Decides how the host restarts.
    fn restart(&self) -> impl Future<Output = Restart>;

    /// The messages for a watcher, until the stream ends.
    fn watch(&self, request: WatchRequest) -> impl Stream<Item = Answer>;
}

/// Takes clients until `closing` is cancelled or nobody has been served for `idle`, and then
/// waits for those that are served. A host that is told to hand over waits for nobody.
///
/// # Errors
///
/// When the socket cannot be removed.
pub async fn run(
    lock: Rc<HostLock>,
    listener: UnixListener,
    idle: Duration,
    closing: CancellationToken,
    service: impl HostService,
) -> io::Result<HostEnd> {
    let clients = Clients::default();
    let host = Rc::new(Host {
        lock: Rc::clone(&lock),
        closing: closing.clone(),
        closed: CancellationToken::new(),
        handing_over: CancellationToken::new(),
        failures: Failures::default(),
        service,
    });
    tokio::select! {
        () = take(&listener, &clients, &host) => {}
        () = unused(&clients, idle, &host) => tracing::info!("the host exits: it has no clients"),
        () = closing.cancelled() => {}
        () = host.handing_over.cancelled() => return Ok(HostEnd::HandOver),
    }
    // A client that connects from now on starts another host.
    lock.close()?;
    host.closed.cancel();
    drop(listener);
    clients.gone().await;
    Ok(HostEnd::Complete)
}

/// Completes when there has been no client for this long, and there is no work.
async fn unused(clients: &Clients, idle: Duration, host: &Host<impl HostService>) {
    loop {
        clients.idle_for(idle).await;
        if !host.service.is_at_work() {
            return;
        }
    }
}

async fn take(listener: &UnixListener, clients: &Clients, host: &Rc<Host<impl HostService>>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (clients, host) = (clients.clone(), Rc::clone(host));
                tokio::task::spawn_local(async move {
                    if let Err(error) = host.answer(stream, &clients).await {
                        host.failures.report(&error);
                    }
                });
            }
            // Too many files are open, or there is no memory.
            Err(error) => {
                tracing::warn!("a client could not be accepted: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The state for answering a client.
struct Host<S> {
    lock: Rc<HostLock>,
    closing: CancellationToken,
    /// Cancelled when the socket is removed. A watcher that sees the end of its connection before that
    /// takes this host for a killed one.
    closed: CancellationToken,
    /// Cancelled when the next host is to take over.
    handing_over: CancellationToken,
    failures: Failures,
    service: S,
}

/// The failures to answer a client. They are logged, but not each of many: a command in a sandbox
/// can connect all the time.
#[derive(Debug, Default)]
struct Failures {
    logged: Cell<Option<Instant>>,
    unlogged: Cell<u64>,
}

impl Failures {
    fn report(&self, error: &io::Error) {
        let is_recent = |at: Instant| at.elapsed() < FAILURE_PAUSE;
        if self.logged.get().is_some_and(is_recent) {
            self.unlogged.set(self.unlogged.get() + 1);
            return;
        }
        let before = self.unlogged.take();
        self.logged.set(Some(Instant::now()));
        tracing::warn!("a client could not be answered: {error} ({before} more before)");
    }
}

impl<S: HostService> Host<S> {
    async fn answer(&self, mut stream: UnixStream, clients: &Clients) -> io::Result<()> {
        check_peer(&stream)?;
        let request = timeout(REQUEST_TIMEOUT, self.request(&mut stream)).await;
        match request.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            // It has only looked whether there is a host.
            Ok(None) => Ok(()),
            Ok(Some(Request::Serve(wanted))) => {
                self.service.serve(wanted, stream, clients.enter());
                Ok(())
            }
            Ok(Some(Request::Status)) => {
                line::write(&mut stream, &Answer::Status(clients.status())).await
            }
            Ok(Some(Request::Sessions)) => {
                let sessions = self.service.sessions();
                line::write(&mut stream, &Answer::Sessions(sessions)).await
            }
            Ok(Some(Request::Session(wanted))) => {
                let client = clients.enter();
                let answer = self.service.act(wanted).await;
                let is_attached = matches!(answer, SessionAnswer::Attach(_));
                line::write(&mut stream, &Answer::Session(answer)).await?;
                if is_attached {
                    // Codex's program holds the stream open as long as it runs.
                    self.until_gone(stream).await;
                }
                drop(client);
                Ok(())
            }
            Ok(Some(Request::Task(wanted))) => {
                let _client = clients.enter();
                let answer = self.service.act_on_task(wanted).await;
                line::write(&mut stream, &Answer::Task(answer)).await
            }
            // It does not count as a client: a page that is left open would keep the host for ever.
            Ok(Some(Request::Watch(wanted))) => self.tell(wanted, stream).await,
            Ok(Some(Request::Stop)) => {
                self.closing.cancel();
                line::write(&mut stream, &Answer::Stopping).await?;
                // The end of the process closes it: the client waits for that.
                let _ = ManuallyDrop::new(stream.into_std()?);
                Ok(())
            }
            Ok(Some(Request::Restart)) => self.restart(stream).await,
            Err(error) => {
                let why = error.to_string();
                line::write(&mut stream, &Answer::Refused { why }).await
            }
        }
    }

    async fn restart(&self, mut stream: UnixStream) -> io::Result<()> {
        let (answer, end) = match self.service.restart().await {
            Restart::HandOver => (Answer::HandingOver, &self.handing_over),
            Restart::End => (Answer::Stopping, &self.closing),
            Restart::Refuse { turns } => {
                let pid = process::id();
                return line::write(&mut stream, &Answer::Busy { pid, turns }).await;
            }
        };
        // Before the end, which may come at once.
        line::write(&mut stream, &answer).await?;
        end.cancel();
        // As with Request::Stop.
        let _ = ManuallyDrop::new(stream.into_std()?);
        Ok(())
    }

    /// Tells a watcher what happens, until it has gone, takes too long to read, or the host has closed.
    async fn tell(&self, wanted: WatchRequest, stream: UnixStream) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let telling = async {
            let mut answers = pin!(self.service.watch(wanted));
            while let Some(answer) = answers.next().await {
                let told = timeout(TELL_TIMEOUT, line::write(&mut writer, &answer)).await;
                told.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
            }
            Ok(())
        };
        tokio::select! {
            told = telling => told,
            () = self.until_gone(reader) => Ok(()),
        }
    }

    /// Completes when the client has gone, or the host has closed.
    async fn until_gone(&self, mut stream: impl AsyncRead + Unpin) {
        let mut byte = [0];
        tokio::select! {
            _ = stream.read(&mut byte) => {}
            () = self.closed.cancelled() => {}
        }
    }

    /// Reads the request of a client that has proved that it can write where the socket is.
    async fn request(&self, stream: &mut UnixStream) -> io::Result<Option<Request>> {
        let file = ProofName::random()?;
        let challenge = Challenge { file: file.clone() };
        line::write(stream, &challenge).await?;
        let request = line::read(stream, LINE_LIMIT).await;
        // Also of a client that has gone or sent nonsense, so that no file is left.
        let proved = self.lock.take_proof(&file)?;
        match (request?, proved) {
            (Some(_), false) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the client cannot write in the directory of the host processes",
            )),
            (request, _) => Ok(request),
        }
    }
}

/// Tells a client that it is served from now on, or why it is not.
///
/// # Errors
///
/// When the client has gone.
pub async fn reply(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    line::write(stream, answer).await
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;
    use crate::connect;
    use crate::endpoint::{HostEndpoint, HostRemains};
    use crate::logic::handshake::{AttachAnswer, SessionAct};

    struct NoService;

    impl HostService for NoService {
        fn serve(&self, _: ServeRequest, _: UnixStream, _: Client) {}

        fn sessions(&self) -> Vec<SessionSummary> {
            Vec::new()
        }

        fn is_at_work(&self) -> bool {
            false
        }

        async fn act(&self, _: SessionRequest) -> SessionAnswer {
            SessionAnswer::Unknown
        }

        async fn act_on_task(&self, request: Value) -> Value {
            request
        }

        async fn restart(&self) -> Restart {
            Restart::Refuse { turns: 2 }
        }

        fn watch(&self, _: WatchRequest) -> impl Stream<Item = Answer> {
            futures::stream::iter([Answer::Sessions(Vec::new()), Answer::Stopping])
        }
    }

    /// A service with one session, which can be opened in Codex's program.
    #[derive(Default)]
    struct OneSession {
        /// How often it was asked for work. It has some the first times.
        looks: Cell<u32>,
        endpoint: Option<HostEndpoint>,
        /// The remains of the host at the end of its watcher.
        remains: Cell<Option<HostRemains>>,
    }

    /// Notes the remains of a host when its watcher is left.
    struct WatchEnd(Rc<OneSession>);

    impl Drop for WatchEnd {
        fn drop(&mut self) {
            let remains = self.0.endpoint.as_ref().map(HostEndpoint::remains);
            self.0.remains.set(remains);
        }
    }

    impl HostService for Rc<OneSession> {
        fn serve(&self, _: ServeRequest, _: UnixStream, _: Client) {}

        fn sessions(&self) -> Vec<SessionSummary> {
            Vec::new()
        }

        fn is_at_work(&self) -> bool {
            self.looks.set(self.looks.get() + 1);
            self.looks.get() < 3
        }

        async fn act(&self, _: SessionRequest) -> SessionAnswer {
            SessionAnswer::Attach(AttachAnswer {
                program: "codex".into(),
                address: "ws://127.0.0.1:1".to_owned(),
                token: "secret".to_owned(),
                thread: "t".to_owned(),
                directory: None,
            })
        }

        async fn act_on_task(&self, request: Value) -> Value {
            request
        }

        async fn restart(&self) -> Restart {
            Restart::HandOver
        }

        fn watch(&self, _: WatchRequest) -> impl Stream<Item = Answer> {
            let end = WatchEnd(Rc::clone(self));
            let pending = async move {
                let _end = end;
                std::future::pending::<Answer>().await
            };
            let first = futures::stream::iter([Answer::Sessions(Vec::new())]);
            first.chain(futures::stream::once(pending))
        }
    }

    #[tokio::test]
    async fn host_stays_while_it_is_at_work() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = Rc::new(endpoint.take().unwrap().unwrap());
        let listener = lock.listen().unwrap();
        let service = Rc::new(OneSession::default());
        let (soon, closing) = (Duration::from_millis(1), CancellationToken::new());
        let host = run(lock, listener, soon, closing, Rc::clone(&service));
        LocalSet::new().run_until(host).await.unwrap();
        assert_eq!(service.looks.get(), 3);
    }

    #[tokio::test]
    async fn program_of_codex_counts_as_a_client() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = Rc::new(endpoint.take().unwrap().unwrap());
        let listener = lock.listen().unwrap();
        let (long, closing) = (Duration::from_secs(600), CancellationToken::new());
        let service = Rc::new(OneSession::default());
        let host = run(lock, listener, long, closing.clone(), service);
        let clients = async || {
            let status = connect::status(&endpoint).await.unwrap();
            status.unwrap().clients
        };
        let client = async {
            let request = SessionRequest {
                session: "s".to_owned(),
                act: SessionAct::Attach,
            };
            let attached = connect::act_and_stay(&endpoint, &request).await.unwrap();
            assert!(!format!("{attached:?}").contains("secret"));
            assert_eq!(clients().await, 1);
            drop(attached);
            let deadline = Instant::now() + Duration::from_secs(60);
            while clients().await > 0 {
                assert!(Instant::now() < deadline, "the client still counts");
            }
            closing.cancel();
        };
        let both = async { tokio::join!(host, client) };
        LocalSet::new().run_until(both).await.0.unwrap();
    }

    #[tokio::test]
    async fn host_that_hands_over_leaves_its_socket_and_waits_for_no_client() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = Rc::new(endpoint.take().unwrap().unwrap());
        let listener = lock.listen().unwrap();
        let (long, closing) = (Duration::from_secs(600), CancellationToken::new());
        let service = Rc::new(OneSession::default());
        let host = run(Rc::clone(&lock), listener, long, closing.clone(), service);
        let client = async {
            let request = SessionRequest {
                session: "s".to_owned(),
                act: SessionAct::Attach,
            };
            let attached = connect::act_and_stay(&endpoint, &request).await.unwrap();
            let answer = answer_to(&endpoint, &Request::Restart, true).await;
            assert_eq!(answer, Answer::HandingOver);
            attached
        };
        let both = async { tokio::join!(host, client) };
        let (end, _attached) = LocalSet::new().run_until(both).await;
        assert_eq!(end.unwrap(), HostEnd::HandOver);
        assert!(!closing.is_cancelled());
        assert_eq!(endpoint.remains(), HostRemains::Socket);
    }

    #[tokio::test]
    async fn host_that_is_stopped_removes_its_socket_before_it_leaves_its_watchers() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = Rc::new(endpoint.take().unwrap().unwrap());
        let listener = lock.listen().unwrap();
        let (long, closing) = (Duration::from_secs(600), CancellationToken::new());
        let service = Rc::new(OneSession {
            endpoint: Some(endpoint.clone()),
            ..OneSession::default()
        });
        let host = run(lock, listener, long, closing, Rc::clone(&service));
        let client = async {
            let watch = connect::watch(&endpoint, WatchRequest::Sessions).await;
            let mut watch = watch.unwrap().unwrap();
            assert!(watch.next().await.unwrap().is_some());
            let answer = answer_to(&endpoint, &Request::Stop, true).await;
            assert_eq!(answer, Answer::Stopping);
            assert!(watch.next().await.unwrap().is_none());
        };
        let both = async { tokio::join!(host, client) };
        LocalSet::new().run_until(both).await.0.unwrap();
        assert_eq!(service.remains.get(), Some(HostRemains::Nothing));
    }

    #[tokio::test]
    async fn host_that_refuses_to_restart_stays() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = Rc::new(endpoint.take().unwrap().unwrap());
        let listener = lock.listen().unwrap();
        let (long, closing) = (Duration::from_secs(600), CancellationToken::new());
        let host = run(lock, listener, long, closing.clone(), NoService);
        let client = async {
            let refused = connect::restart(&endpoint).await.unwrap_err().to_string();
            assert!(refused.contains("2 turns"), "{refused}");
            assert!(connect::status(&endpoint).await.unwrap().is_some());
            closing.cancel();
        };
        let both = async { tokio::join!(host, client) };
        let end = LocalSet::new().run_until(both).await.0.unwrap();
        assert_eq!(end, HostEnd::Complete);
    }

    /// The answer to a client that proves that it can write beside the socket, or does not.
    async fn answer_to(endpoint: &HostEndpoint, request: &Request, proves: bool) -> Answer {
        let mut stream = endpoint.connect().await.unwrap();
        let challenge = line::read(&mut stream, LINE_LIMIT).await.unwrap();
        let Challenge { file } = challenge.unwrap();
        let _proof = proves.then(|| endpoint.prove(&file).unwrap());
        line::write(&mut stream, request).await.unwrap();
        line::read(&mut stream, LINE_LIMIT).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn watcher_gets_each_answer_and_is_no_client() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let missing = connect::watch(&endpoint, WatchRequest::Sessions).await;
        assert!(missing.unwrap().is_none());
        let lock = Rc::new(endpoint.take().unwrap().unwrap());
        let listener = lock.listen().unwrap();
        let (long, closing) = (Duration::from_secs(600), CancellationToken::new());
        let host = run(lock, listener, long, closing.clone(), NoService);
        let client = async {
            let watch = connect::watch(&endpoint, WatchRequest::Sessions).await;
            let mut watch = watch.unwrap().unwrap();
            assert_eq!(
                connect::status(&endpoint).await.unwrap().unwrap().clients,
                0
            );
            let mut answers = Vec::new();
            while let Some(answer) = watch.next().await.unwrap() {
                answers.push(answer);
            }
            assert_eq!(answers, [Answer::Sessions(Vec::new()), Answer::Stopping]);
            closing.cancel();
        };
        let both = async { tokio::join!(host, client) };
        LocalSet::new().run_until(both).await.0.unwrap();
    }

    #[tokio::test]
    async fn client_without_a_proof_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = Rc::new(endpoint.take().unwrap().unwrap());
        let listener = lock.listen().unwrap();
        let closing = CancellationToken::new();
        let long = Duration::from_secs(600);
        let host = run(lock, listener, long, closing.clone(), NoService);
        let client = async {
            let answer = answer_to(&endpoint, &Request::Status, false).await;
            assert!(matches!(answer, Answer::Refused { .. }), "{answer:?}");
            let answer = answer_to(&endpoint, &Request::Status, true).await;
            assert!(matches!(answer, Answer::Status(_)), "{answer:?}");
            closing.cancel();
        };
        let both = async { tokio::join!(host, client) };
        LocalSet::new().run_until(both).await.0.unwrap();
        let left = std::fs::read_dir(state.path().join("hosts")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["k.lock"]);
    }
}
