//! The event log, against a naive log that keeps every event and marks those that are gone.
//!
//! Input: a byte that is 0 if the input may be large, and operations, a byte for each with its
//! arguments.

use std::collections::HashMap;
use std::time::SystemTime;

use codex_engine::logic::events::{
    EVENT_LIMIT, EventData, EventLog, EventType, FLOOR, FollowCursor, FollowedEvent, GROWTH_LIMIT,
    HARD, Limit, Poll, PollContent, PollOptions, Rank, ResponseMode, SOFT,
};
use codex_protocol::codex::DeltaSource;
use serde_json::{Map, Value, json};

use crate::input::Input;

const ITEMS: [&str; 4] = ["a", "b", "ß", "item-4"];
const REQUESTS: [&str; 3] = ["req_0", "req_1", "req_2"];
const KINDS: [EventType; 5] = [
    EventType::Progress,
    EventType::ApprovalRequest,
    EventType::ApprovalResult,
    EventType::Result,
    EventType::Error,
];
const MODES: [ResponseMode; 3] = [
    ResponseMode::Minimal,
    ResponseMode::DeltaCompact,
    ResponseMode::Full,
];

/// How many events back a text grows, and the bytes that the log counts around a text.
const REACH: usize = 8;
const AROUND_TEXT: usize = 96;

/// The most events of one input: more than the log holds.
const MOST: usize = HARD.events + 300;

/// The most work of one input, in bytes of its events, so that it takes a fraction of a second: more
/// than the log holds. A text is read character by character, by the log and by the model, so its
/// bytes count for more.
const WORK: usize = HARD.bytes + (2 << 20);

/// The same of most inputs. This is enough for all limits but those of the log's bytes, and many more
/// inputs are tested in a time.
const WORK_OF_MOST: usize = 1 << 19;

/// How much one byte of a text counts.
const WORK_OF_TEXT: usize = 16;

/// Every how many operations all numbers of a full log are compared, which takes longer than most
/// operations.
const NUMBERS_EVERY: usize = 16;

/// Tests one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut pair = Pair {
        most_work: match input.byte() {
            0 => WORK,
            _ => WORK_OF_MOST,
        },
        ..Pair::default()
    };
    for step in 1.. {
        if input.is_empty() || pair.is_tired() {
            break;
        }
        pair.step(&mut input);
        pair.check_ends();
        if pair.model.count < NUMBERS_EVERY || step % NUMBERS_EVERY == 0 {
            pair.check_numbers();
        }
    }
    pair.check_numbers();
    pair.check_contents();
    pair.follow();
    pair.check_followed();
}

/// An event that was appended to the naive log; its number is its index.
#[derive(Debug)]
struct AppendedEvent {
    kind: EventType,
    rank: Rank,
    size: usize,
    data: Value,
    is_gone: bool,
    /// The event as a reader first saw it.
    seen: Option<Value>,
}

impl AppendedEvent {
    fn text(&self) -> Option<(&str, &str)> {
        match self.kind {
            EventType::Output => {
                Some((self.data["itemId"].as_str()?, self.data["delta"].as_str()?))
            }
            _ => None,
        }
    }
}

/// The naive log.
#[derive(Debug, Default)]
struct Model {
    told: Vec<AppendedEvent>,
    /// How many events are there, and their size.
    count: usize,
    bytes: usize,
    read_to: usize,
    /// All text of each item.
    said: HashMap<String, String>,
}

