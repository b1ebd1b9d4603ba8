//! Subagents of Codex, which have threads of their own and ask questions.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan};

use super::super::serve::{turn, turns};
use super::{Sessions, ask, decision, gated};

const CHILD: &str = "019fa4e0-0000-7000-8001-0000000000c1";
const STRANGER: &str = "019fa4e0-0000-7000-8001-0000000000c2";

/// The id of a question that the fake does not wait for, above those of its own questions.
const REQUEST: u64 = 4711;

/// An approval request of this thread for a command.
fn asks_for(thread: &str, command: &str) -> Action {
    ask(
        "item/commandExecution/requestApproval",
        json!({"threadId": thread, "turnId": "turn", "itemId": "item", "cwd": "/repo",
            "command": command}),
    )
}

/// Codex's notification about the child.
fn tells(method: &str) -> Action {
    let item = json!({"type": "collabAgentToolCall", "id": "call", "tool": "spawnAgent",
        "status": "completed", "receiverThreadIds": [CHILD], "agentsStates": {}});
    Action::Notify {
        method: method.to_owned(),
        params: json!({"item": item}),
    }
}

/// Codex's notification that this thread begins to add a file. The name of the step is the same in
/// each thread.
fn begins_to_add(thread: &str, path: &str) -> Action {
    let change = json!({"path": path, "kind": {"type": "add"}, "diff": "x"});
    let item = json!({"type": "fileChange", "id": "patch", "changes": [change],
        "status": "inProgress"});
    Action::Notify {
        method: "item/started".to_owned(),
        params: json!({"threadId": thread, "turnId": "turn", "item": item}),
    }
}

/// A turn in which the child asks before and after Codex has announced it, and an unknown thread
/// asks after that.
fn family(method: &str) -> Plan {
    turns([
        asks_for(CHILD, "too early"),
        tells(method),
        asks_for(CHILD, "touch x"),
        asks_for(STRANGER, "touch y"),
    ])
}

#[tokio::test]
async fn question_of_a_subagent_belongs_to_its_session() {
    for method in ["item/started", "item/completed"] {
        for word in ["accept", "decline"] {
            let mut sessions = Sessions::new(&family(method)).await;
            let session = sessions.start(json!({})).await;
            let question = sessions.question(&session).await;
            assert_eq!(question["command"], "touch x", "{question:#}");
            assert_eq!(question["params"]["threadId"], CHILD);
            let refused = sessions.answers(1).await;
            assert_eq!(refused.len(), 1);
            assert_eq!(refused[0]["error"]["code"], -32601, "{refused:#?}");

            let arguments = decision(&session, &question, word);
            sessions.call("codex_check", arguments).await;
            let answers = sessions.answers(3).await;
            assert_eq!(answers[1]["id"], 1);
            assert_eq!(answers[1]["result"], json!({"decision": word}));
            // The question of an unknown thread is refused at once.
            assert_eq!(answers[2]["id"], 2);
            assert_eq!(answers[2]["error"]["code"], -32601, "{answers:#?}");
            assert_eq!(sessions.result(&session).await["output"], "done");
            let asked = sessions.events_of(&session, "approval_request").await;
            let commands: Vec<&Value> = asked
                .iter()
                .map(|event| &event["data"]["command"])
                .collect();
            assert_eq!(json!(commands), json!(["touch x"]));
            sessions.finish().await;
        }
    }
}

/// Codex waits for the answer: the turn of the sub-agent does not end with its parent's.
#[tokio::test]
async fn open_question_of_a_subagent_is_declined_when_the_turn_of_its_session_ends() {
    let params = json!({"threadId": CHILD, "turnId": "turn", "itemId": "item", "cwd": "/repo",
        "command": "touch x"});
    let method = "item/commandExecution/requestApproval";
    let question = json!({"id": REQUEST, "method": method, "params": params});
    let bytes = format!("{question}\n").into_bytes();
    let plan = turns([
        tells("item/started"),
        Action::Write { bytes },
        Action::gate("asked"),
    ]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    assert_eq!(question["command"], "touch x", "{question:#}");
    sessions.serve.fake.open_gate("asked");
    let answers = sessions.answers(1).await;
    let decline = json!({"decision": "decline"});
    assert_eq!(
        (&answers[0]["id"], &answers[0]["result"]),
        (&json!(REQUEST), &decline)
    );
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
}

#[tokio::test]
async fn subagent_stays_with_its_session() {
    let plan = turns([
        tells("item/started"),
        Action::ask_approval("touch a"),
        asks_for(CHILD, "touch x"),
    ])
    .on("turn/start", turn([tells("item/started")]))
    .nth(2);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    // Another session names the sub-agent, too.
    let other = sessions.start(json!({})).await;
    sessions.result(&other).await;
    let accept = decision(&session, &question, "accept");
    sessions.call("codex_check", accept).await;
    let question = sessions.question(&session).await;
    assert_eq!(question["command"], "touch x", "{question:#}");
    let accept = decision(&session, &question, "accept");
    sessions.call("codex_check", accept).await;
    assert_eq!(sessions.result(&session).await["output"], "done");
    sessions.finish().await;
}

/// Codex names the files in the step, and not in the question.
#[tokio::test]
async fn file_question_of_a_subagent_names_the_files() {
    let asks = ask(
        "item/fileChange/requestApproval",
        json!({"threadId": CHILD, "turnId": "turn", "itemId": "patch"}),
    );
    let plan = turns([
        tells("item/started"),
        begins_to_add(STRANGER, "/repo/of-stranger"),
        begins_to_add(CHILD, "/repo/of-child"),
        begins_to_add(STRANGER, "/repo/of-stranger"),
        asks,
    ]);
    let mut sessions = Sessions::new(&plan).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    let changes = question["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{question:#}");
    assert_eq!(changes[0]["path"], "/repo/of-child");
    let arguments = decision(&session, &question, "decline");
    sessions.call("codex_check", arguments).await;
    assert_eq!(sessions.result(&session).await["output"], "done");
    // The steps of a sub-agent are not those of its session.
    let events = sessions.events(&session).await;
    let of_child = events
        .iter()
        .filter(|event| event["data"]["itemId"] == "patch");
    let kinds: Vec<&Value> = of_child.map(|event| &event["type"]).collect();
    assert_eq!(json!(kinds), json!(["approval_request", "approval_result"]));
    sessions.finish().await;
}

#[tokio::test]
async fn question_of_a_subagent_is_hidden_from_other_sessions() {
    let plan = family("item/completed")
        .on("turn/start", gated("go"))
        .nth(1);
    let mut sessions = Sessions::new(&plan).await;
    let other = sessions.start(json!({})).await;
    let session = sessions.start(json!({})).await;
    let question = sessions.question(&session).await;
    assert_eq!(sessions.state(&other).await["status"], "running");
    let foreign = decision(&other, &question, "accept");
    let refusal = sessions.refused("codex_check", foreign).await;
    assert_eq!(refusal.code, "REQUEST_NOT_FOUND");
    sessions.session("cancel", &session).await;
    let answers = sessions.answers(2).await;
    assert_eq!(answers[1]["result"], json!({"decision": "decline"}));
    sessions.serve.fake.open_gate("go");
    assert_eq!(sessions.result(&other).await["output"], "done");
    sessions.finish().await;
}
