//! The model over plain HTTP, as any client sees it.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a failed test is meant to panic"
)]

use std::time::{Duration, Instant};

use scripted_model::{Gate, Recording, Reply, Script, ScriptedModel, Usage};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);

/// An answer: the status line's number and the body as it came, chunk headers
/// taken out.
struct Answer {
    status: u16,
    body: String,
    /// Whether the last chunk came, so that the answer is whole.
    whole: bool,
}

impl Answer {
    fn events(&self) -> Vec<Value> {
        self.body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    fn kinds(&self) -> Vec<String> {
        self.events()
            .iter()
            .map(|event| event["type"].as_str().unwrap().to_owned())
            .collect()
    }

    fn text(&self) -> String {
        self.events()
            .iter()
            .filter_map(|event| event["delta"].as_str())
            .collect()
    }

    fn error(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        body["error"]["message"].as_str().unwrap().to_owned()
    }
}

async fn send(model: &ScriptedModel, head: &str, body: &str) -> TcpStream {
    let url = model.base_url();
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/v1");
    let mut connection = TcpStream::connect(address.unwrap()).await.unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: model\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

async fn receive(mut connection: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A connection that is broken off may end with an error: what came counts.
    let _ = timeout(SOON, connection.read_to_end(&mut bytes))
        .await
        .unwrap();
    let answer = String::from_utf8(bytes).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if !head.contains("transfer-encoding: chunked") {
        return Answer {
            status,
            body: body.to_owned(),
            whole: true,
        };
    }
    let (body, whole) = unchunk(body);
    Answer {
        status,
        body,
        whole,
    }
}

fn unchunk(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((length, tail)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return (body, true);
        }
        body.push_str(&tail[..length]);
        rest = &tail[length + 2..];
    }
    (body, false)
}

fn prompt(text: &str) -> String {
    json!({"input": [{"role": "user", "content": text}]}).to_string()
}

async fn ask(model: &ScriptedModel, text: &str) -> Answer {
    receive(send(model, "POST /v1/responses", &prompt(text)).await).await
}

#[tokio::test]
async fn message_is_streamed_whole() {
    let usage = Usage {
        input: 7,
        output: 3,
        ..Usage::default()
    };
    let script = Script::new().on("hi", [Reply::say("hello").using(usage)]);
    let model = ScriptedModel::start(script).await.unwrap();
    let answer = ask(&model, "hi there").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.kinds(),
        [
            "response.created",
            "response.output_item.added",
            "response.output_text.delta",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let usage = &answer.events()[4]["response"]["usage"];
    assert_eq!(usage["input_tokens"], 7);
    assert_eq!(usage["total_tokens"], 10);
    assert!(answer.whole);
}

#[tokio::test]
async fn thousands_of_deltas_arrive_in_order() {
    let pieces = (0..2000).map(|number| format!("{number},"));
    let script = Script::new().otherwise([Reply::stream(pieces.clone())]);
    let model = ScriptedModel::start(script).await.unwrap();
    let answer = ask(&model, "count").await;
    assert_eq!(answer.text(), pieces.collect::<String>());
    let deltas = answer
        .kinds()
        .iter()
        .filter(|kind| *kind == "response.output_text.delta")
        .count();
    assert_eq!(deltas, 2000);
}

#[tokio::test]
async fn calls_of_one_reply_have_different_ids() {
    let script = Script::new().otherwise([Reply::together([
        Reply::say("two at once"),
        Reply::call("one", json!({"a": 1})),
        Reply::call_in("space", "two", json!({})),
    ])]);
    let model = ScriptedModel::start(script).await.unwrap();
    let events = ask(&model, "go").await.events();
    let items: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    assert_eq!(items[1]["arguments"], r#"{"a":1}"#);
    assert_eq!(items[2]["namespace"], "space");
    assert_ne!(items[1]["call_id"], items[2]["call_id"]);
}

#[tokio::test]
async fn gate_holds_the_rest_of_a_message() {
    let gate = Gate::new();
    let reply = Reply::stream(["before "]).then(Reply::stream(["after"]).behind(&gate));
    let model = ScriptedModel::start(Script::new().otherwise([reply]))
        .await
        .unwrap();
    let mut connection = send(&model, "POST /v1/responses", &prompt("go")).await;
    timeout(SOON, gate.reached(1)).await.unwrap();
    let mut seen = vec![0; 4096];
    let length = connection.read(&mut seen).await.unwrap();
    let before = String::from_utf8_lossy(&seen[..length]).into_owned();
    assert!(before.contains("before ") && !before.contains("after"));
    gate.release();
    let mut rest = String::new();
    connection.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("before after") && rest.contains("response.completed"));
}

#[tokio::test]
async fn pauses_and_pace_delay_the_reply() {
    let step = Duration::from_millis(20);
    let script = Script::new().otherwise([Reply::deltas(5, "x").paced(step).after(step)]);
    let model = ScriptedModel::start(script).await.unwrap();
    let start = Instant::now();
    assert_eq!(ask(&model, "go").await.text(), "xxxxx");
    assert!(start.elapsed() >= 6 * step);
}

#[tokio::test]
async fn hang_up_comes_after_the_deltas() {
    let script = Script::new().otherwise([Reply::deltas(3, "x").hang_up()]);
    let model = ScriptedModel::start(script).await.unwrap();
    let answer = ask(&model, "go").await;
    assert_eq!(answer.text(), "xxx");
    assert!(!answer.whole);
    assert!(!answer.body.contains("response.output_item.done"));
}

#[tokio::test]
async fn failures_come_as_scripted() {
    let script = Script::new()
        .on("status", [Reply::fail(503, "{\"error\":{}}")])
        .on("event", [Reply::error("rate_limit_exceeded", "slow down")])
        .on("nonsense", [Reply::fail(5, "")]);
    let model = ScriptedModel::start(script).await.unwrap();
    let refused = ask(&model, "status").await;
    assert_eq!(
        (refused.status, refused.body.as_str()),
        (503, "{\"error\":{}}")
    );
    let events = ask(&model, "event").await.events();
    assert_eq!(events[1]["type"], "response.failed");
    assert_eq!(
        events[1]["response"]["error"]["code"],
        "rate_limit_exceeded"
    );
    assert!(ask(&model, "nonsense").await.error().contains("status 5"));
}

#[tokio::test]
async fn unscripted_prompt_is_refused_and_noted() {
    let model = ScriptedModel::start(Script::new()).await.unwrap();
    let answer = ask(&model, "surprise").await;
    assert_eq!(answer.status, 400);
    assert!(answer.error().contains("\"surprise\""));
    let unanswered = model.unanswered();
    assert_eq!(unanswered.len(), 1);
    assert_eq!(unanswered[0].request.prompt(), "surprise");
    assert_eq!(unanswered[0].reason, answer.error());
}

#[tokio::test]
async fn unknown_paths_and_invalid_bodies_are_refused() {
    let model = ScriptedModel::start(Script::new()).await.unwrap();
    let get = |path| send(&model, path, "");
    let models = receive(get("GET /v1/models").await).await;
    assert_eq!(models.status, 200);
    assert!(models.body.contains("mock-model"));
    let elsewhere = receive(get("GET /v1/files?x=1").await).await;
    assert_eq!(elsewhere.status, 404);
    assert!(elsewhere.error().contains("GET /v1/files"));
    assert_eq!(receive(get("GET /v1/responses").await).await.status, 404);
    let garbage = receive(send(&model, "POST /v1/responses", "garbage").await).await;
    assert_eq!(garbage.status, 400);
}

#[tokio::test]
async fn requests_are_counted_and_recorded_as_configured() {
    let script = Script::new()
        .otherwise([Reply::say("ok")])
        .recording(Recording::Last(1));
    let model = ScriptedModel::start(script).await.unwrap();
    ask(&model, "one").await;
    ask(&model, "two").await;
    timeout(SOON, model.requested(2)).await.unwrap();
    assert_eq!(model.request_count(), 2);
    let kept: Vec<String> = model
        .requests()
        .iter()
        .map(|request| request.prompt().to_owned())
        .collect();
    assert_eq!(kept, ["two"]);
}

#[tokio::test]
async fn dropping_the_model_breaks_off_its_responses() {
    let gate = Gate::new();
    let script = Script::new()
        .on("refuse", [Reply::fail(500, "").behind(&gate)])
        .otherwise([Reply::stream(["begun"]).then(Reply::say("never").behind(&gate))]);
    let model = ScriptedModel::start(script).await.unwrap();
    let url = model.base_url();
    let connection = send(&model, "POST /v1/responses", &prompt("go")).await;
    let refused = send(&model, "POST /v1/responses", &prompt("refuse")).await;
    timeout(SOON, gate.reached(2)).await.unwrap();
    drop(model);
    let answer = receive(connection).await;
    assert_eq!(answer.text(), "begun");
    assert!(!answer.whole);
    receive(refused).await;
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/v1");
    assert!(TcpStream::connect(address.unwrap()).await.is_err());
}

#[tokio::test]
async fn stopping_waits_for_the_end() {
    let script = Script::new().otherwise([Reply::say("late").behind(&Gate::new())]);
    let model = ScriptedModel::start(script).await.unwrap();
    let connection = send(&model, "POST /v1/responses", &prompt("go")).await;
    timeout(SOON, model.requested(1)).await.unwrap();
    timeout(SOON, model.stop()).await.unwrap();
    assert!(!receive(connection).await.whole);
}

#[tokio::test]
async fn hundred_conversations_run_concurrently() {
    let gate = Gate::new();
    let script = Script::by({
        let gate = gate.clone();
        move |request| Reply::say(request.prompt()).behind(&gate)
    });
    let model = ScriptedModel::start(script).await.unwrap();
    let answers = (0..100).map(|number| {
        let model = &model;
        async move { (number, ask(model, &format!("number {number}")).await.text()) }
    });
    let (answers, ()) = tokio::join!(futures::future::join_all(answers), async {
        gate.reached(100).await;
        gate.release();
    });
    for (number, text) in answers {
        assert_eq!(text, format!("number {number}"));
    }
}
