//! Codex's questions, as elicitations or as results.

use scripted_model::{Patch, Reply, Script, Shell};
use serde_json::{Value, json};

use super::{
    CodexFixture, assert_completed, assert_error, on_each_release, structured, text, thread_of,
};
use crate::jobs::wait_for;

on_each_release!(
    approval_is_elicited_from_the_client,
    approved_plain_command_may_leave_the_sandbox,
    dismissed_elicitation_leaves_the_question_open,
    elicitation_can_allow_for_the_session,
    client_without_elicitation_gets_the_question_at_once,
    stateless_client_gets_the_question_as_a_result,
    file_change_is_elicited_with_its_contents,
);

/// A model that touches a file outside of the sandbox, which needs an approval.
fn script(stage_file: &'static str) -> Script {
    Script::new()
        .on(
            "touch",
            [
                Reply::shell(Shell::escalated(
                    format!("touch {stage_file}"),
                    "it is needed",
                )),
                Reply::with(|request| {
                    let output = request
                        .tool_outputs()
                        .last()
                        .map(|output| output.text.clone());
                    Reply::say(format!("Codex said: {}", output.unwrap_or_default()))
                }),
            ],
        )
        .otherwise([Reply::say("back")])
}

fn arguments() -> Value {
    json!({"prompt": "touch it", "sandbox": "read-only", "approval-policy": "on-request"})
}

async fn approval_is_elicited_from_the_client(release: &str) {
    let stage = CodexFixture::new(release, script("made.txt")).await;
    let mut client = stage.asking_client(&[]).await;
    let file = stage.file("made.txt");
    for (answer, made, status) in [
        (json!({"action": "decline"}), false, "completed"),
        (json!({"decision": "denied"}), false, "completed"),
        (json!({"decision": "abort"}), false, "interrupted"),
        (
            json!({"action": "accept", "content": {}}),
            true,
            "completed",
        ),
        (json!({"decision": "approved"}), true, "completed"),
    ] {
        let id = client.request_tool("codex", arguments());
        let question = client.server_request("elicitation/create").await;
        let params = &question["params"];
        assert!(
            params["message"]
                .as_str()
                .unwrap()
                .contains("touch made.txt"),
            "{params:#}"
        );
        let choices = &params["requestedSchema"]["properties"]["decision"]["enum"];
        for choice in ["accept", "acceptForSession", "decline"] {
            let choices = choices.as_array().unwrap();
            assert!(choices.contains(&json!(choice)), "{params:#}");
        }
        assert_eq!(params["codex_elicitation"], "exec-approval");
        assert_eq!(params["codex_cwd"], stage.home.work().to_str().unwrap());
        let command = params["codex_command"].as_array().unwrap();
        assert_eq!(command.last().unwrap(), "touch made.txt");
        client.respond(&question["id"], answer.clone());
        let result = client.result(&id).await;
        assert_eq!(
            structured(&result)["status"],
            status,
            "{answer}: {result:#}"
        );
        assert_eq!(file.exists(), made, "{answer}");
        if made {
            std::fs::remove_file(&file).unwrap();
        }
    }
    stage.finish(client).await;
}

/// How often the test tries to have Codex run a command a second time. Codex does not if the first
/// time takes long, as on a busy machine.
const TRIES: usize = 30;

/// The command does not ask to leave the sandbox, fails inside, and Codex asks once.
async fn approved_plain_command_may_leave_the_sandbox(release: &str) {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.asking_client(&[]).await;
    let arguments =
        json!({"prompt": "touch it", "sandbox": "read-only", "approval-policy": "untrusted"});
    for _ in 0..TRIES {
        let id = client.request_tool("codex", arguments.clone());
        let question = client.server_request("elicitation/create").await;
        let message = question["params"]["message"].as_str().unwrap();
        assert!(
            message.contains("\nSandbox: a yes can let the command run outside of it"),
            "{message}"
        );
        let accept = json!({"action": "accept", "content": {"decision": "accept"}});
        client.respond(&question["id"], accept);
        let result = client.result(&id).await;
        assert_eq!(structured(&result)["status"], "completed", "{result:#}");
        if stage.file("made.txt").exists() {
            break;
        }
    }
    // 0.153.4 seldom runs the command a second time.
    assert!(stage.file("made.txt").exists() || release == "0.153.4");
    stage.finish(client).await;
}

