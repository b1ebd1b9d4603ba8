//! Pauses between reads while Codex writes many small messages.
//!
//! Codex writes each piece of an answer by itself, and each one wakes us: 50 sessions that
//! write at once wake us 10,000 times a second, and waking takes more of the processor than
//! reading. While small reads follow each other that fast, each is followed by a pause, so
//! that the next one finds several messages.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A read of more bytes than this has found many messages: a pause saves nothing.
const SMALL_READ: usize = 16 * 1024;

/// As many small reads within [`WINDOW`] are a flood.
const FLOOD: u32 = 64;

/// The time for which small reads are counted.
const WINDOW: Duration = Duration::from_millis(64);

/// The pause after a small read during a flood. Nobody sees a piece of text come later by it.
const PAUSE: Duration = Duration::from_millis(1);

/// How fast small reads follow each other.
#[derive(Debug)]
pub(crate) struct Pacing {
    /// Small reads since `since`.
    reads: u32,
    since: Instant,
    is_flood: bool,
}

impl Pacing {
    pub(crate) fn new() -> Self {
        Self {
            reads: 0,
            since: Instant::now(),
            is_flood: false,
        }
    }

    /// Notes a read of `bytes`, and pauses if it is a small one in a flood.
    pub(crate) async fn pause_after(&mut self, bytes: usize) {
        if self.needs_pause(bytes, Instant::now()) {
            sleep(PAUSE).await;
        }
    }

    fn needs_pause(&mut self, bytes: usize, now: Instant) -> bool {
        if bytes > SMALL_READ {
            return false;
        }
        self.reads += 1;
        if now - self.since >= WINDOW {
            // While pausing, reads are as many as pauses fit in.
            let flood = if self.is_flood { FLOOD / 4 } else { FLOOD };
            self.is_flood = self.reads >= flood;
            (self.reads, self.since) = (0, now);
        }
        self.is_flood
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `reads`, one every `pace`, ask for a pause.
    fn pauses(pacing: &mut Pacing, reads: u32, bytes: usize, pace: Duration) -> usize {
        let begin = pacing.since;
        let moments = (1..=reads).map(|read| begin + pace * read);
        moments
            .filter(|now| pacing.needs_pause(bytes, *now))
            .count()
    }

    #[test]
    fn small_reads_in_quick_succession_are_paced_until_they_are_slow() {
        let mut pacing = Pacing::new();
        assert_eq!(pauses(&mut pacing, 640, 200, Duration::from_micros(100)), 1);
        assert_eq!(
            pauses(&mut pacing, 640, 200, Duration::from_micros(100)),
            640
        );
        assert_eq!(pauses(&mut pacing, 32, 200, Duration::from_millis(2)), 32);
        assert_eq!(pauses(&mut pacing, 100, 200, Duration::from_millis(20)), 3);
    }

    #[test]
    fn reads_of_one_answer_and_large_reads_are_not_paced() {
        let mut pacing = Pacing::new();
        assert_eq!(pauses(&mut pacing, 1000, 200, Duration::from_millis(5)), 0);
        assert_eq!(
            pauses(&mut pacing, 1000, 64 * 1024, Duration::from_micros(10)),
            0
        );
    }
}
