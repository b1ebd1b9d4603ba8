//! Bounded framing of messages, one per line or each with a header.
//!
//! [`LineDecoder`] owns the read buffer and never holds more than one line of at most
//! `limit` bytes (plus one read's worth of what follows it). A longer line is reported
//! once, as [`Frame::TooLong`], its bytes are discarded as they arrive, and decoding
//! continues with the next line.
//!
//! ```text
//!            newline within the limit: Frame::Line
//!          ┌───────┐
//!          ▼       │    limit passed
//!        Keeping ──┘ ───────────────────► Discarding
//!          ▲                                  │
//!          └──────────────────────────────────┘
//!               newline: Frame::TooLong
//! ```
//!
//! A decoder [with headers](LineDecoder::with_headers) also takes messages as
//! the Language Server Protocol frames them, with `Content-Length: N`, an empty
//! line, and N bytes. Both kinds may be mixed.

use std::ops::Range;

/// The longest line that is accepted where nothing else is configured: 16 MiB, newline
/// not counted. rmcp's stdio transport has the same limit.
pub const DEFAULT_LINE_LIMIT: usize = 16 * 1024 * 1024;

/// The space offered to a single read, in bytes.
const READ_SIZE: usize = 64 * 1024;

/// The capacity beyond which a buffer that grew for a long line is shrunk afterwards.
const KEEP_CAPACITY: usize = 1024 * 1024;

/// The result of [`LineDecoder::next_frame`].
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A whole line, without its newline and without a carriage return before it.
    Line(&'a [u8]),
    /// A line longer than the limit ended; its bytes are gone.
    TooLong {
        /// How long the line was, in bytes.
        length: u64,
        /// Its beginning: at most [`HEAD`] bytes, enough to identify the message.
        head: &'a [u8],
    },
}

/// The length of the beginning that is kept of a line over the limit, in bytes.
pub const HEAD: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Keeping,
    /// Discarding a line of which this many bytes have been read.
    Discarding(u64),
    /// In the header of a message of this many bytes.
    Header(usize),
    /// In a header line that is too long; it is discarded.
    LongHeader(usize),
    /// Waiting for a message of this many bytes.
    Body(usize),
    /// Discarding the rest of a message of `length` bytes, of which `left` are missing.
    DiscardingBody {
        left: usize,
        length: usize,
    },
}

/// How messages are separated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Framing {
    /// Each is a line.
    #[default]
    Lines,
    /// Each has a header that states its length.
    Headers,
}

impl Framing {
    /// Frames a message for writing.
    #[must_use]
    pub fn frame(self, mut message: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Lines => {
                message.push(b'\n');
                message
            }
            Self::Headers => {
                let mut framed =
                    format!("{CONTENT_LENGTH}: {}\r\n\r\n", message.len()).into_bytes();
                framed.append(&mut message);
                framed
            }
        }
    }
}

/// The header that states a message's length, see the base protocol of the Language
/// Server Protocol.
const CONTENT_LENGTH: &str = "Content-Length";

/// The longest line of a header, in bytes.
const HEADER_LIMIT: usize = 256;

/// Cuts a byte stream into lines of bounded length.
#[derive(Debug)]
pub struct LineDecoder {
    limit: usize,
    buffer: Vec<u8>,
    /// Bytes before this position have been handed out.
    start: usize,
    /// Bytes of `buffer` from here on are free space for the next read.
    end: usize,
    /// Bytes between `start` and here hold no newline.
    searched: usize,
    mode: Mode,
    /// The beginning of the line that is being discarded.
    head: Vec<u8>,
    /// The framing of the last message; `None` if headers are not supported.
    framing: Option<Framing>,
}