/// Headless Claude Code dismisses each elicitation at once.
async fn dismissed_elicitation_leaves_the_question_open(release: &str) {
    let stage = CodexFixture::new(release, script("made.txt")).await;
    let mut client = stage.asking_client(&[]).await;
    let id = client.request_tool("codex", arguments());
    let question = client.server_request("elicitation/create").await;
    client.respond(&question["id"], json!({"action": "cancel"}));
    let waiting = client.result(&id).await;
    assert!(waiting.get("isError").is_none(), "{waiting:#}");
    assert_eq!(structured(&waiting)["status"], "waiting_approval");

    let session = &structured(&waiting)["sessionId"];
    let accept = json!({"action": "respond_permission", "sessionId": session,
        "requestId": structured(&waiting)["actions"][0]["requestId"], "decision": "accept"});
    client.call_tool("codex_check", accept).await;
    let wait = json!({"action": "wait_any", "sessionIds": [session], "waitMs": 60_000});
    let ended = client.call_tool("codex_session", wait).await;
    assert_eq!(structured(&ended)["status"], "idle", "{ended:#}");
    let look = json!({"action": "poll", "sessionId": session});
    let look = client.call_tool("codex_check", look).await;
    assert_eq!(structured(&look)["result"]["status"], "completed");
    assert!(stage.file("made.txt").exists());
    stage.finish(client).await;
}

/// Codex does not ask about a second command like the first.
async fn elicitation_can_allow_for_the_session(release: &str) {
    for answer in [
        json!({"decision": "approved_for_session"}),
        json!({"action": "accept", "content": {"decision": "acceptForSession"}}),
    ] {
        let stage = CodexFixture::new(release, script("made.txt")).await;
        let mut client = stage.asking_client(&[]).await;
        let file = stage.file("made.txt");
        let id = client.request_tool("codex", arguments());
        let question = client.server_request("elicitation/create").await;
        client.respond(&question["id"], answer);
        let first = client.result(&id).await;
        assert!(file.exists(), "{first:#}");
        std::fs::remove_file(&file).unwrap();

        let again = json!({"prompt": "touch it again", "threadId": thread_of(&first)});
        let second = client.call_tool("codex-reply", again).await;
        assert_eq!(structured(&second)["status"], "completed", "{second:#}");
        assert!(file.exists(), "{second:#}");
        stage.finish(client).await;
    }
}

async fn client_without_elicitation_gets_the_question_at_once(release: &str) {
    let stage = CodexFixture::new(release, script("made.txt")).await;
    let mut client = stage.client(&["--approval-timeout", "1"]).await;
    let waiting = client.call_tool("codex", arguments()).await;
    assert!(waiting.get("isError").is_none(), "{waiting:#}");
    assert_eq!(structured(&waiting)["status"], "waiting_approval");
    assert!(text(&waiting, 0).contains("touch made.txt"), "{waiting:#}");
    let action = &structured(&waiting)["actions"][0];
    assert_eq!(action["kind"], "command");
    assert!(
        action["command"]
            .as_str()
            .unwrap()
            .contains("touch made.txt")
    );

    // The question is declined meanwhile; then the turn ends and the thread is free again.
    let back = wait_for("the end of the turn", async || {
        let arguments = json!({"prompt": "and now?", "threadId": thread_of(&waiting)});
        let result = client.call_tool("codex-reply", arguments).await;
        if structured(&result)["error"]["code"] != "SESSION_BUSY" {
            return Some(result);
        }
        assert_error(&result, "SESSION_BUSY");
        None
    })
    .await;
    assert_completed(&back, "back");
    assert!(!stage.file("made.txt").exists());
    stage.finish(client).await;
}

async fn stateless_client_gets_the_question_as_a_result(release: &str) {
    let stage = CodexFixture::new(release, script("made.txt")).await;
    let mut client = testkit::McpClient::start(&stage.launch(&[]));
    client.describe_each_request("2026-07-28", json!({"elicitation": {"form": {}}}));
    let params = json!({"name": "codex", "arguments": arguments()});
    let asked = client.call("tools/call", params.clone()).await;
    assert_eq!(asked["resultType"], "input_required", "{asked:#}");
    let requests = asked["inputRequests"].as_object().unwrap();
    let (name, question) = requests.iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert!(
        question["params"]["message"]
            .as_str()
            .unwrap()
            .contains("touch made.txt")
    );

    let answers = json!({name: {"action": "accept", "content": {}}});
    let id = client.request_again("tools/call", params, &asked, answers);
    let done = client.result(&id).await;
    assert_eq!(structured(&done)["status"], "completed", "{done:#}");
    assert!(stage.file("made.txt").exists());
    stage.finish(client).await;
}

