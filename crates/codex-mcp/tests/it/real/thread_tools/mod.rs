//! Our tools inside Codex's threads: set when the thread begins, answered by the server, and kept
//! for the life of the thread.

mod newer_releases;
mod runs_and_jobs;

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_request::logic::contract::TOOL;
use scripted_model::{Reply, Request, Script};
use serde_json::{Value, json};
use testkit::process::{Process, descendants};
use testkit::{McpClient, Signal};

use super::sessions::Poller;
use super::{CodexFixture, VERSION, assert_completed, on_oldest_and_newest, structured, thread_of};
use crate::png::png;

on_oldest_and_newest!(
    tools_outlive_restart_fork_and_crash,
    concurrent_tool_calls_get_their_own_answers,
    wrong_arguments_are_reported_to_the_model,
    thread_begun_without_tools_warns_once,
    switched_off_tools_refuse_calls,
    mail_of_a_member_chosen_by_a_repository_asks_first,
    turn_is_interrupted_while_a_call_waits,
);

pub(super) const TEAM: [&str; 4] = ["--identity", "arch", "--team", "builders"];

/// A model that calls the tool in the last line of the prompt, with the arguments there, and
/// answers with the tool's output.
pub(super) fn calling_model() -> Script {
    calling_after(Script::new())
}

/// The same for what no rule of this script fits.
pub(super) fn calling_after(script: Script) -> Script {
    script.otherwise([
        Reply::with(|request| match requested_call(request) {
            Some((tool, arguments)) => Reply::call(tool, arguments),
            None => Reply::say("ok"),
        }),
        Reply::with(|request| Reply::say(last_output(request))),
    ])
}

fn requested_call(request: &Request) -> Option<(String, Value)> {
    let (_, rest) = request.prompt().rsplit_once("call ")?;
    let (tool, arguments) = rest.split_once(' ')?;
    let (arguments, _) = arguments.split_once('\n').unwrap_or((arguments, ""));
    Some((tool.to_owned(), serde_json::from_str(arguments).ok()?))
}

/// The output of the last call: text, or a picture.
pub(super) fn last_output(request: &Request) -> String {
    let output = request.tool_outputs().pop().unwrap();
    match output.text.is_empty() {
        false => output.text,
        true => (*request.images().last().unwrap()).to_owned(),
    }
}

fn call(tool: &str, arguments: &Value) -> String {
    format!("call {tool} {arguments}")
}

fn look(path: &str) -> String {
    call(TOOL, &json!({ "path": path }))
}

/// A model's call that forks a sub-agent from its parent, whatever the name of the tool.
pub(super) fn spawn_agent(request: &Request) -> Reply {
    let names = request.tool_names();
    let name = names.iter().find(|name| name.ends_with("spawn_agent"));
    let task = json!({ "message": look("a.png"), "fork_context": true });
    match name.unwrap().rsplit_once('/') {
        Some((namespace, name)) => Reply::call_in(namespace, name, task),
        None => Reply::call("spawn_agent", task),
    }
}

pub(super) fn write_to_lead(text: &str) -> String {
    call("atm_send", &json!({ "to": "lead", "message": text }))
}

/// Creates the team `builders` with a lead; returns the lead's inbox.
pub(super) fn team(stage: &CodexFixture, lead_is_active: bool) -> PathBuf {
    let team = stage.home.atm_home().join(".claude/teams/builders");
    fs::create_dir_all(team.join("inboxes")).unwrap();
    let member = json!({ "agentId": "lead@builders", "name": "lead", "agentType": "x",
        "model": "m", "joinedAt": 1_700_000_000_000_u64, "cwd": "/tmp",
        "isActive": lead_is_active });
    let config = json!({ "name": "builders", "createdAt": 1_700_000_000_000_u64,
        "leadAgentId": "lead@builders", "leadSessionId": "x", "members": [member] });
    fs::write(team.join("config.json"), config.to_string()).unwrap();
    team.join("inboxes/lead.json")
}

pub(super) fn mail(inbox: &Path) -> Vec<String> {
    let text = fs::read_to_string(inbox).unwrap_or_else(|_| "[]".to_owned());
    let all: Vec<Value> = serde_json::from_str(&text).unwrap();
    let text = |message: &Value| message["text"].as_str().unwrap().to_owned();
    all.iter().map(text).collect()
}

