//! The usage limits of the account, and how much of them is used.
//!
//! Codex reports them with each turn. When no recent report is there, Codex can be asked, and
//! asks its backend. While the backend is silent, Codex before 0.130.0 answers no other
//! request: such a release is asked in an app-server started for this question alone.

use std::time::{Duration, SystemTime};

use codex_protocol::codex::{AccountReadParams, Method, RateLimits, Release};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Engine;
use super::account::Account;
use super::app_server::AppServer;
use super::connection::CallError;
use crate::logic::limits::{is_outdated, used_up_until};

/// How long Codex may take to answer `account/rateLimits/read`. A nearby backend takes 0.3 s.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a report counts as recent. After a failed question, Codex is not asked again for
/// as long.
const RECENT: Duration = Duration::from_secs(5 * 60);

/// How long it may take to start a separate app-server and to get its answer.
const ASIDE_PATIENCE: Duration = Duration::from_secs(8);

/// Why the limits are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsUnknown {
    /// No app-server runs, and none is started only to ask.
    #[error("no Codex is running")]
    NoCodex,
    /// There is no account.
    #[error("Codex has no login")]
    NoLogin,
    /// Only accounts of ChatGPT have such limits.
    #[error("Codex uses no ChatGPT account, and nothing else has such limits")]
    NotLimited,
    /// Codex could not be asked, or did not tell.
    #[error("{0}")]
    NotTold(String),
}

/// What is known when a turn has failed as a limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitReached {
    /// When it is reset, if Codex has told.
    pub reset: Option<SystemTime>,
}

impl Engine {
    /// How much of the account's limits is used, if Codex has told.
    #[must_use]
    pub fn rate_limits(&self) -> Option<RateLimits> {
        self.hub.rate_limits().map(|(limits, _)| limits)
    }

    /// The same; Codex is asked where nothing recent is known: the one that runs, or an old
    /// one that is started for that.
    ///
    /// # Errors
    ///
    /// [`LimitsUnknown`].
    pub async fn limits(&self) -> Result<RateLimits, LimitsUnknown> {
        let (server, _) = self.backend.running().ok_or(LimitsUnknown::NoCodex)?;
        check(server.account)?;
        let mut asked = self.asked.lock().await;
        if let Some(recent) = self.recent_limits() {
            return Ok(recent);
        }
        if let Some(failed) = asked.as_ref().filter(|failed| failed.at.elapsed() < RECENT) {
            return Err(failed.error.clone());
        }
        let told = match answers_aside(&server) {
            true => self.ask(&server).await,
            false => self.ask_another().await,
        };
        *asked = told.as_ref().err().map(Failed::now);
        told
    }

    /// The same in an app-server that does nothing else, whatever its release. It is started
    /// if none runs.
    ///
    /// # Errors
    ///
    /// [`LimitsUnknown`].
    pub async fn limits_here(&self) -> Result<RateLimits, LimitsUnknown> {
        let ready = self.backend.ready(&self.hub).await;
        let (server, _) = ready.map_err(|error| LimitsUnknown::NotTold(error.to_string()))?;
        check(server.account)?;
        self.ask(&server).await
    }

    /// Until when the account is used up, as far as that is known and concerns a thread with
    /// this provider, or that of the configuration. Where nothing recent is known, a Codex
    /// that goes on with its work meanwhile is asked.
    pub async fn used_up(&self, provider: Option<&str>) -> Option<SystemTime> {
        let (server, _) = self.backend.running()?;
        if !server.account.limits(provider) {
            return None;
        }
        if answers_aside(&server)
            && let Err(why) = self.limits().await
        {
            tracing::debug!("the usage limits are not known: {why}");
        }
        used_up_until(&self.rate_limits()?, SystemTime::now())
    }

    /// What is known of the limit at which a turn with this provider has just failed; `None`
    /// if time does not lift it, as it is not that of an account of ChatGPT.
    pub async fn limit_reached(&self, provider: Option<&str>) -> Option<LimitReached> {
        let (server, _) = self.backend.running()?;
        if !server.account.limits(provider) {
            return None;
        }
        let known = || used_up_until(&self.rate_limits()?, SystemTime::now());
        let reset = match known() {
            None if answers_aside(&server) => {
                let mut asked = self.asked.lock().await;
                *asked = self.ask(&server).await.as_ref().err().map(Failed::now);
                known()
            }
            known => known,
        };
        Some(LimitReached { reset })
    }

    fn recent_limits(&self) -> Option<RateLimits> {
        let (limits, told) = self.hub.rate_limits()?;
        // A turn may end without a word about them.
        let is_told = limits.windows().next().is_some();
        let is_recent = told.elapsed() < RECENT && !is_outdated(&limits, SystemTime::now());
        (is_told && is_recent).then_some(limits)
    }

    async fn ask(&self, server: &AppServer) -> Result<RateLimits, LimitsUnknown> {
        let method = Method::AccountRateLimitsRead;
        let params = AccountReadParams::default();
        let told: Result<Box<RawValue>, CallError> = server.call(method, &params, PATIENCE).await;
        let told = told.map_err(|error| LimitsUnknown::NotTold(error.to_string()))?;
        let read = RateLimits::read(&told);
        let limits = read.map_err(|error| LimitsUnknown::NotTold(error.to_string()))?;
        Ok(self.hub.note_limits(limits))
    }

    /// Asks an app-server that is started for that.
    async fn ask_another(&self) -> Result<RateLimits, LimitsUnknown> {
        let another = Self {
            backend: self.backend.another(),
            ..Self::new(self.options.clone())
        };
        let told = tokio::time::timeout(ASIDE_PATIENCE, another.limits_here()).await;
        another.shut_down().await;
        let slow = |_| LimitsUnknown::NotTold("Codex takes too long to start".to_owned());
        Ok(self.hub.note_limits(told.map_err(slow)??))
    }
}

/// Whether it is worthwhile to ask about the limits of this account.
fn check(account: Account) -> Result<(), LimitsUnknown> {
    match account {
        Account::ChatGpt | Account::Unknown => Ok(()),
        Account::Missing => Err(LimitsUnknown::NoLogin),
        Account::Unlimited => Err(LimitsUnknown::NotLimited),
        Account::Silent => {
            let words = "Codex does not answer which account it uses";
            Err(LimitsUnknown::NotTold(words.to_owned()))
        }
    }
}

fn answers_aside(server: &AppServer) -> bool {
    let release = server.about.codex_version().and_then(Release::parse);
    release.is_some_and(|release| release >= Release::FIRST_TO_READ_LIMITS_ASIDE)
}

/// When Codex was asked and did not tell, and why.
pub(super) struct Failed {
    at: Instant,
    error: LimitsUnknown,
}

impl Failed {
    fn now(error: &LimitsUnknown) -> Self {
        Self {
            at: Instant::now(),
            error: error.clone(),
        }
    }
}
