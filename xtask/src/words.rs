//! Checks that no file names a machine that the project is developed on.

use std::fs;
use std::io::ErrorKind;

use anyhow::Context;

use crate::tool::Tool;
use crate::workspace::{Workspace, verdict};

/// The forbidden texts, with the reasons. Each text is in two halves, so that this file passes.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/tmp/bash", "_jobs"), "a path of one machine"),
    (concat!("/tmp/tar", "get-"), "a path of one machine"),
    (concat!("index.crates", ".io"), "a registry's host name"),
    (concat!("static.crates", ".io"), "a registry's host name"),
    (concat!("registry.npm", "js.org"), "a registry's host name"),
    (concat!("co-authored", "-by:"), "words about the making"),
    (concat!("generated", " with ["), "words about the making"),
];

/// Looks through every file that git tracks or would track.
///
/// # Errors
/// When a file has one of the forbidden words, or git cannot list the files.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let list = Tool::new("git", ["ls-files", "-z", "--cached", "--others"])
        .args(["--exclude-standard"])
        .capture(workspace.root())?;
    let mut findings = Vec::new();
    for name in list.split_terminator('\0') {
        let bytes = match fs::read(workspace.root().join(name)) {
            Ok(bytes) => bytes,
            // Deleted but still in the index, or a link to a directory.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
        };
        if let Ok(text) = String::from_utf8(bytes) {
            findings.extend(scan(name, &text));
        }
    }
    verdict("words that do not belong in the project", &findings)
}

fn scan(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.to_ascii_lowercase();
        for (word, what) in FORBIDDEN {
            if line.match_indices(word).any(|(at, _)| begins(&line, at)) {
                findings.push(format!("{name}:{}: `{word}`: {what}", index + 1));
            }
        }
    }
    findings
}

/// Whether a path that is found at `at` begins there: `target/` followed by a
/// forbidden path is a harmless relative one.
fn begins(line: &str, at: usize) -> bool {
    let before = line.get(..at).and_then(|start| start.chars().next_back());
    let absolute = line.get(at..).is_some_and(|rest| rest.starts_with('/'));
    !absolute || !before.is_some_and(|c| c.is_alphanumeric() || "_-.~}*>".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_machine_are_found_where_they_begin() {
        let path = concat!("/wo", "rk/");
        for bad in [
            format!("cd {path}main"),
            format!("\"{path}\""),
            format!("file://{path}"),
        ] {
            assert_eq!(scan("a.rs", &format!("fine\n{bad}")).len(), 1, "{bad}");
        }
        for fine in [
            format!("target{path}"),
            format!("~{path}x"),
            format!("$X.{path}"),
        ] {
            assert!(scan("a.rs", &fine).is_empty(), "{fine}");
        }
    }

    #[test]
    fn finding_names_file_line_and_word() {
        let line = concat!("Co-Authored", "-By: someone");
        assert_eq!(
            scan("docs/a.md", line),
            [concat!(
                "docs/a.md:1: `co-authored",
                "-by:`: words about the making"
            )]
        );
    }

    #[test]
    fn index_that_cargo_deny_needs_is_allowed() {
        let line = r#"allow-registry = ["https://github.com/rust-lang/crates.io-index"]"#;
        assert!(scan("deny.toml", line).is_empty());
    }
}
