//! The event log of a session, for readers that poll from time to time.
//!
//! ```text
//!   push ──► │ 17 │ 18 │ 19 │  …  │ 1016 │ 1017 ◄── grows while nobody has read it
//!              ▲ evicted first        ▲ read up to here
//! ```
//!
//! The numbers of events rise by one, so a reader notices from the numbers alone whether
//! events are missing. The log holds [`SOFT`] events; beyond that, the oldest transient
//! one is evicted. Events of higher [`Rank`] stay up to [`HARD`].

mod event;
mod follow;
mod poll;
mod shape;
mod words;

use std::collections::VecDeque;
use std::time::SystemTime;

pub use event::{EVENT_LIMIT, Event, EventData, EventType, FixedData, TextChunk};
pub use follow::{FollowCursor, FollowedEvent};
pub use poll::{FLOOR, Poll, PollContent, PollOptions};
pub use shape::ResponseMode;

/// The limits of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Events.
    pub events: usize,
    /// Bytes, as the events' data would be written in JSON.
    pub bytes: usize,
}

/// The limit beyond which transient events are evicted: 1,000 events, 8 MiB.
pub const SOFT: Limit = Limit {
    events: 1000,
    bytes: 8 << 20,
};

/// The limit beyond which any event is evicted: 2,000 events, 16 MiB.
pub const HARD: Limit = Limit {
    events: 2000,
    bytes: 16 << 20,
};

/// The longest text of an event that grows, in characters.
pub const GROWTH_LIMIT: usize = 16_384;

/// The most forgotten events that are still kept for followers and the history: 100 events, 1 MiB.
const FORGOTTEN: Limit = Limit {
    events: 100,
    bytes: 1 << 20,
};

/// How many events back to look for an event to which new text is appended. The output of parallel
/// commands is interleaved, so the matching event need not be the last.
const GROWTH_REACH: usize = 8;

/// The importance of an event; events of lower rank are evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Of interest only while it happens.
    Transient,
    /// A question that has been answered, and its answer.
    Settled,
    /// Results, errors, and questions that are open.
    Essential,
}

/// The event log of a session.
#[derive(Debug, Default)]
pub struct EventLog {
    events: VecDeque<Event>,
    /// The latest of the forgotten events, for followers and the history.
    forgotten: VecDeque<Event>,
    /// The number of the first event that it has ever had.
    first: u64,
    next: u64,
    /// Events below this number were shown to a reader, and never change.
    read_to: u64,
    bytes: usize,
}

/// The events from a cursor on.
#[derive(Debug)]
pub struct Page<'a> {
    /// The events, oldest first.
    pub events: Vec<&'a Event>,
    /// The number of the first available event, if events between the requested cursor
    /// and that one are gone.
    pub reset_to: Option<u64>,
}

impl Page<'_> {
    /// How many events between the first and the last one here are gone.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        match (self.events.first(), self.events.last()) {
            (Some(first), Some(last)) => last.id - first.id + 1 - self.events.len() as u64,
            _ => 0,
        }
    }
}

impl EventLog {
    /// An empty log whose first event gets this number.
    #[must_use]
    pub fn starting_at(next: u64) -> Self {
        Self {
            first: next,
            next,
            ..Self::default()
        }
    }

    /// The number of the first event that it has ever had.
    #[must_use]
    pub fn first_id(&self) -> u64 {
        self.first
    }

