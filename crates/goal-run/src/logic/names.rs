//! Names in criteria: branches, issues and commands.
//!
//! `git`, `gh` and the named programs receive them as arguments, never through a shell, so quotes,
//! `$(…)` and the like have no special meaning. Names that could be taken for a flag, or that lead
//! elsewhere, are refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name of a branch, in bytes. The name becomes a path below `.git/refs`.
const BRANCH_LIMIT: usize = 200;

/// The longest name of an owner at GitHub, with a company's suffix, in bytes.
const OWNER_LIMIT: usize = 60;

/// The longest name of a repository at GitHub, in bytes.
const REPOSITORY_LIMIT: usize = 100;

/// The longest command line, in bytes.
const COMMAND_LIMIT: usize = 4096;

/// Operators of a shell, which mean nothing here.
const OPERATORS: [&str; 10] = ["&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1", "2>"];

/// Why a text is not the name of a branch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBranch {
    /// The name is empty.
    #[error("the name of the branch is empty; write one, such as feature/x")]
    Empty,
    /// It is too long.
    #[error("the name of the branch has more than {BRANCH_LIMIT} bytes; choose a shorter one")]
    TooLong,
    /// Git refuses the name, or would take it for something else.
    #[error(
        "{0:?} is not a name for a branch; write it as git takes it, such as feature/x, without refs/heads/ in front"
    )]
    Form(String),
}

/// Why a text does not name an issue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no issue; write OWNER/REPO#NUMBER, such as rust-lang/rust#1")]
pub struct BadIssue(pub String);

/// Why a text is not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// The command is empty.
    #[error("the command is empty; write a program and its arguments, such as cargo test")]
    Empty,
    /// It is too long.
    #[error("the command has more than {COMMAND_LIMIT} bytes; put it into a script")]
    TooLong,
    /// The command has a NUL, an escape or the like.
    #[error("{0:?} has a control character; put the command into a script")]
    ControlCharacter(String),
    /// A quote is not closed.
    #[error("a quote of {0:?} is not closed; close it")]
    Quotes(String),
    /// The first word is not a program.
    #[error("{0:?} is no program; begin with one, and set variables by `env NAME=value program …`")]
    Program(String),
    /// The command is meant for a shell.
    #[error(
        "{0} means something to a shell only, and none is started; write several criteria, or sh -c '…'"
    )]
    Shell(&'static str),
}

/// The name of a branch, without `refs/heads/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BranchName(String);

impl BranchName {
    /// The name as a text, which begins with neither a dash nor a slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BranchName {
    type Err = BadBranch;

    /// Source of the rules: `git help check-ref-format`.
    fn from_str(text: &str) -> Result<Self, BadBranch> {
        if text.is_empty() {
            return Err(BadBranch::Empty);
        }
        if text.len() > BRANCH_LIMIT {
            return Err(BadBranch::TooLong);
        }
        let is_bad =
            |one: char| one.is_control() || one.is_whitespace() || "~^:?*[\\".contains(one);
        let bad_part =
            |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
        let refused = text.starts_with('-')
            || text.starts_with("refs/")
            || text.ends_with('.')
            || text.contains("..")
            || text.contains("@{")
            || matches!(text, "@" | "HEAD")
            || text.chars().any(is_bad)
            || text.split('/').any(bad_part);
        match refused {
            true => Err(BadBranch::Form(text.to_owned())),
            false => Ok(Self(text.to_owned())),
        }
    }
}

/// An issue or a pull request at GitHub, `OWNER/REPO#NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Issue {
    owner: String,
    repository: String,
    number: u64,
}

impl Issue {
    /// The owner of the repository.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The name of the repository, neither `.` nor `..`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Its number, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl FromStr for Issue {
    type Err = BadIssue;

    fn from_str(text: &str) -> Result<Self, BadIssue> {
        let bad = || BadIssue(text.chars().take(BRANCH_LIMIT).collect());
        let (repo_path, number) = text.split_once('#').ok_or_else(bad)?;
        let (owner, repository) = repo_path.split_once('/').ok_or_else(bad)?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = number.parse().map_err(|_| bad())?;
        let fine = is_number
            && number > 0
            && is_plain(owner, OWNER_LIMIT, "-_")
            && is_plain(repository, REPOSITORY_LIMIT, "-_.")
            && !matches!(repository, "." | "..");
        match fine {
            true => Ok(Self {
                owner: owner.to_owned(),
                repository: repository.to_owned(),
                number,
            }),
            false => Err(bad()),
        }
    }
}

