//! Lines and messages with headers, in pieces of any size.
//!
//! Input: a byte that chooses the framing, the limit and the pieces, and the stream.

use codex_protocol::lines::{Frame, Framing, HEAD, LineDecoder};

/// Limits beyond the beginning that is kept of a long line.
const LIMITS: [usize; 2] = [300, 600];

/// The sizes of pieces; 0 stands for the whole stream at once.
const PIECES: [usize; 8] = [0, 1, 2, 3, 7, 64, 256, 257];

#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    Message(Vec<u8>),
    TooLong { length: u64, head: Vec<u8> },
}

/// Tests one input.
pub fn run(data: &[u8]) {
    let Some((choice, stream)) = data.split_first() else {
        return;
    };
    let piece = PIECES[usize::from(choice >> 2) % PIECES.len()];
    match choice & 1 {
        0 => lines(stream, LIMITS[usize::from(choice >> 1 & 1)], piece),
        _ => messages(stream, LIMITS[1], piece),
    }
    frame_and_decode(stream);
}

fn decode(decoder: &mut LineDecoder, stream: &[u8], piece: usize) -> Vec<Decoded> {
    let mut decoded = Vec::new();
    let size = if piece == 0 { stream.len() } else { piece };
    for mut rest in stream.chunks(size.max(1)) {
        while !rest.is_empty() {
            let space = decoder.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            decoder.filled(count);
            rest = &rest[count..];
            while let Some(frame) = decoder.next_frame() {
                decoded.push(owned(&frame));
            }
        }
    }
    decoded
}

fn owned(frame: &Frame<'_>) -> Decoded {
    match frame {
        Frame::Line(line) => Decoded::Message(line.to_vec()),
        Frame::TooLong { length, head } => Decoded::TooLong {
            length: *length,
            head: head.to_vec(),
        },
    }
}

/// Compares lines with those of a split at all newlines.
fn lines(stream: &[u8], limit: usize, piece: usize) {
    let decoded = decode(&mut LineDecoder::new(limit), stream, piece);
    let ended = stream.split_inclusive(|byte| *byte == b'\n');
    let ended = ended.filter_map(|line| line.strip_suffix(b"\n"));
    let expected: Vec<Decoded> = ended.map(|line| of_line(line, limit)).collect();
    assert_eq!(decoded, expected);
}

fn of_line(line: &[u8], limit: usize) -> Decoded {
    match line.len() > limit {
        true => too_long(line),
        false => Decoded::Message(line.strip_suffix(b"\r").unwrap_or(line).to_vec()),
    }
}

fn too_long(message: &[u8]) -> Decoded {
    Decoded::TooLong {
        length: message.len() as u64,
        head: message[..message.len().min(HEAD)].to_vec(),
    }
}

/// Compares messages with those of a reader that has the whole stream.
fn messages(stream: &[u8], limit: usize, piece: usize) {
    let mut decoder = LineDecoder::with_headers(limit);
    let decoded = decode(&mut decoder, stream, piece);
    let (expected, framing) = naive_messages(stream, limit);
    assert_eq!(decoded, expected);
    assert_eq!(decoder.framing(), framing);
}

fn naive_messages(mut rest: &[u8], limit: usize) -> (Vec<Decoded>, Framing) {
    let mut messages = Vec::new();
    let mut framing = Framing::Lines;
    // The length of the message whose header is being read.
    let mut wanted = None;
    while let Some(newline) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..newline];
        rest = &rest[newline + 1..];
        let plain = line.strip_suffix(b"\r").unwrap_or(line);
        let stated = naive_length(plain);
        match (wanted, stated) {
            (_, Some(_)) => (wanted, framing) = (stated, Framing::Headers),
            (Some(length), None) if plain.is_empty() => {
                if rest.len() < length {
                    break;
                }
                let (body, after) = rest.split_at(length);
                messages.push(match length > limit {
                    true => too_long(body),
                    false => Decoded::Message(body.to_vec()),
                });
                (rest, wanted) = (after, None);
            }
            (Some(_), None) => {}
            (None, None) => {
                messages.push(of_line(line, limit));
                if line.len() > 1 {
                    framing = Framing::Lines;
                }
            }
        }
    }
    (messages, framing)
}

fn naive_length(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line)
        .ok()
        .filter(|line| line.len() <= 256)?;
    let (name, length) = line.split_once(':')?;
    let is_length = name.trim().eq_ignore_ascii_case("content-length");
    is_length.then(|| length.trim().parse().ok()).flatten()
}

/// A message that we frame is read as it is.
fn frame_and_decode(message: &[u8]) {
    let headed = Framing::Headers.frame(message.to_vec());
    // The header of a shorter message is longer than the message.
    let mut decoder = LineDecoder::with_headers(message.len().max(LIMITS[0]));
    let decoded = decode(&mut decoder, &headed, 5);
    assert_eq!(decoded, [Decoded::Message(message.to_vec())]);
    if !message.contains(&b'\n') && !message.ends_with(b"\r") {
        let line = Framing::Lines.frame(message.to_vec());
        let decoded = decode(&mut LineDecoder::new(message.len()), &line, 5);
        assert_eq!(decoded, [Decoded::Message(message.to_vec())]);
    }
}
