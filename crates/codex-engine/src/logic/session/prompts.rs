//! The latest prompts of a session, for viewers. They are not events, as the session's client knows
//! its own prompts.

use std::collections::VecDeque;
use std::time::SystemTime;

use common::text::{BoundedText, one_line};
use serde_json::Value;

/// The most prompts that are kept. For one more, the oldest is forgotten.
const MOST: usize = 100;

/// The most that is kept of a prompt, in bytes.
const LONGEST: usize = 16 * 1024;

/// The length of a session's title, the beginning of its first prompt, in bytes.
const TITLE: usize = 80;

/// A prompt, or a text that was added to a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentPrompt {
    /// Its number: one more than that of the previous prompt.
    pub number: u64,
    /// The number of the first event after it.
    pub before: u64,
    /// When Codex took it.
    pub at: SystemTime,
    /// The text.
    pub text: String,
}

/// The latest prompts of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompts {
    list: VecDeque<SentPrompt>,
    next: u64,
    /// The beginning of the first prompt.
    title: Option<String>,
}

impl Prompts {
    /// The prompts of a session whose first prompt an earlier host has seen.
    pub(super) fn titled(title: Option<String>) -> Self {
        Self {
            title,
            ..Self::default()
        }
    }

    /// Notes a prompt: an item of Codex as the app-server reports it.
    pub(super) fn note(&mut self, before: u64, at: SystemTime, params: &str) {
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        let parts = params.pointer("/item/content").and_then(Value::as_array);
        let mut text = BoundedText::default();
        for part in parts.into_iter().flatten() {
            if let Some(words) = part.get("text").and_then(Value::as_str) {
                text.push(words, LONGEST);
            }
        }
        if self.title.is_none() && !text.is_empty() {
            self.title = Some(one_line(text.as_str(), TITLE));
        }
        self.list.push_back(SentPrompt {
            number: self.next,
            before,
            at,
            text: text.as_str().to_owned(),
        });
        self.next += 1;
        if self.list.len() > MOST {
            self.list.pop_front();
        }
    }

    /// The beginning of the first prompt, in one line without hidden characters.
    pub(super) fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The prompts from number `from` on.
    pub(super) fn from(&self, from: u64) -> Vec<SentPrompt> {
        let all = self.list.iter();
        all.filter(|one| one.number >= from).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn latest_prompts_are_kept() {
        let mut prompts = Prompts::default();
        for number in 0..250 {
            let content =
                json!([{ "type": "text", "text": number.to_string() }, { "type": "image" }]);
            let params = json!({ "item": { "type": "userMessage", "content": content } });
            prompts.note(number * 3, SystemTime::UNIX_EPOCH, &params.to_string());
        }
        let kept = prompts.from(0);
        assert_eq!(kept.len(), MOST);
        let last = kept.last().unwrap();
        assert_eq!((last.number, last.before, &*last.text), (249, 747, "249"));
        assert_eq!(prompts.from(249), std::slice::from_ref(last));
        assert_eq!(prompts.from(250), []);
        assert_eq!(prompts.title(), Some("0"));
    }
}
