//! Escapes hidden characters, and cuts text at a limit: never inside a character, and never
//! without a mark. Lists of names are cut between names.
//!
//! A *hidden* character is one that a terminal or a reader acts on rather than shows: a
//! control character, a line separator, a format character such as a direction mark or
//! a zero-width space, or one that is drawn as nothing. [`visible`] writes each as `\u{HEX}`, as Rust does: U+001B becomes
//! `\u{1b}`. In JSON, where that would not parse, [`escape_json`] writes `\u001b`.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{Display, Write};

/// Appended where a text was cut, unless the caller chooses another mark.
const CUT: &str = "\n[… cut here]";

/// Appended to a line that was cut.
const LINE_CUT: &str = " …";

/// Whether a character is hidden: C0, DEL and C1 controls (newline and tab too), the line
/// and paragraph separators, and other characters that are drawn as nothing or as blanks.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}')
        || is_ignorable(character)
        || is_blank(character)
}

/// Direction marks, zero-width and other format characters, and fillers that are shown as
/// nothing. The two variation selectors that choose between text and emoji are not:
/// they only choose a glyph, and emoji need them.
///
/// Source: `Default_Ignorable_Code_Point` in Unicode 16.0, DerivedCoreProperties.txt,
/// without U+FE0E and U+FE0F, and the annotation marks U+FFF9 to U+FFFB and the Egyptian
/// joiners, which are of the general category Cf and shown as nothing too.
fn is_ignorable(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Characters that are drawn as a blank but are no white space: the empty Braille
/// pattern, Egyptian blanks, the Khitan filler and the musical null notehead.
///
/// Source: their names in Unicode 16.0, NamesList.txt.
fn is_blank(character: char) -> bool {
    matches!(
        character,
        '\u{2800}' | '\u{13441}' | '\u{13442}' | '\u{16fe4}' | '\u{1d159}'
    )
}

/// A text whose hidden characters are shown as `\u{HEX}`. Newlines and tabs stay, and
/// CR LF becomes a newline.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    show_hidden(text, |character| {
        is_hidden(character) && !matches!(character, '\n' | '\t')
    })
}

/// Like [`visible`], but newlines and tabs are shown as `\u{a}` and `\u{9}` too.
#[must_use]
pub fn visible_line(text: &str) -> Cow<'_, str> {
    show_hidden(text, is_hidden)
}

fn show_hidden(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let ends_line = character == '\r' && rest.peek() == Some(&'\n');
        match hidden(character) {
            true if ends_line && !hidden('\n') => {}
            true => push_escape(&mut shown, character),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Appends the visible escape of a character, such as `\u{1b}`.
pub fn push_escape(text: &mut String, character: char) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\u{{{:x}}}", u32::from(character));
}

/// JSON that means the same, with hidden characters as `\uXXXX`. Controls below U+0020
/// are left alone: JSON allows them only between its tokens.
#[must_use]
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let hidden = |character: char| character >= '\u{7f}' && is_hidden(character);
    if !json.contains(hidden) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match hidden(character) {
            true => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
            }
            false => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// The words of a text in one line of at most `limit` bytes; hidden characters that are
/// no white space are shown as `\u{HEX}`.
#[must_use]
pub fn one_line(text: &str, limit: usize) -> String {
    let mut line = BoundedText::ending_with(LINE_CUT);
    let limit = limit.saturating_sub(LINE_CUT.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(" ", limit);
        }
        line.push(&visible_line(word), limit);
    }
    // If nothing of the next word fits, its space precedes that of the mark.
    line.as_str().replace("  ", " ")
}

/// Breaks a text into lines of at most `width` characters. A longer word gets a line of its own,
/// so that a path can be copied, and so does a command in backticks. Spaces within a line stay, as
/// they may align it with others.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let paragraphs = text.trim_end().split('\n');
    let lines = paragraphs.flat_map(|paragraph| wrapped_line(paragraph, width, width));
    lines.collect()
}

