//! Messages pass through the proxy unchanged.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::{McpClient, codex, write_program};

use super::super::{CodexFixture, VERSION, text, thread_of};
use super::{client, direct, on_releases_with_mcp_server, reply};

on_releases_with_mcp_server!(
    conversation_is_the_same_directly_and_through_the_proxy,
    every_byte_is_passed_on,
    requests_that_the_child_ignores_are_answered,
    known_tools_match_those_of_the_child,
    answer_of_10_mb_passes_whole,
);

fn script() -> Script {
    Script::new()
        .on(
            "touch",
            [
                Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
                Reply::say("done"),
            ],
        )
        .on("look", [Reply::shell("ls"), Reply::say("looked")])
        .otherwise([Reply::deltas(20, "piece ")])
}

/// Sends messages of all kinds, one after the other, and waits for each answer.
async fn converse(client: &mut McpClient) {
    client.call("ping", Value::Null).await;
    client.call("tools/list", Value::Null).await;
    let odd = json!({"jsonrpc": "2.0", "id": "an odd \"id\"", "method": "made/up",
        "params": {"z": 1.50, "a": [null]}});
    client.send(&odd);
    client.error(&odd["id"]).await;
    client.notify("notifications/made_up", json!({"x": 1}));
    let unknown = client.call_tool("unknown", json!({})).await;
    assert_eq!(unknown["isError"], true);
    let refused = client.call_tool("codex", json!({"cwd": 5})).await;
    assert_eq!(refused["isError"], true);

    let arguments = json!({"prompt": "touch", "sandbox": "read-only",
        "approval-policy": "on-request", "developer-instructions": "Be brief."});
    let params = json!({"name": "codex", "arguments": arguments,
        "_meta": {"progressToken": "p1", "made.up/key": [1.0, {"k": "ü\u{2028}"}]}});
    let call = client.request("tools/call", params);
    let question = client.server_request("elicitation/create").await;
    let yes = json!({"action": "accept", "decision": "approved", "content": {}});
    client.respond(&question["id"], yes);
    let begun = client.result(&call).await;
    assert_eq!(text(&begun, 0), "done");
    let thread = thread_of(&begun);
    for prompt in ["look", "say something"] {
        client
            .call_tool("codex-reply", reply(&thread, prompt))
            .await;
    }
    let nowhere = "0199a213-81c0-7800-8aa1-bbab2a035a53";
    client.call_tool("codex-reply", reply(nowhere, "x")).await;
}

/// The kinds of events for each call, and all other messages in order, with numbers in place of IDs
/// that differ from run to run. The number and order of some of Codex's events vary.
fn events_and_messages(lines: &[Vec<u8>]) -> (BTreeSet<String>, Vec<String>) {
    let mut events = BTreeSet::new();
    let mut others = Vec::new();
    let mut names = Vec::new();
    for line in lines {
        let message: Value = serde_json::from_slice(line).unwrap();
        let params = &message["params"];
        if message["method"] == "codex/event" {
            let (call, kind) = (&params["_meta"]["requestId"], &params["msg"]["type"]);
            // A command that ends at once may have no output before its end.
            if kind != "exec_command_output_delta" {
                events.insert(format!("{call}: {kind}"));
            }
        } else {
            let line = std::str::from_utf8(line).unwrap();
            let line = &without_our_tool(line);
            others.push(with_numbered_names(line, &mut names));
        }
    }
    (events, others)
}

/// The list of tools as the child sends it.
fn without_our_tool(line: &str) -> String {
    let is_list = line.contains("\"codex_status\"");
    match line.find(OURS).filter(|_| is_list) {
        Some(place) => format!("{}]}}}}", &line[..place]),
        None => line.to_owned(),
    }
}

/// The beginning of our tools in a serialized list.
const OURS: &str = ",{\"name\":\"codex_status\"";

