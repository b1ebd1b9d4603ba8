//! The text that Codex has written in a call so far.

use common::text::BoundedText;

/// The longest text of a call that is kept, in bytes. It is returned if the call times out.
const PARTIAL_LIMIT: usize = 1024 * 1024;

/// The text that Codex has written in a call so far.
#[derive(Debug, Default)]
pub(super) struct PartialText {
    messages: BoundedText,
    /// The ID of the item that is being written, and its text so far.
    writing: Option<(String, BoundedText)>,
}

impl PartialText {
    pub(super) fn add_delta(&mut self, item: &str, delta: &str) {
        match &mut self.writing {
            Some((writing, text)) if writing == item => text.push(delta, PARTIAL_LIMIT),
            other => {
                let mut text = BoundedText::default();
                text.push(delta, PARTIAL_LIMIT);
                *other = Some((item.to_owned(), text));
            }
        }
    }

    pub(super) fn add_message(&mut self, message: &str) {
        self.writing = None;
        self.append(message);
    }

    fn append(&mut self, paragraph: &str) {
        if !self.messages.is_empty() {
            self.messages.push("\n\n", PARTIAL_LIMIT);
        }
        self.messages.push(paragraph, PARTIAL_LIMIT);
    }

    pub(super) fn into_text(mut self) -> String {
        if let Some((_, text)) = self.writing.take() {
            self.append(text.as_str());
        }
        self.messages.as_str().to_owned()
    }
}