impl LineDecoder {
    /// A decoder for lines of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            searched: 0,
            mode: Mode::Keeping,
            head: Vec::new(),
            framing: None,
        }
    }

    /// A decoder for messages of at most `limit` bytes that may have headers.
    #[must_use]
    pub fn with_headers(limit: usize) -> Self {
        Self {
            framing: Some(Framing::Lines),
            ..Self::new(limit)
        }
    }

    /// The framing of the last message.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing.unwrap_or_default()
    }

    /// Free space for the next read. Report the number of bytes written there with
    /// [`filled`](Self::filled).
    pub fn space(&mut self) -> &mut [u8] {
        self.compact();
        let wanted = self.end + READ_SIZE;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// Notes that the first `count` bytes of the last [`space`](Self::space) now hold
    /// input.
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Notes the end of the input: the last line may lack its newline.
    pub fn end_line(&mut self) {
        if let Some(space) = self.space().first_mut() {
            *space = b'\n';
            self.filled(1);
        }
    }

    /// The next frame, or `None` if more input is needed.
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        loop {
            match self.mode {
                Mode::Body(length) => return self.body(length),
                Mode::DiscardingBody { left, length } => return self.discard(left, length),
                Mode::Keeping | Mode::Discarding(_) | Mode::Header(_) | Mode::LongHeader(_) => {}
            }
            let unsearched = self.buffer.get(self.searched..self.end)?;
            let Some(offset) = memchr::memchr(b'\n', unsearched) else {
                self.no_newline_yet();
                return None;
            };
            let newline = self.searched + offset;
            if !self.is_header(newline) {
                return Some(self.line_ends_at(newline));
            }
        }
    }

    /// Handles a line as part of a header; `false` if it is none.
    fn is_header(&mut self, newline: usize) -> bool {
        let before = match (self.framing, self.mode) {
            (Some(_), Mode::Keeping) => None,
            (Some(_), Mode::Header(length) | Mode::LongHeader(length)) => Some(length),
            _ => return false,
        };
        let line = self.buffer.get(self.start..newline).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let length = content_length(line);
        self.mode = match (before, length) {
            (Some(length), _) if matches!(self.mode, Mode::LongHeader(_)) => Mode::Header(length),
            (_, Some(length)) => Mode::Header(length),
            (None, None) => return false,
            (Some(length), None) if !line.is_empty() => Mode::Header(length),
            (Some(length), None) if length > self.limit => Mode::DiscardingBody {
                left: length,
                length,
            },
            (Some(length), None) => Mode::Body(length),
        };
        self.framing = Some(Framing::Headers);
        self.start = newline + 1;
        self.searched = self.start;
        true
    }

    fn body(&mut self, length: usize) -> Option<Frame<'_>> {
        let end = self.start + length;
        if end > self.end {
            return None;
        }
        let body = self.start..end;
        self.start = end;
        self.searched = end;
        self.mode = Mode::Keeping;
        Some(Frame::Line(self.buffer.get(body).unwrap_or_default()))
    }

    fn discard(&mut self, left: usize, length: usize) -> Option<Frame<'_>> {
        if left == length {
            self.head.clear();
        }
        let pending = self.end - self.start;
        let gone = pending.min(left);
        let seen = self.start..self.start + gone;
        let missing = HEAD.saturating_sub(self.head.len());
        let bytes = self.buffer.get(seen).unwrap_or_default();
        self.head
            .extend_from_slice(bytes.get(..missing).unwrap_or(bytes));
        self.start += gone;
        self.searched = self.start;
        let left = left - gone;
        if left > 0 {
            self.mode = Mode::DiscardingBody { left, length };
            return None;
        }
        self.mode = Mode::Keeping;
        Some(Frame::TooLong {
            length: length as u64,
            head: &self.head,
        })
    }

    fn line_ends_at(&mut self, newline: usize) -> Frame<'_> {
        let line = self.start..newline;
        self.start = newline + 1;
        self.searched = self.start;
        let length = line.len();
        let mode = std::mem::replace(&mut self.mode, Mode::Keeping);
        // An empty line is no message: some clients send one after a message with a
        // header.
        if let Some(framing) = &mut self.framing
            && (length > 1 || matches!(mode, Mode::Discarding(_)))
        {
            *framing = Framing::Lines;
        }
        match mode {
            Mode::Discarding(seen) => Frame::TooLong {
                length: seen + length as u64,
                head: &self.head,
            },
            Mode::Keeping if length > self.limit => Frame::TooLong {
                length: length as u64,
                head: head_of(&self.buffer, line),
            },
            // The other modes never reach this point: their lines are headers.
            _ => {
                let bytes = self.buffer.get(line).unwrap_or_default();
                Frame::Line(bytes.strip_suffix(b"\r").unwrap_or(bytes))
            }
        }
    }

    fn no_newline_yet(&mut self) {
        self.searched = self.end;
        let pending = self.end - self.start;
        let seen = match self.mode {
            Mode::Discarding(seen) => seen,
            // A carriage return at the end is not part of the line.
            Mode::Header(length) | Mode::LongHeader(length) if pending > HEADER_LIMIT + 1 => {
                self.mode = Mode::LongHeader(length);
                return self.throw_away();
            }
            Mode::Keeping if pending > self.limit => {
                self.head.clear();
                self.head
                    .extend_from_slice(head_of(&self.buffer, self.start..self.end));
                0
            }
            _ => return,
        };
        self.mode = Mode::Discarding(seen + pending as u64);
        self.throw_away();
    }

    fn throw_away(&mut self) {
        self.start = 0;
        self.end = 0;
        self.searched = 0;
    }

    /// Moves pending bytes to the front, so that free space is only needed after them.
    fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.searched -= self.start;
            self.start = 0;
        }
        if self.buffer.len() > KEEP_CAPACITY && self.end + READ_SIZE < KEEP_CAPACITY {
            self.buffer.truncate(self.end + READ_SIZE);
            self.buffer.shrink_to_fit();
        }
    }
}

