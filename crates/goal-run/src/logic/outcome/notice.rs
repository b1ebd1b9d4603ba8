//! The one-line notice of the end of a run. It may go to an IRC channel, where texts from outside
//! (file names, errors) must not act as commands or colours.

use common::text::one_line;

use super::RunOutcome;
use crate::logic::artifacts::Artifact;

/// The longest line, in bytes. IRC takes 512 (RFC 1459, 2.3), the names of sender and
/// channel included.
pub const NOTICE_LIMIT: usize = 400;

/// `BLOCKED :: <why>`, for a run that could not even begin.
#[must_use]
pub fn blocked(why: &str) -> String {
    one_line(&format!("BLOCKED :: {why}"), NOTICE_LIMIT)
}

impl RunOutcome {
    /// `DONE #N :: <url or commit>` or `BLOCKED :: <why>`: one line of at most
    /// [`NOTICE_LIMIT`] bytes, without control characters. `number` is the run's
    /// number in the store.
    #[must_use]
    pub fn notice(&self, number: u64) -> String {
        match self.reason {
            None => one_line(
                &format!("DONE #{number} :: {}", self.result()),
                NOTICE_LIMIT,
            ),
            Some(reason) => {
                let words = reason.words();
                match self.why.as_ref().or(self.missing.first()) {
                    Some(more) => blocked(&format!("{words}: {more}")),
                    None => blocked(words),
                }
            }
        }
    }

    /// The most important artifact, which is the first one.
    fn result(&self) -> &str {
        match self.artifacts.first() {
            None if !self.verified => "not verified: no criteria were given",
            None => "nothing new was needed",
            Some(
                Artifact::PullRequest { url: words, .. }
                | Artifact::IssueComment { url: words, .. }
                | Artifact::Push { commit: words, .. }
                | Artifact::Commit { id: words, .. }
                | Artifact::Branch { commit: words, .. }
                | Artifact::File { path: words, .. }
                | Artifact::Command { command: words },
            ) => words,
        }
    }
}
