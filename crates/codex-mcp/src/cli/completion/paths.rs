//! Completes paths. bash inserts a candidate without quotes, so a file whose name has a special
//! character is not offered: a repository could contain a file whose name would be run as a
//! command.

use std::ffi::OsStr;

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};

/// The paths that a word can be completed to.
pub(super) fn complete(begun: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = PathCompleter::any().complete(begun);
    found.retain(|path| path.get_value().to_str().is_some_and(is_plain));
    found
}

/// Whether a shell reads a path as one word that is not an option. A tilde is the user's home, in
/// which the path was looked up.
fn is_plain(path: &str) -> bool {
    let rest = path.strip_prefix("~/").unwrap_or(path);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.,+@%/".contains(&byte);
    !path.starts_with('-') && rest.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_with_a_special_character_is_not_plain() {
        for plain in ["a", "src/main.rs", "/usr/lib/x86_64+1/a@b", "~/a", "./-a"] {
            assert!(is_plain(plain), "{plain}");
        }
        for special in [
            "$(touch x)",
            "`x`",
            "a b",
            "a;b",
            "a&b",
            "a|b",
            "a>b",
            "a'b",
            "a\"b",
            "a\\b",
            "a*",
            "a?",
            "[a]",
            "{a,b}",
            "~root",
            "a\nb",
            "-rf",
            "#a",
            "!a",
            "a=b",
            "a:b",
        ] {
            assert!(!is_plain(special), "{special}");
        }
    }

    #[test]
    fn hostile_name_in_a_directory_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["good", "$(touch x)", "two words"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let begun = format!("{}/", directory.path().display());
        let found = complete(OsStr::new(&begun));
        let found: Vec<_> = found.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(found, [OsStr::new(&format!("{begun}good"))]);
    }
}
