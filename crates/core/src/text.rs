//! Text that is cut at a bound, never inside a character and never silently.

/// What stands where text was left out, if nothing else is said.
const CUT: &str = "\n[… cut here]";

/// What stands at the end of a line that was cut.
const LINE_CUT: &str = " …";

/// The words of a text in one line of at most `limit` bytes, which shows nothing else
/// than it says: without control characters, breaks, and what turns its direction.
#[must_use]
pub fn one_line(text: &str, limit: usize) -> String {
    let visible = |one: char| if is_invisible(one) { ' ' } else { one };
    let text: String = text.chars().map(visible).collect();
    let mut line = BoundedText::ending_with(LINE_CUT);
    let limit = limit.saturating_sub(LINE_CUT.len());
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

/// A text that grows up to a bound.
#[derive(Debug, Clone)]
pub(crate) struct BoundedText {
    text: String,
    cut: bool,
    mark: &'static str,
}

impl Default for BoundedText {
    fn default() -> Self {
        Self::ending_with(CUT)
    }
}

impl BoundedText {
    /// An empty text that ends with `mark` once it has been cut.
    pub(crate) fn ending_with(mark: &'static str) -> Self {
        Self {
            text: String::new(),
            cut: false,
            mark,
        }
    }

    /// Appends what still fits within `limit` bytes; the first time that
    /// something doesn't, a mark is appended and the rest is dropped.
    pub(crate) fn push(&mut self, more: &str, limit: usize) {
        if self.cut {
            return;
        }
        let room = limit.saturating_sub(self.text.len());
        if more.len() <= room {
            self.text.push_str(more);
            return;
        }
        let fits = more
            .get(..more.floor_char_boundary(room))
            .unwrap_or_default();
        self.text.push_str(fits);
        self.text.push_str(self.mark);
        self.cut = true;
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_marked_once_and_between_characters() {
        let mut text = BoundedText::default();
        text.push("ab", 4);
        text.push("ßß", 4);
        text.push("more", 4);
        assert_eq!(text.as_str(), format!("abß{CUT}"));
    }
}
