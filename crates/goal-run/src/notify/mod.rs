//! Telling others that a run has ended, or that a session, a run or a job needs a person
//! (`alerts`): an agent by mail, a channel of IRC, a program.
//!
//! What fails here is told to whoever began the run, and is no failure of the run.
//! All are told at the same time, and none is waited for beyond its [`Patience`].

mod alerts;
mod check;
mod command;
mod irc;
mod mail;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use agent_team::{MailClient, Member};
use futures::future::join_all;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::logic::notifier::Notifier;

pub use alerts::{Alerts, Notice};
pub use check::{Lookup, Unusable, UnusableNotifier};
pub use command::CommandError;
pub use irc::IrcFailure;
pub use mail::LetterError;

/// What is told.
#[derive(Debug, Clone, Copy)]
pub struct Telling<'a> {
    /// The line, as [`Outcome::notice`](crate::logic::outcome::Outcome::notice) and
    /// [`Notice`] make it.
    pub line: &'a str,
    /// The whole [`Outcome`](crate::logic::outcome::Outcome), or what an alert says.
    pub result: &'a Value,
}

/// Who tells it.
#[derive(Clone)]
pub struct Teller {
    /// In whose name mail is sent; without one, it is `codex-mcp`'s, who is in no team.
    pub member: Option<Member>,
    /// The mail of this member, where it is open already.
    pub mail_client: Option<MailClient>,
    /// The home directory that teams are below, as the configuration has it.
    pub atm_home: PathBuf,
    /// Where commands are run: the directory that was named, or that of the worktree.
    pub directory: PathBuf,
    /// Variables that commands get on top of our own.
    pub env: Vec<(OsString, OsString)>,
    /// How long each is waited for.
    pub patience: Patience,
}

/// How long each kind of notifier is waited for, to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Mail. The locks of an inbox are waited for 5 s each.
    pub mail: Duration,
    /// A channel. An ngircd as it is installed takes 3 s, and 2 s more for each
    /// nickname that is taken; servers that look up who comes take longer.
    pub irc: Duration,
    /// A command. One that takes longer is ended, which may take a second more.
    pub command: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            mail: Duration::from_secs(10),
            irc: Duration::from_secs(30),
            command: Duration::from_secs(10),
        }
    }
}

/// Why somebody was not told.
#[derive(Debug, thiserror::Error)]
pub enum TellError {
    /// By mail.
    #[error(transparent)]
    Mail(#[from] LetterError),
    /// By IRC.
    #[error(transparent)]
    Irc(#[from] IrcFailure),
    /// By a command.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// What became of telling one. As JSON: `{to, error?}`.
#[derive(Debug)]
pub struct Told {
    /// Who was to be told.
    pub to: Notifier,
    /// Whether they were.
    pub came: Result<(), TellError>,
}

impl Serialize for Told {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let error = self.came.as_ref().err().map(ToString::to_string);
        let fields = 1 + usize::from(error.is_some());
        let mut object = serializer.serialize_struct("Told", fields)?;
        object.serialize_field("to", &self.to)?;
        match error {
            Some(error) => object.serialize_field("error", &error)?,
            None => object.skip_field("error")?,
        }
        object.end()
    }
}

/// Tells them all, and says of each how it went, in their order. Dropped half-way, the
/// commands are ended.
pub async fn tell_all(notifiers: &[Notifier], telling: Telling<'_>, teller: &Teller) -> Vec<Told> {
    let each = notifiers.iter().map(|notifier| async move {
        Told {
            to: notifier.clone(),
            came: tell(notifier, telling, teller).await,
        }
    });
    join_all(each).await
}

async fn tell(notifier: &Notifier, telling: Telling<'_>, teller: &Teller) -> Result<(), TellError> {
    match notifier {
        Notifier::Mail(address) => mail::tell(address, telling, teller).await?,
        Notifier::Irc(address) => irc::tell(address, telling.line, teller.patience.irc).await?,
        Notifier::Command(command) => command::tell(command, telling, teller).await?,
    }
    Ok(())
}
