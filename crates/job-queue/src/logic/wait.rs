//! How long a job waits whose account is used up.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use common::timestamp::minute;

/// The first pause where no reset is known, and after how many waits the job fails instead:
/// the pauses are five hours in all then, as long as the shorter window of an account.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const MOST_PAUSES: u32 = 10;

/// The margin after a reset, as the account's clock is not ours.
const MARGIN: Duration = Duration::from_secs(1);

/// The longest pause and margin. Both double with each wait, so that no job is claimed in a
/// loop, whatever resets are told.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// A job in the queue that is not to be claimed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Until when.
    pub until: SystemTime,
    /// Why then.
    pub reason: WaitReason,
}

/// Why a job waits until a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// A usage limit of the account is reached, and reset then.
    LimitReset,
    /// A usage limit of the account is reached, and no reset is known.
    NextTry,
}

/// Why a text is not a [`WaitReason`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a reason why jobs wait")]
pub struct UnknownReason(String);

impl Wait {
    /// How long a job waits that has waited so often before; `None` if it is to fail.
    #[must_use]
    pub fn for_limit(reset: Option<SystemTime>, before: u32, now: SystemTime) -> Option<Self> {
        let reason = match reset {
            Some(_) => WaitReason::LimitReset,
            None if before < MOST_PAUSES => WaitReason::NextTry,
            None => return None,
        };
        let until = match reset {
            Some(reset) => reset.max(now) + doubled(MARGIN, before),
            None => now + doubled(FIRST_PAUSE, before),
        };
        Some(Self { until, reason })
    }
}

fn doubled(first: Duration, times: u32) -> Duration {
    let factor = 2u32.saturating_pow(times);
    first.saturating_mul(factor).min(LONGEST)
}

impl WaitReason {
    const ALL: [Self; 2] = [Self::LimitReset, Self::NextTry];

    /// It in a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LimitReset => "limit_reset",
            Self::NextTry => "next_try",
        }
    }

    /// It for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::LimitReset => "the usage limit of the account is reached",
            Self::NextTry => {
                "the usage limit of the account is reached, and Codex does not tell when it is \
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

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn job_waits_until_the_reset_and_a_margin_that_grows() {
        for (before, until) in [(0, 1001), (1, 1002), (5, 1032), (12, 4600), (99, 4600)] {
            let wait = Wait::for_limit(Some(at(1000)), before, at(500)).unwrap();
            assert_eq!(wait.until, at(until), "{before}");
            assert_eq!(wait.reason, WaitReason::LimitReset);
        }
        let past = Wait::for_limit(Some(at(1000)), 0, at(2000)).unwrap();
        assert_eq!(past.until, at(2001));
    }

    #[test]
    fn job_without_a_known_reset_pauses_longer_each_time_and_fails_after_hours() {
        let pause = |before| {
            let wait = Wait::for_limit(None, before, at(0))?;
            assert_eq!(wait.reason, WaitReason::NextTry);
            wait.until.duration_since(at(0)).ok()
        };
        let pauses: Vec<Duration> = (0..MOST_PAUSES).map_while(pause).collect();
        assert_eq!(pauses[..3], [60, 120, 240].map(Duration::from_secs));
        let hours = pauses.iter().sum::<Duration>().as_secs() / 3600;
        assert_eq!((pauses.len(), hours), (10, 5));
        assert_eq!(pause(MOST_PAUSES), None);
    }

    #[test]
    fn wait_says_until_when_and_why() {
        let wait = Wait::for_limit(Some(at(1000)), 0, at(0)).unwrap();
        assert_eq!(
            wait.to_string(),
            "waits until 1970-01-01 00:16 UTC: the usage limit of the account is reached"
        );
        for reason in WaitReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert!("sleep".parse::<WaitReason>().is_err());
    }
}
