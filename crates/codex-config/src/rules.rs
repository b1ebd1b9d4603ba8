//! The user's own rules for Codex by which `git` leaves the sandbox.
//!
//! A rule that allows a command has Codex run it outside of the sandbox without a
//! question. Git runs programs that the settings of a repository name, and a model can make
//! a repository below its working directory: such a rule lets it run anything.
//!
//! Source: Codex's rules (`$CODEX_HOME/rules/*.rules`), a Starlark file with calls of
//! `prefix_rule(pattern = [...], decision = "allow")`. Run with 0.169.0 and 0.171.0.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use safe_files::untrusted_file::{Links, read_text};

/// The limits of the number of files that are read, and of the size of each, in bytes.
const FILES_LIMIT: usize = 100;
const FILE_LIMIT: u64 = 1024 * 1024;

const DIRECTORY: &str = "rules";
const RULE: &str = "prefix_rule";

/// The first arguments of a rule, whose names may be left out.
const PATTERN: &str = "pattern";
const DECISION: &str = "decision";
const POSITIONS: [&str; 2] = [PATTERN, DECISION];

/// The user's rules that allow git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRules {
    /// The file of the first one, and its line.
    first: (PathBuf, usize),
    /// How many others there are.
    more: usize,
}

impl GitRules {
    /// Reads the rules of a Codex with this home; `None` if none allows git.
    #[must_use]
    pub fn of(codex_home: &Path) -> Option<Self> {
        let mut paths: Vec<PathBuf> = files(codex_home).collect();
        paths.sort();
        paths.truncate(FILES_LIMIT);
        let found = paths.into_iter().flat_map(|path| {
            let text = read_text(&path, FILE_LIMIT, Links::Followed);
            let lines = text.as_deref().map(lines_that_allow_git);
            let lines = lines.unwrap_or_default().into_iter();
            lines.map(move |line| (path.clone(), line))
        });
        let mut found = found.collect::<Vec<_>>().into_iter();
        Some(Self {
            first: found.next()?,
            more: found.len(),
        })
    }

    /// What to do about such rules.
    pub const HINT: &str = "Remove the rule where you do not trust the model or what it reads.";
}

impl fmt::Display for GitRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, line) = &self.first;
        let more = match self.more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        write!(
            f,
            "a rule of yours ({}, line {line}{more}) lets git leave Codex's sandbox, and git runs \
             programs that a repository's settings name: a model can run anything by a repository \
             that it makes",
            path.display()
        )
    }
}

/// Whether there are rules, of whatever kind, in this home of Codex or this `.codex` of a
/// repository.
#[must_use]
pub fn has_rules(directory: &Path) -> bool {
    files(directory).next().is_some()
}

/// The files of the rules in this home of Codex or this `.codex` of a repository.
fn files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory.join(DIRECTORY))
        .into_iter()
        .flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "rules"))
}

/// A part of a rules file.
#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    Text(&'a str),
    Name(&'a str),
    Sign(char),
}

/// The numbers of the lines in which rules that allow git begin.
pub fn lines_that_allow_git(text: &str) -> Vec<usize> {
    let tokens = tokens(text);
    let mut lines = Vec::new();
    for (place, (token, line)) in tokens.iter().enumerate() {
        let after = tokens.get(place + 1..).unwrap_or_default();
        if *token == Token::Name(RULE) && allows_git(after) {
            lines.push(*line);
        }
    }
    lines
}

