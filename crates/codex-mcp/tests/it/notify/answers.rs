//! Answers by mail to a question whose decisions are only noted.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use agent_team::mail::{MailStore, MessageContent, Sender};
use codex_engine::logic::action::{ActionId, Decision};
use codex_engine::logic::session::Alert;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use goal_run::logic::mail_answers::Offer;
use goal_run::notify::{Alerts, MailQuestion, Notice, NotifierContext};
use serde_json::{Value, json};
use testkit::wait::wait_for;
use uuid::Uuid;

use super::mail::MailFixture;
use super::notifier;

/// A question that is decided once.
#[derive(Default)]
struct NotedQuestion {
    decided: Mutex<Option<(Decision, String)>>,
}

impl MailQuestion for NotedQuestion {
    fn offer(&self) -> Offer {
        Offer {
            decisions: vec![Decision::Accept, Decision::Decline],
            hidden: None,
        }
    }

    fn is_open(&self) -> bool {
        self.decided.lock().unwrap().is_none()
    }

    fn closing(&self) -> Option<String> {
        let decided = self.decided.lock().unwrap();
        let (decision, by) = decided.as_ref()?;
        Some(format!("{} ({by})", decision.name()))
    }

    fn decide(&self, decision: Decision, by: String) -> BoxFuture<'_, Result<(), String>> {
        let mut decided = self.decided.lock().unwrap();
        let result = match decided.as_ref() {
            Some((first, _)) => Err(format!("it was decided: {}", first.name())),
            None => {
                *decided = Some((decision, by));
                Ok(())
            }
        };
        ready(result).boxed()
    }

    fn audited(&self) -> Option<(Uuid, String)> {
        Some((Uuid::nil(), "May I?".to_owned()))
    }
}

fn notice() -> Notice {
    let question = Alert::Question {
        id: ActionId("req_1".to_owned()),
        summary: "waiting for approval".to_owned(),
        text: "May I?\nCommand: x".to_owned(),
        expires: UNIX_EPOCH,
    };
    Notice::of("session s", &json!({}), &question)
}

fn inbox(stage: &MailFixture, team: &str, agent: &str) -> Vec<Value> {
    let file = stage.directory(team).join(format!("inboxes/{agent}.json"));
    fs::read(file).map_or_else(
        |_| Vec::new(),
        |bytes| serde_json::from_slice(&bytes).unwrap(),
    )
}

/// Waits for a message, and returns its text.
async fn mail_for(stage: &MailFixture, team: &str, agent: &str, number: usize) -> String {
    wait_for("mail", async || {
        let mail = inbox(stage, team, agent);
        Some(mail.get(number)?["text"].as_str().unwrap().to_owned())
    })
    .await
}

fn write(stage: &MailFixture, from: &str, text: String) {
    let sender = Sender {
        identity: from.parse().unwrap(),
        team: Some("t".parse().unwrap()),
    };
    let content = MessageContent {
        text,
        summary: None,
    };
    let (to, team) = ("codex".parse().unwrap(), "t".parse().unwrap());
    let mail_store = MailStore::new(stage.home.path());
    mail_store.send(&sender, &to, &team, &content).unwrap();
}

fn audit_log(stage: &MailFixture) -> PathBuf {
    let directory = stage.home.path().join(".config/atm/codex-sessions/codex");
    directory.join("audit.jsonl")
}

#[tokio::test]
async fn only_agents_whose_replies_arrive_get_a_code() {
    for (identity, own, recipient, has_code) in [
        (Some("codex"), Some("t"), "lead@t", true),
        (Some("codex"), Some("t"), "lead", true),
        (Some("codex"), Some("t"), "codex", false),
        (Some("codex"), Some("t"), "lead@other", false),
        // It has left the team.
        (Some("gone"), Some("t"), "lead", false),
        (Some("codex"), None, "lead@t", false),
        (None, None, "lead@t", false),
    ] {
        let stage = MailFixture::new();
        let recipients = vec![notifier(&format!("mail:{recipient}"))];
        let alerts = Alerts::start(recipients, stage.teller(identity, own));
        alerts.ask(notice(), Arc::new(NotedQuestion::default()));
        let (agent, team) = recipient.split_once('@').unwrap_or((recipient, "t"));
        let text = mail_for(&stage, team, agent, 0).await;
        assert!(text.starts_with("APPROVAL :: session s"), "{text}");
        let case = (identity, own, recipient);
        assert_eq!(text.contains("\naccept "), has_code, "{case:?}: {text}");
        assert_eq!(text.contains("\nCommand: x"), has_code, "{case:?}: {text}");
    }
}

/// The page, and jobs that are submitted at a shell, send in its name.
#[tokio::test]
async fn identity_of_the_user_gets_no_code() {
    let stage = MailFixture::new();
    let context = NotifierContext {
        user_identity: Some("lead".parse().unwrap()),
        ..stage.teller(Some("codex"), Some("t"))
    };
    let alerts = Alerts::start(vec![notifier("mail:lead")], context);
    alerts.ask(notice(), Arc::new(NotedQuestion::default()));
    let text = mail_for(&stage, "t", "lead", 0).await;
    assert!(!text.contains("\naccept "), "{text}");
}

