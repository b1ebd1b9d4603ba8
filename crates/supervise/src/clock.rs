//! The current time, for machines that read no clock themselves.

use std::time::SystemTime;

use common::timestamp::Now;
use tokio::time::Instant;

/// The current time, monotonic and by the wall clock.
pub fn now() -> Now {
    Now {
        // Tokio's clock, so that tests can advance it.
        instant: Instant::now().into_std(),
        wall: SystemTime::now(),
    }
}
