//! A process that writes mail: this test executable again, with a test that is ignored otherwise.

use std::env;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use agent_team::mail::{MailError, MailStore};

use super::{content, name, sender, team};

/// The home directory. Without this variable, the test below does nothing.
const HOME: &str = "CODEX_MCP_TEST_WRITER_HOME";
const SENDER: &str = "CODEX_MCP_TEST_WRITER_SENDER";
const COUNT: &str = "CODEX_MCP_TEST_WRITER_COUNT";

/// Begins the line that a writer prints when a message has been sent.
const SENT: &str = "sent ";

/// A process that sends messages `SENDER 0`, `SENDER 1` and so on to `lead`.
pub(super) struct Writer(Child);

impl Writer {
    pub(super) fn start(home: &Path, sender: &str, count: usize) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "mail::writer::writer_process",
                "--ignored",
                "--nocapture",
            ])
            .env(HOME, home)
            .env(SENDER, sender)
            .env(COUNT, count.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// Calls `heard` with the text of each message that was sent, up to the end.
    pub(super) fn listen(mut self, mut heard: impl FnMut(&mut Child, String)) {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let mut is_one_test = false;
        // The last line of a killed writer may be cut: only lines with the final period count.
        for line in lines.map_while(Result::ok) {
            is_one_test |= line == "running 1 test";
            let sent = line
                .strip_prefix(SENT)
                .and_then(|rest| rest.strip_suffix('.'));
            if let Some(text) = sent {
                heard(&mut self.0, text.to_owned());
            }
        }
        self.0.wait().unwrap();
        assert!(is_one_test, "the writer's test has another name");
    }
}

#[test]
#[ignore = "it is a process of other tests"]
fn writer_process() {
    let Some(home) = env::var_os(HOME) else {
        return;
    };
    let own_name = env::var(SENDER).unwrap();
    let count: usize = env::var(COUNT).unwrap().parse().unwrap();
    let mail_store = MailStore::new(home.as_ref());
    let from = sender(&own_name);
    // The harness has begun a line.
    writeln!(stdout()).unwrap();
    for number in 0..count {
        let text = format!("{own_name} {number}");
        loop {
            match mail_store.send(&from, &name("lead"), &team(), &content(&text)) {
                Ok(_) => break,
                Err(MailError::Busy { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        writeln!(stdout(), "{SENT}{text}.").unwrap();
    }
}