/// The length stated by a header line, if it is a `Content-Length` header.
fn content_length(line: &[u8]) -> Option<usize> {
    if line.len() > HEADER_LIMIT {
        return None;
    }
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    match name.trim().eq_ignore_ascii_case(CONTENT_LENGTH) {
        true => value.trim().parse().ok(),
        false => None,
    }
}

fn head_of(buffer: &[u8], line: Range<usize>) -> &[u8] {
    let line = buffer.get(line).unwrap_or_default();
    line.get(..HEAD).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Clone)]
    enum Owned {
        Line(Vec<u8>),
        TooLong(u64),
    }

    fn feed(decoder: &mut LineDecoder, mut bytes: &[u8], frames: &mut Vec<Owned>) {
        while !bytes.is_empty() {
            let space = decoder.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            decoder.filled(count);
            bytes = &bytes[count..];
            while let Some(frame) = decoder.next_frame() {
                frames.push(match frame {
                    Frame::Line(line) => Owned::Line(line.to_vec()),
                    Frame::TooLong { length, .. } => Owned::TooLong(length),
                });
            }
        }
    }

    fn decode(limit: usize, chunks: &[&[u8]]) -> (Vec<Owned>, Vec<u8>) {
        let mut decoder = LineDecoder::new(limit);
        let mut frames = Vec::new();
        for chunk in chunks {
            feed(&mut decoder, chunk, &mut frames);
        }
        let rest = decoder.buffer[decoder.start..decoder.end].to_vec();
        (frames, rest)
    }

    #[test]
    fn empty_line_does_not_change_the_framing() {
        let mut decoder = LineDecoder::with_headers(100);
        let mut frames = Vec::new();
        let framed = b"Content-Length: 2\r\n\r\n{}\n";
        feed(&mut decoder, framed, &mut frames);
        assert_eq!(
            frames,
            [Owned::Line(b"{}".to_vec()), Owned::Line(Vec::new())]
        );
        assert_eq!(decoder.framing(), Framing::Headers);
        decoder.end_line();
        assert!(decoder.next_frame().is_some());
        assert_eq!(decoder.framing(), Framing::Headers);
        feed(&mut decoder, b"{}\n", &mut frames);
        assert_eq!(decoder.framing(), Framing::Lines);
    }

    #[test]
    fn endless_header_is_discarded_and_its_message_is_read() {
        let mut decoder = LineDecoder::with_headers(100);
        let mut frames = Vec::new();
        feed(&mut decoder, b"Content-Length: 2\r\nX-A: ", &mut frames);
        for _ in 0..100 {
            feed(&mut decoder, &[b'x'; 50_000], &mut frames);
        }
        assert!(
            decoder.buffer.len() <= 4 * READ_SIZE,
            "{}",
            decoder.buffer.len()
        );
        feed(&mut decoder, b"\r\n\r\n{}", &mut frames);
        assert_eq!(frames, [Owned::Line(b"{}".to_vec())]);
    }

    #[test]
    fn header_line_at_the_limit_is_read_however_it_arrives() {
        let mut line = b"Content-Length:2".to_vec();
        line.resize(HEADER_LIMIT, b' ');
        let stream = [b"Content-Length: 1\r\n", &line[..], b"\r\n\r\n{}"].concat();
        for size in 1..stream.len() {
            let mut decoder = LineDecoder::with_headers(100);
            let mut frames = Vec::new();
            for chunk in stream.chunks(size) {
                feed(&mut decoder, chunk, &mut frames);
            }
            assert_eq!(frames, [Owned::Line(b"{}".to_vec())], "{size}");
        }
    }

    #[test]
    fn lines_are_whole_however_the_bytes_arrive() {
        let (frames, rest) = decode(100, &[b"on", b"e\r\ntw", b"o\n\nthr"]);
        assert_eq!(
            frames,
            [
                Owned::Line(b"one".to_vec()),
                Owned::Line(b"two".to_vec()),
                Owned::Line(Vec::new())
            ]
        );
        assert_eq!(rest, b"thr");
    }

    #[test]
    fn line_over_the_limit_is_reported_once_and_the_next_one_is_read() {
        let long = vec![b'x'; 300_000];
        let (frames, rest) = decode(10, &[b"ok\n", &long, &long, b"\nnext\n"]);
        assert_eq!(
            frames,
            [
                Owned::Line(b"ok".to_vec()),
                Owned::TooLong(600_000),
                Owned::Line(b"next".to_vec())
            ]
        );
        assert!(rest.is_empty());
    }

    #[test]
    fn line_over_the_limit_keeps_its_beginning() {
        let mut line = b"head".to_vec();
        line.resize(2_000, b'x');
        for chunks in [
            vec![&line[..], b"\n"],
            vec![&line[..1_500], &line[1_500..], b"\n"],
        ] {
            let mut decoder = LineDecoder::new(1_000);
            for chunk in &chunks {
                assert_eq!(decoder.next_frame(), None);
                decoder.space()[..chunk.len()].copy_from_slice(chunk);
                decoder.filled(chunk.len());
            }
            let head = &line[..HEAD];
            let length = 2_000;
            assert_eq!(decoder.next_frame(), Some(Frame::TooLong { length, head }));
        }
    }

    #[test]
    fn discarded_line_takes_no_memory() {
        let mut decoder = LineDecoder::new(1_000);
        let mut frames = Vec::new();
        for _ in 0..2_000 {
            feed(&mut decoder, &[b'x'; 50_000], &mut frames);
        }
        assert!(decoder.buffer.len() <= 2 * READ_SIZE + 1_000);
    }

    #[test]
    fn memory_of_a_long_line_is_released() {
        let mut decoder = LineDecoder::new(DEFAULT_LINE_LIMIT);
        let mut frames = Vec::new();
        feed(&mut decoder, &vec![b'x'; 10_000_000], &mut frames);
        feed(&mut decoder, b"\nshort\n", &mut frames);
        decoder.space();
        assert!(decoder.buffer.capacity() <= 2 * KEEP_CAPACITY);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn decoder_agrees_with_splitting_the_whole_input(
            input in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(b'\r')], 0..200),
            cuts in proptest::collection::vec(1usize..20, 1..40),
            limit in 0usize..12,
        ) {
            let mut chunks = Vec::new();
            let mut rest = input.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            let mut parts: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
            let unfinished = parts.pop().unwrap();
            let expected: Vec<Owned> = parts.into_iter().map(|line| {
                if line.len() > limit {
                    Owned::TooLong(line.len() as u64)
                } else {
                    Owned::Line(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
                }
            }).collect();
            let (frames, rest) = decode(limit, &chunks);
            prop_assert_eq!(frames, expected);
            if unfinished.len() <= limit {
                prop_assert_eq!(rest, unfinished);
            }
        }
    }

    fn framed(body: &str) -> Vec<u8> {
        Framing::Headers.frame(body.as_bytes().to_vec())
    }

    fn decode_framed(limit: usize, chunks: &[&[u8]]) -> (Vec<Owned>, Framing) {
        let mut decoder = LineDecoder::with_headers(limit);
        let mut frames = Vec::new();
        for chunk in chunks {
            feed(&mut decoder, chunk, &mut frames);
        }
        (frames, decoder.framing())
    }

    #[test]
    fn messages_with_headers_are_whole_however_the_bytes_arrive() {
        let mut all = framed("{\n\"one\":1}\n");
        all.extend(b"content-length:3\nContent-Type: x\n\nabc{\"line\":1}\n");
        all.extend(framed("ß"));
        let expected: Vec<Owned> = ["{\n\"one\":1}\n", "abc", "{\"line\":1}", "ß"]
            .iter()
            .map(|text| Owned::Line(text.as_bytes().to_vec()))
            .collect();
        let bytewise: Vec<&[u8]> = all.chunks(1).collect();
        for chunks in [vec![all.as_slice()], bytewise] {
            let (frames, framing) = decode_framed(100, &chunks);
            assert_eq!((frames, framing), (expected.clone(), Framing::Headers));
        }
    }

    #[test]
    fn message_over_the_limit_is_discarded_and_the_next_one_is_read() {
        let mut all = framed(&"x".repeat(1000));
        all.extend(b"line\n");
        let bytewise: Vec<&[u8]> = all.chunks(7).collect();
        for chunks in [vec![all.as_slice()], bytewise] {
            let (frames, framing) = decode_framed(100, &chunks);
            assert_eq!(
                frames,
                [Owned::TooLong(1000), Owned::Line(b"line".to_vec())]
            );
            assert_eq!(framing, Framing::Lines);
        }
    }

    #[test]
    fn line_over_the_limit_ends_headers_however_it_arrives() {
        let all = [framed("{}"), vec![b'x'; 150], b"\n".to_vec()].concat();
        let bytewise: Vec<&[u8]> = all.chunks(1).collect();
        for chunks in [vec![all.as_slice()], bytewise] {
            let (frames, framing) = decode_framed(100, &chunks);
            assert_eq!(frames, [Owned::Line(b"{}".to_vec()), Owned::TooLong(150)]);
            assert_eq!(framing, Framing::Lines);
        }
    }

    #[test]
    fn header_is_a_line_without_header_support() {
        let (frames, _) = decode(100, &[b"Content-Length: 1\n"]);
        assert_eq!(frames, [Owned::Line(b"Content-Length: 1".to_vec())]);
    }
}