impl Model {
    fn live(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.told.len()).filter(|number| !self.told[*number].is_gone)
    }

    fn push_text(&mut self, item: &str, text: &str) {
        self.said.entry(item.to_owned()).or_default().push_str(text);
        let mut rest: Vec<char> = text.chars().collect();
        if !rest.is_empty()
            && let Some(number) = self.growing(item)
        {
            let told = &mut self.told[number];
            let before = told.data["delta"].as_str().unwrap().to_owned();
            let room = GROWTH_LIMIT.saturating_sub(before.chars().count());
            let fits: String = rest.drain(..room.min(rest.len())).collect();
            told.size += fits.len();
            self.bytes += fits.len();
            told.data["delta"] = (before + &fits).into();
        }
        for piece in rest.chunks(GROWTH_LIMIT) {
            let piece = String::from_iter(piece);
            self.append(AppendedEvent {
                kind: EventType::Output,
                rank: Rank::Transient,
                size: piece.len() + item.len() + "turn".len() + AROUND_TEXT,
                data: json!({"method": "item/agentMessage/delta", "turnId": "turn",
                    "itemId": item, "delta": piece}),
                is_gone: false,
                seen: None,
            });
        }
        self.evict();
    }

    /// The unread text of this item among the last events, with nothing but texts after it.
    fn growing(&self, item: &str) -> Option<usize> {
        for number in self.live().rev().take(REACH) {
            let (of, _) = self.told[number]
                .text()
                .filter(|_| number >= self.read_to)?;
            if of == item {
                return Some(number);
            }
        }
        None
    }

    /// `size` is the length of the data as JSON.
    fn push_fixed(&mut self, kind: EventType, data: Map<String, Value>, size: usize) {
        let rank = match kind {
            EventType::Output | EventType::Progress => Rank::Transient,
            EventType::ApprovalResult => Rank::Settled,
            EventType::ApprovalRequest | EventType::Result | EventType::Error => Rank::Essential,
        };
        let data = Value::Object(data);
        self.append(AppendedEvent {
            kind,
            rank,
            size,
            data,
            is_gone: false,
            seen: None,
        });
        self.evict();
    }

    fn append(&mut self, told: AppendedEvent) {
        self.count += 1;
        self.bytes += told.size;
        self.told.push(told);
    }

    fn lose(&mut self, number: usize) {
        let told = &mut self.told[number];
        told.is_gone = true;
        self.count -= 1;
        self.bytes -= told.size;
    }

    /// Transient events go beyond the soft limit, then others beyond the hard one: the oldest of the
    /// lowest rank each time.
    fn evict(&mut self) {
        while self.is_over(SOFT) {
            let rank = |number: &usize| self.told[*number].rank;
            let transient = self.live().find(|number| rank(number) == Rank::Transient);
            match transient {
                Some(number) => self.lose(number),
                // Of equal ranks, the first.
                None if self.is_over(HARD) => self.lose(self.live().min_by_key(rank).unwrap()),
                None => return,
            }
        }
    }

    fn is_over(&self, limit: Limit) -> bool {
        self.count > limit.events || self.bytes > limit.bytes
    }

    fn settle(&mut self, request: &str) {
        for told in &mut self.told {
            if told.kind == EventType::ApprovalRequest && told.data["requestId"] == request {
                told.rank = Rank::Settled;
            }
        }
    }

    fn forget_ends(&mut self) {
        let is_end =
            |told: &AppendedEvent| matches!(told.kind, EventType::Result | EventType::Error);
        let ends = self.live().filter(|number| is_end(&self.told[*number]));
        for number in ends.collect::<Vec<_>>() {
            self.lose(number);
        }
    }
}

/// A log, its model, and a reader who follows it.
#[derive(Debug, Default)]
struct Pair {
    log: EventLog,
    model: Model,
    cursor: FollowCursor,
    followed: HashMap<u64, Value>,
    /// The work so far, and the most that is done.
    work: usize,
    most_work: usize,
}

