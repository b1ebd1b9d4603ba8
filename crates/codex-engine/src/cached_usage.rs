//! The account's usage limits as Codex last reported them, with the time of the report.

use std::time::Duration;

use codex_protocol::codex::RateLimits;
use tokio::time::Instant;

/// How long a report counts as recent. After a failed query, Codex is not asked again for
/// the same time.
pub(super) const RECENT: Duration = Duration::from_secs(5 * 60);

/// How recently a limit must have been reported to count as the one at which a turn was refused:
/// Codex reports that limit with the refusal.
const JUST_REPORTED: Duration = Duration::from_secs(10);

/// Why the limits are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsUnknown {
    /// No app-server runs, and none is started only for a query.
    #[error("no Codex is running")]
    NoCodex,
    /// Codex has no login.
    #[error("Codex has no login")]
    NoLogin,
    /// Only accounts of ChatGPT have such limits.
    #[error("Codex uses no ChatGPT account, and nothing else has such limits")]
    NotLimited,
    /// The query failed, for this reason.
    #[error("{0}")]
    QueryFailed(String),
}

/// The limits that Codex has reported.
#[derive(Debug, Default)]
pub(super) struct ReportedLimits {
    limits: RateLimits,
    /// When Codex last reported the windows of the account.
    at: Option<Instant>,
    /// The model limit that a turn reported last, by its ID, and when.
    of_model: Option<(String, Instant)>,
}

impl ReportedLimits {
    /// The limits, with the time of their last report, if there was one.
    pub(super) fn get(&self) -> Option<(RateLimits, Instant)> {
        Some((self.limits.clone(), self.at?))
    }

    /// The limits, and the limit of a model that a turn has just reported.
    pub(super) fn after_refusal(&self) -> (RateLimits, Option<String>) {
        let just = self.of_model.as_ref();
        let just = just.filter(|(_, at)| at.elapsed() < JUST_REPORTED);
        (self.limits.clone(), just.map(|(id, _)| id.clone()))
    }

    /// Merges the report of a turn.
    pub(super) fn update(&mut self, news: RateLimits) {
        let reported = self.limits.update(news);
        let now = Instant::now();
        if reported.account {
            self.at = Some(now);
        }
        if let Some(id) = reported.model {
            self.of_model = Some((id, now));
        }
    }

    /// Takes over the response to a query, and returns the merged limits.
    pub(super) fn replace(&mut self, read: RateLimits) -> RateLimits {
        self.limits.replace(read);
        self.at = Some(Instant::now());
        self.limits.clone()
    }
}

/// The last query of the limits.
pub(super) struct LastQuery {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) result: Result<RateLimits, LimitsUnknown>,
}

impl LastQuery {
    /// Whether the result is valid for a caller that arrived at this moment. The query must have
    /// begun after that: an earlier answer may predate the moment at which the limit was reached.
    pub(super) fn answers(&self, arrived: Instant) -> bool {
        self.began >= arrived
    }

    pub(super) fn has_failed_recently(&self) -> bool {
        self.result.is_err() && self.ended.elapsed() < RECENT
    }
}