/// Breaks a paragraph into a line of at most `first` characters, and others of at most `others`.
fn wrapped_line(paragraph: &str, first: usize, others: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut words = unbroken(paragraph);
    let mut line = words.next().unwrap_or_default().to_owned();
    for word in words {
        let width = if lines.is_empty() { first } else { others };
        let longer = line.chars().count() + 1 + word.chars().count();
        if longer > width && !line.trim_start().is_empty() {
            lines.push(line.trim_end().to_owned());
            line.clear();
        }
        // The spaces at a break are left out.
        if !line.is_empty() || lines.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// The parts of a paragraph between the spaces at which it may be broken.
fn unbroken(paragraph: &str) -> impl Iterator<Item = &str> {
    let (mut read, mut command_end) = (0, 0);
    let mut before = ' ';
    paragraph.split(move |character: char| {
        let at = read;
        read += character.len_utf8();
        let begins_word = matches!(before, ' ' | '(' | '[');
        before = character;
        if character == '`' && begins_word && at >= command_end {
            let rest = paragraph.get(read..).unwrap_or_default();
            command_end = command_length(rest).map_or(0, |length| read + length + 1);
        }
        character == ' ' && at >= command_end
    })
}

/// The length of the command at the beginning of a text, up to its closing backtick. A backtick in a
/// word, as in the name of a file, does not close it.
fn command_length(text: &str) -> Option<usize> {
    let closes = |(at, mark): &(usize, &str)| {
        let after = text.get(at + mark.len()..).unwrap_or_default();
        !after.starts_with(char::is_alphanumeric)
    };
    text.match_indices('`').find(closes).map(|(at, _)| at)
}

/// How much further the rest of a broken line is indented. The entries of lists begin further left, so
/// that a name or a text of others cannot look like the next entry.
const HANGING: usize = 4;

/// A message as a terminal that is `columns` wide shows it: broken between words, with the rest of a
/// broken line further right than its beginning. `None` is no terminal, and 0 an unknown width: the
/// message stays as it is then.
#[must_use]
pub fn broken(message: &str, columns: Option<usize>) -> Cow<'_, str> {
    let columns = match columns {
        None | Some(0) => return Cow::Borrowed(message),
        Some(columns) => columns,
    };
    let message = visible(message);
    let lines = message.split('\n').flat_map(|line| {
        let words = line.trim_start_matches(' ');
        let indent = line.len() - words.len();
        let room = columns.saturating_sub(indent);
        let lines = wrapped_line(words.trim_end(), room, room.saturating_sub(HANGING));
        lines.into_iter().enumerate().map(move |(number, line)| {
            let indent = if number == 0 {
                indent
            } else {
                indent + HANGING
            };
            format!("{:indent$}{line}", "")
        })
    });
    lines.collect::<Vec<String>>().join("\n").into()
}

/// A text as one word of a shell's command line, quoted where that is needed: for the
/// commands that messages recommend, whose paths and branches others may have named. A NUL,
/// which no argument can have, is left out.
#[must_use]
pub fn shell_word(text: impl AsRef<OsStr>) -> String {
    let text = text.as_ref().to_string_lossy().replace('\0', "");
    // Only a NUL cannot be quoted.
    let quoted = shlex::try_quote(&text);
    quoted.map(Cow::into_owned).unwrap_or_default()
}

/// The first names of a list, with commas between them, and how many more there are.
pub fn first_names<T: AsRef<str>>(names: impl IntoIterator<Item = T>, limit: usize) -> String {
    let mut names = names.into_iter();
    let first: Vec<T> = names.by_ref().take(limit).collect();
    let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
    match names.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A number of things: `1 file`, `2 files`.
#[must_use]
pub fn counted<T: Display + PartialEq + From<u8>>(count: T, name: &str) -> String {
    match count == T::from(1_u8) {
        true => format!("1 {name}"),
        false => format!("{count} {name}s"),
    }
}

/// A text that grows up to a bound.
#[derive(Debug, Clone)]
pub struct BoundedText {
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

    /// Appends text up to `limit` bytes in total. The first text that does not fit is cut and
    /// marked; all later text is dropped.
    pub fn push(&mut self, more: &str, limit: usize) {
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

    /// The text with its mark, if it was cut.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether nothing was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// At most `limit` bytes of `text`, with a mark if it was cut.
#[must_use]
pub fn bounded(text: &str, limit: usize) -> String {
    let mut kept = BoundedText::default();
    kept.push(text, limit);
    kept.text
}

/// The hexadecimal digits of bytes, in lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_are_counted() {
        assert_eq!(first_names([] as [&str; 0], 2), "");
        assert_eq!(first_names(["a", "b"], 2), "a, b");
        assert_eq!(first_names(["a", "b", "c"], 2), "a, b and 1 more");
    }

    #[test]
    fn count_of_one_is_singular() {
        let shown = [0_u64, 1, 2].map(|count| counted(count, "file"));
        assert_eq!(shown, ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn text_wraps_between_words_only() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(
            wrapped("a longer-than-that b", 4),
            ["a", "longer-than-that", "b"]
        );
        assert_eq!(wrapped("one\n\ntwo\n", 9), ["one", "", "two"]);
        assert_eq!(wrapped("", 9), [""]);
        assert_eq!(wrapped("a  b ccc", 5), ["a  b", "ccc"]);
        assert_eq!(wrapped("aaaaaa  bb", 6), ["aaaaaa", "bb"]);
        assert_eq!(wrapped("  longer a", 4), ["  longer", "a"]);
        assert_eq!(wrapped("a b c\n  d", 3), ["a b", "c", "  d"]);
    }

    #[test]
    fn command_in_backticks_is_not_broken() {
        assert_eq!(wrapped("see `a b c` d", 6), ["see", "`a b c`", "d"]);
        assert_eq!(wrapped("it`s a b", 6), ["it`s a", "b"]);
        assert_eq!(wrapped("it`s a (`b c`) d", 6), ["it`s a", "(`b c`)", "d"]);
        assert_eq!(wrapped("a `x/y`z d` e", 3), ["a", "`x/y`z d`", "e"]);
        assert_eq!(wrapped("a `b c", 3), ["a", "`b", "c"]);
    }

    #[test]
    fn message_is_wrapped_with_a_hanging_indent_only_at_a_terminal() {
        let text = "a bb ccc dd ee\n  f gg hhh iii\n\nj\n";
        let lines = "a bb ccc\n    dd ee\n  f gg\n      hhh\n      iii\n\nj\n";
        assert_eq!(broken(text, Some(9)), lines);
        assert_eq!(broken(text, None), text);
        assert_eq!(broken(text, Some(0)), text);
        assert_eq!(broken("a\u{7}b c", Some(6)), "a\\u{7}b\n    c");
    }

    #[test]
    fn bytes_have_two_digits_each() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
    }

    #[test]
    fn shell_word_is_one_word_of_a_command_line() {
        for text in [
            "plain/a.b",
            "",
            "a b",
            "x;id>$HOME/y;",
            "it's `id` \"$(id)\"",
            "a\nb",
        ] {
            let line = format!("git merge {}", shell_word(text));
            assert_eq!(shlex::split(&line).unwrap(), ["git", "merge", text]);
        }
        assert_eq!(shell_word("a\0b"), "ab");
    }

    #[test]
    fn hidden_characters_are_shown_and_nothing_else_changes() {
        for (text, shown) in [
            (
                "plain ä 漢 👍🏽 ❤\u{fe0f}\n\tx",
                "plain ä 漢 👍🏽 ❤\u{fe0f}\n\tx",
            ),
            ("a\r\nb\rc", "a\nb\\u{d}c"),
            ("\u{1b}]0;x\u{7}", "\\u{1b}]0;x\\u{7}"),
            ("\u{9b}31m\u{7f}\u{0}", "\\u{9b}31m\\u{7f}\\u{0}"),
            (
                "a\u{202e}b\u{2066}c\u{61c}",
                "a\\u{202e}b\\u{2066}c\\u{61c}",
            ),
            ("a\u{2028}b\u{2029}\u{85}", "a\\u{2028}b\\u{2029}\\u{85}"),
            (
                "a\u{2800}b\u{180b}\u{180f}\u{fe00}\u{16fe4}\u{1d159}",
                "a\\u{2800}b\\u{180b}\\u{180f}\\u{fe00}\\u{16fe4}\\u{1d159}",
            ),
            (
                "a\u{200b}\u{feff}\u{ad}\u{e0041}",
                "a\\u{200b}\\u{feff}\\u{ad}\\u{e0041}",
            ),
        ] {
            assert_eq!(visible(text), shown);
        }
        assert_eq!(visible_line("a\r\n\tb"), "a\\u{d}\\u{a}\\u{9}b");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value =
            serde_json::json!({"a": "x\u{1b}[31m\u{9b}31m\u{7f}\n\u{e4}\u{202e}\u{2028}\u{e0041}"});
        let text = format!("{value:#}");
        let escaped = escape_json(&text);
        assert!(
            !escaped.chars().any(|one| is_hidden(one) && one != '\n'),
            "{escaped:?}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped).unwrap(),
            value
        );
    }

    #[test]
    fn one_line_has_no_breaks_and_no_hidden_characters() {
        assert_eq!(
            one_line(" a\n\tb\u{1b}[31m\u{2028}c ", 99),
            "a b\\u{1b}[31m c"
        );
    }

    #[test]
    fn cut_line_has_one_space_before_its_mark() {
        for (limit, line) in [(6, "ab …"), (7, "ab …"), (8, "ab c …"), (10, "ab cde …")] {
            assert_eq!(one_line("ab cdefg", limit), line, "{limit}");
        }
        assert_eq!(one_line("ab ßßß", 8), "ab …");
    }

    #[test]
    fn cut_is_marked_once_and_between_characters() {
        let mut text = BoundedText::default();
        text.push("ab", 4);
        text.push("ßß", 4);
        text.push("more", 4);
        assert_eq!(text.as_str(), format!("abß{CUT}"));
    }
}
