//! Which measurements stay flat after the warm-up.
//!
//! Memory and sizes on the disk go up and down, so a line is fitted to them by least squares. Open files
//! and threads are few and belong to clients that come and go, so the lowest numbers of two times are
//! compared: what is lost never comes back, and lifts the lowest number too.

use std::fmt::Write;

use super::samples::{Measure, Point, Series};

/// A quarter of the time is warm-up, but at least six minutes: a session that has ended is kept for
/// five, and looked for each minute. Half of the time is always judged.
const WARM_UP: f64 = 0.25;
const SHORTEST_WARM_UP: f64 = 360.0;
const LONGEST_WARM_UP: f64 = 0.5;

/// By how much the fitted line may rise: a share of the mean, and at least so many KiB of memory or
/// bytes on the disk. An allocator keeps pages that are partly used, and gets them in steps; tables of
/// this program grow up to their bounds (10,000 threads, 2,000 events of a session). 2 MiB is what
/// twenty long sessions take. A database grows in pages and by a log that is written back now and then.
const SHARE: f64 = 0.05;
const LEAST_KIB: f64 = 2048.0;
const SIZE_SHARE: f64 = 0.1;
const LEAST_BYTES: f64 = 262_144.0;

/// A rise counts if it is so many standard errors of the fit: noise alone does not.
const ERRORS: f64 = 2.0;

/// By how much the lowest number of open files and threads may rise: a client that is served at each
/// moment of one part and not of the other has up to three files, and a file is read on a thread.
const FILES_BAND: f64 = 3.0;
const THREADS_BAND: f64 = 3.0;

/// What others keep, as long as they like. The registry is bounded by 10,000 threads.
const OF_OTHERS: [&str; 3] = ["mail", "registry", "Codex's own"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Flat,
    Grows,
    WithinLimit,
    OverLimit,
    NotJudged,
}

/// The verdict on a series, and its values.
pub(crate) struct Finding {
    subject: String,
    measure: Measure,
    /// The medians of a tenth of the judged time: at its begin, in its middle, at its end.
    values: [f64; 3],
    per_hour: f64,
    pub(crate) verdict: Verdict,
}

/// A line through points, and the standard error of its slope.
#[derive(Clone, Copy, Debug)]
struct Fit {
    /// In units for each second.
    slope: f64,
    error: f64,
}

impl Verdict {
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Self::Grows | Self::OverLimit)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Grows => "**grows**",
            Self::WithinLimit => "within its limit",
            Self::OverLimit => "**over its limit**",
            Self::NotJudged => "not judged",
        }
    }
}

impl Finding {
    pub(crate) fn name(&self) -> String {
        format!("{} of {}", self.measure.words(), self.subject)
    }
}

impl Measure {
    fn words(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Resident => "memory with files",
            Self::Files => "open files",
            Self::Threads => "threads",
            Self::Bytes => "size",
        }
    }

    /// What a value is shown in, and how much of it one is.
    fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Memory | Self::Resident => (" MiB", 1024.0),
            Self::Files | Self::Threads => ("", 1.0),
            Self::Bytes => (" KiB", 1024.0),
        }
    }
}

/// The verdict on each series; `None` if there are too few samples.
pub(crate) fn findings(all: &[Series]) -> Option<Vec<Finding>> {
    all.iter().map(finding).collect()
}

fn finding(series: &Series) -> Option<Finding> {
    let points = after_warm_up(&series.points)?;
    let fit = fit(points)?;
    let tenth = (points.len() / 10).max(1);
    let middle = points.len() / 2 - tenth / 2;
    Some(Finding {
        subject: series.subject.clone(),
        measure: series.measure,
        values: [
            median(points.get(..tenth)?)?,
            median(points.get(middle..middle + tenth)?)?,
            median(points.get(points.len() - tenth..)?)?,
        ],
        per_hour: fit.slope * 3600.0,
        verdict: verdict(series, points, fit)?,
    })
}

