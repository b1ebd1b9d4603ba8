//! Summaries of measurements.

use serde::Serialize;

/// The middle and the spread of some measurements.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Half of them are at most this.
    pub(crate) median: f64,
    /// One in ten is below this.
    pub(crate) p10: f64,
    /// One in ten is above this.
    pub(crate) p90: f64,
    /// All of them, in the order in which they were made.
    pub(crate) measured: Vec<f64>,
}

impl Summary {
    /// # Panics
    /// Without a measurement.
    pub(crate) fn of(measured: Vec<f64>) -> Self {
        let mut sorted = measured.clone();
        sorted.sort_by(f64::total_cmp);
        Self {
            median: percentile(&sorted, 50),
            p10: percentile(&sorted, 10),
            p90: percentile(&sorted, 90),
            measured,
        }
    }
}

/// Between the two nearest measurements where it falls between them.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() - 1) * percent;
    let (below, beyond) = (place / 100, place % 100);
    let low = sorted[below];
    let high = sorted[(below + 1).min(sorted.len() - 1)];
    low + (high - low) * f64::from(u8::try_from(beyond).unwrap()) / 100.0
}
