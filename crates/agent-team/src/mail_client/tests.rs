use std::fs;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;

/// Some lines.
const AUDIT_LIMIT: u64 = 2000;

/// A home with the team `t`, whose only member is `lead`.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join(".claude/teams/t");
    fs::create_dir_all(&directory).unwrap();
    let config = json!({ "members": [{ "name": "lead" }] });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
    home
}

/// The mail client of `arch`.
fn client(home: &Path) -> MailClient {
    let member = Member {
        identity: "arch".parse().unwrap(),
        team: Some("t".parse().unwrap()),
    };
    MailClient::of(&member, home, AUDIT_LIMIT).unwrap().unwrap()
}

fn content(text: &str) -> MessageContent {
    MessageContent {
        text: text.to_owned(),
        summary: None,
    }
}

/// The client of a job whose server has left the team.
#[tokio::test]
async fn reading_reports_that_the_member_itself_is_missing() {
    let home = home();
    let mail_client = client(home.path());
    let limits = ReadLimits {
        max_messages: 1,
        max_length: 1,
    };
    let errors = [
        mail_client.read(limits).await.unwrap_err(),
        mail_client.pending().await.unwrap_err(),
        mail_client.count().await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, MailClientError::NotAMember(_)), "{error}");
    }
    // The controls: it can send, and a wrong recipient is another error.
    let to_lead = mail_client.send("lead".parse().unwrap(), content("x"));
    to_lead.await.unwrap();
    let to_nobody = mail_client.send("nobody".parse().unwrap(), content("x"));
    let refused = to_nobody.await.unwrap_err();
    assert!(
        matches!(
            refused,
            MailClientError::Mail(MailError::UnknownAgent { .. })
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn secret_end_is_sent_and_not_audited() {
    let home = home();
    let mail_client = client(home.path());
    let secret = Some("\n\nsesame".to_owned());
    let sent = mail_client.send_with("lead".parse().unwrap(), content("x"), secret);
    sent.await.unwrap();
    let inbox = fs::read_to_string(home.path().join(".claude/teams/t/inboxes/lead.json")).unwrap();
    assert!(inbox.contains(r"x\n\nsesame"), "{inbox}");
    let audit = home
        .path()
        .join(".config/atm/codex-sessions/arch/audit.jsonl");
    let audit = fs::read_to_string(audit).unwrap();
    assert!(audit.contains(r#""summary":"x""#), "{audit}");
    assert!(!audit.contains("sesame"), "{audit}");
}

/// In a host, the process lives on when the client has gone, and so does a join that waits for the
/// lock of the team.
#[tokio::test]
async fn late_join_leaves_no_member_behind() {
    let home = home();
    let config = home.path().join(".claude/teams/t/config.json");
    let before = fs::read_to_string(&config).unwrap();
    let held = fs::File::create(config.with_extension("lock")).unwrap();
    held.lock().unwrap();
    let mail_client = client(home.path());
    mail_client.join(None, "/work".into());
    // It waits for the lock.
    while mail_client.inner.join_lock.try_lock().is_ok() {
        sleep(Duration::from_millis(1)).await;
    }
    let leaving = mail_client.leave(Duration::from_millis(50));
    let _ = timeout(Duration::from_millis(100), leaving).await;
    drop(held);
    mail_client.settle().await;
    assert_eq!(fs::read_to_string(&config).unwrap(), before);

    // The control: without a client that has left, it joins.
    mail_client.join(None, "/work".into());
    mail_client.settle().await;
    assert!(fs::read_to_string(&config).unwrap().contains("arch"));
    mail_client.leave(Duration::from_secs(60)).await;
    assert!(!fs::read_to_string(&config).unwrap().contains("arch"));
}

#[tokio::test]
async fn audit_names_members_whom_a_broadcast_did_not_reach() {
    let home = home();
    let team = home.path().join(".claude/teams/t");
    let config = json!({ "members": [{ "name": "lead" }, { "name": "other" }] });
    fs::write(team.join("config.json"), config.to_string()).unwrap();
    let mail_client = client(home.path());
    let sessions = home.path().join(".config/atm/codex-sessions");
    for (malformed, outcome, error) in [
        (None, "done", ""),
        (
            Some("lead.json"),
            "done",
            "the broadcast did not reach lead: ",
        ),
        (
            Some("other.json"),
            "failed",
            "the broadcast did not reach lead, other: ",
        ),
    ] {
        if let Some(file) = malformed {
            fs::write(team.join("inboxes").join(file), "{}").unwrap();
        }
        mail_client.broadcast(content("x")).await.unwrap();
        let text = fs::read_to_string(sessions.join("arch/audit.jsonl")).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["outcome"], outcome, "{last:#}");
        let written = last["error"].as_str().unwrap_or_default();
        assert_eq!(written.is_empty(), error.is_empty(), "{last:#}");
        assert!(written.starts_with(error), "{last:#}");
    }
}

#[tokio::test]
async fn audit_log_is_rotated_at_the_limit() {
    let home = home();
    let mail_client = client(home.path());
    for _ in 0..20 {
        mail_client
            .send("lead".parse().unwrap(), content("x"))
            .await
            .unwrap();
    }
    let directory = home.path().join(".config/atm/codex-sessions/arch");
    for name in ["audit.jsonl", "audit.jsonl.1"] {
        let length = fs::metadata(directory.join(name)).unwrap().len();
        assert!((1..=AUDIT_LIMIT).contains(&length), "{name}: {length}");
    }
}
