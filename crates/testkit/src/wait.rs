//! Waits for events, with a deadline.
//!
//! A wait that takes longer than [`TIME_LIMIT`] fails the test, with a message that names the event
//! and the line that waited for it.

use std::os::fd::AsFd;
use std::panic::Location;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use tokio::time::{sleep, timeout};

/// The limit of each wait: far longer than anything takes, even on a busy machine.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// How often a condition is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How often a condition is polled by a thread that blocks.
const BLOCKING_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The end of one wait.
struct Deadline {
    what: String,
    end: Instant,
    caller: &'static Location<'static>,
}

impl Deadline {
    #[track_caller]
    fn new(what: &str) -> Self {
        Self {
            what: what.to_owned(),
            end: Instant::now() + TIME_LIMIT,
            caller: Location::caller(),
        }
    }

    fn restart(&mut self) {
        self.end = Instant::now() + TIME_LIMIT;
    }

    fn check(&self) {
        if Instant::now() >= self.end {
            self.fail();
        }
    }

    fn fail(&self) -> ! {
        let Self { what, caller, .. } = self;
        panic!("timed out after {TIME_LIMIT:?}: {what} (awaited at {caller})");
    }
}

/// Polls until `look` returns a value.
///
/// # Panics
/// If that takes longer than [`TIME_LIMIT`].
#[track_caller]
pub fn wait_for<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    poll(Deadline::new(what), look)
}

/// Waits until a file exists.
///
/// # Panics
/// If that takes longer than [`TIME_LIMIT`].
#[track_caller]
pub fn wait_for_file(path: &Path) -> impl Future<Output = ()> {
    let what = format!("the file {}", path.display());
    poll(Deadline::new(&what), async move || {
        path.exists().then_some(())
    })
}

/// Polls until `look` counts at least `wanted`. The deadline restarts whenever the count grows, so
/// that the wait may take long as long as something happens.
///
/// # Panics
/// If the count does not grow for [`TIME_LIMIT`].
#[track_caller]
pub fn wait_for_count(
    what: &str,
    wanted: u64,
    mut look: impl AsyncFnMut() -> u64,
) -> impl Future<Output = ()> {
    let mut deadline = Deadline::new(what);
    let what = what.to_owned();
    async move {
        let mut highest = 0;
        loop {
            let count = look().await;
            if count >= wanted {
                return;
            }
            if count > highest {
                highest = count;
                deadline.what = format!("{what}: still {count} of {wanted}");
                deadline.restart();
            }
            deadline.check();
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Polls until `look` returns a value, and blocks the thread.
///
/// # Panics
/// If that takes longer than [`TIME_LIMIT`].
#[track_caller]
pub fn wait_for_blocking<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::new(what);
    loop {
        if let Some(found) = look() {
            return found;
        }
        deadline.check();
        thread::sleep(BLOCKING_POLL_INTERVAL);
    }
}

/// Waits for a future.
///
/// # Panics
/// If that takes longer than [`TIME_LIMIT`].
#[track_caller]
pub fn within<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> {
    let deadline = Deadline::new(what);
    async move {
        match timeout(TIME_LIMIT, future).await {
            Ok(output) => output,
            Err(_) => deadline.fail(),
        }
    }
}

/// Blocks until there is something to read, or the other side has closed.
///
/// # Panics
/// If that takes longer than [`TIME_LIMIT`].
#[track_caller]
pub fn wait_until_readable(what: &str, stream: &impl AsFd) {
    let mut streams = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(TIME_LIMIT).unwrap();
    let deadline = Deadline::new(what);
    while nix::poll::poll(&mut streams, limit) == Err(Errno::EINTR) {
        deadline.check();
    }
    if streams[0].any() != Some(true) {
        deadline.fail();
    }
}

async fn poll<T>(deadline: Deadline, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        deadline.check();
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn value_is_returned_when_it_is_there() {
        let mut polls = 0;
        let found = wait_for("the third poll", async || {
            polls += 1;
            (polls == 3).then_some("found")
        })
        .await;
        assert_eq!((found, polls), ("found", 3));
    }

    #[tokio::test]
    async fn count_may_exceed_what_is_wanted() {
        let mut count = 0;
        wait_for_count("the count", 3, async || {
            count += 2;
            count
        })
        .await;
        assert_eq!(count, 4);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "timed out after 120s: an event (awaited at ")]
    async fn future_that_takes_too_long_fails_with_its_name() {
        within("an event", std::future::pending::<()>()).await;
    }
}
