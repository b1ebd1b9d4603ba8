//! The MCP client fails a test when the server does not keep to the protocol.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

use std::time::Duration;

use serde_json::{Value, json};
use testkit::fake::{self, Action, FakeCodex, Plan};
use testkit::{Home, McpClient};

/// A client of a fake `codex mcp-server` with this plan.
async fn client(home: &Home, plan: Plan) -> McpClient {
    let fake = FakeCodex::new(home, &plan);
    let launch = home
        .launch(env!("CARGO_BIN_EXE_fake-codex"))
        .args(["mcp-server"])
        .envs(fake.env())
        .env(fake::VERSION, "0.153.4");
    let mut client = McpClient::start(&launch);
    client.initialize("2025-06-18", json!({})).await;
    client
}

fn notify(method: &str) -> Action {
    Action::Notify {
        method: method.to_owned(),
        params: json!({"number": 1}),
    }
}

fn elicit(message: &str) -> Action {
    Action::Ask {
        method: "elicitation/create".to_owned(),
        params: json!({"message": message, "requestedSchema": {}}),
    }
}

#[tokio::test]
async fn messages_are_claimed_in_any_order() {
    let home = Home::new("");
    let plan = Plan::new().on(
        "ping",
        [
            Action::Answer,
            notify("notifications/first"),
            notify("notifications/second"),
        ],
    );
    let mut client = client(&home, plan).await;
    let ping = client.request("ping", Value::Null);
    let tools = client.request("tools/list", json!({}));

    assert_eq!(client.result(&tools).await["tools"][0]["name"], "codex");
    let second = client.notification("notifications/second").await;
    assert_eq!(second["params"], json!({"number": 1}));
    let first = client.next_message().await;
    assert_eq!(first["id"], ping);
    client.ignore("notifications/first");
    let unknown = client.request("no/such", json!({}));
    assert_eq!(client.error(&unknown).await["code"], -32601);
    assert!(client.finish().await.success());
}

#[tokio::test]
async fn server_requests_are_answered_by_hand_or_by_a_handler() {
    let home = Home::new("");
    let plan = Plan::new().on("ping", [elicit("one"), elicit("two"), Action::Answer]);
    let mut client = client(&home, plan).await;
    let ping = client.request("ping", json!({}));

    let asked = client.server_request("elicitation/create").await;
    assert_eq!(asked["params"]["message"], "one");
    client.on_request("elicitation/create", |request| {
        assert_eq!(request["params"]["message"], "two");
        json!({"action": "decline"})
    });
    client.respond(&asked["id"], json!({"action": "accept"}));
    client.result(&ping).await;
    assert!(client.finish().await.success());
}

#[tokio::test]
async fn each_request_can_describe_the_client() {
    let home = Home::new("");
    let fake = FakeCodex::new(&home, &Plan::new());
    let mut client = client(&home, Plan::new()).await;
    client.describe_each_request("2026-07-28", json!({"elicitation": {}}));
    client
        .call("tools/list", json!({"_meta": {"progressToken": 1}}))
        .await;
    let again = client.request_again(
        "ping",
        json!({}),
        &json!({"resultType": "input_required", "requestState": "s"}),
        json!({"q": {"action": "decline"}}),
    );
    client.result(&again).await;

    let list = fake.wait_for_method("tools/list").await;
    assert_eq!(
        list["params"]["_meta"],
        json!({
            "progressToken": 1,
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            "io.modelcontextprotocol/clientInfo": {
                "name": "testkit",
                "version": env!("CARGO_PKG_VERSION"),
            },
        })
    );
    let again = fake.wait_for_method("ping").await;
    assert_eq!(again["params"]["requestState"], "s");
    assert_eq!(again["params"]["inputResponses"]["q"]["action"], "decline");
}

#[tokio::test]
async fn cancelled_request_may_lack_a_response() {
    let home = Home::new("");
    let mut client = client(&home, Plan::new().on("ping", [Action::Hang])).await;
    let ping = client.request("ping", json!({}));
    client.cancel(&ping, "no longer needed");
    assert!(client.finish().await.success());
}

#[tokio::test]
#[should_panic(expected = "messages left unclaimed")]
async fn unclaimed_message_fails_the_test() {
    let home = Home::new("");
    let plan = Plan::new().on("ping", [notify("notifications/surprise"), Action::Answer]);
    let mut client = client(&home, plan).await;
    client.call("ping", json!({})).await;
}

#[tokio::test]
#[should_panic(expected = "requests left without a response: [\"2\"]")]
async fn request_without_a_response_fails_the_test() {
    let home = Home::new("");
    let mut client = client(&home, Plan::new().on("ping", [Action::Hang])).await;
    client.request("ping", json!({}));
    client.finish().await;
}

#[tokio::test]
#[should_panic(expected = "the server answered 2 twice")]
async fn second_response_fails_the_test() {
    let home = Home::new("");
    let mut client = client(&home, Plan::new().on("ping", [Action::AnswerTwice])).await;
    client.call("ping", json!({})).await;
    client.finish().await;
}

#[tokio::test]
#[should_panic(expected = "which was never asked")]
async fn unmatched_response_fails_the_test() {
    let home = Home::new("");
    let mut client = client(&home, Plan::new().on("ping", [Action::AnswerUnknownId])).await;
    client.call("ping", json!({})).await;
}

#[tokio::test]
#[should_panic(expected = "a line that is not JSON")]
async fn garbage_fails_the_test() {
    let home = Home::new("");
    let mut client = client(&home, Plan::new().on("ping", [Action::garbage()])).await;
    client.call("ping", json!({})).await;
}

#[tokio::test]
#[should_panic(expected = "stdout ended in the middle of a line")]
async fn half_a_line_fails_the_test() {
    let home = Home::new("");
    let actions = [Action::HalfAnswer, Action::Exit { code: 1 }];
    let mut client = client(&home, Plan::new().on("ping", actions)).await;
    client.call("ping", json!({})).await;
}

#[tokio::test]
async fn failure_shows_the_transcript_and_stderr() {
    let home = Home::new("");
    let actions = [
        Action::WriteStderr {
            text: "a hint".to_owned(),
        },
        notify("notifications/before"),
    ];
    let mut client = client(&home, Plan::new().on("ping", actions)).await;
    client.request("ping", json!({}));
    client.notification("notifications/before").await;
    client.set_time_limit(Duration::from_millis(50));

    let wait = tokio::spawn(async move { client.next_message().await });
    let payload = wait.await.unwrap_err().into_panic();
    let message = payload.downcast_ref::<String>().unwrap();
    assert!(
        message.starts_with("waited 50ms for any message\n"),
        "{message}"
    );
    assert!(
        message.contains(r#"> {"id":2,"jsonrpc":"2.0","method":"ping""#),
        "{message}"
    );
    assert!(
        message.contains(r#""method":"notifications/before""#),
        "{message}"
    );
    assert!(message.ends_with("--- stderr\na hint\n---"), "{message}");
}
