use std::fs;

use serde_json::json;

use super::*;

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
    MailClient::of(&member, home).unwrap().unwrap()
}

fn letter(text: &str) -> Letter {
    Letter {
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
    let to_lead = mail_client.send("lead".parse().unwrap(), letter("x"));
    to_lead.await.unwrap();
    let to_nobody = mail_client.send("nobody".parse().unwrap(), letter("x"));
    let refused = to_nobody.await.unwrap_err();
    assert!(
        matches!(
            refused,
            MailClientError::Mail(MailError::UnknownAgent { .. })
        ),
        "{refused}"
    );
}