fn verdict(series: &Series, points: &[Point], fit: Fit) -> Option<Verdict> {
    if let Some(limit) = series.limit {
        let most = highest(&series.points)?;
        return Some(match most <= limit {
            true => Verdict::WithinLimit,
            false => Verdict::OverLimit,
        });
    }
    let grows = match series.measure {
        Measure::Resident => return Some(Verdict::NotJudged),
        Measure::Bytes if OF_OTHERS.contains(&series.subject.as_str()) => {
            return Some(Verdict::NotJudged);
        }
        Measure::Memory => rises(points, fit, SHARE, LEAST_KIB)?,
        Measure::Bytes => rises(points, fit, SIZE_SHARE, LEAST_BYTES)?,
        Measure::Files => floor_rises(points, FILES_BAND)?,
        Measure::Threads => floor_rises(points, THREADS_BAND)?,
    };
    Some(match grows {
        true => Verdict::Grows,
        false => Verdict::Flat,
    })
}

fn after_warm_up(points: &[Point]) -> Option<&[Point]> {
    let time = points.last()?.seconds;
    let warm_up = (time * WARM_UP).max(SHORTEST_WARM_UP);
    let warm_up = warm_up.min(time * LONGEST_WARM_UP);
    let first = points.iter().position(|point| point.seconds >= warm_up)?;
    points.get(first..)
}

/// Whether the fitted line rises by more than it may.
fn rises(points: &[Point], fit: Fit, share: f64, least: f64) -> Option<bool> {
    let time = points.last()?.seconds - points.first()?.seconds;
    let allowed = (mean(points.iter().map(|point| point.value))? * share).max(least);
    Some(fit.slope * time > allowed && fit.slope > ERRORS * fit.error)
}

/// Whether the lowest value of the last third is above that of the first by more than this.
fn floor_rises(points: &[Point], band: f64) -> Option<bool> {
    let third = points.len() / 3;
    let first = lowest(points.get(..third)?)?;
    let last = lowest(points.get(points.len() - third..)?)?;
    Some(last > first + band)
}

/// `None` with fewer than three points, or all at one time.
fn fit(points: &[Point]) -> Option<Fit> {
    if points.len() < 3 {
        return None;
    }
    let x = mean(points.iter().map(|point| point.seconds))?;
    let y = mean(points.iter().map(|point| point.value))?;
    let sum = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).sum::<f64>();
    let spread = sum(&|point| (point.seconds - x).powi(2));
    if spread == 0.0 {
        return None;
    }
    let slope = sum(&|point| (point.seconds - x) * (point.value - y)) / spread;
    let left = sum(&|point| (point.value - y - slope * (point.seconds - x)).powi(2));
    let error = (left / count(points.len() - 2) / spread).sqrt();
    Some(Fit { slope, error })
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let number = values.len();
    (number > 0).then(|| values.sum::<f64>() / count(number))
}

/// A number of samples, of which there are never so many that a float has no room for them.
fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

