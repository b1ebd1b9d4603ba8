//! The line by which others learn of the end of a run. It may go to a channel of IRC,
//! so what others have chosen (names of files, words of errors) must not become a
//! command or a colour there.

use crate::run::artifacts::Artifact;
use crate::text::BoundedText;

use super::Outcome;

/// The longest line, in bytes. IRC takes 512 (RFC 1459, 2.3), the names of sender and
/// channel included.
pub const NOTICE_LIMIT: usize = 400;

/// What stands where a line was cut.
const CUT: &str = " …";

impl Outcome {
    /// `DONE #N :: <url or commit>` or `BLOCKED :: <why>`: one line of at most
    /// [`NOTICE_LIMIT`] bytes, without control characters. `number` is the run's
    /// number in the store.
    #[must_use]
    pub fn notice(&self, number: u64) -> String {
        match self.reason {
            None => one_line(&format!("DONE #{number} :: {}", self.result())),
            Some(reason) => {
                let words = reason.words();
                let more = self.why.as_ref().or(self.missing.first());
                match more {
                    Some(more) => one_line(&format!("BLOCKED :: {words}: {more}")),
                    None => one_line(&format!("BLOCKED :: {words}")),
                }
            }
        }
    }

    /// The artifact that weighs most; they come in that order.
    fn result(&self) -> &str {
        match self.artifacts.first() {
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

fn one_line(text: &str) -> String {
    let visible = |one: char| if is_invisible(one) { ' ' } else { one };
    let text: String = text.chars().map(visible).collect();
    let mut line = BoundedText::ending_with(CUT);
    let limit = NOTICE_LIMIT - CUT.len();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(" ", limit);
        }
        line.push(word, limit);
    }
    line.as_str().to_owned()
}

/// Control characters, and what breaks lines or turns the direction of a text round
/// (Unicode, UAX 9 and UAX 14).
fn is_invisible(one: char) -> bool {
    one.is_control()
        || matches!(one, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
