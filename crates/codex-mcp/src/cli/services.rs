//! The services of a server as a member of a team, set up from the configuration.

use std::cell::LazyCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_team::logic::{AgentName, ThreadName};
use agent_team::mail::{MailError, MailStore};
use agent_team::{
    Claim, ForeignMembers, MailClient, Member, PreviousThread, Records, ShutdownSummary,
    TeamServices,
};
use common::text::hex;
use job_queue::thread_ids::in_registry;
use mcp_server::{Defaults, Warnings};
use settings::{Config, DEFAULT_IDENTITY, Origin};
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The time limit for the last writes of a closed identity, unless something holds a lock.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(100);

/// The identity of this process with its services, until it is closed.
pub(super) struct Identity {
    pub(super) member: Member,
    pub(super) services: TeamServices,
    pub(super) shutdown_summary: ShutdownSummary,
    /// Warnings for the caller about the identity.
    pub(super) warnings: Vec<String>,
    /// Held until the end.
    claim: Option<Claim>,
}

impl Identity {
    /// Claims the configured identity. If nothing can be recorded under it, it is used
    /// nevertheless: work is more important than records. `client` is the ID of the client that a
    /// host serves.
    pub(super) fn take(config: &Config, backend: &'static str, client: Option<&str>) -> Self {
        let team = config.team.as_ref().map(|team| &team.value);
        // Read only when needed: usually the user has chosen the identity, and no other server has
        // it.
        let foreign = LazyCell::new(|| ForeignMembers::of(&config.atm_home, team));
        // A repository cannot choose the identity of a member who is at work.
        let configured = &config.identity.value;
        let is_refused =
            config.identity_origin == Origin::Repository && foreign.may_have(configured);
        let usual = DEFAULT_IDENTITY
            .parse::<AgentName>()
            .ok()
            .filter(|_| is_refused);
        let wanted = usual.as_ref().unwrap_or(configured);
        let chosen = (config.identity_origin == Origin::User).then_some(wanted);
        let may_be = |identity: &AgentName| chosen == Some(identity) || !foreign.has(identity);
        let claim = claim(config, wanted, client, may_be);
        let identity = claim.as_ref().map_or(wanted, |claim| &claim.identity);
        let warning = is_refused.then(|| refused_identity(configured, identity));
        let member = Member {
            identity: identity.clone(),
            team: config.team.as_ref().map(|team| team.value.clone()),
        };
        let records = claim
            .as_ref()
            .and_then(|claim| records(config, claim, &member, backend));
        let mail_client = claim.as_ref().and_then(|_| mail_client(config, &member));
        Self {
            member,
            services: TeamServices {
                records: records.map(Arc::new),
                mail_client,
            },
            shutdown_summary: match config.summaries.value {
                true => ShutdownSummary::Ask,
                false => ShutdownSummary::Skip,
            },
            warnings: warning.into_iter().collect(),
            claim,
        }
    }

    /// The same identity without summaries, where a result already describes the thread.
    pub(super) fn without_summaries(mut self) -> Self {
        self.shutdown_summary = ShutdownSummary::Skip;
        self
    }

    /// Joins the team, if there is one, and removes its stale members.
    pub(super) fn join(&self, config: &Config) {
        let TeamServices {
            records,
            mail_client,
        } = &self.services;
        match (mail_client, records) {
            (Some(mail_client), _) => {
                let model = config.threads.model.as_ref();
                let model = model.map(|model| model.value.clone());
                mail_client.join(model, config.directory.clone());
            }
            (None, Some(records)) => records.remove_stale_members(),
            (None, None) => {}
        }
    }

    /// Gives the first thread the summary of an earlier one: of `thread`, or else of the thread
    /// that was worked on last. If no summary can be found, a warning says why, and the first
    /// thread begins without it (FR-7).
    pub(super) fn recall(
        &self,
        atm_home: &Path,
        thread: Option<&ThreadName>,
        defaults: Defaults,
        warnings: &Warnings,
    ) -> Defaults {
        match self.recalled(atm_home, thread) {
            Ok(summary) => defaults.with_previous_thread(summary),
            Err(why) => {
                let warning = format!("the first new thread begins without a summary: {why}");
                tracing::warn!("{warning}");
                warnings.push(warning);
                defaults
            }
        }
    }

