//! What is told of a session only to those who ask for it.

use std::fs;

use serde_json::{Value, json};
use testkit::fake::Plan;

use super::Sessions;

#[tokio::test]
async fn what_is_sensitive_is_told_only_if_wanted() {
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
        for told in [&got, &list["sessions"][0]] {
            assert_eq!(told["sessionId"], session);
            assert_eq!(told["sandbox"], "read-only");
            for name in ["threadId", "cwd", "profile", "config"] {
                assert_eq!(told.get(name), None, "{name}: {told:#}");
            }
            // Nor under any other name.
            for secret in [thread, "secret-directory", "secret-value", "fast"] {
                assert!(!told.to_string().contains(secret), "{secret}: {told:#}");
            }
        }
    }
    sessions.finish().await;
}
