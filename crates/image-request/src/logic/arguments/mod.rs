//! The command lines of the interactive Codex: one that begins a conversation, and one that resumes
//! it with a picture.
//!
//! Both contain the user's options, with ours before them:
//!
//! ```text
//! codex [resume|fork] -a never -c mcp_servers.… -c developer_instructions=… OPTIONS PROMPT
//! codex resume --last|ID -a never -c … -c … -C DIRECTORY OPTIONS -i PICTURE … -- WORDS
//! ```
//!
//! The second one leaves out the arguments for the beginning: the prompt, the user's pictures, and
//! the conversation to resume.
//!
//! Source of the options: `codex --help` and `codex resume --help` of 0.104.0, 0.153.4 and 0.169.0.
//! An unknown option is taken to have no value, except one that is joined to it by `=`. Codex
//! 0.104.0 takes the words after `resume --last` for the name of a conversation, so it must be
//! resumed by an ID.

use std::ffi::{OsStr, OsString};

use common::toml_value;
use serde_json::Value;

use super::contract::SERVER;
use super::machine::Session;
use parser::{ArgumentGroup, ArgumentKind};

mod parser;

/// Why the wrapper cannot start Codex with some arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    /// The arguments are not for the interactive program.
    #[error(
        "`codex {0}` is not the interactive Codex, and pictures are brought to that only; run `codex {0}` by itself, or put `--` before a prompt of this one word"
    )]
    Subcommand(String),
    /// The arguments ask for Codex's help, which does not cover the wrapper.
    #[error(
        "`codex-mcp eyes --help` is the help, and `codex --help` tells what Codex takes; put `--` before a prompt of this one word"
    )]
    Help,
    /// Codex would work in a directory other than the one with the pictures.
    #[error(
        "with `--worktree` Codex works in a directory of its own, whose pictures are not found from here; make one with `git worktree add`, and run `codex-mcp eyes` in it"
    )]
    Worktree,
    /// Codex would take the name for several files.
    #[error("Codex takes {0:?} for several pictures because of its comma; give it another name")]
    Comma(OsString),
}

/// The file of a picture, as an argument for Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment(OsString);

impl Attachment {
    /// A path, absolute or relative to Codex's directory.
    ///
    /// # Errors
    ///
    /// [`BadArguments::Comma`]: Codex takes `a,/b.png` for two files, and the second one
    /// may be anywhere. Seen on 0.169.0.
    pub fn new(path: &OsStr) -> Result<Self, BadArguments> {
        match path.as_encoded_bytes().contains(&b',') {
            true => Err(BadArguments::Comma(path.to_owned())),
            false => Ok(Self(path.to_owned())),
        }
    }
}

/// The user's arguments for Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    groups: Vec<ArgumentGroup>,
}

impl Arguments {
    /// Reads the arguments for Codex, without the program.
    ///
    /// # Errors
    ///
    /// [`BadArguments::Subcommand`] and [`BadArguments::Help`] if they are not for the
    /// interactive program, and [`BadArguments::Worktree`].
    pub fn read(args: Vec<OsString>) -> Result<Self, BadArguments> {
        let groups = parser::groups(args)?;
        match groups.iter().any(ArgumentGroup::is_worktree) {
            true => Err(BadArguments::Worktree),
            false => Ok(Self { groups }),
        }
    }

