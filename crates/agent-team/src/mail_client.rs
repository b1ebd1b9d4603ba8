//! The mail of one member: what its tools do, each written down before it is done.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use safe_files::state_file::FileError;
use supervise::io_thread::{Ended, IoThread};
use tokio::time::timeout;
use uuid::Uuid;

use super::audit::{Audit, Event, Outcome, Record};
use super::context::Member;
use super::mail::{
    Fingerprint, Joined, Letter, MailError, Mailroom, Membership, MessageId, Receipt, Sender,
    Unread,
};
use super::stale_members;
use crate::logic::inbox::{Envelope, Pending, Reading};
use crate::logic::{Address, AgentName, TeamName};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum MailClientError {
    /// With the mail.
    #[error(transparent)]
    Mail(#[from] MailError),
    /// The member is not in its team.
    #[error("this server is not in its team: {0}")]
    NotIn(MailError),
    /// It could not be written down, and so was not done.
    #[error("the audit log can't be written, so nothing was done: {0}")]
    Audit(#[from] FileError),
    /// Nobody works with the files any more.
    #[error(transparent)]
    IoThread(#[from] Ended),
}

/// A message that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// To whom: `agent@team`.
    pub to: String,
    /// What it is called.
    pub message_id: String,
}

/// What became of a message to several members, each as `agent@team`.
pub type Broadcast = Vec<(String, Result<MessageId, MailError>)>;

/// The mail of one member of a team. Cloning it gives the same.
#[derive(Clone)]
pub struct MailClient {
    inner: Arc<Inner>,
    /// For what waits for locks, and for what has to come after that.
    writer: IoThread,
    /// For what needs none: it is not to wait either.
    looker: IoThread,
}

struct Inner {
    identity: AgentName,
    team: TeamName,
    mailroom: Mailroom,
    audit: Mutex<Audit>,
    /// Where it is noted what to restore when the member leaves.
    note: PathBuf,
    atm_home: PathBuf,
    /// Whether the member is to be in its team, and with which model.
    joining: Mutex<Joining>,
    /// Held by whoever enters it: of two at once, one would take the other's entry for
    /// somebody else's.
    entering: Mutex<()>,
}

/// Who sees to it that the member is in its team.
#[derive(Debug, Clone)]
enum Joining {
    /// Somebody else, or nobody any more.
    Others,
    /// This mail client; the model that the member works with, if that is known.
    Ours(Option<String>),
}

impl MailClient {
    /// The mail of a member below the home directory of the agents; `None` if it is in
    /// no team.
    ///
    /// # Errors
    ///
    /// When the identity's directory can't be used, or there is no thread for it.
    pub fn of(member: &Member, atm_home: &Path) -> Result<Option<Self>, FileError> {
        let Some(team) = &member.team else {
            return Ok(None);
        };
        let inner = Inner {
            identity: member.identity.clone(),
            team: team.clone(),
            mailroom: Mailroom::new(atm_home),
            audit: Mutex::new(Audit::open(atm_home, member)?),
            note: stale_members::note_of(atm_home, &member.identity),
            atm_home: atm_home.to_owned(),
            joining: Mutex::new(Joining::Others),
            entering: Mutex::new(()),
        };
        let start = || {
            IoThread::start().map_err(|error| FileError::Io {
                path: atm_home.to_owned(),
                error,
            })
        };
        Ok(Some(Self {
            inner: Arc::new(inner),
            writer: start()?,
            looker: start()?,
        }))
    }

    /// Sends a message. The sender is always the member itself.
    ///
    /// # Errors
    ///
    /// [`MailClientError`]; then nothing was sent.
    pub async fn send(&self, to: Address, letter: Letter) -> Result<Sent, MailClientError> {
        self.ask(move |inner| {
            let team = to.team.unwrap_or_else(|| inner.team.clone());
            let recipient = format!("{}@{team}", to.agent);
            let done = Done {
                event: Event::AtmSend,
                recipient: Some(&recipient),
                summary: Some(&letter.text),
            };
            let sent = inner.written_down(&done, || {
                let sender = inner.sender();
                inner.mailroom.send(&sender, &to.agent, &team, &letter)
            })?;
            Ok(Sent {
                message_id: sent.to_string(),
                to: recipient,
            })
        })
        .await
    }

    /// Sends a message to all other members.
    ///
    /// # Errors
    ///
    /// [`MailClientError`]; then nothing was sent to anybody.
    pub async fn broadcast(&self, letter: Letter) -> Result<Broadcast, MailClientError> {
        self.ask(move |inner| {
            let team = &inner.team;
            let recipient = format!("*@{team}");
            let done = Done {
                event: Event::AtmBroadcast,
                recipient: Some(&recipient),
                summary: Some(&letter.text),
            };
            let sent = inner.written_down(&done, || {
                inner.mailroom.broadcast(&inner.sender(), team, &letter)
            })?;
            let named = |(agent, came)| (format!("{agent}@{team}"), came);
            Ok(sent.into_iter().map(named).collect())
        })
        .await
    }

    /// The oldest unread messages, which stay unread until
    /// [`mark_read`](Self::mark_read).
    ///
    /// # Errors
    ///
    /// [`MailClientError`].
    pub async fn read(&self, reading: Reading) -> Result<Unread, MailClientError> {
        self.ask(move |inner| {
            let done = Done {
                event: Event::AtmRead,
                recipient: None,
                summary: None,
            };
            let read = || inner.mailroom.unread(&inner.identity, &inner.team, reading);
            inner.written_down_with(&done, read, |unread| &unread.messages)
        })
        .await
    }

    /// Marks messages as read that have been delivered. It is not waited for; what
    /// isn't marked is delivered once more.
    pub fn mark_read(&self, receipts: Vec<Receipt>) {
        let inner = Arc::clone(&self.inner);
        self.writer.give(move || {
            let Inner {
                identity,
                team,
                mailroom,
                ..
            } = &*inner;
            if let Err(error) = mailroom.mark_read(identity, team, &receipts) {
                tracing::warn!("mail was delivered and not marked as read: {error}");
            }
        });
    }

    /// How much unread mail there is, and from whom, for somebody who asks for it.
    ///
    /// # Errors
    ///
    /// [`MailClientError`].
    pub async fn pending(&self) -> Result<Pending, MailClientError> {
        self.look(|inner| {
            let done = Done {
                event: Event::AtmPendingCount,
                recipient: None,
                summary: None,
            };
            inner.written_down(&done, || inner.pending())
        })
        .await
    }

    /// The same for ourselves.
    ///
    /// # Errors
    ///
    /// [`MailClientError`].
    pub async fn count(&self) -> Result<usize, MailClientError> {
        self.look(|inner| Ok(inner.pending()?.count)).await
    }

    /// Something that is different when the mail may have changed.
    ///
    /// # Errors
    ///
    /// [`Ended`].
    pub async fn fingerprint(&self) -> Result<Fingerprint, Ended> {
        let inner = Arc::clone(&self.inner);
        let look = move || inner.mailroom.fingerprint(&inner.identity, &inner.team);
        self.looker.ask(look).await
    }

    /// Writes down a call that was refused before anything was done.
    pub fn refused(&self, event: Event, why: &str) {
        let inner = Arc::clone(&self.inner);
        let why = why.to_owned();
        self.looker.give(move || {
            let record = Record {
                error: Some(&why),
                ..Record::new(Uuid::new_v4(), event, Outcome::Refused)
            };
            if let Err(error) = inner.write(&record) {
                tracing::error!("the audit log can't be written: {error}");
            }
        });
    }

    /// Has the member entered into its team as one that is there, and again whenever
    /// it isn't in it when something is done.
    pub fn join(&self, model: Option<String>) {
        // At once: a call that comes before the writer has begun sees to it itself.
        self.inner.set_joining(Joining::Ours(model.clone()));
        let inner = Arc::clone(&self.inner);
        self.writer.give(move || {
            stale_members::put_away(&inner.atm_home, &inner.identity);
            let _entering = lock(&inner.entering);
            if let Err(error) = inner.join(model.as_deref()) {
                tracing::warn!("{} did not join: {error}", inner.identity);
            }
        });
    }

    /// Has the team as it was before [`join`](Self::join). What is being sent or
    /// marked is waited for, but no longer than that.
    pub async fn leave(&self, patience: Duration) {
        self.inner.set_joining(Joining::Others);
        if timeout(patience, self.writer.settle()).await.is_err() {
            tracing::warn!("somebody holds a lock of the team; mail is not waited for");
        }
        let inner = Arc::clone(&self.inner);
        let left = self
            .looker
            .ask(move || inner.mailroom.leave(&inner.note))
            .await;
        match left {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!("{} did not leave: {error}", self.inner.identity),
            Err(error) => tracing::error!("{error}"),
        }
    }

    /// Waits for all that was begun.
    pub async fn settle(&self) {
        self.writer.settle().await;
    }

    async fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Inner) -> Result<T, MailClientError> + Send + 'static,
    ) -> Result<T, MailClientError> {
        let inner = Arc::clone(&self.inner);
        self.writer.ask(move || task(&inner)).await?
    }

    async fn look<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Inner) -> Result<T, MailClientError> + Send + 'static,
    ) -> Result<T, MailClientError> {
        let inner = Arc::clone(&self.inner);
        self.looker.ask(move || task(&inner)).await?
    }
}