/// Whether the arguments of a rule allow git: `(pattern = [FIRST, …], decision = …)` or
/// `([FIRST, …], …)`, in which `FIRST` is a text or a list of texts. Without a decision a rule
/// allows.
fn allows_git(tokens: &[(Token<'_>, usize)]) -> bool {
    if !matches!(tokens.first(), Some((Token::Sign('('), _))) {
        return false;
    }
    let mut depth = 0_usize;
    let mut positions = POSITIONS.into_iter();
    let mut argument = positions.next();
    let mut first_depth = None;
    let (mut is_git, mut decision) = (false, "allow");
    for (token, _) in tokens {
        match token {
            Token::Sign('(' | '[') => depth += 1,
            Token::Sign(')' | ']') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            // The second word of a pattern.
            Token::Sign(',') if depth == 2 && argument == Some(PATTERN) => {
                first_depth = Some(depth);
            }
            Token::Sign(',') if depth == 1 => argument = positions.next(),
            Token::Name(name) if depth == 1 => argument = Some(*name),
            Token::Text(text) if argument == Some(DECISION) => decision = text,
            Token::Text(text) if argument == Some(PATTERN) && first_depth.is_none() => {
                is_git |= text.rsplit('/').next() == Some("git");
            }
            _ => {}
        }
    }
    is_git && decision == "allow"
}

/// Names, texts and signs with their lines; comments and spaces are left out.
fn tokens(text: &str) -> Vec<(Token<'_>, usize)> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => {
                let length = text_length(rest, first);
                let end = length.saturating_sub(1).max(1);
                let inner = rest.get(1..end).unwrap_or_default();
                tokens.push((Token::Text(inner), line));
                length
            }
            first if first.is_alphanumeric() || first == '_' => {
                let is_name = |one: char| one.is_alphanumeric() || one == '_';
                let length = rest.find(|one| !is_name(one)).unwrap_or(rest.len());
                let name = rest.get(..length).unwrap_or_default();
                tokens.push((Token::Name(name), line));
                length
            }
            first => {
                if !first.is_whitespace() {
                    tokens.push((Token::Sign(first), line));
                }
                first.len_utf8()
            }
        };
        let (read, after) = rest.split_at(length);
        line += read.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The length of a quoted text, both quotes included.
fn text_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (place, one) in text.char_indices().skip(1) {
        match one {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            one if one == quote => return place + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_allow_git_are_found() {
        for (text, expected) in [
            (
                r#"prefix_rule(pattern=["git", "status"], decision="allow")"#,
                &[1][..],
            ),
            ("\nprefix_rule(\n  pattern = ['/usr/bin/git'],\n)", &[2]),
            (
                r#"prefix_rule(decision="allow", pattern=[["ls", "git"], "x"])"#,
                &[1],
            ),
            (r#"prefix_rule(["git"], "allow")"#, &[1]),
            (r#"prefix_rule([["ls", "git"], "x"])"#, &[1]),
            (r#"prefix_rule(["git"], decision="allow")"#, &[1]),
            (r#"prefix_rule(["git"], "prompt")"#, &[]),
            (r#"prefix_rule(["ls", "git"], "allow")"#, &[]),
            (r#"prefix_rule(["ls"], "allow", [["git"]])"#, &[]),
            ("rule = prefix_rule\nnames = [\"git\"]", &[]),
            (r#"prefix_rule(pattern=["git"], decision="prompt")"#, &[]),
            (r#"prefix_rule(pattern=["git"], decision="forbidden")"#, &[]),
            (
                r#"prefix_rule(pattern=["ls", "git"], decision="allow")"#,
                &[],
            ),
            (
                r#"prefix_rule(pattern=["ls", ["git"]], decision="allow")"#,
                &[],
            ),
            (
                r#"prefix_rule(pattern=["ls"], justification="git", match=["git"])"#,
                &[],
            ),
            (r#"# prefix_rule(pattern=["git"], decision="allow")"#, &[]),
            (r#"x = "prefix_rule(pattern=['git'])""#, &[]),
            ("prefix_rule", &[]),
            ("\"é", &[]),
        ] {
            assert_eq!(lines_that_allow_git(text), expected, "{text}");
        }
    }

    #[test]
    fn first_rule_is_named_with_the_number_of_others() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(GitRules::of(home.path()), None);
        let rules = home.path().join(DIRECTORY);
        fs::create_dir(&rules).unwrap();
        assert_eq!(GitRules::of(home.path()), None);
        assert!(!has_rules(home.path()));
        let rule = "prefix_rule(pattern=[\"git\"])\n";
        for (name, text) in [("b.rules", rule), ("a.rules", rule), ("c.txt", rule)] {
            fs::write(rules.join(name), text).unwrap();
        }
        let found = GitRules::of(home.path()).unwrap().to_string();
        assert!(found.contains("a.rules, line 1 and 1 more"), "{found}");
        assert!(has_rules(home.path()));
    }
}
