//! The prompts of the server.

use serde_json::{Value, json};
use testkit::fake::Plan;

use super::serve::{HANDSHAKE, Serve};

const STATELESS: &str = "2026-07-28";

const NAMES: [&str; 6] = [
    "delegate",
    "review",
    "status",
    "result",
    "cancel",
    "hand_over",
];

async fn names(serve: &mut Serve) -> Vec<String> {
    let listed = serve.client.call("prompts/list", json!({})).await;
    let prompts = listed["prompts"].as_array().unwrap();
    let names = prompts
        .iter()
        .map(|prompt| prompt["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

/// The text of a prompt.
async fn text(serve: &mut Serve, name: &str, arguments: Value) -> String {
    let params = json!({ "name": name, "arguments": arguments });
    let got = serve.client.call("prompts/get", params).await;
    let messages = got["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "{got:#}");
    assert_eq!(messages[0]["role"], "user", "{got:#}");
    messages[0]["content"]["text"].as_str().unwrap().to_owned()
}

async fn refusal(serve: &mut Serve, method: &str, params: Value) -> String {
    let request = serve.client.request(method, params);
    let error = serve.client.error(&request).await;
    assert_eq!(error["code"], -32602, "{error:#}");
    error["message"].as_str().unwrap().to_owned()
}

fn required(prompt: &Value) -> Vec<&str> {
    let arguments = prompt["arguments"].as_array().unwrap().iter();
    let required = arguments.filter(|argument| argument["required"] == true);
    required
        .map(|argument| argument["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn prompts_are_listed_and_read_in_both_eras() {
    for stateless in [false, true] {
        let mut serve = Serve::start(&Plan::new());
        let about = match stateless {
            true => {
                serve.client.describe_each_request(STATELESS, json!({}));
                serve.client.call("server/discover", json!({})).await
            }
            false => serve.client.initialize(HANDSHAKE, json!({})).await,
        };
        for capability in ["prompts", "completions"] {
            assert_eq!(about["capabilities"][capability], json!({}), "{about:#}");
        }
        let listed = serve.client.call("prompts/list", json!({})).await;
        for prompt in listed["prompts"].as_array().unwrap() {
            assert!(prompt["title"].is_string(), "{prompt:#}");
            assert!(prompt["description"].is_string(), "{prompt:#}");
            let expected: &[&str] = match prompt["name"].as_str().unwrap() {
                "delegate" => &["task"],
                _ => &[],
            };
            assert_eq!(required(prompt), expected, "{prompt:#}");
        }
        assert_eq!(names(&mut serve).await, NAMES);
        for name in NAMES {
            let arguments = match name {
                "delegate" => json!({ "task": "Fix the tests" }),
                _ => json!({}),
            };
            let text = text(&mut serve, name, arguments).await;
            assert_eq!(
                text.contains("<task>\nFix the tests\n</task>"),
                name == "delegate"
            );
        }
        serve.finish().await;
    }
}

#[tokio::test]
async fn wrong_prompt_requests_are_refused_as_invalid_parameters() {
    let mut serve = Serve::plain(&Plan::new()).await;
    for (params, words) in [
        (
            json!({ "name": "nope" }),
            "there is no prompt `nope`; there are delegate, review, ",
        ),
        (
            json!({ "name": "delegate" }),
            "prompt delegate: the argument `task` is missing: What Codex is to do.",
        ),
        (
            json!({ "name": "delegate", "arguments": { "task": "x", "dir": "/" } }),
            "prompt delegate: unknown argument `dir`; did you mean `directory`?",
        ),
        (
            json!({ "name": "status", "arguments": { "id": 7 } }),
            "prompt status: the argument `id` must be a string",
        ),
        (
            json!({ "name": "status", "arguments": { "id": "x".repeat(5000) } }),
            "prompt status: the argument `id` has 5000 bytes, more than 4096",
        ),
        (json!({ "name": "status", "arguments": [] }), "do not match"),
        (json!({}), "do not match"),
    ] {
        let message = refusal(&mut serve, "prompts/get", params).await;
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(names(&mut serve).await, NAMES);
    serve.finish().await;
}

#[tokio::test]
async fn prompts_fit_the_chosen_tools() {
    let mut serve = Serve::plain_with(&Plan::new(), &["--tools", "runs"]).await;
    let expected = ["delegate", "review", "status", "result", "cancel"];
    assert_eq!(names(&mut serve).await, expected);
    let delegate = text(&mut serve, "delegate", json!({ "task": "x" })).await;
    assert!(delegate.contains("`codex_run`"), "{delegate}");
    assert!(!delegate.contains("`call_codex`"), "{delegate}");
    let refused = refusal(&mut serve, "prompts/get", json!({ "name": "hand_over" })).await;
    assert!(refused.contains("there is no prompt"), "{refused}");
    serve.finish().await;

    let mut serve = Serve::plain_with(&Plan::new(), &["--api", "sessions"]).await;
    let result = text(&mut serve, "result", json!({})).await;
    assert!(result.contains("`codex_reply`"), "{result}");
    assert!(!result.contains("`codex-reply`"), "{result}");
    serve.finish().await;
}

#[tokio::test]
async fn ids_of_sessions_are_completed() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let result = serve.codex().await;
        let session = &result["structuredContent"]["sessionId"];
        sessions.insert(0, session.clone());
    }
    let complete = |argument: &str, value: &str| {
        json!({
            "ref": { "type": "ref/prompt", "name": "status" },
            "argument": { "name": argument, "value": value },
        })
    };
    let whole = sessions[0].as_str().unwrap().to_owned();
    for (value, expected) in [
        ("sess_", json!(sessions)),
        (&whole, json!([whole])),
        ("zzz", json!([])),
    ] {
        let params = complete("id", value);
        let found = serve.client.call("completion/complete", params).await;
        assert_eq!(found["completion"]["values"], expected, "{found:#}");
        assert_eq!(found["completion"]["hasMore"], false, "{found:#}");
    }
    let refused = refusal(&mut serve, "completion/complete", complete("ids", "")).await;
    assert!(refused.contains("did you mean `id`?"), "{refused}");
    serve.finish().await;
}

/// The commands that the prompts name exist.
#[tokio::test]
async fn commands_in_prompts_exist() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let mut verbs = Vec::new();
    for name in NAMES {
        let arguments = match name {
            "delegate" => json!({ "task": "x" }),
            _ => json!({}),
        };
        let text = text(&mut serve, name, arguments).await;
        let commands = text.split("`codex-mcp ").skip(1);
        verbs.extend(commands.map(|rest| {
            let end = rest.find(['`', ' ']).unwrap();
            rest[..end].to_owned()
        }));
    }
    verbs.sort_unstable();
    verbs.dedup();
    assert_eq!(verbs, ["attach", "cancel", "jobs", "logs", "ps", "steer"]);
    for verb in verbs {
        let mut help = std::process::Command::new(env!("CARGO_BIN_EXE_codex-mcp"));
        let help = help.args([&verb, "--help"]).env_clear();
        let output = help.envs(serve.home.env()).output().unwrap();
        assert!(output.status.success(), "{verb}: {output:?}");
    }
    serve.finish().await;
}
