//! Decides how long a job waits for a usage limit of its account, and when the job must fail
//! instead.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use common::timestamp::minute;

/// The first pause where no reset is known, and the number of pauses: they take five hours in
/// total, as long as the shorter window of an account.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const MOST_PAUSES: u32 = 10;

/// The margin after a reset, as the account's clock is not ours.
const MARGIN: Duration = Duration::from_secs(1);

/// The longest pause and the longest margin. Pauses double with each pause, and margins with each
/// reset, so that a job is not claimed in a loop, whatever resets Codex reports.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// How far two reports of the same reset may be apart.
const SAME_RESET: Duration = LONGEST_PAUSE;

/// How often a waiting job is checked: the user may have changed the account or bought credits.
pub const LOOK_EVERY: Duration = Duration::from_secs(60 * 60);

/// How long a job waits in total: a little longer than a month, the longest window of an
/// account.
pub const LONGEST_WAIT: Duration = Duration::from_secs(35 * 24 * 60 * 60);

/// The wait of a queued job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The end of the wait.
    pub until: SystemTime,
    /// The reason for that moment.
    pub reason: WaitReason,
}

/// Why a job waits until a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// A usage limit of the account is reached, and will be reset then.
    LimitReset,
    /// A usage limit of the account is reached, and no reset is known.
    NextTry,
}

/// All waits of a job so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitHistory {
    /// When the first wait began.
    pub since: Option<SystemTime>,
    /// The last wait.
    pub last: Option<Wait>,
    /// How many different resets the job has waited for.
    pub resets: u32,
    /// How many pauses the job has made without a known reset.
    pub pauses: u32,
}

/// The next wait of a job, and the counts of all its waits including this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextWait {
    /// The wait.
    pub wait: Wait,
    /// When the job is checked next: at the end of the wait, or earlier.
    pub look_at: SystemTime,
    /// Whether this differs from the job's last wait.
    pub is_new: bool,
    /// How many different resets the job has waited for.
    pub resets: u32,
    /// How many pauses the job has made without a known reset.
    pub pauses: u32,
}

/// The error of a text that is no [`WaitReason`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a reason why jobs wait")]
pub struct UnknownReason(String);

impl WaitHistory {
    /// The next wait of the job, for `reset` if that is known; `None` if the job has waited too
    /// often or would wait too long, and must fail.
    #[must_use]
    pub fn next(self, reset: Option<SystemTime>, now: SystemTime) -> Option<NextWait> {
        let pending = self.pending(now);
        let (wait, resets, pauses) = match (reset, pending) {
            (Some(reset), Some(last)) if last.is_for(reset) => (last, self.resets, self.pauses),
            (Some(reset), _) => {
                let until = reset.max(now) + doubled(MARGIN, self.resets);
                let reason = WaitReason::LimitReset;
                (
                    Wait { until, reason },
                    self.resets.saturating_add(1),
                    self.pauses,
                )
            }
            // No reset is known that would change the pending wait.
            (None, Some(last)) => (last, self.resets, self.pauses),
            (None, _) if self.pauses < MOST_PAUSES => {
                let until = now + doubled(FIRST_PAUSE, self.pauses);
                let reason = WaitReason::NextTry;
                (
                    Wait { until, reason },
                    self.resets,
                    self.pauses.saturating_add(1),
                )
            }
            (None, _) => return None,
        };
        let since = self.since.unwrap_or(now);
        let waited = wait.until.duration_since(since).unwrap_or_default();
        (waited <= LONGEST_WAIT).then(|| NextWait {
            wait,
            look_at: wait.until.min(now + LOOK_EVERY),
            is_new: self.last != Some(wait),
            resets,
            pauses,
        })
    }

    /// The last wait, if it is not over yet. No turn that could change it was tried since.
    #[must_use]
    pub fn unfinished(self, now: SystemTime) -> Option<NextWait> {
        let wait = self.pending(now)?;
        Some(NextWait {
            wait,
            look_at: wait.until.min(now + LOOK_EVERY),
            is_new: false,
            resets: self.resets,
            pauses: self.pauses,
        })
    }

    fn pending(self, now: SystemTime) -> Option<Wait> {
        self.last.filter(|wait| wait.until > now)
    }

    /// The reset until which the last turn was refused, if it is known.
    #[must_use]
    pub fn refused_until(self) -> Option<SystemTime> {
        let last = self.last?;
        (last.reason == WaitReason::LimitReset).then_some(last.until)
    }
}

impl Wait {
    /// Whether the job waits for about this reset.
    fn is_for(self, reset: SystemTime) -> bool {
        let (earlier, later) = (self.until.min(reset), self.until.max(reset));
        let apart = later.duration_since(earlier);
        self.reason == WaitReason::LimitReset && apart.is_ok_and(|apart| apart <= SAME_RESET)
    }
}

fn doubled(first: Duration, times: u32) -> Duration {
    let factor = 2u32.saturating_pow(times);
    first.saturating_mul(factor).min(LONGEST_PAUSE)
}

impl WaitReason {
    const ALL: [Self; 2] = [Self::LimitReset, Self::NextTry];

    /// The name of the reason in the store and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LimitReset => "limit_reset",
            Self::NextTry => "next_try",
        }
    }

    /// The reason for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::LimitReset => "a usage limit of the account is reached",
            Self::NextTry => {
                "a usage limit of the account is reached, and Codex does not report when it is \
                 reset; the job is tried again then"
            }
        }
    }
}