fn is_plain(text: &str, limit: usize, more: &str) -> bool {
    let plain = |one: char| one.is_ascii_alphanumeric() || more.contains(one);
    (1..=limit).contains(&text.len()) && !text.starts_with('-') && text.chars().all(plain)
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            owner,
            repository,
            number,
        } = self;
        write!(f, "{owner}/{repository}#{number}")
    }
}

/// A program and its arguments, written as a command line. No shell reads it: quotes and
/// backslashes work as in `sh`, all other characters are literal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommandLine {
    text: String,
    words: Vec<String>,
}

impl CommandLine {
    /// The program and its arguments: at least one word.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The command as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for CommandLine {
    type Err = BadCommand;

    fn from_str(text: &str) -> Result<Self, BadCommand> {
        if text.len() > COMMAND_LIMIT {
            return Err(BadCommand::TooLong);
        }
        let bad = |one: char| one.is_control() && !matches!(one, '\n' | '\t');
        if text.chars().any(bad) {
            return Err(BadCommand::ControlCharacter(text.to_owned()));
        }
        let words = shlex::split(text).ok_or_else(|| BadCommand::Quotes(text.to_owned()))?;
        let program = words.first().ok_or(BadCommand::Empty)?;
        if program.is_empty() || program.starts_with('-') || program.contains('=') {
            return Err(BadCommand::Program(program.clone()));
        }
        // An operator in quotes is a plain argument.
        let stands_alone = |sign: &str| text.split_whitespace().any(|word| word == sign);
        let mut operators = OPERATORS.into_iter();
        let operator =
            operators.find(|sign| words.iter().any(|word| word == sign) && stands_alone(sign));
        match operator {
            Some(operator) => Err(BadCommand::Shell(operator)),
            None => Ok(Self {
                text: text.to_owned(),
                words,
            }),
        }
    }
}

common::string_conversions!(BranchName, Issue, CommandLine);

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_names_follow_the_rules_of_git() {
        for name in [
            "main",
            "feature/x",
            "a$(b)",
            "it's",
            "a\"b",
            "é",
            "a@b",
            "HEAD2",
        ] {
            assert_eq!(name.parse::<BranchName>().unwrap().as_str(), name);
        }
        let long = "x".repeat(BRANCH_LIMIT + 1);
        for text in [
            "",
            "-d",
            "--force",
            "a b",
            "a\nb",
            "a\0",
            "a..b",
            "../a",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "[a]",
            "a\\b",
            "@",
            "a@{1}",
            "HEAD",
            "refs/heads/a",
            &long,
        ] {
            assert!(text.parse::<BranchName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn issues_are_named_with_owner_repository_and_number() {
        let issue: Issue = "rust-lang/cargo.x_y#17".parse().unwrap();
        let parts = (issue.owner(), issue.repository(), issue.number());
        assert_eq!(parts, ("rust-lang", "cargo.x_y", 17));
        assert_eq!(issue.to_string(), "rust-lang/cargo.x_y#17");
        for text in [
            "",
            "a/b",
            "a#1",
            "a/b#",
            "a/b#0",
            "a/b#+1",
            "a/b#-1",
            "a/b#1x",
            "a/b/c#1",
            "/b#1",
            "a/#1",
            "a/..#1",
            "a/.#1",
            "-a/b#1",
            "a/-b#1",
            "a/$(b)#1",
            "a/b'#1",
            "a\n/b#1",
            "a/b#99999999999999999999",
            "../b#1",
            "a/b#1#2",
        ] {
            assert!(text.parse::<Issue>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn commands_are_split_and_not_read_by_a_shell() {
        for (text, words) in [
            ("cargo test", &["cargo", "test"][..]),
            ("  a   'b c' \"d\" e\\ f ", &["a", "b c", "d", "e f"]),
            ("sh -c 'a && b | c'", &["sh", "-c", "a && b | c"]),
            ("grep '|' $(x) -- -y", &["grep", "|", "$(x)", "--", "-y"]),
            ("a 'b\nc'", &["a", "b\nc"]),
        ] {
            assert_eq!(text.parse::<CommandLine>().unwrap().words(), words);
        }
    }

    #[test]
    fn malformed_command_is_refused_with_advice() {
        let long = "x".repeat(COMMAND_LIMIT + 1);
        let mut table = String::new();
        for text in [
            "", "  ", "'a", "a \"b", "-x a", "''", "A=1 b", "a && b", "a | b", "a > b", "a ; b",
            "a & ", "a\0b", "a\u{1b}b", &long,
        ] {
            let refusal = text.parse::<CommandLine>().unwrap_err();
            let shown: String = text.chars().take(30).collect();
            table += &format!("{shown:?}: {refusal}\n");
        }
        insta::assert_snapshot!(table);
    }
}