pub(super) fn picture(stage: &CodexFixture, name: &str) -> String {
    let bytes = png(name);
    fs::write(stage.file(name), &bytes).unwrap();
    format!("data:image/png;base64,{}", STANDARD.encode(bytes))
}

async fn client(stage: &CodexFixture, args: &[&str]) -> McpClient {
    let mut client = McpClient::start(&stage.launch(args));
    client.ignore("notifications/tools/list_changed");
    client.initialize(VERSION, json!({})).await;
    client
}

async fn reply(client: &mut McpClient, thread: &str, prompt: &str) -> Value {
    let arguments = json!({ "prompt": prompt, "threadId": thread });
    client.call_tool("codex-reply", arguments).await
}

/// Checks that no process of ours except the guard runs below the server.
fn assert_no_server_of_ours(client: &McpClient) {
    let all = descendants(client.pid());
    let commands: Vec<String> = all
        .into_iter()
        .filter_map(Process::read)
        .map(|it| it.command)
        .collect();
    assert!(
        commands
            .iter()
            .any(|command| command.contains(" app-server"))
    );
    for ours in ["eyes-mcp", "team-tools"] {
        assert!(!commands.iter().any(|it| it.contains(ours)), "{commands:?}");
    }
}

/// Checks that a turn gets a picture, and that another sends mail.
async fn assert_tools_work(
    stage: &CodexFixture,
    inbox: &Path,
    client: &mut McpClient,
    thread: &str,
    name: &str,
) {
    let shown = picture(stage, name);
    let result = reply(client, thread, &look(name)).await;
    assert_completed(&result, &shown);
    let result = reply(client, thread, &write_to_lead(name)).await;
    let said = structured(&result)["content"].as_str().unwrap();
    assert!(said.contains("message_id"), "{result:#}");
    assert_eq!(mail(inbox).last().unwrap(), name);
    assert_no_server_of_ours(client);
}

async fn tools_outlive_restart_fork_and_crash(release: &str) {
    let stage = CodexFixture::new(release, calling_model()).await;
    let inbox = team(&stage, true);
    let mut first = client(&stage, &TEAM).await;
    let shown = picture(&stage, "a.png");
    let begun = first
        .call_tool("codex", json!({ "prompt": look("a.png") }))
        .await;
    assert_completed(&begun, &shown);
    let thread = thread_of(&begun);
    assert_tools_work(&stage, &inbox, &mut first, &thread, "b.png").await;
    stage.finish(first).await;

    let mut second = client(&stage, &TEAM).await;
    assert_tools_work(&stage, &inbox, &mut second, &thread, "resumed.png").await;
    // The first descendant is the guard, the second Codex.
    let codex = i32::try_from(descendants(second.pid())[1]).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(codex), Signal::SIGKILL).unwrap();
    // This call may arrive before the server has noticed the end of Codex.
    reply(&mut second, &thread, "x").await;
    assert_tools_work(&stage, &inbox, &mut second, &thread, "killed.png").await;
    let status = second.call_tool("codex_status", json!({})).await;
    let warnings = structured(&status)["warnings"].to_string();
    assert!(!warnings.contains("continues without"), "{warnings}");
    stage.finish(second).await;

    let mut poller = Poller::new(&stage, &TEAM).await;
    let session = poller.start("x", json!({})).await;
    poller.until_idle(&session).await;
    let forked = poller.session("fork", &session).await;
    let forked = forked["sessionId"].as_str().unwrap().to_owned();
    let shown = picture(&stage, "forked.png");
    poller.reply(&forked, &look("forked.png"), json!({})).await;
    let (done, events) = poller.until_idle(&forked).await;
    assert_eq!(done["result"]["output"], shown);
    let is_call = |event: &&Value| event["data"]["itemType"] == "dynamicToolCall";
    let steps: Vec<&Value> = events.iter().filter(is_call).collect();
    let titles: Vec<&Value> = steps.iter().map(|step| &step["data"]["title"]).collect();
    assert_eq!(titles, ["calling request_image", "called request_image"]);
    // No event in the log contains the picture itself.
    assert!(!json!(steps).to_string().contains("base64"));
    poller
        .reply(&forked, &write_to_lead("forked"), json!({}))
        .await;
    poller.until_idle(&forked).await;
    assert_eq!(mail(&inbox).last().unwrap(), "forked");
    stage.finish(poller.client).await;
}