impl FromStr for WaitReason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, UnknownReason> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| UnknownReason(text.to_owned()))
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = minute(self.until);
        write!(f, "waits until {until}: {}", self.reason.words())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn waited(resets: u32, pauses: u32) -> WaitHistory {
        WaitHistory {
            since: Some(at(0)),
            last: None,
            resets,
            pauses,
        }
    }

    /// The history of a job that begins to wait at the moment `now`.
    fn after(history: WaitHistory, waiting: NextWait, now: SystemTime) -> WaitHistory {
        WaitHistory {
            since: history.since.or(Some(now)),
            last: Some(waiting.wait),
            resets: waiting.resets,
            pauses: waiting.pauses,
        }
    }

    #[test]
    fn job_waits_until_the_reset_and_a_margin_that_grows() {
        for (resets, until) in [(0, 1001), (1, 1002), (5, 1032), (12, 4600), (99, 4600)] {
            // Pauses do not count.
            let next = waited(resets, 7).next(Some(at(1000)), at(500)).unwrap();
            assert_eq!((next.resets, next.pauses), (resets + 1, 7));
            assert_eq!(next.wait.until, at(until), "{resets}");
            assert_eq!(next.wait.reason, WaitReason::LimitReset);
        }
        let past = WaitHistory::default().next(Some(at(1000)), at(2000));
        assert_eq!(past.unwrap().wait.until, at(2001));
    }

    #[test]
    fn waiting_job_is_rechecked_each_hour_for_the_same_reset() {
        let (none, reset) = (WaitHistory::default(), at(5 * DAY));
        let first = none.next(Some(reset), at(0)).unwrap();
        assert_eq!((first.look_at, first.is_new), (at(3600), true));
        let history = after(none, first, at(0));
        assert_eq!(history.refused_until(), Some(reset + MARGIN));
        let again = history.next(Some(reset + MARGIN * 9), at(3600)).unwrap();
        assert_eq!((again.wait, again.resets), (first.wait, 1));
        assert_eq!((again.look_at, again.is_new), (at(7200), false));
        let last = history.next(Some(reset), at(5 * DAY - 10)).unwrap();
        assert_eq!(last.look_at, reset + MARGIN);
        // A turn that is refused when the wait is over waits longer.
        let late = history.next(Some(reset), at(5 * DAY + 1)).unwrap();
        assert_eq!((late.wait.until, late.resets), (at(5 * DAY + 3), 2));
        let other = history.next(Some(at(7 * DAY)), at(3600)).unwrap();
        assert_eq!((other.resets, other.is_new), (2, true));
    }

    #[test]
    fn refusal_without_a_known_reset_keeps_the_wait_and_spends_no_pause() {
        for reset in [None, Some(at(5 * DAY))] {
            let first = WaitHistory::default().next(reset, at(0)).unwrap();
            let history = after(WaitHistory::default(), first, at(0));
            let again = history.next(None, at(5)).unwrap();
            assert_eq!((again.wait, again.is_new), (first.wait, false));
            let counts = (again.resets, again.pauses);
            assert_eq!(counts, (first.resets, first.pauses));
        }
    }

    #[test]
    fn wait_counts_do_not_overflow() {
        let next = waited(u32::MAX, u32::MAX).next(Some(at(1000)), at(500));
        assert_eq!(next.unwrap().resets, u32::MAX);
        assert_eq!(waited(u32::MAX, u32::MAX).next(None, at(500)), None);
    }

    #[test]
    fn unfinished_wait_is_kept() {
        let first = WaitHistory::default().next(Some(at(5 * DAY)), at(0));
        let history = after(WaitHistory::default(), first.unwrap(), at(0));
        let kept = history.unfinished(at(3600)).unwrap();
        assert_eq!((kept.wait, kept.is_new), (first.unwrap().wait, false));
        assert_eq!((kept.resets, kept.pauses), (1, 0));
        assert_eq!(kept.look_at, at(7200));
        assert_eq!(history.unfinished(kept.wait.until), None);
        assert_eq!(WaitHistory::default().unfinished(at(0)), None);
    }

    #[test]
    fn job_that_would_wait_too_long_fails() {
        let mut history = WaitHistory::default();
        let mut now = at(0);
        let week = Duration::from_secs(7 * DAY);
        while let Some(next) = history.next(Some(now + week), now) {
            history = after(history, next, now);
            now = next.wait.until;
        }
        assert_eq!((history.resets, history.since), (4, Some(at(0))));
    }

    #[test]
    fn job_without_a_known_reset_doubles_its_pauses_and_fails() {
        let pause = |pauses| {
            // Resets do not count.
            let next = waited(99, pauses).next(None, at(0))?;
            assert_eq!((next.resets, next.pauses), (99, pauses + 1));
            assert_eq!(next.wait.reason, WaitReason::NextTry);
            next.wait.until.duration_since(at(0)).ok()
        };
        let pauses: Vec<Duration> = (0..MOST_PAUSES).map_while(pause).collect();
        assert_eq!(pauses[..3], [60, 120, 240].map(Duration::from_secs));
        let hours = pauses.iter().sum::<Duration>().as_secs() / 3600;
        assert_eq!((pauses.len(), hours), (10, 5));
        assert_eq!(pause(MOST_PAUSES), None);
    }

    #[test]
    fn wait_says_until_when_and_why() {
        let next = WaitHistory::default().next(Some(at(1000)), at(0));
        assert_eq!(
            next.unwrap().wait.to_string(),
            "waits until 1970-01-01 00:16 UTC: a usage limit of the account is reached"
        );
        for reason in WaitReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert!("sleep".parse::<WaitReason>().is_err());
    }
}
