//! A change to files, in Codex's patch format.

use std::fmt::Write as _;

use crate::shell::Shell;

/// A patch for Codex's `apply_patch`, built file by file. Text that is already
/// in the format (`*** Begin Patch` to `*** End Patch`) is a patch too.
///
/// The format is the grammar that Codex sends along with its `apply_patch` tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch(String);

const BEGIN: &str = "*** Begin Patch\n";
const END: &str = "*** End Patch\n";

impl Patch {
    /// A patch that changes nothing yet. Codex refuses it as long as it is empty.
    #[must_use]
    pub fn new() -> Self {
        Self(format!("{BEGIN}{END}"))
    }

    /// Adds a file with the given contents.
    #[must_use]
    pub fn add(self, path: &str, contents: &str) -> Self {
        self.hunk(&format!("*** Add File: {path}\n{}", lines('+', contents)))
    }

    /// Replaces the lines `old` of a file with the lines `new`.
    #[must_use]
    pub fn update(self, path: &str, old: &str, new: &str) -> Self {
        let (old, new) = (lines('-', old), lines('+', new));
        self.hunk(&format!("*** Update File: {path}\n@@\n{old}{new}"))
    }

    /// Deletes a file.
    #[must_use]
    pub fn delete(self, path: &str) -> Self {
        self.hunk(&format!("*** Delete File: {path}\n"))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The patch as a shell command, which Codex recognises and runs as if its
    /// tool had been called. Every line of a patch begins with a sign or an
    /// asterisk, so none can end the here-document early.
    pub(crate) fn command(&self) -> Shell {
        let patch = self.0.trim_end_matches('\n');
        Shell::new(format!("apply_patch <<'EOF'\n{patch}\nEOF\n"))
    }

    fn hunk(self, hunk: &str) -> Self {
        let body = self.0.strip_suffix(END).unwrap_or(&self.0);
        Self(format!("{body}{hunk}{END}"))
    }
}

impl Default for Patch {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&str> for Patch {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Patch {
    fn from(text: String) -> Self {
        Self(text)
    }
}

fn lines(sign: char, text: &str) -> String {
    text.lines().fold(String::new(), |mut lines, line| {
        // Writing to a string can't fail.
        let _ = writeln!(lines, "{sign}{line}");
        lines
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_keeps_file_order() {
        let patch = Patch::new()
            .add("new.txt", "one\n\ntwo\n")
            .update("old.txt", "before", "after")
            .delete("gone.txt");
        assert_eq!(
            patch.text(),
            "*** Begin Patch\n\
             *** Add File: new.txt\n+one\n+\n+two\n\
             *** Update File: old.txt\n@@\n-before\n+after\n\
             *** Delete File: gone.txt\n\
             *** End Patch\n"
        );
    }
}