impl Pair {
    fn is_tired(&self) -> bool {
        self.model.told.len() >= MOST || self.work >= self.most_work
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 10 {
            0 | 1 => {
                let (item, text) = (input.choice(&ITEMS), input.text());
                self.push_text(item, &text);
            }
            2 => {
                let (item, count) = (input.choice(&ITEMS), input.number());
                self.push_text(item, &"xß😀\u{1}".repeat(count / 4));
            }
            3 => self.push_fixed(input.choice(&KINDS), input.number(), 1),
            4 => {
                let (kind, length) = (input.choice(&KINDS), input.byte());
                self.push_fixed(
                    kind,
                    usize::from(length) * 64,
                    usize::from(input.byte()) * 5,
                );
            }
            5 => {
                let request = input.choice(&REQUESTS);
                self.log.settle(request);
                self.model.settle(request);
            }
            6 => {
                let is_end = |kind| matches!(kind, EventType::Result | EventType::Error);
                self.log.forget(|event| is_end(event.data.kind()));
                self.model.forget_ends();
            }
            7 => self.poll(input),
            8 => {
                let cursor = self.position(input);
                self.log.mark_read(cursor as u64);
                self.model.read_to = self.model.read_to.max(cursor);
            }
            _ => self.follow(),
        }
    }

    fn push_text(&mut self, item: &str, text: &str) {
        self.work += text.len() * WORK_OF_TEXT;
        let data = EventData::text(DeltaSource::AgentMessage, "turn", item, text);
        self.log.push(SystemTime::UNIX_EPOCH, data);
        self.model.push_text(item, text);
    }

    fn push_fixed(&mut self, kind: EventType, length: usize, count: usize) {
        // A shorter event is not cut.
        let length = length.min(EVENT_LIMIT - 100);
        let message = format!("\u{1b}[1mß \"{}", "x".repeat(length));
        let mut data = Map::new();
        data.insert("method".to_owned(), "m".into());
        data.insert("message".to_owned(), message.into());
        if kind == EventType::ApprovalRequest {
            let request = REQUESTS[length % REQUESTS.len()];
            data.insert("requestId".to_owned(), request.into());
        }
        let size = serde_json::to_string(&data).unwrap().len();
        for _ in 0..count {
            if self.is_tired() {
                return;
            }
            self.work += size;
            let event = EventData::new(kind, data.clone());
            self.log.push(SystemTime::UNIX_EPOCH, event);
            self.model.push_fixed(kind, data.clone(), size);
        }
    }

    /// A place in the log, up to its end.
    fn position(&self, input: &mut Input<'_>) -> usize {
        self.model.told.len() * usize::from(input.byte()) / 255
    }

    fn poll(&mut self, input: &mut Input<'_>) {
        let flags = input.byte();
        let cursor = (flags & 1 == 0).then(|| self.position(input));
        let poll = Poll {
            cursor: cursor.map(|cursor| cursor as u64),
            max_events: input.number() % 1500,
            mode: input.choice(&MODES),
            options: PollOptions {
                include_events: flags & 2 == 0,
                include_actions: flags & 4 == 0,
                include_result: flags & 8 == 0,
                max_bytes: (flags & 16 == 0).then(|| input.number() as u64),
            },
        };
        // A session has open questions or a result, never both.
        let action = json!({"type": "user_input", "requestId": "req_1", "kind": "user_input",
            "params": {"command": "x".repeat(usize::from(input.byte()) * 4)}});
        let result = json!({"turnId": "t", "status": "completed", "usage": {"total": 1},
            "output": "ß\n".repeat(usize::from(input.byte()) * 4)});
        let (actions, result) = match flags & 32 == 0 {
            true => (vec![action; usize::from(input.byte() % 9)], None),
            false => (Vec::new(), Some(result)),
        };
        let from = cursor.unwrap_or(self.model.read_to);
        let shown = self.log.read(&poll, actions, result);
        self.check_poll(&poll, from, &shown);
    }

