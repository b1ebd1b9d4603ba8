//! The measurements of a run, as the test writes them: `seconds,subject,measure,value`.

use anyhow::{Context, ensure};
use strum::EnumString;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Measure {
    /// Heap and stacks of a process, in KiB.
    Memory,
    /// That and the loaded pages of files, in KiB.
    Resident,
    /// Open file descriptors.
    Files,
    Threads,
    /// The size of something on the disk.
    Bytes,
}

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) seconds: f64,
    pub(crate) value: f64,
}

/// The values of one measure of one process, or of something that is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) subject: String,
    pub(crate) measure: Measure,
    pub(crate) points: Vec<Point>,
    /// The most that it may have, if that follows from the settings.
    pub(crate) limit: Option<f64>,
}

/// Reads the measurements of a run.
///
/// # Errors
/// When the text is not what the test writes.
pub(crate) fn read(text: &str) -> anyhow::Result<Vec<Series>> {
    let mut lines = text.lines();
    let head = lines.next();
    ensure!(
        head == Some("seconds,subject,measure,value"),
        "these are no samples: {head:?}"
    );
    let mut all: Vec<Series> = Vec::new();
    for line in lines {
        add(&mut all, line).with_context(|| format!("this is no sample: {line}"))?;
    }
    Ok(all)
}

fn add(all: &mut Vec<Series>, line: &str) -> anyhow::Result<()> {
    let mut fields = line.split(',');
    let mut field = || fields.next().context("a field is missing");
    let (seconds, subject, measure, value) = (field()?, field()?, field()?, field()?);
    let (seconds, value) = (seconds.parse()?, value.parse()?);
    if measure == "limit" {
        let limited = all.iter_mut().filter(|series| series.subject == subject);
        limited.for_each(|series| series.limit = Some(value));
        return Ok(());
    }
    let measure = measure.parse()?;
    let point = Point { seconds, value };
    let known = all
        .iter_mut()
        .find(|series| series.subject == subject && series.measure == measure);
    match known {
        Some(series) => series.points.push(point),
        None => all.push(Series {
            subject: subject.to_owned(),
            measure,
            points: vec![point],
            limit: None,
        }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn samples_are_gathered_by_subject_and_measure() {
        let text = "seconds,subject,measure,value\n0.0,host,memory,7\n0.0,logs,bytes,1\n\
            5.0,host,memory,8\n5.0,logs,limit,9\n";
        let point = |seconds, value| Point { seconds, value };
        let series = |subject: &str, measure, points: &[Point], limit| Series {
            subject: subject.to_owned(),
            measure,
            points: points.to_vec(),
            limit,
        };
        let expected = [
            series(
                "host",
                Measure::Memory,
                &[point(0.0, 7.0), point(5.0, 8.0)],
                None,
            ),
            series("logs", Measure::Bytes, &[point(0.0, 1.0)], Some(9.0)),
        ];
        assert_eq!(read(text).unwrap(), expected);
        for wrong in ["", "x\n", "seconds,subject,measure,value\n0.0,host,x,7\n"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