    /// The user's developer instructions, in the form in which they follow `-c
    /// developer_instructions=`: TOML or text. Our own instructions would replace them, so both
    /// command lines leave them out, and the caller includes them in the instructions for
    /// [`AddedArguments::new`].
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        let own = |group: &&ArgumentGroup| group.kind == ArgumentKind::Instructions;
        let last = self.groups.iter().rfind(own)?;
        let (_, text) = last.setting()?.split_once('=')?;
        Some(text.trim())
    }

    /// The chosen profile.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        let chosen = |group: &ArgumentGroup| group.value("-p", "--profile").is_some();
        let last = self.groups.iter().rfind(|group| chosen(group))?;
        last.value("-p", "--profile")
    }

    /// The directory for Codex, if it is not the current one.
    #[must_use]
    pub fn directory(&self) -> Option<&OsStr> {
        self.groups.iter().rev().find_map(|group| group.directory())
    }

    /// The conversation to resume or fork, if it is named.
    pub fn conversation_mut(&mut self) -> Option<&mut OsString> {
        let is_last = |group: &ArgumentGroup| group.args.first().is_some_and(|arg| arg == "--last");
        if self.groups.iter().any(is_last) {
            return None;
        }
        let subcommand = |group: &ArgumentGroup| group.kind == ArgumentKind::Subcommand;
        let after = self.groups.iter().position(subcommand)?;
        let mut words = self.groups.iter_mut().skip(after);
        let word = words.find(|group| group.kind == ArgumentKind::Word)?;
        match word.args.as_mut_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The command line for the beginning.
    #[must_use]
    pub fn begin(&self, added: &AddedArguments) -> Vec<OsString> {
        let kept = |group: &&ArgumentGroup| group.kind != ArgumentKind::Instructions;
        let (subcommand, rest): (Vec<&ArgumentGroup>, Vec<&ArgumentGroup>) = self
            .groups
            .iter()
            .filter(kept)
            .partition(|group| group.kind == ArgumentKind::Subcommand);
        let mut line = args(&subcommand);
        line.extend(self.own_arguments(added));
        line.extend(args(&rest));
        line
    }

    /// The command line for resuming, with these words as the prompt. They are bounded, as an
    /// argument has at most 128 KiB.
    #[must_use]
    pub fn resume(
        &self,
        added: &AddedArguments,
        session: &Session,
        pictures: &[Attachment],
        words: &str,
    ) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["resume".into(), session.to_string().into()];
        line.extend(self.own_arguments(added));
        // Otherwise Codex asks whether to use the conversation's earlier directory.
        if self.directory().is_none() {
            line.extend([OsString::from("-C"), added.directory.clone()]);
        }
        let stays = |group: &&ArgumentGroup| {
            matches!(group.kind, ArgumentKind::Option | ArgumentKind::Approval)
        };
        let rest: Vec<&ArgumentGroup> = self.groups.iter().filter(stays).collect();
        line.extend(args(&rest));
        for Attachment(path) in pictures {
            line.extend([OsString::from("-i"), path.clone()]);
        }
        line.extend(["--", words].map(OsString::from));
        line
    }

    fn own_arguments(&self, added: &AddedArguments) -> Vec<OsString> {
        let says = |group: &ArgumentGroup| group.kind == ArgumentKind::Approval;
        let is_said = added.approval == Approval::Configured || self.groups.iter().any(says);
        let mut own_arguments = match is_said {
            true => Vec::new(),
            false => ["-a", "never"].map(OsString::from).into(),
        };
        for setting in [&added.server, &added.instructions] {
            own_arguments.extend([OsString::from("-c"), setting.into()]);
        }
        own_arguments
    }
}

fn args(groups: &[&ArgumentGroup]) -> Vec<OsString> {
    let args = groups.iter().flat_map(|group| group.args.iter());
    args.cloned().collect()
}

/// The approval policy by the user's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Approval {
    /// The configuration has a policy, which stays.
    Configured,
    /// The configuration has no policy, so Codex never asks. The program that this one replaces did
    /// the same.
    Never,
}

/// The arguments that are added to each command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedArguments {
    server: String,
    instructions: String,
    approval: Approval,
    directory: OsString,
}

impl AddedArguments {
    /// `server` is the entry of the tool's server in Codex's configuration, `instructions` are
    /// all developer instructions, the user's and ours, and `directory` is Codex's absolute
    /// working directory.
    #[must_use]
    pub fn new(server: &Value, instructions: &str, approval: Approval, directory: &OsStr) -> Self {
        let server = toml_value::value(server).unwrap_or_default();
        Self {
            server: format!("mcp_servers.{SERVER}={server}"),
            instructions: format!("developer_instructions={}", toml_value::text(instructions)),
            approval,
            directory: directory.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
