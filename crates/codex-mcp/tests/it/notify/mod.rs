//! Notifiers of the end of a run.

mod answers;
mod command;
mod desktop;
mod fake_irc;
pub(crate) mod fake_web;
mod irc;
mod mail;
mod webhook;

use std::path::{Path, PathBuf};
use std::time::Duration;

use goal_run::logic::notifier::Notifier;
use goal_run::notify::{Delivery, Notification, NotifierContext, Timeouts, notify_all};
use serde_json::{Value, json};
use supervise::spawn::set_guard_executable;

/// The limit of waits that succeed: far longer than anything takes.
const LONG: Duration = Duration::from_secs(120);

/// The limit of waits that fail: the steps before take less, even on a busy machine.
const SHORT: Duration = Duration::from_secs(10);

const LINE: &str = "DONE #7 :: https://github.com/o/r/pull/12";

fn result() -> Value {
    json!({
        "ok": true,
        "artifacts": [
            {"type": "pr", "url": "https://github.com/o/r/pull/12", "number": 12},
            {"type": "file", "path": "a\n\"b\" $(c)", "change": "added"},
        ],
        "turns": 2,
    })
}

/// A teller outside of any team, with long timeouts.
fn teller(atm_home: PathBuf, directory: &Path) -> NotifierContext {
    set_guard_executable(Path::new(env!("CARGO_BIN_EXE_codex-mcp")));
    NotifierContext {
        member: None,
        user_identity: None,
        mail_client: None,
        atm_home,
        audit_limit: 10 << 20,
        directory: directory.to_owned(),
        env: Vec::new(),
        timeouts: Timeouts {
            mail: LONG,
            irc: LONG,
            command: LONG,
            web: LONG,
        },
    }
}

/// A teller that cannot write mail.
fn teller_without_mail() -> NotifierContext {
    teller(PathBuf::new(), Path::new("/"))
}

fn notifier(text: &str) -> Notifier {
    text.parse().unwrap()
}

async fn tell_line(notifiers: &[Notifier], line: &str, teller: &NotifierContext) -> Vec<Delivery> {
    let result = result();
    let telling = Notification {
        line,
        result: &result,
    };
    notify_all(notifiers, telling, teller).await
}

/// Notifies one notifier with the usual line.
async fn tell(notifier: &str, teller: &NotifierContext) -> Result<(), String> {
    tell_text(notifier, LINE, teller).await
}

async fn tell_text(text: &str, line: &str, teller: &NotifierContext) -> Result<(), String> {
    let mut told = tell_line(&[notifier(text)], line, teller).await;
    let told = told.pop().unwrap();
    assert_eq!(told.to, notifier(text));
    told.result.map_err(|error| error.to_string())
}

#[tokio::test]
async fn failing_notifier_does_not_stop_the_others() {
    let server = testkit::ngircd::Ngircd::start("");
    let mut guest = server.guest_in("#runs", "guest");
    let home = tempfile::tempdir().unwrap();
    let told_command = home.path().join("told");
    let texts = [
        "mail:lead@nowhere".to_owned(),
        format!("irc://127.0.0.1:{}/runs", server.port()),
        "command:/nowhere/program".to_owned(),
        format!("command:cp /dev/stdin {}", told_command.display()),
    ];
    let notifiers = texts.clone().map(|text| notifier(&text));
    let teller = teller(home.path().to_owned(), home.path());
    let told = tell_line(&notifiers, "unused", &teller).await;
    let went = told.iter().map(|told| told.result.is_ok());
    // `cp` has one argument too many, so it fails after it was started.
    assert_eq!(went.collect::<Vec<_>>(), [false, true, false, false]);
    assert_eq!(guest.all_with("PRIVMSG").len(), 1);

    let json = serde_json::to_value(&told).unwrap();
    let to: Vec<&str> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|told| told["to"].as_str().unwrap())
        .collect();
    let written = notifiers.map(|notifier| notifier.to_string());
    assert_eq!(to, written);
    assert_eq!(json[1], json!({"to": written[1]}));
    let error = json[2]["error"].as_str().unwrap();
    assert!(
        error.contains("/nowhere/program exited with code 127"),
        "{error}"
    );
    assert!(tell_line(&[], LINE, &teller).await.is_empty());
}