fn with_numbered_names(line: &str, names: &mut Vec<String>) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let length = length_of_name(rest).unwrap_or(0);
        if length == 0 {
            plain.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        }
        let (name, after) = rest.split_at(length);
        let known = names.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        plain.push_str(&format!("<{number}>"));
        rest = after;
    }
    plain
}

/// The length of the UUID, or of the model's call ID, with which a text begins.
fn length_of_name(text: &str) -> Option<usize> {
    const UUID: usize = 36;
    let is_uuid = text.get(..UUID).is_some_and(|name| {
        name.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    });
    if is_uuid {
        return Some(UUID);
    }
    let of_name = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'_';
    let rest = text
        .strip_prefix("call_")?
        .bytes()
        .take_while(of_name)
        .count();
    // No member name has such a continuation.
    (rest > 8).then_some("call_".len() + rest)
}

/// The message with this answer has more than 20 MB.
async fn answer_of_10_mb_passes_whole(release: &str) {
    let line = "A line of prose, with \"quotes\" and a break at its end.\n";
    let answer = line.repeat(10_000_000 / line.len() + 1);
    let script = Script::new().otherwise([Reply::say(answer.clone())]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = client(&stage, &[], json!({})).await;
    let result = client.call_tool("codex", json!({"prompt": "tell"})).await;
    assert!(
        text(&result, 0) == answer,
        "{} bytes",
        text(&result, 0).len()
    );
    assert!(result["structuredContent"]["content"] == answer);
    stage.finish(client).await;
}

async fn conversation_is_the_same_directly_and_through_the_proxy(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let capabilities = json!({"elicitation": {}});
    let mut direct = direct(&stage, capabilities.clone()).await;
    direct.call("ping", Value::Null).await;
    direct.record();
    converse(&mut direct).await;
    let (events, others) = events_and_messages(direct.recorded());
    direct.finish().await;
    fs::remove_file(stage.file("made.txt")).unwrap();

    let mut through = client(&stage, &[], capabilities).await;
    through.record();
    converse(&mut through).await;
    let (passed_events, passed_others) = events_and_messages(through.recorded());
    stage.finish(through).await;
    assert!(events.len() > 20, "{events:#?}");
    assert_eq!(passed_others, others);
    assert_eq!(passed_events, events);
}

/// A Codex whose MCP server's input and output are recorded.
struct RecordedCodex {
    script: PathBuf,
    input: PathBuf,
    output: PathBuf,
}

impl RecordedCodex {
    fn new(stage: &CodexFixture) -> Self {
        let [script, input, output] =
            ["recorded-codex", "input", "output"].map(|name| stage.home.root().join(name));
        let codex = codex::native_binary(&stage.release);
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = mcp-server ] || exec '{codex}' \"$@\"\n\
             tee '{input}' | '{codex}' \"$@\" | tee '{output}'\n",
            codex = codex.display(),
            input = input.display(),
            output = output.display(),
        );
        write_program(&script, &text);
        Self {
            script,
            input,
            output,
        }
    }
}

/// The lines of a file that do not belong to the proxy's own requests.
fn lines_of_others(file: &PathBuf) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let lines = bytes.split(|byte| *byte == b'\n');
    let others = lines.filter(|line| {
        let own = b"\"codex-mcp:";
        !line.is_empty() && !line.windows(own.len()).any(|part| part == own)
    });
    others.map(<[u8]>::to_vec).collect()
}

