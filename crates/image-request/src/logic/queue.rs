//! The requests in `.codex-eyes/requests.jsonl`, which the tool writes and the wrapper reads.
//!
//! A line is `{"ts":1730000000000,"path":"./screens/error.png"}`. Whether a request was answered is
//! decided by the position of its line, not by its `ts`: clocks are set, and two requests may have
//! the same time. Lines from before the wrapper began are ignored, and a partial line is ignored
//! until its end is written.
//!
//! Several wrappers, each with its own Codex, may work in one directory: a line that names a
//! wrapper is for that wrapper alone.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use codex_protocol::codex::ThreadId;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::path::PicturePath;

/// The longest line that is read, in bytes: a path with every byte escaped, and members that
/// a newer program may add.
const LONGEST_LINE: usize = 32 * 1024;

/// The most requests that are kept: more than a resumed Codex gets pictures or names for.
const KEPT: usize = 64;

/// A request for a picture. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When it was made, in milliseconds since 1970.
    pub ts: u64,
    /// The picture.
    pub path: PicturePath,
    /// The conversation of the request, if Codex reports it.
    #[serde(
        default,
        deserialize_with = "thread",
        skip_serializing_if = "Option::is_none"
    )]
    pub thread: Option<ThreadId>,
    /// The wrapper that is to attach the picture. Any wrapper may if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapper: Option<WrapperId>,
}

/// Checks the thread id, as it becomes an argument of Codex.
fn thread<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ThreadId>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let thread = text.map(|text| ThreadId::parse(&text)).transpose();
    thread.map_err(D::Error::custom)
}

/// The name of a wrapper: 1 to 64 letters, digits and dashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WrapperId(String);

/// A text is not a [`WrapperId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a wrapper has 1 to 64 letters, digits or dashes")]
pub struct BadWrapperId;

impl FromStr for WrapperId {
    type Err = BadWrapperId;

    fn from_str(text: &str) -> Result<Self, BadWrapperId> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        match (1..=64).contains(&text.len()) && text.bytes().all(plain) {
            true => Ok(Self(text.to_owned())),
            false => Err(BadWrapperId),
        }
    }
}

impl fmt::Display for WrapperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

common::string_conversions!(WrapperId);

impl Request {
    /// The line that is appended to the file, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        // A number and a text are always JSON.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// The number of a request, in the order of reading, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNumber(pub u64);

/// The file, as far as it has been read.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// The wrapper whose requests are read; `None` for all requests.
    wrapper: Option<WrapperId>,
    /// The position in the file, in bytes.
    position: u64,
    line: PartialLine,
    valid: u64,
    /// The last valid requests, the newest at the back.
    recent: VecDeque<Request>,
}

/// A line whose end was not read yet.
#[derive(Debug, Clone)]
enum PartialLine {
    Begun(Vec<u8>),
    TooLong,
}

impl Default for PartialLine {
    fn default() -> Self {
        Self::Begun(Vec::new())
    }
}

impl Queue {
    /// A queue that skips the first `length` bytes of the file.
    #[must_use]
    pub fn after(length: u64) -> Self {
        Self {
            position: length,
            ..Self::default()
        }
    }

    /// The same queue, without requests for other wrappers.
    #[must_use]
    pub fn for_wrapper(self, wrapper: WrapperId) -> Self {
        Self {
            wrapper: Some(wrapper),
            ..self
        }
    }

    /// The position from which to read a file of this length. A file that has become shorter was
    /// replaced, and is read from its beginning.
    pub fn next(&mut self, length: u64) -> u64 {
        if length < self.position {
            self.restart();
        }
        self.position
    }

    /// Begins another file, whose requests are all new.
    pub fn restart(&mut self) {
        self.position = 0;
        self.line = PartialLine::default();
    }

    /// Skips the file up to this position, and the rest of a line that began before it.
    pub fn skip_to(&mut self, position: u64) {
        self.position = position;
        self.line = PartialLine::TooLong;
    }

