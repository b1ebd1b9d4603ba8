//! Telling others that a run has ended.

mod command;
mod fake_irc;
mod irc;
mod mail;

use std::path::{Path, PathBuf};
use std::time::Duration;

use goal_run::logic::notifier::Notifier;
use goal_run::notify::{Patience, Teller, Telling, Told, tell_all};
use serde_json::{Value, json};
use supervise::spawn::guards_are;

/// Longer than anything takes that comes to its end.
const LONG: Duration = Duration::from_secs(120);

/// What is waited for that never comes: what comes before it takes less, also on a
/// busy machine.
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

/// Somebody in no team who is patient.
fn teller(atm_home: PathBuf, directory: &Path) -> Teller {
    guards_are(Path::new(env!("CARGO_BIN_EXE_codex-mcp")));
    Teller {
        member: None,
        mail_client: None,
        atm_home,
        directory: directory.to_owned(),
        env: Vec::new(),
        patience: Patience {
            mail: LONG,
            irc: LONG,
            command: LONG,
        },
    }
}

/// Nobody who could write mail.
fn nobody() -> Teller {
    teller(PathBuf::new(), Path::new("/"))
}

fn notifier(text: &str) -> Notifier {
    text.parse().unwrap()
}

async fn tell_line(notifiers: &[Notifier], line: &str, teller: &Teller) -> Vec<Told> {
    let result = result();
    let telling = Telling {
        line,
        result: &result,
    };
    tell_all(notifiers, telling, teller).await
}

/// Tells one the usual line, and returns what went wrong.
async fn tell(notifier: &str, teller: &Teller) -> Result<(), String> {
    tell_this(notifier, LINE, teller).await
}

async fn tell_this(text: &str, line: &str, teller: &Teller) -> Result<(), String> {
    let mut told = tell_line(&[notifier(text)], line, teller).await;
    let told = told.pop().unwrap();
    assert_eq!(told.to, notifier(text));
    told.came.map_err(|error| error.to_string())
}

#[tokio::test]
async fn all_are_told_and_one_that_fails_keeps_none_of_the_others() {
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
    let went = told.iter().map(|told| told.came.is_ok());
    // `cp` has one argument too many; that it was started shows in its error.
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