async fn every_byte_is_passed_on(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let recorded = RecordedCodex::new(&stage);
    let launch = stage
        .launch(&super::PROXY)
        .env("CODEX_MCP_CODEX_BIN", &recorded.script);
    let mut client = McpClient::start(&launch);
    client.ignore("codex/event");
    client.initialize(VERSION, json!({"elicitation": {}})).await;
    client.record();
    client.call("ping", Value::Null).await;
    let sent: [&[u8]; 2] = [
        br#"{"method":"ping",  "id":"x",  "b":1.50, "a":1e2,"params":{"n":100000000000000000000},"jsonrpc":"2.0"}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/made_up","params":{"z":1,"a":0.10}}"#,
    ];
    for line in sent {
        client.send_raw([line, b"\n"].concat());
    }
    client.result(&json!("x")).await;
    converse(&mut client).await;
    // Several calls at once, whose answers may come in any order.
    let calls: Vec<Value> = (0..8)
        .map(|number| client.request_tool("codex", json!({"prompt": format!("say {number}")})))
        .collect();
    for call in &calls {
        client.result(call).await;
    }
    let received: Vec<Vec<u8>> = client.recorded().to_vec();
    stage.finish(client).await;

    let text = |lines: Vec<Vec<u8>>| -> Vec<String> {
        let lines = lines.into_iter();
        lines.map(|line| String::from_utf8(line).unwrap()).collect()
    };
    let said = text(lines_of_others(&recorded.output));
    assert!(said.len() > 100, "{}", said.len());
    let received = text(received);
    let plain: Vec<String> = received.iter().map(|line| without_our_tool(line)).collect();
    assert_eq!(plain, said);
    let changed = received
        .iter()
        .zip(&said)
        .filter(|(received, said)| received != said);
    assert_eq!(changed.count(), 1, "only the list of tools");
    let heard = lines_of_others(&recorded.input);
    for line in sent {
        assert!(heard.iter().any(|heard| heard == line), "{heard:#?}");
    }
}

async fn requests_that_the_child_ignores_are_answered(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let mut client = client(&stage, &[], json!({})).await;
    for method in [
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "logging/setLevel",
    ] {
        let params = json!({"level": "info"});
        let asked = client.request(method, params);
        let error = client.error(&asked).await;
        assert_eq!(error["code"], -32601, "{error:#}");
        assert!(error["message"].as_str().unwrap().contains(method));
    }
    stage.finish(client).await;
}

/// A tool without its descriptions.
fn without_words(tool: &Value) -> Value {
    let mut tool = tool.clone();
    let object = tool.as_object_mut().unwrap();
    object.remove("description");
    object.remove("resultType");
    let properties = tool["inputSchema"]["properties"].as_object_mut().unwrap();
    for property in properties.values_mut() {
        property.as_object_mut().unwrap().remove("description");
    }
    tool
}

async fn known_tools_match_those_of_the_child(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    // An installation as npm makes it, whose release is known before the program runs.
    let package = stage.home.root().join("package");
    let [script, go] = ["vendor/held-codex", "go"].map(|name| package.join(name));
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = mcp-server ] || exec '{codex}' \"$@\"\n\
         while [ ! -e '{go}' ]; do sleep 0.01; done\nexec '{codex}' \"$@\"\n",
        codex = codex::native_binary(release).display(),
        go = go.display(),
    );
    write_program(&script, &text);
    let notes = json!({"name": "@openai/codex", "version": release});
    fs::write(package.join("package.json"), notes.to_string()).unwrap();
    let launch = stage
        .launch(&super::PROXY)
        .env("CODEX_MCP_CODEX_BIN", &script);
    let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
    let known = client.call("tools/list", json!({})).await;
    fs::write(go, "").unwrap();
    client
        .notification("notifications/tools/list_changed")
        .await;
    let told = client.call("tools/list", json!({})).await;
    stage.finish(client).await;
    let names = |list: &Value| -> Vec<Value> {
        let tools = list["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].clone()).collect()
    };
    assert_eq!(
        names(&known),
        [
            "codex",
            "codex-reply",
            "codex_status",
            "call_codex",
            "call_status",
            "call_jobs",
            "call_cancel",
            "call_respond",
            "codex_run",
            "codex_threads"
        ]
    );
    assert_eq!(names(&told), names(&known));
    for place in 0..10 {
        assert_eq!(
            without_words(&known["tools"][place]),
            without_words(&told["tools"][place])
        );
    }
}
