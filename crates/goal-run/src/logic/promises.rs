//! Phrases with which Codex announces work instead of doing it.
//!
//! They are only recorded, and decide nothing: whether a turn was work depends on its executed
//! steps.

/// The phrases, in lower case. Source: the phrases that futon3c's peripheral treats as planning (`I
/// will`, `about to`, `kicking off`), and similar ones.
const PHRASES: [&str; 14] = [
    "i will",
    "i'll",
    "i’ll",
    "i am going to",
    "i'm going to",
    "i’m going to",
    "will do",
    "about to",
    "kicking off",
    "let me start",
    "next, i",
    "acknowledged",
    "once i have",
    "when ready",
];

/// How much of a text is searched, in bytes: promises come first.
const LOOKED_AT: usize = 4096;

/// The phrases in a text, each once.
#[must_use]
pub fn promises(text: &str) -> Vec<&'static str> {
    let begin = text.get(..text.floor_char_boundary(LOOKED_AT));
    let text = begin.unwrap_or(text).to_lowercase();
    let found = PHRASES
        .into_iter()
        .filter(|phrase| stands_in(&text, phrase));
    found.collect()
}

/// Whether a text has the phrase as whole words.
fn stands_in(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let rest = text.get(at + phrase.len()..);
        let after = rest.and_then(|rest| rest.chars().next());
        let is_letter = |one: Option<char>| one.is_some_and(char::is_alphanumeric);
        !is_letter(before) && !is_letter(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_found_as_words() {
        for (text, found) in [
            (
                "Acknowledged — I will pick 5.",
                &["i will", "acknowledged"][..],
            ),
            ("I’LL do it", &["i’ll"]),
            (
                "Kicking off the build, about to push",
                &["about to", "kicking off"],
            ),
            ("Done. The pi will turn; roundabout tours.", &[]),
            ("", &[]),
        ] {
            assert_eq!(promises(text), found, "{text}");
        }
        let late = format!("{}I will", "ß ".repeat(LOOKED_AT));
        assert_eq!(promises(&late), [""; 0]);
    }
}
