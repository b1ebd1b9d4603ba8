//! The lines that went over the wire, for the message of a failing test.

use std::fmt::{self, Write};
use std::time::{Duration, Instant};

/// The longest part of a line that is kept, in bytes: a giant line must not bury
/// the rest.
const LINE_BYTES: usize = 2000;

/// Every line sent and received, with the time since the start.
#[derive(Debug)]
pub(crate) struct Transcript {
    start: Instant,
    lines: Vec<(Duration, Direction, String)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    Sent,
    Received,
}

impl Transcript {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            lines: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, direction: Direction, line: &[u8]) {
        let kept = &line[..line.len().min(LINE_BYTES)];
        let mut text = String::from_utf8_lossy(kept).trim_end().to_owned();
        if kept.len() < line.len() {
            write!(text, "… ({} bytes in all)", line.len()).unwrap();
        }
        self.lines.push((self.start.elapsed(), direction, text));
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (time, direction, text) in &self.lines {
            let arrow = match direction {
                Direction::Sent => '>',
                Direction::Received => '<',
            };
            writeln!(f, "{:8.3} {arrow} {text}", time.as_secs_f64())?;
        }
        Ok(())
    }
}