    fn check_poll(&mut self, poll: &Poll, from: usize, shown: &PollContent) {
        let end = self.model.told.len();
        let most = match poll.options.include_events {
            true => poll.max_events,
            false => 0,
        };
        let there: Vec<usize> = self.model.live().filter(|number| *number >= from).collect();
        let first = there.first().copied().unwrap_or(end);
        let reset = (first > from && most > 0).then_some(first as u64);
        assert_eq!(shown.cursor_reset_to, reset, "cursor_reset_to");
        let wanted = there.len().min(most);
        assert!(shown.events.len() <= wanted);
        assert_eq!(shown.events.is_empty(), wanted == 0, "a reader advances");
        let is_cut = shown.truncated_fields.iter().any(|field| field == "events");
        assert!(is_cut || shown.events.len() == wanted);
        for (event, number) in shown.events.iter().zip(&there) {
            assert_eq!(event["id"], *number);
            if poll.mode == ResponseMode::Full && !is_cut {
                let told = &mut self.model.told[*number];
                assert_eq!(event["data"], told.data);
                let before = told.seen.get_or_insert_with(|| event.clone());
                assert_eq!(before, event, "an event changed after it was shown");
            }
        }
        let last = shown.events.len().checked_sub(1).map(|index| there[index]);
        let next = match (last, reset) {
            (Some(last), _) => last + 1,
            (None, Some(_)) => first,
            (None, None) => from,
        };
        assert_eq!(shown.next_cursor, next as u64, "next_cursor");
        let gone = (first..next).filter(|number| self.model.told[*number].is_gone);
        assert_eq!(shown.dropped, gone.count() as u64, "dropped");
        if next > from {
            self.model.read_to = self.model.read_to.max(next);
        }
        if let Some(limit) = poll.options.max_bytes {
            let limit = usize::try_from(limit).unwrap().max(FLOOR);
            let length = serde_json::to_string(shown).unwrap().len();
            assert!(length <= limit, "{length} bytes, over {limit}");
        }
    }

    fn check_ends(&self) {
        let Self { log, model, .. } = self;
        assert_eq!(log.next_id(), model.told.len() as u64);
        assert_eq!(log.read_to(), model.read_to as u64);
    }

    fn check_numbers(&self) {
        let Self { log, model, .. } = self;
        let page = log.page(0, usize::MAX);
        let numbers = page.events.iter().map(|event| event.id);
        assert!(numbers.eq(model.live().map(|number| number as u64)));
    }

    fn check_contents(&self) {
        for event in self.log.page(0, usize::MAX).events {
            let told = &self.model.told[usize::try_from(event.id).unwrap()];
            assert_eq!(
                (event.data.kind(), event.data.rank()),
                (told.kind, told.rank)
            );
            assert_eq!(event.shown(ResponseMode::Full)["data"], told.data);
        }
        let mut said: HashMap<String, String> = HashMap::new();
        for (item, text) in self.model.told.iter().filter_map(AppendedEvent::text) {
            assert!((1..=GROWTH_LIMIT).contains(&text.chars().count()));
            said.entry(item.to_owned()).or_default().push_str(text);
        }
        self.model
            .said
            .iter()
            .filter(|(_, text)| !text.is_empty())
            .for_each(|(item, text)| {
                assert_eq!(said.get(item), Some(text), "text is lost");
            });
    }

    fn follow(&mut self) {
        for news in self.log.follow(&mut self.cursor, usize::MAX) {
            match news {
                FollowedEvent::New(event) => {
                    let shown = event.shown(ResponseMode::Full)["data"].clone();
                    let before = self.followed.insert(event.id, shown);
                    assert_eq!(before, None, "event {} came twice", event.id);
                }
                FollowedEvent::More { id, text } => {
                    let data = self.followed.get_mut(&id).unwrap();
                    data["delta"] = (data["delta"].as_str().unwrap().to_owned() + &text).into();
                }
            }
        }
    }

    /// A follower has every event that is there as it is.
    fn check_followed(&self) {
        for number in self.model.live() {
            let followed = self.followed.get(&(number as u64));
            assert_eq!(followed, Some(&self.model.told[number].data));
        }
    }
}
