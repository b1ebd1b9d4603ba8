//! The command lines of the interactive Codex: the one that begins, and the one that
//! resumes with a picture.
//!
//! Both have the options that the user has given, and ours before them:
//!
//! ```text
//! codex [resume|fork] -a never -c mcp_servers.… -c developer_instructions=… OPTIONS PROMPT
//! codex resume --last|ID -a never -c … -c … OPTIONS -i PICTURE -- WORDS
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

use super::contract::SERVER;
use super::machine::Session;
use super::toml;
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
    /// Our own program or an argument of it has a name that TOML can't hold.
    #[error(
        "{0:?} is not valid Unicode, and Codex's configuration can't hold it; move it elsewhere"
    )]
    NotUnicode(OsString),
    /// Codex would take the file for several ones.
    #[error("Codex takes {0:?} for several pictures because of its comma; give it another name")]
    Comma(OsString),
}

/// The MCP server that is registered for this run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    command: String,
    args: Vec<String>,
}

impl Server {
    /// A program, by its absolute path, and its arguments. Codex gives it next to none
    /// of its environment.
    ///
    /// # Errors
    ///
    /// [`BadArguments::NotUnicode`].
    pub fn new(command: &OsStr, args: &[OsString]) -> Result<Self, BadArguments> {
        let text = |one: &OsStr| match one.to_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(BadArguments::NotUnicode(one.to_owned())),
        };
        let args = args.iter().map(|arg| text(arg));
        Ok(Self {
            command: text(command)?,
            args: args.collect::<Result<_, _>>()?,
        })
    }

    /// It as Codex's configuration has it. Its tool is approved beforehand, or under
    /// `-a never` Codex would refuse each call.
    fn setting(&self) -> String {
        format!(
            "mcp_servers.{SERVER}={{command={}, args={}, default_tools_approval_mode=\"approve\"}}",
            toml::text(&self.command),
            toml::texts(&self.args)
        )
    }
}

/// The file of a picture, as Codex is given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment(OsString);

impl Attachment {
    /// A path, absolute or from Codex's folder on.
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
    /// [`BadArguments::Subcommand`] if they are not for the interactive program.
    pub fn read(args: Vec<OsString>) -> Result<Self, BadArguments> {
        let groups = reading::groups(args)?;
        Ok(Self { groups })
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
        picture: Option<&Attachment>,
        words: &str,
    ) -> Vec<OsString> {
        let session = match session {
            Session::Named(thread) => thread.as_str(),
            Session::Last => "--last",
        };
        let mut line: Vec<OsString> = ["resume", session].map(OsString::from).into();
        line.extend(self.ours(added));
        let stays = |group: &&Group| matches!(group.part, Part::Option | Part::Approval);
        let rest: Vec<&Group> = self.groups.iter().filter(stays).collect();
        line.extend(args(&rest));
        if let Some(Attachment(path)) = picture {
            line.extend([OsString::from("-i"), path.clone()]);
        }
        line.extend(["--", words].map(OsString::from));
        line
    }

    fn ours(&self, added: &Added) -> Vec<OsString> {
        let says = |group: &Group| group.part == Part::Approval;
        let mut ours = match self.groups.iter().any(says) {
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

/// What is added to each command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    server: String,
    instructions: String,
}

impl Added {
    /// The server, and all of Codex's developer instructions: the user's and ours.
    #[must_use]
    pub fn new(server: &Server, instructions: &str) -> Self {
        Self {
            server: server.setting(),
            instructions: format!("developer_instructions={}", toml::text(instructions)),
        }
    }
}

#[cfg(test)]
mod tests;