fn median(points: &[Point]) -> Option<f64> {
    let mut values: Vec<f64> = points.iter().map(|point| point.value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn lowest(points: &[Point]) -> Option<f64> {
    let values = points.iter().map(|point| point.value);
    values.min_by(f64::total_cmp)
}

fn highest(points: &[Point]) -> Option<f64> {
    let values = points.iter().map(|point| point.value);
    values.max_by(f64::total_cmp)
}

/// The findings as a table of Markdown.
pub(crate) fn table(found: &[Finding]) -> String {
    let mut table = String::from(
        "| what | of | after warm-up | middle | end | per hour | verdict |\n\
         | --- | --- | --: | --: | --: | --: | --- |\n",
    );
    for finding in found {
        let (unit, size) = finding.measure.unit();
        let digits = usize::from(size > 1.0);
        let shown = |value: f64| format!("{:.digits$}{unit}", value / size);
        let [begin, middle, end] = finding.values.map(shown);
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "| {} | {} | {begin} | {middle} | {end} | {:+.1}{unit} | {} |",
            finding.measure.words(),
            finding.subject,
            finding.per_hour / size,
            finding.verdict.words()
        );
    }
    table
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    const MINUTE: u32 = 60;
    const KIB: f64 = 1024.0;

    /// A series of these minutes with a sample each 5 s; values by the second and a noise from -1 to 1.
    fn series(measure: Measure, minutes: u32, value: impl Fn(f64, f64) -> f64) -> Series {
        let points = (0..minutes * MINUTE).step_by(5).map(|second| {
            let noise = f64::from(second * 7919 % 201) / 100.0 - 1.0;
            let seconds = f64::from(second);
            Point {
                seconds,
                value: value(seconds, noise).round(),
            }
        });
        Series {
            subject: "host".to_owned(),
            measure,
            points: points.collect(),
            limit: None,
        }
    }

    fn verdict_on(series: &Series) -> Verdict {
        finding(series).unwrap().verdict
    }

    #[test]
    fn noise_is_flat() {
        let memory = |_, noise| 30.0 * KIB + noise * 3.0 * KIB;
        assert_eq!(
            verdict_on(&series(Measure::Memory, 15, memory)),
            Verdict::Flat
        );
        let files = |_, noise: f64| 40.0 + noise * 5.0;
        assert_eq!(
            verdict_on(&series(Measure::Files, 15, files)),
            Verdict::Flat
        );
    }

    #[test]
    fn rise_during_the_warm_up_is_flat() {
        let memory =
            |seconds: f64, noise: f64| 50.0 * KIB * (1.0 - (-seconds / 60.0).exp()) + noise * 100.0;
        assert_eq!(
            verdict_on(&series(Measure::Memory, 15, memory)),
            Verdict::Flat
        );
        let falling = |seconds: f64, _| 90.0 * KIB - seconds * 20.0;
        assert_eq!(
            verdict_on(&series(Measure::Memory, 15, falling)),
            Verdict::Flat
        );
    }

    #[test]
    fn leaked_memory_grows() {
        // A turn each second that loses 8 KiB, in noise of 2 MiB.
        let leak = |seconds: f64, noise: f64| 30.0 * KIB + seconds * 8.0 + noise * 2.0 * KIB;
        assert_eq!(
            verdict_on(&series(Measure::Memory, 15, leak)),
            Verdict::Grows
        );
        // Half a KiB takes two hours to be seen.
        let small = |seconds: f64, noise: f64| 30.0 * KIB + seconds * 0.5 + noise * 2.0 * KIB;
        assert_eq!(
            verdict_on(&series(Measure::Memory, 15, small)),
            Verdict::Flat
        );
        assert_eq!(
            verdict_on(&series(Measure::Memory, 120, small)),
            Verdict::Grows
        );
    }

    #[test]
    fn leaked_files_and_threads_grow() {
        // One for each client, of which there is another each 20 s, in the noise of clients.
        let leak = |seconds: f64, noise: f64| 40.0 + (seconds / 20.0).floor() + noise * 5.0;
        let found = findings(&[
            series(Measure::Files, 15, leak),
            series(Measure::Threads, 15, leak),
        ]);
        let found = found.unwrap();
        assert!(found.iter().all(|finding| finding.verdict.is_fault()));
        assert_eq!(found.first().unwrap().name(), "open files of host");
    }

    #[test]
    fn sizes_have_a_limit_or_are_flat() {
        let grows = |seconds: f64, _| seconds * 2000.0;
        let mut size = series(Measure::Bytes, 15, grows);
        assert_eq!(verdict_on(&size), Verdict::Grows);
        size.limit = Some(2_000_000.0);
        assert_eq!(verdict_on(&size), Verdict::WithinLimit);
        size.limit = Some(1_000_000.0);
        assert_eq!(verdict_on(&size), Verdict::OverLimit);
        let others = Series {
            subject: "mail".to_owned(),
            limit: None,
            ..size
        };
        assert_eq!(verdict_on(&others), Verdict::NotJudged);
    }

    #[test]
    fn too_few_samples_are_refused() {
        let mut short = series(Measure::Memory, 1, |_, _| 1.0);
        short.points.truncate(4);
        assert!(findings(&[short]).is_none());
    }

    #[test]
    fn table_shows_values_in_their_units() {
        let memory = series(Measure::Memory, 60, |seconds, _| {
            20.0 * KIB + seconds * KIB / 3600.0
        });
        let threads = series(Measure::Threads, 60, |_, _| 4.0);
        let table = table(&findings(&[memory, threads]).unwrap());
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| memory | host | 20.3 MiB | 20.6 MiB | 21.0 MiB | +1.0 MiB | flat |",
                "| threads | host | 4 | 4 | 4 | +0.0 | flat |",
            ]
        );
    }
}