/// What is done, for the audit.
struct Done<'a> {
    event: Event,
    recipient: Option<&'a str>,
    summary: Option<&'a str>,
}

impl Inner {
    fn sender(&self) -> Sender {
        Sender {
            identity: self.identity.clone(),
            team: Some(self.team.clone()),
        }
    }

    fn pending(&self) -> Result<Pending, MailError> {
        self.mailroom.pending(&self.identity, &self.team)
    }

    fn set_joining(&self, joining: Joining) {
        *lock(&self.joining) = joining;
    }

    /// Who isn't in its team could write, and nobody could answer.
    fn be_in_the_team(&self) -> Result<(), MailClientError> {
        let _entering = lock(&self.entering);
        let members = self.mailroom.members(&self.team);
        if members
            .map_err(MailClientError::NotIn)?
            .contains(&self.identity)
        {
            return Ok(());
        }
        let joining = lock(&self.joining).clone();
        match joining {
            Joining::Ours(model) => self.join(model.as_deref()).map_err(MailClientError::NotIn),
            // Reading and writing say what is missing.
            Joining::Others => Ok(()),
        }
    }

    fn join(&self, model: Option<&str>) -> Result<(), MailError> {
        let cwd = std::env::current_dir().unwrap_or_default();
        let membership = Membership {
            agent: &self.identity,
            // What a member of Claude Code's teams must have.
            model: model.unwrap_or("codex"),
            cwd: &cwd,
        };
        let (identity, team) = (&self.identity, &self.team);
        match self.mailroom.join(team, &membership, &self.note)? {
            Joined::Added => tracing::info!("{identity} is in {team} from now on"),
            Joined::Present => {}
            Joined::Active => tracing::warn!(
                "{team} has an active {identity} already; if that is somebody else, both read the \
                 same mail: choose another --identity"
            ),
        }
        Ok(())
    }

