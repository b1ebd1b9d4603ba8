//! The mail of one member. Each action is written to the audit log before it is performed.

mod audited;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codex_engine::logic::action::DecidedBy;
use common::sync::lock;
use safe_files::state_file::FileError;
use supervise::io_thread::{IoThread, ThreadEnded};
use tokio::time::timeout;
use uuid::Uuid;

use super::audit::{Audit, AuditOutcome, Event, Record};
use super::context::Member;
use super::mail::{
    Fingerprint, JoinOutcome, MailError, MailStore, Membership, MessageContent, MessageId, Receipt,
    Sender, Unread,
};
use super::stale_members;
use crate::logic::inbox::{FirstLine, PendingMail, ReadLimits};
use crate::logic::{Address, AgentName, TeamName};

use audited::{AuditedAction, AuditedResult, broadcast_result};

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub enum MailClientError {
    /// The mail failed.
    #[error(transparent)]
    Mail(#[from] MailError),
    /// The member is not in its team.
    #[error("this server is not in its team: {0}")]
    NotAMember(MailError),
    /// The audit log cannot be written, so nothing was done.
    #[error("cannot write to the audit log, so nothing was done: {0}")]
    Audit(#[from] FileError),
    /// The I/O thread has ended.
    #[error(transparent)]
    IoThread(#[from] ThreadEnded),
}

/// A decision by mail on a question of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailDecision {
    /// The ID of the job.
    pub job: Uuid,
    /// The question in one line.
    pub question: String,
    /// The decision's name.
    pub decision: &'static str,
    /// The agent that decided.
    pub agent: String,
}

/// A message that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    /// The recipient, as `agent@team`.
    pub to: String,
    /// The ID of the message.
    pub message_id: String,
}

/// The results of a broadcast by recipient, each as `agent@team`.
pub type BroadcastResults = Vec<(String, Result<MessageId, MailError>)>;

/// The mail of one member of a team. Clones share it.
#[derive(Clone)]
pub struct MailClient {
    inner: Arc<Inner>,
    /// Runs actions that wait for locks, and those that must come after them.
    writer: IoThread,
    /// Runs actions that need no lock, so that they do not wait for the others.
    reader: IoThread,
}

struct Inner {
    identity: AgentName,
    team: TeamName,
    mail_store: MailStore,
    audit: Mutex<Audit>,
    /// The note of the state to restore when the member leaves.
    note: PathBuf,
    atm_home: PathBuf,
    /// Whether this client adds the member to its team.
    auto_join: Mutex<AutoJoin>,
    /// Held while the member joins. Of two concurrent joins, one would mistake the other's entry
    /// for that of another process.
    join_lock: Mutex<()>,
}

/// Whether this client adds the member to its team when the team lacks it.
#[derive(Debug, Clone)]
enum AutoJoin {
    /// The client does not add the member.
    Off,
    /// The client adds the member.
    On(Entry),
}

/// The member's entry in the roster of its team.
#[derive(Debug, Clone)]
struct Entry {
    /// The model that it works with, if that is known.
    model: Option<String>,
    /// Its working directory.
    directory: PathBuf,
}

impl MailClient {
    /// Opens the mail of a member below the home directory of the agents; `None` if it is in no
    /// team. The audit log is rotated at `audit_limit` bytes.
    ///
    /// # Errors
    ///
    /// When the identity's directory can't be used, or a thread can't be started.
    pub fn of(
        member: &Member,
        atm_home: &Path,
        audit_limit: u64,
    ) -> Result<Option<Self>, FileError> {
        let Some(team) = &member.team else {
            return Ok(None);
        };
        let mut audit = Audit::open(atm_home, member)?;
        audit.rotate_at(audit_limit);
        let inner = Inner {
            identity: member.identity.clone(),
            team: team.clone(),
            mail_store: MailStore::new(atm_home),
            audit: Mutex::new(audit),
            note: stale_members::note_of(atm_home, &member.identity),
            atm_home: atm_home.to_owned(),
            auto_join: Mutex::new(AutoJoin::Off),
            join_lock: Mutex::new(()),
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
            reader: start()?,
        }))
    }

    /// Sends a message. The sender is always the member itself.
    ///
    /// # Errors
    ///
    /// [`MailClientError`]; then nothing was sent.
    pub async fn send(
        &self,
        to: Address,
        content: MessageContent,
    ) -> Result<SentMessage, MailClientError> {
        self.send_with(to, content, None).await
    }

    /// Sends a message with an end that is a secret: the audit log has the message without it.
    ///
    /// # Errors
    ///
    /// As [`MailClient::send`].
    pub async fn send_with(
        &self,
        to: Address,
        content: MessageContent,
        secret_end: Option<String>,
    ) -> Result<SentMessage, MailClientError> {
        self.run_writer(move |inner| {
            let team = to.team.unwrap_or_else(|| inner.team.clone());
            let recipient = format!("{}@{team}", to.agent);
            let action = AuditedAction {
                event: Event::AtmSend,
                recipient: Some(&recipient),
                summary: Some(&content.text),
            };
            let whole = match secret_end {
                Some(end) => Cow::Owned(MessageContent {
                    text: format!("{}{end}", content.text),
                    summary: content.summary.clone(),
                }),
                None => Cow::Borrowed(&content),
            };
            let sent = inner.audited(&action, || {
                let sender = inner.sender();
                inner.mail_store.send(&sender, &to.agent, &team, &whole)
            })?;
            Ok(SentMessage {
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
    pub async fn broadcast(
        &self,
        content: MessageContent,
    ) -> Result<BroadcastResults, MailClientError> {
        self.run_writer(move |inner| {
            let team = &inner.team;
            let recipient = format!("*@{team}");
            let action = AuditedAction {
                event: Event::AtmBroadcast,
                recipient: Some(&recipient),
                summary: Some(&content.text),
            };
            let send = || inner.mail_store.broadcast(&inner.sender(), team, &content);
            let sent = inner.audited_as(&action, send, |sent| broadcast_result(sent))?;
            let named = |(agent, result)| (format!("{agent}@{team}"), result);
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
    pub async fn read(&self, limits: ReadLimits) -> Result<Unread, MailClientError> {
        self.run_writer(move |inner| {
            let action = AuditedAction {
                event: Event::AtmRead,
                recipient: None,
                summary: None,
            };
            let read = || inner.unread(limits);
            inner.audited_as(&action, read, |unread| AuditedResult {
                messages: &unread.messages,
                ..AuditedResult::succeeded()
            })
        })
        .await
    }

    /// Marks delivered messages as read, without waiting for the write. A message that can't be
    /// marked is delivered once more.
    pub fn mark_read(&self, receipts: Vec<Receipt>) {
        let inner = Arc::clone(&self.inner);
        self.writer.submit(move || {
            let Inner {
                identity,
                team,
                mail_store,
                ..
            } = &*inner;
            if let Err(error) = mail_store.mark_read(identity, team, &receipts) {
                tracing::warn!("delivered mail could not be marked as read: {error}");
            }
        });
    }

    /// The number of unread messages and their senders, for a caller of the tool.
    ///
    /// # Errors
    ///
    /// [`MailClientError`].
    pub async fn pending(&self) -> Result<PendingMail, MailClientError> {
        self.run_reader(|inner| {
            let action = AuditedAction {
                event: Event::AtmPendingCount,
                recipient: None,
                summary: None,
            };
            inner.audited(&action, || inner.pending())
        })
        .await
    }

    /// The number of unread messages, without a line in the audit log.
    ///
    /// # Errors
    ///
    /// [`MailClientError`].
    pub async fn count(&self) -> Result<usize, MailClientError> {
        self.run_reader(|inner| Ok(inner.pending()?.count)).await
    }

    /// The first lines of the unread messages, with receipts, without a line in the audit log: no
    /// reader gets them.
    ///
    /// # Errors
    ///
    /// [`MailClientError`].
    pub async fn first_lines(&self) -> Result<Vec<(FirstLine, Vec<Receipt>)>, MailClientError> {
        self.run_reader(|inner| {
            let lines = inner.mail_store.first_lines(&inner.identity, &inner.team);
            lines.map_err(own_mail_error)
        })
        .await
    }

    /// Returns whether the member is in its team. Other members can only write to it then.
    ///
    /// # Errors
    ///
    /// [`MailClientError`].
    pub async fn is_in_team(&self) -> Result<bool, MailClientError> {
        self.run_writer(|inner| {
            inner.ensure_member()?;
            let members = inner.mail_store.members(&inner.team)?;
            Ok(members.contains(&inner.identity))
        })
        .await
    }

    /// A fingerprint that differs when the mail may have changed.
    ///
    /// # Errors
    ///
    /// [`ThreadEnded`].
    pub async fn fingerprint(&self) -> Result<Fingerprint, ThreadEnded> {
        let inner = Arc::clone(&self.inner);
        let look = move || inner.mail_store.fingerprint(&inner.identity, &inner.team);
        self.reader.run(look).await
    }

    /// Writes a call that was refused before anything was done to the audit log.
    pub fn refused(&self, event: Event, why: &str) {
        let inner = Arc::clone(&self.inner);
        let why = why.to_owned();
        self.reader.submit(move || {
            let record = Record {
                error: Some(&why),
                ..Record::new(Uuid::new_v4(), event, AuditOutcome::Refused)
            };
            if let Err(error) = inner.write(&record) {
                tracing::error!("cannot write to the audit log: {error}");
            }
        });
    }

    /// Writes a decision that came by mail to the audit log.
    ///
    /// # Errors
    ///
    /// [`MailClientError`]; then the log has no line of it.
    pub async fn note_decision(
        &self,
        made: MailDecision,
        outcome: AuditOutcome,
        error: Option<String>,
    ) -> Result<(), MailClientError> {
        self.run_reader(move |inner| {
            let record = Record {
                summary: Some(&made.question),
                decision: Some(made.decision),
                decided_by: Some(DecidedBy::Mail.name()),
                decided_agent: Some(&made.agent),
                error: error.as_deref(),
                ..Record::new(made.job, Event::CallRespond, outcome)
            };
            Ok(inner.write(&record)?)
        })
        .await
    }

    /// Adds the member to its team, marked as present in `directory`, and adds it again whenever an
    /// action finds it missing.
    pub fn join(&self, model: Option<String>, directory: PathBuf) {
        let entry = Entry { model, directory };
        // Set at once: a call that arrives before the writer has begun adds the member itself.
        self.inner.set_auto_join(AutoJoin::On(entry.clone()));
        let inner = Arc::clone(&self.inner);
        self.writer.submit(move || {
            stale_members::remove_all_but(&inner.atm_home, &inner.identity);
            let _joining = lock(&inner.join_lock);
            if inner.joins()
                && let Err(error) = inner.join(&entry)
            {
                tracing::warn!("{} could not join its team: {error}", inner.identity);
            }
        });
    }

    /// Restores the team as it was before [`join`](Self::join). Waits for pending writes, but no
    /// longer than `limit`.
    pub async fn leave(&self, limit: Duration) {
        self.inner.set_auto_join(AutoJoin::Off);
        if timeout(limit, self.writer.flush()).await.is_err() {
            tracing::warn!(
                "another program holds a lock of the team; leaving without waiting for pending mail"
            );
        }
        let inner = Arc::clone(&self.inner);
        let leave = move || {
            // Waits for a concurrent join, which may not have written its note yet.
            let _joining = lock(&inner.join_lock);
            inner.mail_store.leave(&inner.note)
        };
        let left = self.reader.run(leave).await;
        match left {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!("{} could not leave its team: {error}", self.inner.identity);
            }
            Err(error) => tracing::error!("{error}"),
        }
    }

    /// Waits for all pending writes, [`leave`](Self::leave) included.
    pub async fn settle(&self) {
        self.writer.flush().await;
        self.reader.flush().await;
    }

    async fn run_writer<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Inner) -> Result<T, MailClientError> + Send + 'static,
    ) -> Result<T, MailClientError> {
        let inner = Arc::clone(&self.inner);
        self.writer.run(move || task(&inner)).await?
    }

    async fn run_reader<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Inner) -> Result<T, MailClientError> + Send + 'static,
    ) -> Result<T, MailClientError> {
        let inner = Arc::clone(&self.inner);
        self.reader.run(move || task(&inner)).await?
    }
}

impl Inner {
    fn sender(&self) -> Sender {
        Sender {
            identity: self.identity.clone(),
            team: Some(self.team.clone()),
        }
    }

    fn unread(&self, limits: ReadLimits) -> Result<Unread, MailClientError> {
        let unread = self.mail_store.unread(&self.identity, &self.team, limits);
        unread.map_err(own_mail_error)
    }

    fn pending(&self) -> Result<PendingMail, MailClientError> {
        let pending = self.mail_store.pending(&self.identity, &self.team);
        pending.map_err(own_mail_error)
    }

    fn set_auto_join(&self, auto_join: AutoJoin) {
        *lock(&self.auto_join) = auto_join;
    }

    fn joins(&self) -> bool {
        matches!(*lock(&self.auto_join), AutoJoin::On(_))
    }

    /// Adds the member to its team if the team lacks it and this client adds members: otherwise
    /// nobody could answer it.
    fn ensure_member(&self) -> Result<(), MailClientError> {
        let _joining = lock(&self.join_lock);
        let members = self.mail_store.members(&self.team);
        if members
            .map_err(MailClientError::NotAMember)?
            .contains(&self.identity)
        {
            return Ok(());
        }
        let auto_join = lock(&self.auto_join).clone();
        match auto_join {
            AutoJoin::On(entry) => self.join(&entry).map_err(MailClientError::NotAMember),
            // The client of a notifier, or of a job whose server has ended. It sends without being
            // a member; reading reports that the member is missing.
            AutoJoin::Off => Ok(()),
        }
    }

    fn join(&self, entry: &Entry) -> Result<(), MailError> {
        let membership = Membership {
            agent: &self.identity,
            // A member of Claude Code's teams must have a model.
            model: entry.model.as_deref().unwrap_or("codex"),
            cwd: &entry.directory,
        };
        let (identity, team) = (&self.identity, &self.team);
        // The client may leave while this waits for the lock of the team.
        let is_wanted = || self.joins();
        let joined = self
            .mail_store
            .join(team, &membership, &self.note, is_wanted);
        match joined? {
            JoinOutcome::Added => tracing::info!("{identity} joined {team}"),
            JoinOutcome::Present | JoinOutcome::Cancelled => {}
            JoinOutcome::Active => tracing::warn!(
                "{team} has an active {identity} already; if that is another agent, both read the \
                 same mail: choose another --identity"
            ),
        }
        Ok(())
    }
}

/// The error of an access to the member's own mail: an unknown agent is then the member itself, not
/// a recipient.
fn own_mail_error(error: MailError) -> MailClientError {
    match error {
        MailError::UnknownAgent { .. } => MailClientError::NotAMember(error),
        _ => MailClientError::Mail(error),
    }
}

#[cfg(test)]
mod tests;