    /// The summary of an earlier thread, or why there is none.
    fn recalled(&self, atm_home: &Path, thread: Option<&ThreadName>) -> Result<String, String> {
        let records = self.services.records.as_ref();
        let records = records.ok_or("this server keeps no record of its threads")?;
        let thread = thread.map(|thread| in_registry(atm_home, thread));
        let thread = thread.transpose().map_err(|error| error.to_string())?;
        let found = records
            .previous_thread(thread.as_ref())
            .map_err(|error| error.to_string())?;
        let identity = records.identity();
        let found = found.ok_or_else(|| format!("{identity} has no thread yet"))?;
        let PreviousThread { thread, summary } = found;
        let summary = summary.ok_or_else(|| {
            format!("{thread} has none; codex-reply with this threadId continues {thread} itself")
        })?;
        tracing::info!("the first new thread continues from {thread}");
        Ok(format!(
            "Summary of an earlier thread, {thread}, which this thread continues:\n\n{summary}"
        ))
    }

    /// Leaves the team and closes the services; at once if `hurry` is cancelled.
    ///
    /// A host continues to run after that. There, the identity stays claimed while writes still
    /// wait for a lock, as these writes would undo the membership of a later server with the same
    /// identity.
    pub(super) async fn close(self, hurry: &CancellationToken) {
        let Self {
            services,
            shutdown_summary,
            claim,
            ..
        } = self;
        services.close(shutdown_summary, hurry).await;
        let Some(mail_client) = services.mail_client else {
            return;
        };
        if timeout(SETTLE_TIMEOUT, mail_client.settle()).await.is_err() {
            tokio::spawn(async move {
                mail_client.settle().await;
                drop(claim);
            });
        }
    }
}

/// The warning that the configured team does not exist. Work goes on without mail.
pub(super) fn missing_team(config: &Config) -> Option<String> {
    let team = &config.team.as_ref()?.value;
    match MailStore::new(&config.atm_home).members(team) {
        Err(error @ MailError::UnknownTeam { .. }) => Some(format!(
            "this server could not join its team when it began: {error}. A team is made in Claude \
             Code; --team, ATM_TEAM or `team` in the configuration names another."
        )),
        _ => None,
    }
}

/// The warning that the repository's identity was refused.
fn refused_identity(refused: &AgentName, identity: &AgentName) -> String {
    format!(
        "the repository's identity {refused} is that of an active member of the team, so this \
         server is {identity}. To be {refused}, use --identity."
    )
}

/// Claims an identity that `may_be` allows. Only the user may choose that of another agent.
fn claim(
    config: &Config,
    wanted: &AgentName,
    client: Option<&str>,
    may_be: impl Fn(&AgentName) -> bool,
) -> Option<Claim> {
    // Only a digest is stored: the ID would let another process pose as the client.
    let client = client.map(|client| hex(&Sha256::digest(client)));
    match Claim::take(&config.atm_home, wanted, client.as_deref(), may_be) {
        Ok(claim) => {
            if claim.identity != *wanted {
                let identity = &claim.identity;
                tracing::info!("another server or agent is {wanted}; this one is {identity}");
            }
            Some(claim)
        }
        Err(error) => {
            tracing::warn!(
                "cannot claim the identity {wanted}: others may use it too, and threads and prompts \
                 are not recorded: {error}"
            );
            None
        }
    }
}

fn records(
    config: &Config,
    claim: &Claim,
    member: &Member,
    backend: &'static str,
) -> Option<Records> {
    let role = config.role.as_ref().map(|role| role.value.clone());
    let mode = config.registry_mode.value;
    let opened = Records::open(&config.atm_home, claim, member, mode);
    opened
        .inspect_err(|error| tracing::warn!("threads and prompts are not recorded: {error}"))
        .ok()
        .map(|records| records.with_audit_limit(config.retention.audit_bytes.value))
        .map(|records| records.for_threads_of(role, backend))
}

fn mail_client(config: &Config, member: &Member) -> Option<MailClient> {
    let audit_limit = config.retention.audit_bytes.value;
    MailClient::of(member, &config.atm_home, audit_limit)
        .inspect_err(|error| tracing::warn!("mail is not available: {error}"))
        .ok()?
}