    /// Does something, with a line in the audit before and one after it. Without the
    /// first it isn't done.
    fn written_down<T>(
        &self,
        done: &Done<'_>,
        act: impl FnOnce() -> Result<T, MailError>,
    ) -> Result<T, MailClientError> {
        self.written_down_with(done, act, |_| &[])
    }

    /// The same for what reads messages.
    fn written_down_with<T>(
        &self,
        done: &Done<'_>,
        act: impl FnOnce() -> Result<T, MailError>,
        messages: impl FnOnce(&T) -> &[Envelope],
    ) -> Result<T, MailClientError> {
        let id = Uuid::new_v4();
        let begun = Record {
            recipient: done.recipient,
            summary: done.summary,
            ..Record::new(id, done.event, Outcome::Begun)
        };
        self.write(&begun)?;
        let came = self.be_in_the_team().and_then(|()| Ok(act()?));
        let (outcome, error) = match &came {
            Ok(_) => (Outcome::Done, None),
            Err(error) => (Outcome::Failed, Some(error.to_string())),
        };
        let ended = Record {
            recipient: done.recipient,
            messages: came.as_ref().map(messages).unwrap_or_default(),
            error: error.as_deref(),
            ..Record::new(id, done.event, outcome)
        };
        if let Err(error) = self.write(&ended) {
            tracing::error!("the audit log can't be written: {error}");
        }
        came
    }

    fn write(&self, record: &Record<'_>) -> Result<(), FileError> {
        lock(&self.audit).write(record)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in them is valid at every point.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
