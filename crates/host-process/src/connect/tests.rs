use supervise::private_socket;
use supervise::proof::ProofName;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;

use super::*;
use crate::logic::handshake::{ServeRequest, SessionAct};

/// The moment at which a host closes a connection.
#[derive(Debug, Clone, Copy)]
enum Close {
    BeforeChallenge,
    BeforeAnswer,
    /// After it has sent this line.
    AfterAnswer(&'static str),
}

/// Accepts clients, and closes each connection at this moment.
async fn accept(listener: UnixListener, close: Close) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        if let Close::BeforeChallenge = close {
            continue;
        }
        let file = ProofName::random().unwrap();
        line::write(&mut stream, &Challenge { file }).await.unwrap();
        let request: Option<Request> = line::read(&mut stream, LINE_LIMIT).await.unwrap();
        assert!(request.is_some());
        if let Close::AfterAnswer(answer) = close {
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

/// Asks a host that closes each connection at this moment.
async fn ask_host_that_closes<T>(close: Close, ask: impl AsyncFnOnce(HostEndpoint) -> T) -> T {
    let state = tempfile::tempdir().unwrap();
    let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
    let lock = endpoint.take().unwrap().unwrap();
    let listener = lock.listen().unwrap();
    tokio::select! {
        answer = ask(endpoint) => answer,
        () = accept(listener, close) => panic!("the host accepts clients for ever"),
    }
}

/// Accepts one client, sends it this line, and closes the connection.
async fn answer_one(listener: &UnixListener, answer: &str) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let file = ProofName::random().unwrap();
    line::write(&mut stream, &Challenge { file }).await.unwrap();
    let request: Option<Request> = line::read(&mut stream, LINE_LIMIT).await.unwrap();
    assert!(request.is_some());
    stream.write_all(answer.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn restart_waits_for_the_next_host() {
    let state = tempfile::tempdir().unwrap();
    let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
    let lock = endpoint.take().unwrap().unwrap();
    let first = lock.listen().unwrap();
    let status = Answer::Status(HostStatus {
        pid: 7,
        version: "1.0.0".to_owned(),
        uptime: Duration::ZERO,
        clients: 0,
    });
    let status = format!("{}\n", serde_json::to_string(&status).unwrap());
    let hosts = async {
        answer_one(&first, "\"handing_over\"\n").await;
        drop(first);
        let next = lock.listen().unwrap();
        answer_one(&next, &status).await;
    };
    let (restarted, ()) = tokio::join!(restart(&endpoint), hosts);
    assert_eq!(restarted.unwrap(), Restarted::HandedOver);
}

#[tokio::test]
async fn restart_of_a_host_without_work_waits_for_no_other() {
    let stopping = Close::AfterAnswer("\"stopping\"\n");
    let asking = ask_host_that_closes(stopping, async |endpoint| restart(&endpoint).await);
    assert_eq!(asking.await.unwrap(), Restarted::Ended);
}

#[tokio::test]
async fn restart_between_two_hosts_is_an_error() {
    let leaving = Close::BeforeChallenge;
    let asking = ask_host_that_closes(leaving, async |endpoint| restart(&endpoint).await);
    let error = asking.await.unwrap_err();
    assert!(matches!(error, ConnectError::BetweenHosts), "{error}");
    let state = tempfile::tempdir().unwrap();
    let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
    let lock = endpoint.take().unwrap().unwrap();
    let error = restart(&endpoint).await.unwrap_err();
    assert!(matches!(error, ConnectError::BetweenHosts), "{error}");
    drop((lock.listen().unwrap(), lock));
    let guard = private_socket::bind(&endpoint.new_adoption_socket()).unwrap();
    let error = restart(&endpoint).await.unwrap_err();
    assert!(matches!(error, ConnectError::BetweenHosts), "{error}");
    drop(guard);
    assert_eq!(restart(&endpoint).await.unwrap(), Restarted::Missing);
}

#[tokio::test]
async fn host_that_cannot_restart_is_an_error_that_names_the_way_out() {
    let why = "unknown variant `restart`, expected `serve`";
    let older = format!("{{\"refused\":{{\"why\":\"{why}\"}}}}\n");
    let busy = "{\"busy\":{\"pid\":7,\"turns\":1}}\n".to_owned();
    for (answer, told) in [(older, why), (busy, "has 1 turn under way")] {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let listener = lock.listen().unwrap();
        let host = answer_one(&listener, &answer);
        let (restarted, ()) = tokio::join!(restart(&endpoint), host);
        let error = restarted.unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        assert!(error.contains("`codex-mcp host stop`"), "{error}");
    }
}

/// The answers to all questions that tolerate a missing host.
struct Answers {
    status: Result<Option<HostStatus>, ConnectError>,
    sessions: Result<Vec<SessionSummary>, ConnectError>,
    stop: Result<bool, ConnectError>,
}

impl Answers {
    async fn of_host_that_closes(close: Close) -> Self {
        ask_host_that_closes(close, async |endpoint| Self {
            status: status(&endpoint).await,
            sessions: sessions(&endpoint).await,
            stop: stop(&endpoint).await,
        })
        .await
    }

    /// The errors, of which there has to be one for each question.
    fn errors(self) -> [ConnectError; 3] {
        [
            self.status.unwrap_err(),
            self.sessions.unwrap_err(),
            self.stop.unwrap_err(),
        ]
    }
}

#[tokio::test]
async fn host_that_closes_before_its_challenge_is_none() {
    let answers = Answers::of_host_that_closes(Close::BeforeChallenge).await;
    assert_eq!(answers.status.unwrap(), None);
    // It still has the lock.
    let between = answers.sessions.unwrap_err();
    assert!(matches!(between, ConnectError::BetweenHosts), "{between}");
    assert!(!answers.stop.unwrap());
}

/// At its end, the system resets a connection that the host has not accepted.
#[tokio::test]
async fn act_that_a_killed_host_was_not_asked_for_can_wait_for_the_next_host() {
    let request = SessionRequest {
        session: "s".to_owned(),
        act: SessionAct::Interrupt,
    };
    for is_accepted in [false, true] {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let listener = lock.listen().unwrap();
        let guard = private_socket::bind(&endpoint.new_adoption_socket()).unwrap();
        let killed = async {
            if is_accepted {
                drop(listener.accept().await.unwrap());
            }
            drop((listener, lock));
        };
        let (acted, ()) = tokio::join!(act(&endpoint, &request), killed);
        let error = acted.unwrap_err();
        assert!(matches!(error, ConnectError::BetweenHosts), "{error}");
        drop(guard);
    }
}

#[tokio::test]
async fn host_that_does_not_answer_is_an_error() {
    for close in [Close::BeforeAnswer, Close::AfterAnswer("nonsense\n")] {
        let answers = Answers::of_host_that_closes(close).await;
        for error in answers.errors() {
            assert!(matches!(error, ConnectError::Ask(_)), "{close:?}: {error}");
        }
    }
}

/// As one for which the disk is too full. A host that has closed the connection is looked for
/// again, until the time limit.
#[tokio::test]
async fn failure_that_stays_is_reported_at_once() {
    let request = ServeRequest {
        args: Vec::new(),
        directory: "/".into(),
        stdio: Value::Null,
        client: "c".to_owned(),
        identity_key: None,
    };
    let close = Close::AfterAnswer("nonsense\n");
    let asking = ask_host_that_closes(close, async |endpoint| {
        serve(&endpoint, &[], &request).await
    });
    let error = asking.await.unwrap_err();
    assert!(matches!(error, ConnectError::Ask(_)), "{error}");
}

#[tokio::test]
async fn host_that_refuses_is_an_error() {
    let refused = Close::AfterAnswer("{\"refused\":{\"why\":\"no room\"}}\n");
    for error in Answers::of_host_that_closes(refused).await.errors() {
        let text = error.to_string();
        assert_eq!(text, "the host process refuses to answer: no room");
    }
    let serving = Close::AfterAnswer("\"serving\"\n");
    for error in Answers::of_host_that_closes(serving).await.errors() {
        assert!(
            error.to_string().starts_with("unexpected answer"),
            "{error}"
        );
    }
}
