//! Reads the log for a follower, which also receives texts while they still grow.

use super::{Event, EventData, EventLog, GROWTH_REACH};

/// How far a follower has read a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FollowCursor {
    /// The number of the next event.
    next: u64,
    /// The events that may still grow: their numbers, and how many bytes of their texts were read.
    growing: Vec<(u64, usize)>,
}

/// An item that a follower receives.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowedEvent {
    /// An event.
    New(Event),
    /// More of the text of an event that the follower has.
    More {
        /// The number of the event.
        id: u64,
        /// The text to append.
        text: String,
    },
}

impl FollowCursor {
    /// The place before the event with this number.
    #[must_use]
    pub fn before(next: u64) -> Self {
        Self {
            next,
            growing: Vec::new(),
        }
    }

    /// The number of the next event.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The texts that have grown since they were read.
    fn read_grown(&mut self, log: &EventLog) -> Vec<FollowedEvent> {
        let mut grown = Vec::new();
        for (id, read) in &mut self.growing {
            let Some(text) = log.text_of(*id).and_then(|text| text.get(*read..)) else {
                continue;
            };
            if !text.is_empty() {
                *read += text.len();
                grown.push(FollowedEvent::More {
                    id: *id,
                    text: text.to_owned(),
                });
            }
        }
        grown
    }
}

impl EventLog {
    /// The news for a follower: additions to texts that it has begun to read, then up to `most`
    /// further events, including events that [`EventLog::forget`] has removed. Advances the cursor.
    pub fn follow(&self, cursor: &mut FollowCursor, most: usize) -> Vec<FollowedEvent> {
        let mut news = cursor.read_grown(self);
        for event in self.history(cursor.next, most) {
            cursor.next = event.id + 1;
            if let EventData::TextChunk(chunk) = &event.data {
                cursor.growing.push((event.id, chunk.text.len()));
            }
            news.push(FollowedEvent::New(event.clone()));
        }
        let oldest = self.events.iter().rev().take(GROWTH_REACH).next_back();
        let oldest = oldest.map_or(self.next, |event| event.id);
        cursor.growing.retain(|(id, _)| *id >= oldest);
        news
    }

    /// The text of the event with this number, if it is one that may grow.
    fn text_of(&self, id: u64) -> Option<&str> {
        let position = self
            .events
            .binary_search_by_key(&id, |event| event.id)
            .ok()?;
        match &self.events.get(position)?.data {
            EventData::TextChunk(chunk) => Some(&chunk.text),
            EventData::FixedData(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use codex_protocol::codex::DeltaSource;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::Map;

    use super::super::EventType;
    use super::*;

    fn text(item: &str, text: &str) -> EventData {
        EventData::text(DeltaSource::AgentMessage, "t", item, text)
    }

    /// The texts by number, as a follower that keeps all has them.
    fn read(log: &EventLog, cursor: &mut FollowCursor, known: &mut Vec<(u64, String)>) {
        for one in log.follow(cursor, 3) {
            match one {
                FollowedEvent::New(event) => {
                    let text = match event.data {
                        EventData::TextChunk(chunk) => chunk.text,
                        EventData::FixedData(_) => String::new(),
                    };
                    known.push((event.id, text));
                }
                FollowedEvent::More { id, text } => {
                    let event = known.iter_mut().find(|(known, _)| *known == id);
                    event.unwrap().1.push_str(&text);
                }
            }
        }
    }

    #[test]
    fn growing_text_is_read_in_pieces() {
        let at = SystemTime::UNIX_EPOCH;
        let (mut log, mut cursor) = (EventLog::default(), FollowCursor::default());
        log.push(at, text("a", "one"));
        let first = log.follow(&mut cursor, 10);
        assert!(
            matches!(first.as_slice(), [FollowedEvent::New(_)]),
            "{first:?}"
        );
        assert_eq!(log.follow(&mut cursor, 10), []);
        log.push(at, text("a", " två"));
        let more = FollowedEvent::More {
            id: 0,
            text: " två".to_owned(),
        };
        assert_eq!(log.follow(&mut cursor, 10), [more]);
    }

    #[test]
    fn follower_gets_events_forgotten_for_pollers() {
        let at = SystemTime::UNIX_EPOCH;
        let mut log = EventLog::default();
        for kind in [EventType::Progress, EventType::Result, EventType::Progress] {
            log.push(at, EventData::new(kind, Map::new()));
        }
        log.forget(|event| event.data.kind() == EventType::Result);
        assert_eq!(log.page(0, 10).events.len(), 2);
        let (mut cursor, mut known) = (FollowCursor::default(), Vec::new());
        read(&log, &mut cursor, &mut known);
        let numbers: Vec<u64> = known.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 1, 2]);
    }

    #[test]
    fn forgotten_events_are_bounded() {
        let at = SystemTime::UNIX_EPOCH;
        let mut log = EventLog::default();
        for _ in 0..200 {
            log.push(at, EventData::new(EventType::Result, Map::new()));
            log.forget(|_| true);
        }
        let news = log.follow(&mut FollowCursor::default(), 1000);
        assert_eq!(news.len(), 100);
    }

    proptest! {
        /// However often it reads, a follower has the texts that the log has.
        #[test]
        fn follower_has_what_the_log_has(
            steps in vec((0_usize..4, "[aä\u{1F600}]{0,3}", any::<bool>(), any::<bool>()), 0..60),
        ) {
            let at = SystemTime::UNIX_EPOCH;
            let (mut log, mut cursor) = (EventLog::default(), FollowCursor::default());
            let mut known = Vec::new();
            for (item, piece, is_text, reads) in steps {
                log.push(at, match is_text {
                    true => text(&item.to_string(), &piece),
                    false => EventData::new(EventType::Progress, Map::new()),
                });
                if reads {
                    read(&log, &mut cursor, &mut known);
                }
            }
            while cursor.next() < log.next_id() {
                read(&log, &mut cursor, &mut known);
            }
            read(&log, &mut cursor, &mut known);
            let whole: Vec<(u64, String)> = log.page(0, usize::MAX).events.into_iter().map(|event| {
                (event.id, log.text_of(event.id).unwrap_or_default().to_owned())
            }).collect();
            prop_assert_eq!(known, whole);
        }
    }
}