async fn concurrent_tool_calls_get_their_own_answers(release: &str) {
    let stage = CodexFixture::new(release, calling_model()).await;
    let mut client = client(&stage, &[]).await;
    let calls: Vec<(Value, String)> = (0..8)
        .map(|number| {
            let name = format!("{number}.png");
            let shown = picture(&stage, &name);
            let call = client.request_tool("codex", json!({ "prompt": look(&name) }));
            (call, shown)
        })
        .collect();
    for (call, shown) in calls {
        assert_completed(&client.result(&call).await, &shown);
    }
    stage.finish(client).await;
}

async fn wrong_arguments_are_reported_to_the_model(release: &str) {
    let stage = CodexFixture::new(release, calling_model()).await;
    let inbox = team(&stage, true);
    let mut client = client(&stage, &TEAM).await;
    picture(&stage, "a.png");
    for (tool, arguments, why) in [
        (TOOL, json!({}), "path must be a non-empty string"),
        (
            TOOL,
            json!({ "path": 7 }),
            "path must be a non-empty string",
        ),
        (
            TOOL,
            json!({ "path": "a.png", "more": 1 }),
            "unknown field `more`",
        ),
        (TOOL, json!(["a.png", 1]), "invalid"),
        ("atm_send", json!({ "to": "lead" }), "message"),
        (
            "atm_send",
            json!({ "to": "lead", "message": "x", "from": "boss" }),
            "from",
        ),
        ("atm_send", json!("lead"), "must be an object"),
        ("atm_read", json!({ "max_messages": 1000 }), "from 1 to 100"),
    ] {
        let prompt = call(tool, &arguments);
        let result = client.call_tool("codex", json!({ "prompt": prompt })).await;
        let said = structured(&result)["content"].as_str().unwrap();
        assert!(said.contains(why), "{tool} {arguments}: {said}");
    }
    assert_eq!(mail(&inbox), [""; 0]);
    stage.finish(client).await;
}

async fn thread_begun_without_tools_warns_once(release: &str) {
    let stage = CodexFixture::new(release, calling_model()).await;
    let mut without = client(&stage, &["--no-request-image"]).await;
    let begun = without.call_tool("codex", json!({ "prompt": "x" })).await;
    let thread = thread_of(&begun);
    stage.finish(without).await;

    let mut with = client(&stage, &[]).await;
    let result = reply(&mut with, &thread, "y").await;
    assert_completed(&result, "ok");
    let warnings = structured(&result)["warnings"].to_string();
    let expected = format!("the thread {thread} continues without request_image");
    assert!(warnings.contains(&expected), "{warnings}");
    let result = reply(&mut with, &thread, "z").await;
    assert_eq!(structured(&result)["warnings"], Value::Null);
    let offered = stage.model.requests().pop().unwrap().tool_names();
    assert!(!offered.contains(&TOOL.to_owned()), "{offered:?}");
    stage.finish(with).await;
}

async fn switched_off_tools_refuse_calls(release: &str) {
    let stage = CodexFixture::new(release, calling_model()).await;
    picture(&stage, "a.png");
    let mut with = client(&stage, &[]).await;
    let begun = with.call_tool("codex", json!({ "prompt": "x" })).await;
    let thread = thread_of(&begun);
    stage.finish(with).await;

    let mut without = client(&stage, &["--no-request-image"]).await;
    let result = reply(&mut without, &thread, &look("a.png")).await;
    assert_completed(&result, "request_image is not available here");
    stage.finish(without).await;
}

/// A trusted repository that sets Codex's identity to the lead.
async fn repository_member_fixture(release: &str) -> (CodexFixture, PathBuf) {
    let stage = CodexFixture::new(release, calling_model()).await;
    let inbox = team(&stage, false);
    let settings = "[core]\nidentity = \"lead\"\ndefault_team = \"builders\"\n";
    fs::write(stage.file(".atm.toml"), settings).unwrap();
    crate::trust(&stage.home, &stage.home.work());
    (stage, inbox)
}

