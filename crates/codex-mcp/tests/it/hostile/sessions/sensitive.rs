//! Details of a session that are returned on request only.

use std::fs;

use serde_json::{Value, json};
use testkit::fake::Plan;

use super::Sessions;

#[tokio::test]
async fn sensitive_details_are_returned_on_request_only() {
    let mut sessions = Sessions::new(&Plan::new()).await;
    let home = &sessions.serve.home;
    fs::write(home.codex_home().join("fast.config.toml"), "").unwrap();
    let directory = home.work().join("secret-directory");
    fs::create_dir(&directory).unwrap();
    let more = json!({"cwd": directory, "profile": "fast",
        "advanced": {"config": {"key": "secret-value"}}});
    let session = sessions.start(more).await;
    sessions.result(&session).await;
    let whole = sessions.get(&session).await;
    let thread = whole["threadId"].as_str().unwrap();
    assert_eq!(
        [&whole["cwd"], &whole["profile"], &whole["config"]],
        [
            &json!(directory),
            &json!("fast"),
            &json!({"key": "secret-value"})
        ]
    );

    let list = json!({"action": "list", "includeSensitive": true});
    let list = sessions.call("codex_session", list).await;
    let listed = &list["sessions"][0];
    assert_eq!(
        [&listed["threadId"], &listed["cwd"]],
        [&json!(thread), &json!(directory)]
    );
    for name in ["profile", "config"] {
        assert_eq!(listed.get(name), None, "{list:#}");
    }

    for sensitive in [Value::Null, json!(false)] {
        let get = json!({"action": "get", "sessionId": session, "includeSensitive": sensitive});
        let got = sessions.call("codex_session", get).await;
        let list = json!({"action": "list", "includeSensitive": sensitive});
        let list = sessions.call("codex_session", list).await;
        for structured in [&got, &list["sessions"][0]] {
            assert_eq!(structured["sessionId"], session);
            assert_eq!(structured["sandbox"], "read-only");
            for name in ["threadId", "cwd", "profile", "config"] {
                assert_eq!(structured.get(name), None, "{name}: {structured:#}");
            }
            // Nor under any other name.
            for secret in [thread, "secret-directory", "secret-value", "fast"] {
                assert!(
                    !structured.to_string().contains(secret),
                    "{secret}: {structured:#}"
                );
            }
        }
    }
    sessions.finish().await;
}
