//! Notifications of the end of a run, and of a session, a run or a job that needs a person
//! (`alerts`): to an agent by mail, to an IRC channel, to the desktop, to a web server, or to a
//! program. Credentials are masked in all that is sent.
//!
//! A failed delivery is reported to the caller and is no failure of the run. All deliveries
//! run at the same time, each within its own limit of [`Timeouts`].

mod alerts;
mod answers;
mod check;
mod command;
mod connect;
mod desktop;
mod irc;
mod mail;
mod tls;
mod web;

use std::ffi::OsString;
use std::iter::repeat;
use std::path::PathBuf;
use std::time::Duration;

use agent_team::logic::AgentName;
use agent_team::{MailClient, Member};
use common::secrets::mask;
use futures::future::join_all;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::logic::notifier::Notifier;

pub use alerts::{Alerts, Notice};
pub use answers::MailQuestion;
pub use check::{NotifierCheck, UnusableNotifier, UnusableReason};
pub use command::CommandError;
pub use irc::IrcFailure;
pub use mail::LetterError;
pub use tls::NoCertificates;
pub use web::WebError;

/// A notification.
#[derive(Debug, Clone, Copy)]
pub struct Notification<'a> {
    /// The line, as [`RunOutcome::notice`](crate::logic::outcome::RunOutcome::notice) and
    /// [`Notice`] make it.
    pub line: &'a str,
    /// The whole [`RunOutcome`](crate::logic::outcome::RunOutcome), or the object of an alert.
    pub result: &'a Value,
}

/// The sender and the surroundings of deliveries.
#[derive(Clone)]
pub struct NotifierContext {
    /// The sender of mail; without one, it is `codex-mcp`, who is in no team.
    pub member: Option<Member>,
    /// The identity that the user has configured, which cannot answer questions by mail: the page
    /// and jobs of a shell send in its name.
    pub user_identity: Option<AgentName>,
    /// The mail client of this member, if it is open already.
    pub mail_client: Option<MailClient>,
    /// The home directory with the teams, as configured.
    pub atm_home: PathBuf,
    /// The size at which the audit log of the sender is set aside, in bytes.
    pub audit_limit: u64,
    /// The directory in which commands are run: the one that was named, or the worktree's.
    pub directory: PathBuf,
    /// Variables for commands in addition to our own environment.
    pub env: Vec<(OsString, OsString)>,
    /// The time limits of deliveries.
    pub timeouts: Timeouts,
}

/// The time limit of a delivery, for each kind of notifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For mail. Each lock of an inbox may take 5 s.
    pub mail: Duration,
    /// For an IRC channel. An ngircd with its default settings takes 3 s, and 2 s more for
    /// each nickname in use; servers that look up clients take longer.
    pub irc: Duration,
    /// For a command, and for the program of the desktop. Ending one that takes longer may take a
    /// second more.
    pub command: Duration,
    /// For a web server.
    pub web: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            mail: Duration::from_secs(10),
            irc: Duration::from_secs(30),
            command: Duration::from_secs(10),
            web: Duration::from_secs(10),
        }
    }
}

/// Why a notification was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// By mail.
    #[error(transparent)]
    Mail(#[from] LetterError),
    /// By IRC.
    #[error(transparent)]
    Irc(#[from] IrcFailure),
    /// By a command, or on the desktop.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// By a web server.
    #[error(transparent)]
    Web(#[from] WebError),
}

/// The result of one delivery. As JSON: `{to, error?}`.
#[derive(Debug)]
pub struct Delivery {
    /// The receiver.
    pub to: Notifier,
    /// Whether the delivery succeeded.
    pub result: Result<(), NotifyError>,
}

impl Serialize for Delivery {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let error = self.result.as_ref().err().map(ToString::to_string);
        let fields = 1 + usize::from(error.is_some());
        let mut object = serializer.serialize_struct("Delivery", fields)?;
        object.serialize_field("to", &self.to.to_string())?;
        match error {
            Some(error) => object.serialize_field("error", &error)?,
            None => object.skip_field("error")?,
        }
        object.end()
    }
}

/// Delivers to all notifiers at once, and returns the results in their order. Dropping the
/// future ends the commands.
pub async fn notify_all(
    notifiers: &[Notifier],
    notification: Notification<'_>,
    context: &NotifierContext,
) -> Vec<Delivery> {
    notify_all_with(notifiers, notification, &[], context).await
}

/// The same with an end for the mail of each notifier, if it has one: how its agent can answer a
/// question.
async fn notify_all_with(
    notifiers: &[Notifier],
    notification: Notification<'_>,
    ends: &[Option<String>],
    context: &NotifierContext,
) -> Vec<Delivery> {
    let line = mask(notification.line);
    let result = masked(notification.result);
    let notification = Notification {
        line: &line,
        result: &result,
    };
    let ends = ends.iter().cloned().chain(repeat(None));
    let each = notifiers
        .iter()
        .zip(ends)
        .map(|(notifier, end)| async move {
            Delivery {
                to: notifier.clone(),
                result: send(notifier, notification, end, context).await,
            }
        });
    join_all(each).await
}

async fn send(
    notifier: &Notifier,
    notification: Notification<'_>,
    end_of_mail: Option<String>,
    context: &NotifierContext,
) -> Result<(), NotifyError> {
    match notifier {
        Notifier::Mail(address) => mail::send(address, notification, end_of_mail, context).await?,
        Notifier::Irc(address) => {
            irc::send(address, notification.line, context.timeouts.irc).await?;
        }
        Notifier::Desktop => desktop::send(notification.line, context).await?,
        Notifier::Webhook(address) => web::send_json(address, notification, context).await?,
        Notifier::Ntfy(address) => web::publish(address, notification.line, context).await?,
        Notifier::Command(command) => command::send(command, notification, context).await?,
    }
    Ok(())
}

/// The value, with credentials masked in its texts.
fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) => mask(text).into(),
        Value::Array(items) => items.iter().map(masked).collect(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| (key.clone(), masked(value)));
            members.collect()
        }
        other => other.clone(),
    }
}