async fn mail_of_a_member_chosen_by_a_repository_asks_first(release: &str) {
    let (stage, inbox) = repository_member_fixture(release).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let on_request = json!({ "approvalPolicy": "on-request" });
    for (decision, said, sent) in [
        ("decline", "atm_send was not called: it was declined", 0),
        ("accept", "message_id", 1),
    ] {
        let session = poller
            .start(&write_to_lead("from within"), on_request.clone())
            .await;
        let question = poller.question(&session).await;
        assert_eq!(question["kind"], "mcp_tool", "{question:#}");
        assert!(question.to_string().contains("atm_send"), "{question:#}");
        assert_eq!(mail(&inbox).len(), 0);
        poller.decide(&session, &question, decision).await;
        let (done, _) = poller.until_idle(&session).await;
        let output = done["result"]["output"].as_str().unwrap();
        assert!(output.contains(said), "{output}");
        assert_eq!(mail(&inbox).len(), sent);
    }
    let never = json!({ "approvalPolicy": "never" });
    for (tool, arguments, said) in [
        (
            "atm_send",
            json!({ "to": "lead", "message": "x" }),
            "the approval policy is never",
        ),
        ("atm_pending_count", json!({}), "count"),
    ] {
        let session = poller.start(&call(tool, &arguments), never.clone()).await;
        let (done, _) = poller.until_idle(&session).await;
        let output = done["result"]["output"].as_str().unwrap();
        assert!(output.contains(said), "{output}");
    }
    assert_eq!(mail(&inbox).len(), 1);
    stage.finish(poller.client).await;
}

async fn turn_is_interrupted_while_a_call_waits(release: &str) {
    let (stage, inbox) = repository_member_fixture(release).await;
    let mut poller = Poller::new(&stage, &[]).await;
    let on_request = json!({ "approvalPolicy": "on-request" });
    let session = poller.start(&write_to_lead("never"), on_request).await;
    poller.question(&session).await;
    poller.session("interrupt", &session).await;
    poller.until_idle(&session).await;
    let shown = picture(&stage, "a.png");
    poller.reply(&session, &look("a.png"), json!({})).await;
    let (done, _) = poller.until_idle(&session).await;
    assert_eq!(done["result"]["output"], shown, "{done:#}");
    assert_eq!(mail(&inbox), [""; 0]);
    stage.finish(poller.client).await;
}

/// A message with long members would make each answer longer than the model is shown, and its mail
/// would be read no more.
#[tokio::test]
async fn message_with_long_members_does_not_block_the_mail() {
    let stage = CodexFixture::new(testkit::codex::newest(), calling_model()).await;
    let inbox = team(&stage, true).with_file_name("arch.json");
    let mut client = client(&stage, &TEAM).await;
    let summary = "\u{1}".repeat(4000);
    let to_self = json!({ "to": "arch", "message": "x", "summary": summary });
    assert_says(&mut client, &call("atm_send", &to_self), &["message_id"]).await;
    let mut messages: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(&inbox).unwrap()).unwrap();
    for number in 0..30 {
        let long = format!("{number}{}", "\u{1}".repeat(9000));
        messages.push(json!({ "from": long, "text": "hello", "timestamp": long,
            "message_id": long, "summary": long }));
    }
    fs::write(&inbox, json!(messages).to_string()).unwrap();

    let count = call("atm_pending_count", &json!({}));
    let counted = ["\"count\":31", "\"other_senders\":11"];
    assert_says(&mut client, &count, &counted).await;
    let read = call("atm_read", &json!({ "max_messages": 1 }));
    for remaining in ["\"remaining\":30", "\"remaining\":29"] {
        assert_says(&mut client, &read, &[remaining]).await;
    }
    stage.finish(client).await;
}

/// Checks that the answer of a thread to this prompt has these words.
async fn assert_says(client: &mut McpClient, prompt: &str, words: &[&str]) {
    let result = client.call_tool("codex", json!({ "prompt": prompt })).await;
    let said = structured(&result)["content"].as_str().unwrap();
    for words in words {
        assert!(said.contains(*words), "{said}");
    }
}
