//! The command lines of the interactive Codex: the one that begins, and the one that
//! resumes with a picture.
//!
//! Both have the options that the user has given, and ours before them:
//!
//! ```text
//! codex [resume|fork] -a never -c mcp_servers.… -c developer_instructions=… OPTIONS PROMPT
//! codex resume --last|ID -a never -c … -c … -C DIRECTORY OPTIONS -i PICTURE … -- WORDS
//! ```
//!
//! What belongs to the beginning is left out of the second one: the prompt, the user's
//! pictures, and which conversation was to be taken up.
//!
//! Source of the options: `codex --help` and `codex resume --help` of 0.104.0, 0.153.4
//! and 0.169.0. An option that is not known here is taken to have no value but one that
//! is joined to it by `=`. Codex 0.104.0 takes the words after `resume --last` for the
//! name of a conversation: it must be resumed by an id.

use std::ffi::{OsStr, OsString};

use common::toml_value;
use serde_json::Value;

use super::contract::SERVER;
use super::machine::Session;
use reading::{Group, Part};

mod reading;

/// Why the wrapper can't start Codex with some arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    /// They are not for the interactive program.
    #[error(
        "`codex {0}` is not the interactive Codex, and pictures are brought to that only; run `codex {0}` by itself, or put `--` before a prompt of this one word"
    )]
    Subcommand(String),
    /// They ask for Codex's help, which says nothing of ours.
    #[error(
        "`codex-mcp eyes --help` is the help, and `codex --help` tells what Codex takes; put `--` before a prompt of this one word"
    )]
    Help,
    /// Codex would work where nobody looks for pictures.
    #[error(
        "with `--worktree` Codex works in a directory of its own, whose pictures are not found from here; make one with `git worktree add`, and run `codex-mcp eyes` in it"
    )]
    Worktree,
    /// Codex would take the file for several ones.
    #[error("Codex takes {0:?} for several pictures because of its comma; give it another name")]
    Comma(OsString),
}

/// The file of a picture, as Codex is given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment(OsString);

impl Attachment {
    /// A path, absolute or from Codex's directory on.
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

/// What the user has given for Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    groups: Vec<Group>,
}

impl Arguments {
    /// Takes the arguments for Codex, without the program.
    ///
    /// # Errors
    ///
    /// [`BadArguments::Subcommand`] and [`BadArguments::Help`] if they are not for the
    /// interactive program, and [`BadArguments::Worktree`].
    pub fn read(args: Vec<OsString>) -> Result<Self, BadArguments> {
        let groups = reading::groups(args)?;
        match groups.iter().any(Group::is_worktree) {
            true => Err(BadArguments::Worktree),
            false => Ok(Self { groups }),
        }
    }

    /// The developer instructions that they hold, as they are after
    /// `-c developer_instructions=`: TOML, or else text. Ours would take their place, so
    /// they are left out of both command lines, and are to be a part of what
    /// [`Added::new`] is given.
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        let own = |group: &&Group| group.part == Part::Instructions;
        let last = self.groups.iter().rfind(own)?;
        let (_, text) = last.setting()?.split_once('=')?;
        Some(text.trim())
    }

    /// The profile that is chosen.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        let chosen = |group: &Group| group.value("-p", "--profile").is_some();
        let last = self.groups.iter().rfind(|group| chosen(group))?;
        last.value("-p", "--profile")
    }

    /// The directory that Codex is to work in, if that isn't the current one.
    #[must_use]
    pub fn directory(&self) -> Option<&OsStr> {
        self.groups.iter().rev().find_map(|group| group.directory())
    }

    /// The conversation that is to be resumed or forked, where it is named.
    pub fn conversation_mut(&mut self) -> Option<&mut OsString> {
        let is_last = |group: &Group| group.args.first().is_some_and(|arg| arg == "--last");
        if self.groups.iter().any(is_last) {
            return None;
        }
        let subcommand = |group: &Group| group.part == Part::Subcommand;
        let after = self.groups.iter().position(subcommand)?;
        let mut words = self.groups.iter_mut().skip(after);
        let word = words.find(|group| group.part == Part::Word)?;
        match word.args.as_mut_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The command line that begins.
    #[must_use]
    pub fn begin(&self, added: &Added) -> Vec<OsString> {
        let kept = |group: &&Group| group.part != Part::Instructions;
        let (subcommand, rest): (Vec<&Group>, Vec<&Group>) = self
            .groups
            .iter()
            .filter(kept)
            .partition(|group| group.part == Part::Subcommand);
        let mut line = args(&subcommand);
        line.extend(self.ours(added));
        line.extend(args(&rest));
        line
    }

    /// The command line that resumes, with these words. They are bounded, as an argument
    /// has at most 128 KiB.
    #[must_use]
    pub fn resume(
        &self,
        added: &Added,
        session: &Session,
        pictures: &[Attachment],
        words: &str,
    ) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["resume".into(), session.to_string().into()];
        line.extend(self.ours(added));
        // Else Codex asks whether to work where the conversation did before.
        if self.directory().is_none() {
            line.extend([OsString::from("-C"), added.directory.clone()]);
        }
        let stays = |group: &&Group| matches!(group.part, Part::Option | Part::Approval);
        let rest: Vec<&Group> = self.groups.iter().filter(stays).collect();
        line.extend(args(&rest));
        for Attachment(path) in pictures {
            line.extend([OsString::from("-i"), path.clone()]);
        }
        line.extend(["--", words].map(OsString::from));
        line
    }

    fn ours(&self, added: &Added) -> Vec<OsString> {
        let says = |group: &Group| group.part == Part::Approval;
        let is_said = added.approval == Approval::Configured || self.groups.iter().any(says);
        let mut ours = match is_said {
            true => Vec::new(),
            false => ["-a", "never"].map(OsString::from).into(),
        };
        for setting in [&added.server, &added.instructions] {
            ours.extend([OsString::from("-c"), setting.into()]);
        }
        ours
    }
}

fn args(groups: &[&Group]) -> Vec<OsString> {
    let args = groups.iter().flat_map(|group| group.args.iter());
    args.cloned().collect()
}

/// Whether the user's configuration says when Codex asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Approval {
    /// It does, and that stays.
    Configured,
    /// It doesn't: then Codex never asks, as with the program that this one replaces.
    Never,
}

/// What is added to each command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    server: String,
    instructions: String,
    approval: Approval,
    directory: OsString,
}

impl Added {
    /// The server of the tool, as an entry of Codex's configuration; all of Codex's
    /// developer instructions, the user's and ours; and the directory that it works in,
    /// absolute.
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