    /// The number that the next event gets.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next
    }

    /// The number up to which events have been read.
    #[must_use]
    pub fn read_to(&self) -> u64 {
        self.read_to
    }

    /// The number below which no event grows any more.
    #[must_use]
    pub fn settled_to(&self) -> u64 {
        let latest = self.events.iter().rev().take(GROWTH_REACH);
        let growing = latest.take_while(|event| matches!(event.data, EventData::TextChunk(_)));
        growing.last().map_or(self.next, |event| event.id)
    }

    /// Whether there is an event at or after `cursor`.
    #[must_use]
    pub fn has_news(&self, cursor: u64) -> bool {
        self.events.back().is_some_and(|event| event.id >= cursor)
    }

    /// Adds an event, or lengthens one that nobody has read.
    pub fn push(&mut self, at: SystemTime, data: EventData) {
        match data {
            EventData::TextChunk(growing) => {
                let rest = self.grow(growing);
                for piece in rest.iter().flat_map(TextChunk::pieces) {
                    self.append(at, EventData::TextChunk(piece));
                }
            }
            fixed @ EventData::FixedData(_) => self.append(at, fixed),
        }
        self.evict();
    }

    fn append(&mut self, at: SystemTime, data: EventData) {
        self.bytes += data.size();
        self.events.push_back(Event {
            id: self.next,
            at,
            data,
        });
        self.next += 1;
    }

    /// Removes the events that match the predicate, such as the end of an old turn. Followers and the
    /// [`history`](Self::history) still have the latest of them.
    pub fn forget(&mut self, of_no_use: impl Fn(&Event) -> bool) {
        let events = std::mem::take(&mut self.events).into_iter();
        let (forgotten, kept): (VecDeque<_>, VecDeque<_>) = events.partition(of_no_use);
        self.events = kept;
        self.bytes = bytes_of(&self.events);
        self.forgotten.extend(forgotten);
        while self.forgotten.len() > FORGOTTEN.events || bytes_of(&self.forgotten) > FORGOTTEN.bytes
        {
            self.forgotten.pop_front();
        }
    }

    /// Marks a question as answered, which lowers its rank.
    pub fn settle(&mut self, request: &str) {
        for event in &mut self.events {
            event.data.settle(request);
        }
    }

    /// The words for how a question was closed; `None` if the log does not have that event.
    #[must_use]
    pub fn closing_of(&self, request: &str) -> Option<String> {
        let is_closing = |event: &&Event| event.data.kind() == EventType::ApprovalResult;
        let closings = self.events.iter().rev().filter(is_closing);
        let closing = closings
            .filter_map(|event| event.data.fixed())
            .find(|data| data.get("requestId").is_some_and(|id| id == request));
        closing.as_ref().map(words::closing)
    }

    /// The events from `cursor` on, `most` at most.
    #[must_use]
    pub fn page(&self, cursor: u64, most: usize) -> Page<'_> {
        let start = self.events.partition_point(|event| event.id < cursor);
        let events: Vec<&Event> = self.events.range(start..).take(most).collect();
        let first = self.events.get(start).map_or(self.next, |event| event.id);
        Page {
            events,
            reset_to: (first > cursor).then_some(first),
        }
    }

    /// The events from `cursor` on, `most` at most, with those that [`forget`](Self::forget) has
    /// removed.
    #[must_use]
    pub fn history(&self, cursor: u64, most: usize) -> Vec<&Event> {
        let mut events = self.page(cursor, most).events;
        let forgotten = self.forgotten.iter();
        events.extend(forgotten.filter(|event| event.id >= cursor));
        events.sort_by_key(|event| event.id);
        events.truncate(most);
        events
    }

    /// Notes that all events below `cursor` have been shown.
    pub fn mark_read(&mut self, cursor: u64) {
        self.read_to = self.read_to.max(cursor.min(self.next));
    }

    /// Appends text to an unread event of the same text. Returns the text that does not
    /// fit.
    fn grow(&mut self, mut more: TextChunk) -> Option<TextChunk> {
        let read_to = self.read_to;
        let candidates = self.events.iter_mut().rev().take(GROWTH_REACH);
        for event in candidates.take_while(|event| event.id >= read_to) {
            let EventData::TextChunk(growing) = &mut event.data else {
                break;
            };
            if growing.is_same_text(&more) {
                let before = growing.size();
                let rest = growing.append(more);
                self.bytes += growing.size() - before;
                more = rest?;
                break;
            }
        }
        Some(more)
    }

    fn evict(&mut self) {
        while self.exceeds(SOFT) && self.evict_oldest(Rank::Transient) {}
        while self.exceeds(HARD) {
            let _ = self.evict_oldest(Rank::Transient)
                || self.evict_oldest(Rank::Settled)
                || self.evict_oldest(Rank::Essential);
        }
    }

    fn exceeds(&self, limit: Limit) -> bool {
        self.events.len() > limit.events || self.bytes > limit.bytes
    }

    fn evict_oldest(&mut self, rank: Rank) -> bool {
        let of_rank = |event: &Event| event.data.rank() == rank;
        let Some(position) = self.events.iter().position(of_rank) else {
            return false;
        };
        if let Some(event) = self.events.remove(position) {
            self.bytes -= event.data.size();
        }
        true
    }
}

fn bytes_of(events: &VecDeque<Event>) -> usize {
    events.iter().map(|event| event.data.size()).sum()
}

#[cfg(test)]
mod tests;
