//! Wrong arguments of calls about a session.

use serde_json::{Value, json};
use testkit::fake::{HELLO, Plan};

use super::{Sessions, join};

/// The placeholder for the session in arguments.
pub(super) const HERE: &str = "HERE";

/// Nobody's session.
const NOWHERE: &str = "sess_000000000000";

/// A thread that no session has.
pub(super) const THREAD: &str = "019fa4e0-0000-7000-8001-00000000abcd";

/// A refused call: the tool, its arguments, the code, and the text that the message must contain.
pub(super) type Row = (&'static str, Value, &'static str, &'static str);

impl Sessions {
    /// Makes each call and checks that it is refused and changes nothing: the session is
    /// unchanged, no other one exists, and Codex got no message.
    pub(super) async fn refuses_each(&mut self, session: &str, rows: Vec<Row>) {
        let before = self.all_there_is(session).await;
        for (tool, arguments, code, named) in rows {
            let arguments = arguments.to_string().replace(HERE, session);
            let arguments: Value = serde_json::from_str(&arguments).unwrap();
            let refusal = self.refused(tool, arguments.clone()).await;
            assert_eq!(
                refusal.code, code,
                "{tool} {arguments}: {}",
                refusal.message
            );
            assert!(
                refusal.message.contains(named),
                "{tool} {arguments}: {named} is not named: {}",
                refusal.message
            );
            let after = self.all_there_is(session).await;
            assert_eq!(after, before, "{tool} {arguments}");
        }
    }

    /// The visible state of the sessions, without times, and the messages to Codex.
    async fn all_there_is(&mut self, session: &str) -> Value {
        let mut whole = self.get(session).await;
        whole.as_object_mut().unwrap().remove("lastActiveAt");
        let mut list = self.list().await;
        for one in list["sessions"].as_array_mut().unwrap() {
            one.as_object_mut().unwrap().remove("lastActiveAt");
        }
        let state = self.state(session).await;
        json!([whole, list, state, self.serve.methods()])
    }
}

/// A session that has done its first turn.
pub(super) async fn idle() -> (Sessions, String) {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let session = sessions.start(json!({})).await;
    assert_eq!(sessions.result(&session).await["output"], HELLO);
    (sessions, session)
}

#[tokio::test]
async fn session_is_resolved_by_id_prefix() {
    let (mut sessions, session) = idle().await;
    let beginning = &session[..10];
    assert_eq!(sessions.get(beginning).await["sessionId"], *session);
    let wait = json!({"action": "wait_any", "sessionIds": [beginning]});
    assert_eq!(
        sessions.call("codex_session", wait).await["sessionId"],
        *session
    );
    let poll = json!({"action": "poll", "sessionId": beginning});
    assert_eq!(
        sessions.call("codex_check", poll).await["sessionId"],
        *session
    );
    let reply = json!({"sessionId": beginning, "prompt": "go on"});
    assert_eq!(
        sessions.call("codex_reply", reply).await["sessionId"],
        *session
    );
    sessions.result(&session).await;
    // Shorter than the minimum of an ID prefix.
    let short = json!({"action": "get", "sessionId": &session[..7]});
    let refusal = sessions.refused("codex_session", short).await;
    assert_eq!(refusal.code, "SESSION_NOT_FOUND");
    sessions.finish().await;
}

/// Checks that the session still works.
pub(super) async fn works(mut sessions: Sessions, session: &str) {
    sessions.reply(session).await;
    let result = sessions.result(session).await;
    assert_eq!(result["output"], HELLO);
    assert_eq!(sessions.get(session).await["turns"], 2);
    sessions.finish().await;
}

/// A call whose arguments are wrong.
pub(super) fn invalid(tool: &'static str, arguments: Value, named: &'static str) -> Row {
    (tool, arguments, "INVALID_ARGUMENT", named)
}

#[tokio::test]
async fn codex_reply_names_the_wrong_argument() {
    let (mut sessions, session) = idle().await;
    let with = |more: Value| join(json!({"sessionId": HERE, "prompt": "go on"}), more);
    let mut rows = vec![
        invalid("codex_reply", json!({}), "sessionId"),
        invalid("codex_reply", json!({"prompt": "x"}), "sessionId"),
        invalid("codex_reply", json!({"sessionId": HERE}), "prompt"),
        (
            "codex_reply",
            json!({"sessionId": NOWHERE, "prompt": "x"}),
            "SESSION_NOT_FOUND",
            NOWHERE,
        ),
        (
            "codex_reply",
            json!({"sessionId": "", "prompt": "x"}),
            "SESSION_NOT_FOUND",
            "session",
        ),
    ];
    for (name, bad) in [
        ("sessionId", json!(7)),
        ("prompt", json!("  ")),
        ("prompt", json!({})),
        ("threadId", json!(THREAD)),
        ("advanced", json!({})),
        ("model", json!(1)),
        ("approvalPolicy", json!("ask")),
        ("sandbox", json!("off")),
        ("effort", json!("max")),
        ("summary", json!("short")),
        ("personality", json!("grim")),
        ("cwd", json!(false)),
        ("outputSchema", json!("a schema")),
        ("outputSchema", json!({"type": ["object", "thing"]})),
    ] {
        rows.push(invalid("codex_reply", with(json!({name: bad})), name));
    }
    rows.push(invalid(
        "codex_reply",
        with(json!({"cwd": "/not/there"})),
        "/not/there",
    ));
    sessions.refuses_each(&session, rows).await;
    works(sessions, &session).await;
}

#[tokio::test]
async fn codex_session_names_the_wrong_argument() {
    let (mut sessions, session) = idle().await;
    let tool = "codex_session";
    let no_session = |action: &str, more: Value, named| {
        invalid(tool, join(json!({ "action": action }), more), named)
    };
    let here = |action: &str, more: Value, named| {
        no_session(action, join(json!({ "sessionId": HERE }), more), named)
    };
    let resume =
        |more: Value, named| no_session("resume", join(json!({ "threadId": THREAD }), more), named);
    let mut rows = vec![
        invalid(tool, json!({}), "action"),
        invalid(tool, json!({"action": 1}), "action"),
        no_session("remove", json!({}), "action"),
        no_session("list", json!({"all": true}), "all"),
        here(
            "get",
            json!({"includeSensitive": "yes"}),
            "includeSensitive",
        ),
        here("steer", json!({}), "prompt"),
        here("steer", json!({"prompt": " "}), "prompt"),
        no_session("resume", json!({}), "threadId"),
        here("resume", json!({}), "threadId"),
        resume(json!({"prompt": ""}), "prompt"),
        resume(json!({"cwd": "/not/there"}), "/not/there"),
        resume(json!({"sandbox": "open"}), "sandbox"),
        no_session("wait_any", json!({}), "sessionIds"),
        here("wait_any", json!({}), "sessionIds"),
        no_session("wait_any", json!({"sessionIds": []}), "sessionIds"),
        no_session("wait_any", json!({"sessionIds": HERE}), "sessionIds"),
        (
            tool,
            json!({"action": "wait_any", "sessionIds": [HERE, NOWHERE]}),
            "SESSION_NOT_FOUND",
            NOWHERE,
        ),
        // Arguments that an action does not use are refused.
        here("fork", json!({"prompt": "x"}), "prompt"),
        here("get", json!({"sessionIds": []}), "sessionIds"),
        no_session("list", json!({"waitMs": 5}), "waitMs"),
        no_session(
            "wait_any",
            json!({"sessionIds": [HERE], "threadId": "x"}),
            "threadId",
        ),
    ];
    for action in ["get", "cancel", "interrupt", "fork", "steer"] {
        let with = |session: Value| {
            let mut arguments = json!({"action": action, "sessionId": session});
            if action == "steer" {
                arguments["prompt"] = "x".into();
            }
            arguments
        };
        rows.push(invalid(tool, with(Value::Null), "sessionId"));
        rows.push(invalid(tool, with(7.into()), "sessionId"));
        for nowhere in [NOWHERE, "", "req_00000000", "../../etc/passwd"] {
            rows.push((tool, with(nowhere.into()), "SESSION_NOT_FOUND", "session"));
        }
    }
    for thread in [
        "",
        "x",
        "../../x",
        "sess_000000000000",
        "019fa4e0000070008001",
        &"0".repeat(10_000),
    ] {
        rows.push(no_session(
            "resume",
            json!({"threadId": thread}),
            "threadId",
        ));
    }
    sessions.refuses_each(&session, rows).await;
    works(sessions, &session).await;
}

#[tokio::test]
async fn codex_check_names_the_wrong_argument() {
    let (mut sessions, session) = idle().await;
    let tool = "codex_check";
    let permission = |more: Value| {
        join(
            json!({"action": "respond_permission", "sessionId": HERE}),
            more,
        )
    };
    let poll = |more: Value| join(json!({"action": "poll", "sessionId": HERE}), more);
    let mut rows = vec![
        invalid(tool, json!({}), "action"),
        invalid(tool, json!({"sessionId": HERE}), "action"),
        invalid(tool, json!({"action": "look", "sessionId": HERE}), "action"),
        invalid(tool, permission(json!({})), "decision"),
        invalid(tool, permission(json!({"decision": "accept"})), "requestId"),
        invalid(
            tool,
            permission(json!({"requestId": "req_00000000"})),
            "decision",
        ),
        invalid(
            tool,
            permission(json!({"requestId": "r", "decision": "yes"})),
            "decision",
        ),
        invalid(
            tool,
            permission(json!({"requestId": 7, "decision": "accept"})),
            "requestId",
        ),
        invalid(
            tool,
            permission(
                json!({"requestId": "r", "decision": "acceptWithExecpolicyAmendment",
                "execpolicyAmendment": "git push"}),
            ),
            "execpolicyAmendment",
        ),
        invalid(
            tool,
            permission(
                json!({"requestId": "r", "decision": "applyNetworkPolicyAmendment",
                "networkPolicyAmendment": {"action": "maybe", "host": "h"}}),
            ),
            "networkPolicyAmendment",
        ),
        (
            tool,
            permission(json!({"requestId": "req_00000000", "decision": "decline"})),
            "REQUEST_NOT_FOUND",
            "no open question",
        ),
        invalid(
            tool,
            json!({"action": "respond_user_input", "sessionId": HERE, "requestId": "r"}),
            "answers",
        ),
        invalid(
            tool,
            json!({"action": "respond_user_input", "sessionId": HERE, "answers": {}}),
            "requestId",
        ),
        invalid(
            tool,
            json!({"action": "respond_user_input", "sessionId": HERE, "requestId": "r",
                "answers": ["red"]}),
            "answers",
        ),
        invalid(tool, poll(json!({"responseMode": "short"})), "responseMode"),
        invalid(
            tool,
            poll(json!({"pollOptions": {"includeAll": true}})),
            "includeAll",
        ),
        invalid(
            tool,
            poll(json!({"pollOptions": {"includeEvents": 1}})),
            "includeEvents",
        ),
        invalid(
            tool,
            poll(json!({"events": 5})),
            "unknown parameter `events`",
        ),
        invalid(tool, poll(json!({"decision": "accept"})), "decision"),
        invalid(tool, poll(json!({"answers": {}})), "answers"),
        invalid(tool, poll(json!({"requestId": "r"})), "requestId"),
    ];
    for action in ["poll", "respond_permission", "respond_user_input"] {
        let mut arguments = json!({"action": action});
        if action == "respond_permission" {
            arguments = join(arguments, json!({"requestId": "r", "decision": "accept"}));
        } else if action == "respond_user_input" {
            arguments = join(arguments, json!({"requestId": "r", "answers": {}}));
        }
        rows.push(invalid(tool, arguments.clone(), "sessionId"));
        let nowhere = join(arguments, json!({"sessionId": NOWHERE}));
        rows.push((tool, nowhere, "SESSION_NOT_FOUND", NOWHERE));
    }
    sessions.refuses_each(&session, rows).await;
    works(sessions, &session).await;
}