async fn file_change_is_elicited_with_its_contents(release: &str) {
    let patch = Patch::new().add("made.txt", "hello");
    let script = Script::new().otherwise([Reply::patch(patch), Reply::say("done")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.asking_client(&[]).await;
    let id = client.request_tool("codex", arguments());
    let question = client.server_request("elicitation/create").await;
    let params = &question["params"];
    assert_eq!(params["codex_elicitation"], "patch-approval", "{params:#}");
    assert!(
        params["message"].as_str().unwrap().contains("made.txt"),
        "{params:#}"
    );
    let path = stage.file("made.txt");
    let change = &params["codex_changes"][path.to_str().unwrap()];
    assert_eq!(change["type"], "add", "{params:#}");
    assert!(
        change["content"].as_str().unwrap().contains("hello"),
        "{params:#}"
    );
    client.respond(&question["id"], json!({"action": "accept", "content": {}}));
    client.result(&id).await;
    assert_eq!(std::fs::read_to_string(path).unwrap(), "hello\n");
    stage.finish(client).await;
}

/// The model can ask the user since 0.130, if the configuration allows it.
async fn user_question_becomes_a_form(release: &str) {
    let questions = json!({"questions": [{
        "id": "colour", "header": "Colour", "question": "Which colour?",
        "options": [
            {"label": "red", "description": "like a rose"},
            {"label": "blue", "description": "like the sky"},
        ],
    }]});
    let script = Script::new().otherwise([
        Reply::call("request_user_input", questions),
        Reply::with(|request| {
            let output = request
                .tool_outputs()
                .last()
                .map(|output| output.text.clone());
            Reply::say(output.unwrap_or_default())
        }),
    ]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = stage.asking_client(&[]).await;
    let config = json!({"features.default_mode_request_user_input": true});
    let id = client.request_tool("codex", json!({"prompt": "ask me", "config": config}));
    let question = client.server_request("elicitation/create").await;
    let schema = &question["params"]["requestedSchema"];
    assert_eq!(
        schema["properties"]["colour"]["description"], "Which colour?",
        "{question:#}"
    );
    assert!(
        schema["properties"]["colour"]["enum"]
            .as_array()
            .unwrap()
            .contains(&json!("blue"))
    );
    let answer = json!({"action": "accept", "content": {"colour": "blue"}});
    client.respond(&question["id"], answer);
    let result = client.result(&id).await;
    assert!(text(&result, 0).contains("blue"), "{result:#}");
    stage.finish(client).await;
}

#[tokio::test]
async fn user_question_becomes_a_form_on_0_153_4() {
    user_question_becomes_a_form("0.153.4").await;
}

#[tokio::test]
async fn user_question_becomes_a_form_on_the_newest() {
    user_question_becomes_a_form(testkit::codex::newest()).await;
}

/// A Codex with our own server among its MCP servers, and a model that calls one of its tools.
pub(super) async fn with_own_server(release: &str) -> CodexFixture {
    // An entry with our program as its command is switched off.
    let server = concat!("exec ", env!("CARGO_BIN_EXE_codex-mcp"), " serve");
    let config = format!("[mcp_servers.inner]\ncommand = \"sh\"\nargs = [\"-c\", {server:?}]\n");
    let script = Script::new().otherwise([
        Reply::mcp(
            "inner",
            "codex_reply",
            json!({"prompt": "without a thread"}),
        ),
        Reply::with(|request| {
            let output = request
                .tool_outputs()
                .last()
                .map(|output| output.text.clone());
            Reply::say(output.unwrap_or_default())
        }),
    ]);
    CodexFixture::with_config(release, script, &config).await
}

/// Codex asks before it calls tools of MCP servers. (0.104.0 does not.)
async fn tool_call_is_elicited(release: &str) {
    let stage = with_own_server(release).await;
    let mut client = stage.asking_client(&[]).await;
    for (answer, outcome) in [
        (
            json!({"action": "accept", "content": {}}),
            "threadId is missing",
        ),
        (json!({"action": "decline"}), "reject"),
    ] {
        let arguments = json!({"prompt": "call it", "approval-policy": "on-request"});
        let id = client.request_tool("codex", arguments);
        let question = client.server_request("elicitation/create").await;
        assert_eq!(
            question["params"]["codex_elicitation"], "mcp-tool-call",
            "{question:#}"
        );
        client.respond(&question["id"], answer);
        let result = client.result(&id).await;
        assert!(text(&result, 0).contains(outcome), "{result:#}");
    }
    stage.finish(client).await;
}

#[tokio::test]
async fn tool_call_is_elicited_on_0_153_4() {
    tool_call_is_elicited("0.153.4").await;
}

#[tokio::test]
async fn tool_call_is_elicited_on_the_newest() {
    tool_call_is_elicited(testkit::codex::newest()).await;
}
