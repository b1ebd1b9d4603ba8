//! A conductor starts runs over a WebSocket, and gets their events and results.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use scripted_model::{Gate, Patch, Reply, Script};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::WebFixture;

/// The limit for each message.
const TIME_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Conductor(WebSocketStream<TcpStream>);

impl Conductor {
    /// Connects with these headers, or returns the status of the refusal.
    pub(super) async fn connect(
        web: &WebFixture,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        let url = format!("ws://{}/api/conductor", web.address);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(web.address).await.unwrap();
        match client_async(request, stream).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The reason for which the server closes the connection.
    async fn closed(&mut self) -> CloseCode {
        loop {
            match timeout(TIME_LIMIT, self.0.next()).await.unwrap().unwrap() {
                Ok(Message::Close(Some(frame))) => return frame.code,
                Ok(_) => {}
                Err(error) => panic!("not closed in order: {error}"),
            }
        }
    }

    pub(super) async fn send(&mut self, message: &Value) {
        let message = Message::text(message.to_string());
        self.0.send(message).await.unwrap();
    }

    /// The next message of the server, `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            match timeout(TIME_LIMIT, self.0.next()).await.unwrap()? {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Ping(_)) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// The messages up to the first of this type.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let message = self.next().await.unwrap();
            let is_it = message["type"] == kind;
            all.push(message);
            if is_it {
                return all;
            }
        }
    }
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn run(id: &str, web: &WebFixture) -> Value {
    let arguments = json!({
        "task": "Write made.txt",
        "repo": web.stage.home.work(),
        "sandbox": "workspace-write",
        "exit_criteria": { "files": ["made.txt"] },
    });
    json!({ "type": "run", "id": id, "arguments": arguments })
}

#[tokio::test]
async fn run_is_followed_from_its_start_over_a_lost_connection_to_its_result() {
    let gate = Gate::new();
    let patch = Patch::new().add("made.txt", "here");
    let last = Reply::say("It is there.").behind(&gate);
    let script = Script::new().otherwise([Reply::patch(patch), last]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let token = bearer(&web.run(&["token", "conductor"]).await);
    let headers = [("authorization", &*token)];
    let mut conductor = Conductor::connect(&web, &headers).await.ok().unwrap();
    conductor.send(&run("r1", &web)).await;
    let started = conductor.next().await.unwrap();
    assert_eq!(started["type"], "started", "{started:#}");
    assert_eq!(started["id"], "r1");
    let job = started["job_id"].clone();
    gate.reached(1).await;
    let first = conductor.until("event").await.pop().unwrap();
    assert_eq!(first["job_id"], job);
    assert_eq!(first["sequence"], 1);
    drop(conductor);

    // The run goes on, and another connection learns the rest.
    gate.release();
    let mut conductor = Conductor::connect(&web, &headers).await.ok().unwrap();
    let watch = json!({ "type": "watch", "id": 2, "job_id": job, "after": 1 });
    conductor.send(&watch).await;
    let rest = conductor.until("result").await;
    let (result, events) = rest.split_last().unwrap();
    let numbers: Vec<u64> = events
        .iter()
        .map(|one| one["sequence"].as_u64().unwrap())
        .collect();
    let expected: Vec<u64> = (2..).take(numbers.len()).collect();
    assert_eq!(numbers, expected);
    assert!(!numbers.is_empty());
    assert_eq!(result["id"], 2);
    assert_eq!(result["job"]["result"]["ok"], true, "{result:#}");

    // What makes no sense is refused, and the connection stays.
    for (wrong, words) in [
        (
            json!({ "type": "watch", "id": 3, "job_id": "../x" }),
            "no such job",
        ),
        (json!({ "type": "stop" }), "not a message"),
        (
            json!({ "type": "run", "id": 4, "arguments": { "tsk": "x" } }),
            "task",
        ),
    ] {
        conductor.send(&wrong).await;
        let error = conductor.next().await.unwrap();
        assert_eq!(error["type"], "error", "{error:#}");
        assert!(
            error["error"].as_str().unwrap().contains(words),
            "{error:#}"
        );
    }
    web.finish().await;
}

#[tokio::test]
async fn run_is_cancelled_and_only_those_who_decide_get_in() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("late").behind(&gate)]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let token = bearer(&web.run(&["token", "conductor"]).await);
    let look = bearer(&web.run(&["token", "--read-only", "display"]).await);
    let refused = async |headers: &[(&'static str, &str)]| {
        Conductor::connect(&web, headers).await.err().unwrap()
    };
    assert_eq!(refused(&[]).await, 401);
    assert_eq!(refused(&[("authorization", &look)]).await, 403);
    // The page of another site has the cookie of the browser, if a browser sends it.
    let cookie = ("cookie", &*web.cookie);
    let foreign = ("origin", "http://evil.example");
    assert_eq!(refused(&[cookie, foreign]).await, 403);

    let headers = [("authorization", &*token)];
    let mut conductor = Conductor::connect(&web, &headers).await.ok().unwrap();
    conductor.send(&run("r1", &web)).await;
    let job = conductor.next().await.unwrap()["job_id"].clone();
    gate.reached(1).await;
    conductor
        .send(&json!({ "type": "cancel", "id": "c", "job_id": job }))
        .await;
    // Both come, in either order.
    let mut told = Vec::new();
    for kind in ["result", "cancelled"] {
        if !told.iter().any(|one: &Value| one["type"] == kind) {
            told.extend(conductor.until(kind).await);
        }
    }
    let result = told.iter().find(|one| one["type"] == "result").unwrap();
    assert_eq!(result["job"]["status"], "cancelled");

    // A huge message ends the connection; a revoked token, too.
    let mut other = Conductor::connect(&web, &headers).await.ok().unwrap();
    let huge = Message::text("x".repeat(5 << 20));
    // The server may close before all is written.
    let _ = other.0.send(huge).await;
    assert_eq!(other.next().await, None);
    web.run(&["revoke", "--all"]).await;
    assert_eq!(conductor.closed().await, CloseCode::Policy);
    web.finish().await;
}

#[tokio::test]
async fn cancellation_is_done_though_the_conductor_goes_at_once() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("late").behind(&gate)]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let token = bearer(&web.run(&["token", "conductor"]).await);
    let headers = [("authorization", &*token)];
    let mut conductor = Conductor::connect(&web, &headers).await.ok().unwrap();
    conductor.send(&run("r1", &web)).await;
    let job = conductor.next().await.unwrap()["job_id"].clone();
    gate.reached(1).await;
    let cancel = json!({ "type": "cancel", "id": "c", "job_id": job });
    conductor.send(&cancel).await;
    conductor.0.close(None).await.unwrap();
    let address = format!("/jobs/{}", job.as_str().unwrap());
    web.job_in(&address, "cancelled").await;
    web.finish().await;
}

#[tokio::test]
async fn connection_is_closed_with_a_reason() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let token = bearer(&web.run(&["token", "conductor"]).await);
    let headers = [("authorization", &*token)];
    let mut own = Conductor::connect(&web, &headers).await.ok().unwrap();
    let frame = CloseFrame {
        code: CloseCode::Normal,
        reason: "done".into(),
    };
    own.0.close(Some(frame)).await.unwrap();
    assert_eq!(own.closed().await, CloseCode::Normal);
    let mut other = Conductor::connect(&web, &headers).await.ok().unwrap();
    web.stop().await;
    assert_eq!(other.closed().await, CloseCode::Away);
    (web.server, web.address, _) = super::start(&web.stage, &[]).await;
    web.finish().await;
}
