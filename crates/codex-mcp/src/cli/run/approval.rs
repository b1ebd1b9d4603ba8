//! What Codex's questions are answered at a shell.

use codex_mcp_core::action::Decision;
use codex_mcp_protocol::codex::Ask;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::sync::Mutex;

use crate::mcp::in_words;
use crate::run::order::Approve;

/// Answers.
pub(super) struct Approver {
    approve: Approve,
    /// The person at the terminal, who is asked one question at a time.
    person: Mutex<Lines<BufReader<Stdin>>>,
}

impl Approver {
    pub(super) fn new(approve: Approve) -> Self {
        Self {
            approve,
            person: Mutex::new(BufReader::new(stdin()).lines()),
        }
    }

    /// The answer; `put` puts the question to the person.
    pub(super) async fn decide(&self, ask: &Ask, put: impl Fn(&str)) -> Decision {
        match self.approve {
            Approve::Always => Decision::Accept,
            Approve::Never => Decision::Decline,
            Approve::Ask => self.ask(ask, put).await,
        }
    }

    async fn ask(&self, ask: &Ask, put: impl Fn(&str)) -> Decision {
        let mut person = self.person.lock().await;
        let question = in_words(ask);
        loop {
            put(&format!(
                "{question}\n  Allow it? y: yes, a: yes, for the like of it too, n: no"
            ));
            // Where nobody is there any more, it is no.
            let Ok(Some(answer)) = person.next_line().await else {
                return Decision::Decline;
            };
            match answer.trim().to_lowercase().as_str() {
                "y" | "yes" => return Decision::Accept,
                "a" | "always" => return Decision::AcceptForSession,
                "n" | "no" => return Decision::Decline,
                _ => {}
            }
        }
    }
}
