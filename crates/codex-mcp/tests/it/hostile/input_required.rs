//! MCP 2026-07-28: a call returns Codex's question, and continues with the answer.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan, Question};

use super::serve::{Serve, code, completed, is_answer, turns};
use super::sessions::decision;

const VERSION: &str = "2026-07-28";

fn start(plan: &Plan, args: &[&str], capabilities: Value) -> Serve {
    let mut serve = Serve::start_with(plan, |launch| launch.args(args));
    serve.client.describe_each_request(VERSION, capabilities);
    serve
}

fn eliciting(plan: &Plan, args: &[&str]) -> Serve {
    start(plan, args, json!({"elicitation": {}}))
}

fn params() -> Value {
    json!({"name": "codex", "arguments": {"prompt": "hi"}})
}

/// The names of the questions in a result.
fn names(result: &Value) -> Vec<String> {
    assert_eq!(result["resultType"], "input_required", "{result:#}");
    let requests = result["inputRequests"].as_object().unwrap();
    requests.keys().cloned().collect()
}

async fn carry_on(serve: &mut Serve, asked: &Value, answers: Value) -> Value {
    let again = serve
        .client
        .request_again("tools/call", params(), asked, answers);
    serve.client.result(&again).await
}

#[tokio::test]
async fn call_continues_with_the_answer() {
    let plan = turns([Action::ask_approval("touch x")]);
    for (answer, decision) in [
        (json!({"action": "accept"}), "accept"),
        (json!({"action": "decline"}), "decline"),
        (
            json!({"action": "accept", "content": {"decision": "acceptForSession"}}),
            "acceptForSession",
        ),
    ] {
        let mut serve = eliciting(&plan, &[]);
        let asked = serve.codex().await;
        let names = names(&asked);
        assert_eq!(names.len(), 1);
        let request = &asked["inputRequests"][&names[0]];
        assert_eq!(request["method"], "elicitation/create");
        let text = request["params"]["message"].as_str().unwrap();
        assert!(text.contains("touch x"), "{text}");
        let field = &request["params"]["requestedSchema"]["properties"]["decision"];
        let choices = field["oneOf"].as_array().unwrap();
        let choices = choices.iter().map(|choice| &choice["const"]);
        let expected = ["accept", "acceptForSession", "decline"];
        assert!(choices.eq(expected.iter()), "{field:#}");

        let result = carry_on(&mut serve, &asked, json!({&names[0]: answer})).await;
        assert_eq!(completed(&result), "done");
        assert_eq!(serve.answers()[0]["result"], json!({"decision": decision}));
        serve.finish().await;
    }
}

#[tokio::test]
async fn dismissed_question_returns_waiting_approval() {
    let mut serve = eliciting(&turns([Action::ask_approval("touch x")]), &[]);
    let asked = serve.codex().await;
    let answers = json!({&names(&asked)[0]: {"action": "cancel"}});
    let waiting = carry_on(&mut serve, &asked, answers).await;
    let structured = &waiting["structuredContent"];
    assert_eq!(structured["status"], "waiting_approval", "{waiting:#}");
    assert_eq!(serve.answers(), Vec::<Value>::new());

    let session = structured["sessionId"].as_str().unwrap();
    let accept = decision(session, &structured["actions"][0], "accept");
    serve.client.call_tool("codex_check", accept).await;
    serve.fake.wait_for("the answer", is_answer).await;
    assert_eq!(serve.answers()[0]["result"], json!({"decision": "accept"}));
    serve.finish().await;
}

#[tokio::test]
async fn consecutive_questions_are_carried_on() {
    let plan = turns([Action::ask_approval("one"), Action::ask_approval("two")]);
    let mut serve = eliciting(&plan, &[]);
    let first = serve.codex().await;
    let yes = json!({"action": "accept"});
    let second = carry_on(&mut serve, &first, json!({&names(&first)[0]: yes})).await;
    assert_ne!(names(&first), names(&second));
    // The first answer once more does not answer the second question.
    let stale = carry_on(&mut serve, &first, json!({&names(&first)[0]: yes})).await;
    assert_eq!(names(&stale), names(&second));
    let result = carry_on(&mut serve, &second, json!({&names(&second)[0]: yes})).await;
    assert_eq!(completed(&result), "done");
    assert_eq!(serve.answers().len(), 2);
    assert_eq!(
        serve
            .fake
            .received()
            .iter()
            .filter(|m| m["method"] == "turn/start")
            .count(),
        1
    );
    serve.finish().await;
}

#[tokio::test]
async fn call_retried_without_an_answer_is_asked_again() {
    let both = Action::AskTogether(vec![Question::approval("one"), Question::approval("two")]);
    let mut serve = eliciting(&turns([both]), &[]);
    let mut asked = serve.codex().await;
    while names(&asked).len() < 2 {
        asked = carry_on(&mut serve, &asked, json!({})).await;
    }
    let names = names(&asked);
    let yes = json!({"action": "accept"});
    let asked = carry_on(&mut serve, &asked, json!({&names[1]: yes})).await;
    assert_eq!(self::names(&asked), [names[0].clone()]);
    let result = carry_on(&mut serve, &asked, json!({&names[0]: yes})).await;
    assert_eq!(completed(&result), "done");
    serve.finish().await;
}

#[tokio::test]
async fn late_answer_gets_the_later_state_of_the_turn() {
    let plan = turns([Action::ask_approval("touch x")]);
    let mut serve = eliciting(&plan, &["--approval-timeout", "1"]);
    let asked = serve.codex().await;
    serve.fake.wait_for("the answer", is_answer).await;
    let yes = json!({&names(&asked)[0]: {"action": "accept"}});
    let result = carry_on(&mut serve, &asked, yes).await;
    assert_eq!(completed(&result), "done");
    assert_eq!(serve.answers().len(), 1);
    assert_eq!(serve.answers()[0]["result"], json!({"decision": "decline"}));
    serve.finish().await;
}

#[tokio::test]
async fn foreign_request_state_is_refused() {
    let mut serve = eliciting(&Plan::new(), &[]);
    for (state, expected) in [
        ("", "INVALID_ARGUMENT"),
        ("nonsense", "INVALID_ARGUMENT"),
        ("sess_000000000000.1", "INVALID_ARGUMENT"),
        (
            "sess_000000000000.1.0199a213-81c0-7800-8aa1-bbab2a035a53",
            "SESSION_NOT_FOUND",
        ),
    ] {
        let forged = json!({"requestState": state});
        let result = carry_on(&mut serve, &forged, json!({})).await;
        assert_eq!(code(&result), expected);
    }
    serve.finish().await;
}

#[tokio::test]
async fn client_without_elicitation_gets_the_call_back_at_once() {
    let plan = turns([Action::ask_approval("touch x")]);
    let mut serve = start(&plan, &[], json!({}));
    let result = serve.codex().await;
    assert_eq!(result["structuredContent"]["status"], "waiting_approval");
    serve.finish().await;
}