#[tokio::test]
async fn first_reply_decides_and_the_second_is_refused() {
    let stage = MailFixture::new();
    let alerts = Alerts::start(
        vec![notifier("mail:lead")],
        stage.teller(Some("codex"), Some("t")),
    );
    let question = Arc::new(NotedQuestion::default());
    alerts.ask(notice(), question.clone());
    let text = mail_for(&stage, "t", "lead", 0).await;
    let code = text.rsplit(' ').next().unwrap();
    write(&stage, "lead", format!("accept {}", code.replace('-', "")));
    write(&stage, "other", format!("decline {code}"));
    write(&stage, "lead", format!("accept {code}"));
    write(&stage, "lead", format!("decline {code}"));
    let refusal = mail_for(&stage, "t", "lead", 1).await;
    assert_eq!(refusal, "Your answer was not taken: it was decided: accept");
    let decided = question.decided.lock().unwrap().clone();
    assert_eq!(decided, Some((Decision::Accept, "lead@t".to_owned())));
    wait_for("the replies are read", async || {
        let mail = inbox(&stage, "t", "codex");
        let read: Vec<bool> = mail.iter().map(|one| one["read"] == true).collect();
        (read == [false, false, true, true]).then_some(())
    })
    .await;
    let audit = fs::read_to_string(audit_log(&stage)).unwrap();
    let lines = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let decisions: Vec<_> = lines
        .filter(|line| line["decided_by"] == "mail")
        .map(|line| {
            let keys = ["decision", "outcome", "decided_agent", "error"];
            json!(keys.map(|key| line[key].clone()))
        })
        .collect();
    let expected = [
        json!(["accept", "begun", "lead@t", null]),
        json!(["accept", "done", "lead@t", null]),
        json!(["decline", "begun", "lead@t", null]),
        json!(["decline", "refused", "lead@t", "it was decided: accept"]),
    ];
    assert_eq!(decisions, expected);
    assert!(!audit.contains(code), "{audit}");
}

#[tokio::test]
async fn other_recipients_hear_how_a_question_was_closed() {
    let stage = MailFixture::new();
    let recipients = vec![notifier("mail:lead"), notifier("mail:rust-1")];
    let alerts = Alerts::start(recipients, stage.teller(Some("codex"), Some("t")));
    let question = Arc::new(NotedQuestion::default());
    alerts.ask(notice(), question.clone());
    let text = mail_for(&stage, "t", "lead", 0).await;
    let code = text.rsplit(' ').next().unwrap();
    mail_for(&stage, "t", "rust-1", 0).await;
    write(&stage, "lead", format!("accept {code}"));
    let closed = mail_for(&stage, "t", "rust-1", 1).await;
    let expected = "The question is closed: accept (lead@t)\n\n\
        APPROVAL :: session s: waiting for approval";
    assert_eq!(closed, expected);

    // A decision elsewhere.
    let question = Arc::new(NotedQuestion::default());
    alerts.ask(notice(), question.clone());
    mail_for(&stage, "t", "lead", 1).await;
    mail_for(&stage, "t", "rust-1", 2).await;
    let elsewhere = (Decision::Decline, "terminal".to_owned());
    *question.decided.lock().unwrap() = Some(elsewhere);
    for (agent, number) in [("lead", 2), ("rust-1", 3)] {
        let closed = mail_for(&stage, "t", agent, number).await;
        let begins = "The question is closed: decline (terminal)\n";
        assert!(closed.starts_with(begins), "{closed}");
    }
    assert_eq!(inbox(&stage, "t", "lead").len(), 3);
}

#[tokio::test]
async fn reply_that_cannot_be_audited_decides_nothing() {
    let stage = MailFixture::new();
    let context = stage.teller(Some("codex"), Some("t"));
    let alerts = Alerts::start(vec![notifier("mail:lead")], context);
    let question = Arc::new(NotedQuestion::default());
    alerts.ask(notice(), question.clone());
    let text = mail_for(&stage, "t", "lead", 0).await;
    let code = text.rsplit(' ').next().unwrap();
    let audit = audit_log(&stage);
    wait_for("the notice in the audit log", async || {
        let audit = fs::read_to_string(&audit).unwrap();
        audit.contains(r#""done""#).then_some(())
    })
    .await;
    fs::remove_file(&audit).unwrap();
    fs::create_dir(&audit).unwrap();
    write(&stage, "lead", format!("accept {code}"));
    write(&stage, "lead", format!("decline {code}"));
    // The second is read when the first has been refused.
    wait_for("the replies are read", async || {
        let mail = inbox(&stage, "t", "codex");
        mail.iter().all(|one| one["read"] == true).then_some(())
    })
    .await;
    // The control: with the log, the next reply decides.
    fs::remove_dir(&audit).unwrap();
    write(&stage, "lead", format!("decline {code}"));
    let decided = wait_for("a decision", async || {
        question.decided.lock().unwrap().clone()
    })
    .await;
    assert_eq!(decided.0, Decision::Decline);
}