    /// Takes the next bytes of the file, in parts of any size.
    pub fn take(&mut self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.position = self.position.saturating_add(length);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(end) => {
                    self.extend(end);
                    self.close();
                }
                None => self.extend(part),
            }
        }
    }

    /// The last valid request, and its number.
    #[must_use]
    pub fn last(&self) -> Option<(RequestNumber, &Request)> {
        let last = self.recent.back()?;
        Some((RequestNumber(self.valid), last))
    }

    /// The valid requests after the one `answered` last, oldest first: the last 64 at most.
    pub fn open(
        &self,
        answered: Option<RequestNumber>,
    ) -> impl Iterator<Item = (RequestNumber, &Request)> {
        let numbers = (1..=self.valid).rev().map(RequestNumber);
        let newest_first = numbers.zip(self.recent.iter().rev());
        let open = newest_first.take_while(move |(number, _)| Some(*number) > answered);
        let open: Vec<_> = open.collect();
        open.into_iter().rev()
    }

    fn extend(&mut self, part: &[u8]) {
        if let PartialLine::Begun(line) = &mut self.line {
            match line.len() + part.len() <= LONGEST_LINE {
                true => line.extend_from_slice(part),
                false => self.line = PartialLine::TooLong,
            }
        }
    }

    fn close(&mut self) {
        let request: Option<Request> = match std::mem::take(&mut self.line) {
            PartialLine::Begun(line) => serde_json::from_slice(&line).ok(),
            PartialLine::TooLong => None,
        };
        let for_others = |request: &Request| match (&self.wrapper, &request.wrapper) {
            (Some(ours), Some(theirs)) => ours != theirs,
            _ => false,
        };
        let Some(mut request) = request.filter(|request| !for_others(request)) else {
            return;
        };
        // A request without a wrapper was not written by our tool, and must not choose the
        // conversation to resume.
        if request.wrapper.is_none() {
            request.thread = None;
        }
        self.valid += 1;
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(request);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(ts: u64, path: &str) -> Request {
        let path = path.parse().unwrap();
        Request {
            ts,
            path,
            thread: None,
            wrapper: None,
        }
    }

    fn read(bytes: &[u8]) -> Queue {
        let mut queue = Queue::default();
        queue.take(bytes);
        queue
    }

    #[test]
    fn line_has_the_form_of_the_contract() {
        let line = request(1_730_000_000_000, "screens/error.png").line();
        let expected = r#"{"ts":1730000000000,"path":"./screens/error.png"}"#;
        assert_eq!(line, format!("{expected}\n"));
    }

    #[test]
    fn malformed_lines_are_skipped_and_unknown_members_ignored() {
        let queue = read(
            b"{\"ts\":1,\"path\":\"a.png\"}\n\
              \n\
              not json\n\
              \xff\xfe\n\
              {\"ts\":2}\n\
              {\"ts\":-1,\"path\":\"a.png\"}\n\
              {\"ts\":3,\"path\":\"../b.png\"}\n\
              [{\"ts\":3,\"path\":\"b.png\"}]\n\
              {\"ts\":4,\"path\":\"b.png\",\"why\":{\"new\":[]}}\r\n\
              {\"ts\":5,\"path\":\"c.pn",
        );
        assert_eq!(queue.last(), Some((RequestNumber(2), &request(4, "b.png"))));
    }

    #[test]
    fn requests_are_ordered_by_line_not_by_time() {
        let mut queue = read(request(9, "a.png").line().as_bytes());
        let open = |queue: &Queue, answered| {
            let open = queue.open(answered);
            open.map(|(RequestNumber(number), request)| (number, request.path.as_str().to_owned()))
                .collect::<Vec<_>>()
        };
        let are = |open: Vec<(u64, String)>, expected: &[(u64, &str)]| {
            let open: Vec<(u64, &str)> = open.iter().map(|(n, path)| (*n, path.as_str())).collect();
            assert_eq!(open, expected);
        };
        are(open(&queue, None), &[(1, "./a.png")]);
        are(open(&queue, Some(RequestNumber(1))), &[]);
        queue.take(request(9, "a.png").line().as_bytes());
        are(open(&queue, Some(RequestNumber(1))), &[(2, "./a.png")]);
        queue.take(request(1, "b.png").line().as_bytes());
        are(open(&queue, Some(RequestNumber(2))), &[(3, "./b.png")]);
        let all = [(1, "./a.png"), (2, "./a.png"), (3, "./b.png")];
        are(open(&queue, None), &all);
        are(open(&queue, Some(RequestNumber(3))), &[]);
    }

    #[test]
    fn open_requests_are_bounded() {
        let mut queue = Queue::default();
        for ts in 1..=100 {
            queue.take(request(ts, "a.png").line().as_bytes());
        }
        let open: Vec<_> = queue.open(Some(RequestNumber(5))).collect();
        assert_eq!(open.len(), KEPT);
        assert_eq!(
            open.first().map(|(number, _)| *number),
            Some(RequestNumber(37))
        );
        assert_eq!(
            open.last().map(|(number, _)| *number),
            Some(RequestNumber(100))
        );
    }

    #[test]
    fn lines_from_before_the_start_are_skipped() {
        let old = request(1, "old.png").line();
        let length = u64::try_from(old.len()).unwrap();
        let mut queue = Queue::after(length);
        assert_eq!(queue.next(length), length);
        assert_eq!(queue.last(), None);
        queue.take(request(2, "new.png").line().as_bytes());
        assert_eq!(
            queue.last(),
            Some((RequestNumber(1), &request(2, "new.png")))
        );
    }

    #[test]
    fn shortened_file_is_read_from_its_beginning() {
        let mut queue = read(b"{\"ts\":1,\"path\":\"a.png\"}\n{\"ts\":2,");
        assert_eq!(queue.next(10), 0);
        let answered = queue.last().map(|(number, _)| number);
        queue.take(request(0, "b.png").line().as_bytes());
        let open: Vec<_> = queue.open(answered).collect();
        assert_eq!(open, [(RequestNumber(2), &request(0, "b.png"))]);
    }

    #[test]
    fn requests_for_other_wrappers_are_skipped() {
        let ours: WrapperId = "ours-1".parse().unwrap();
        let to = |wrapper: &str| {
            let line = request(1, "a.png").line();
            line.replace("}", &format!(",\"wrapper\":\"{wrapper}\"}}"))
        };
        let mut queue = Queue::default().for_wrapper(ours.clone());
        queue.take(to("theirs").as_bytes());
        assert_eq!(queue.last(), None);
        queue.take(to("ours-1").as_bytes());
        assert_eq!(queue.last().unwrap().1.wrapper, Some(ours));
        queue.take(request(1, "a.png").line().as_bytes());
        assert_eq!(queue.last().unwrap().0, RequestNumber(2));
    }

    #[test]
    fn malformed_thread_or_wrapper_is_refused() {
        let line = |thread: &str, wrapper: &str| {
            format!(r#"{{"ts":1,"path":"a.png","thread":{thread},"wrapper":{wrapper}}}"#) + "\n"
        };
        let id = "\"0199a213-81c0-7800-8aa1-bbab2a035a53\"";
        let queue = read(line(id, "\"w\"").as_bytes());
        assert!(queue.last().unwrap().1.thread.is_some());
        let nobodys = read(line(id, "null").as_bytes());
        assert_eq!(nobodys.last().unwrap().1.thread, None);
        for bad in [
            line("\"--last\"", "null"),
            line("7", "null"),
            line(id, "\"\""),
            line(id, "\"a/b\""),
        ] {
            assert_eq!(read(bad.as_bytes()).last(), None, "{bad}");
        }
    }

    #[test]
    fn endless_line_is_dropped() {
        let mut queue = Queue::default();
        for _ in 0..100 {
            queue.take(&[b'x'; 1000]);
        }
        assert!(matches!(queue.line, PartialLine::TooLong));
        queue.take(b"\n");
        queue.take(request(1, "a.png").line().as_bytes());
        assert_eq!(queue.last().unwrap().0, RequestNumber(1));
    }

    #[test]
    fn line_at_the_end_of_a_skipped_part_is_dropped() {
        let mut queue = read(b"{\"ts\":1,");
        queue.skip_to(100);
        assert_eq!(queue.next(100), 100);
        let lines = [request(1, "a.png"), request(2, "b.png")].map(|request| request.line());
        queue.take(lines.concat().as_bytes());
        assert_eq!(queue.last(), Some((RequestNumber(1), &request(2, "b.png"))));
    }

    #[test]
    fn longest_path_fits_into_a_line() {
        let longest = super::super::path::LONGEST_PATH;
        let name = format!("./{}.png", "\"".repeat(longest - 6));
        let queue = read(request(u64::MAX, &name).line().as_bytes());
        assert_eq!(
            queue.last(),
            Some((RequestNumber(1), &request(u64::MAX, &name)))
        );
    }

    proptest! {
        #[test]
        fn requests_do_not_depend_on_how_the_file_is_split(
            lines in proptest::collection::vec(
                prop_oneof![
                    r"[a-z ]{1,9}\.png".prop_map(|path| request(1, &path).line().into_bytes()),
                    proptest::collection::vec(any::<u8>(), 0..40),
                    Just(b"\n".to_vec()),
                ],
                0..12,
            ),
            size in 1_usize..50,
        ) {
            let bytes = lines.concat();
            let whole = read(&bytes);
            let mut parts = Queue::default();
            bytes.chunks(size).for_each(|part| parts.take(part));
            prop_assert_eq!(parts.last(), whole.last());
            prop_assert_eq!(parts.position, u64::try_from(bytes.len()).unwrap());
        }
    }
}
