//! The events of a session: what somebody who looks in from time to time has
//! missed.
//!
//! ```text
//!   push ──► │ 17 │ 18 │ 19 │  …  │ 1016 │ 1017 ◄── grows while nobody has read it
//!              ▲ evicted first        ▲ read up to here
//! ```
//!
//! Events have numbers that only ever rise by one, so a reader sees by the
//! numbers alone whether something is gone. The log holds [`SOFT`] events;
//! beyond that the oldest that is of passing interest goes. What matters (see
//! [`Rank`]) stays until there are [`HARD`].

mod event;
mod poll;
mod shape;

use std::collections::VecDeque;
use std::time::SystemTime;

pub use event::{EVENT_LIMIT, Event, EventData, EventType, Fixed, Growing};
pub use poll::{FLOOR, Poll, PollOptions, Shown};
pub use shape::ResponseMode;

/// How much a log may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Events.
    pub events: usize,
    /// Bytes, as the events' data would be written in JSON.
    pub bytes: usize,
}

/// Beyond this, what is of passing interest is evicted: 1,000 events, 8 MiB.
pub const SOFT: Limit = Limit {
    events: 1000,
    bytes: 8 << 20,
};

/// Beyond this, anything is evicted: 2,000 events, 16 MiB.
pub const HARD: Limit = Limit {
    events: 2000,
    bytes: 16 << 20,
};

/// How long an event of growing text may get, in characters.
pub const GROWTH_LIMIT: usize = 16_384;

/// How far back an event is looked for that new text belongs to: commands that
/// run side by side print in turn.
const GROWTH_REACH: usize = 8;

/// How much an event matters; what matters less goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Of interest while it happens.
    Passing,
    /// A question that has been answered, and its answer.
    Settled,
    /// Results, errors, and questions that are open.
    Kept,
}

/// A log.
#[derive(Debug, Default)]
pub struct EventLog {
    events: VecDeque<Event>,
    next: u64,
    /// What has been shown to a reader never changes: all below this.
    read_to: u64,
    bytes: usize,
}

/// What a reader finds from a place on.
#[derive(Debug)]
pub struct Page<'a> {
    /// The events, oldest first.
    pub events: Vec<&'a Event>,
    /// Set if events are gone between the place asked for and the first one
    /// here: the number to go on from, which is the first one's.
    pub reset_to: Option<u64>,
}

impl Page<'_> {
    /// How many are gone between the first and the last event here.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        match (self.events.first(), self.events.last()) {
            (Some(first), Some(last)) => last.id - first.id + 1 - self.events.len() as u64,
            _ => 0,
        }
    }
}

impl EventLog {
    /// The number that the next event gets.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next
    }

    /// Up to where events have been read.
    #[must_use]
    pub fn read_to(&self) -> u64 {
        self.read_to
    }

    /// Whether there is something at or after `cursor`.
    #[must_use]
    pub fn has_news(&self, cursor: u64) -> bool {
        self.events.back().is_some_and(|event| event.id >= cursor)
    }

    /// Adds an event, or lengthens one that nobody has read.
    pub fn push(&mut self, at: SystemTime, data: EventData) {
        match data {
            EventData::Growing(growing) => {
                let rest = self.grow(growing);
                for piece in rest.iter().flat_map(Growing::pieces) {
                    self.append(at, EventData::Growing(piece));
                }
            }
            fixed @ EventData::Fixed(_) => self.append(at, fixed),
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

    /// Lets events go that the predicate picks: an old turn's end, say.
    pub fn forget(&mut self, of_no_use: impl Fn(&Event) -> bool) {
        self.events.retain(|event| !of_no_use(event));
        self.bytes = self.events.iter().map(|event| event.data.size()).sum();
    }

    /// Marks a question as answered, so that it matters less from now on.
    pub fn settle(&mut self, request: &str) {
        for event in &mut self.events {
            event.data.settle(request);
        }
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

    /// Notes that everything below `cursor` has been shown.
    pub fn mark_read(&mut self, cursor: u64) {
        self.read_to = self.read_to.max(cursor.min(self.next));
    }

    /// Appends to an unread event of the same text. Returns what doesn't go
    /// there.
    fn grow(&mut self, mut more: Growing) -> Option<Growing> {
        let read_to = self.read_to;
        let candidates = self.events.iter_mut().rev().take(GROWTH_REACH);
        for event in candidates.take_while(|event| event.id >= read_to) {
            let EventData::Growing(growing) = &mut event.data else {
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
        while self.exceeds(SOFT) && self.evict_oldest(Rank::Passing) {}
        while self.exceeds(HARD) {
            let _ = self.evict_oldest(Rank::Passing)
                || self.evict_oldest(Rank::Settled)
                || self.evict_oldest(Rank::Kept);
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

#[cfg(test)]
mod tests;
