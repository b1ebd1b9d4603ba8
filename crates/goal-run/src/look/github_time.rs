//! `GithubTime`: a time by GitHub's clock, to the second.
//!
//! Source: RFC 9110 5.6.7 (`Sun, 06 Nov 1994 08:49:37 GMT`), RFC 3339.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A time by GitHub's clock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct GithubTime(SystemTime);

impl GithubTime {
    /// Reads `1994-11-06T08:49:37Z`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        humantime::parse_rfc3339(text).ok().map(Self)
    }
}

impl fmt::Display for GithubTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(f)
    }
}

/// The date among the headers of an answer.
pub(super) fn date_of(head: &str) -> Option<GithubTime> {
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let (_, date) = headers.find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
    let mut words = date.split_whitespace().skip(1);
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    GithubTime::parse(&format!("{year}-{month:02}-{day:0>2}T{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_read_from_headers() {
        let head = "HTTP/2.0 200 OK\nContent-Type: x\ndate: Sun, 06 Nov 1994 08:49:37 GMT\nX: y";
        let time = date_of(head).unwrap();
        assert_eq!(time.to_string(), "1994-11-06T08:49:37Z");
        assert!(GithubTime::parse("1994-11-06T08:49:38Z").unwrap() > time);
        for head in [
            "",
            "Date:",
            "Date: x",
            "Date: Sun, 06 Foo 1994 08:49:37 GMT",
        ] {
            assert_eq!(date_of(head), None, "{head}");
        }
    }
}
