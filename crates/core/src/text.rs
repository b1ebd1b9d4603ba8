//! Text that is cut at a bound, never inside a character and never silently.

/// What stands where text was left out, if nothing else is said.
const CUT: &str = "\n[… cut here]";

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
