//! Compares the log with a naive model, which keeps every pushed event.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::sample::select;

use super::steps::{ITEMS, PollStep, Step, a_step, a_text, an_event};
use super::*;

/// An event of the model: its number is its index.
#[derive(Debug)]
struct ModelEvent {
    content: Content,
    rank: Rank,
    size: usize,
    gone: bool,
    /// The event as a reader first saw it.
    seen: Option<Value>,
}

#[derive(Debug)]
enum Content {
    Text { item: &'static str, text: String },
    FixedData(EventType, Map<String, Value>),
}

impl ModelEvent {
    fn new(content: Content, rank: Rank, size: usize) -> Self {
        Self {
            content,
            rank,
            size,
            gone: false,
            seen: None,
        }
    }

    fn data(&self) -> Value {
        match &self.content {
            Content::Text { item, text } => json!({
                "method": "item/agentMessage/delta", "turnId": "turn-1",
                "itemId": item, "delta": text,
            }),
            Content::FixedData(_, data) => Value::Object(data.clone()),
        }
    }
}

#[derive(Debug, Default)]
struct Model {
    told: Vec<ModelEvent>,
    /// The numbers of the events that are not gone.
    live: Vec<usize>,
    bytes: usize,
    read_to: usize,
    /// The complete text of each item.
    said: HashMap<&'static str, String>,
}

impl Model {
    fn push_text(&mut self, item: &'static str, text: &str) {
        if text.is_empty() {
            return;
        }
        self.said.entry(item).or_default().push_str(text);
        let mut rest: Vec<char> = text.chars().collect();
        if let Some(id) = self.grows(item)
            && let Some(told) = self.told.get_mut(id)
            && let Content::Text { text, .. } = &mut told.content
        {
            let room = GROWTH_LIMIT - text.chars().count();
            let fits: String = rest.drain(..room.min(rest.len())).collect();
            told.size += fits.len();
            self.bytes += fits.len();
            text.push_str(&fits);
            if rest.is_empty() {
                return self.evict();
            }
        }
        for text in rest.chunks(GROWTH_LIMIT).map(String::from_iter) {
            let size = super::text(item, &text).size();
            self.append(ModelEvent::new(
                Content::Text { item, text },
                Rank::Transient,
                size,
            ));
        }
        self.evict();
    }

    /// The unread event of an item among the last ones, with nothing but texts
    /// after it.
    fn grows(&self, item: &str) -> Option<usize> {
        for id in self.live.iter().rev().take(GROWTH_REACH).copied() {
            match &self.told.get(id)?.content {
                Content::Text { item: it, .. } if id >= self.read_to => {
                    if *it == item {
                        return Some(id);
                    }
                }
                _ => return None,
            }
        }
        None
    }

    fn push_fixed(&mut self, kind: EventType, data: &EventData) {
        let rank = match kind {
            EventType::Output | EventType::Progress => Rank::Transient,
            EventType::ApprovalResult => Rank::Settled,
            EventType::ApprovalRequest | EventType::Result | EventType::Error => Rank::Essential,
        };
        let content = Content::FixedData(kind, data.whole());
        self.append(ModelEvent::new(content, rank, data.size()));
        self.evict();
    }

    fn append(&mut self, told: ModelEvent) {
        self.bytes += told.size;
        self.live.push(self.told.len());
        self.told.push(told);
    }

    /// Evicts the oldest event of the lowest rank: transient ones beyond the soft limit,
    /// others beyond the hard one.
    fn evict(&mut self) {
        while self.is_over(SOFT) {
            let ranks = [Rank::Transient, Rank::Settled, Rank::Essential];
            let is = |rank, id: &usize| self.told.get(*id).unwrap().rank == rank;
            let least = ranks.into_iter().find_map(|rank| {
                let place = self.live.iter().position(|id| is(rank, id))?;
                Some((place, rank))
            });
            let (place, rank) = least.unwrap();
            if rank > Rank::Transient && !self.is_over(HARD) {
                return;
            }
            let id = self.live.remove(place);
            self.lose(id);
        }
    }

    fn is_over(&self, limit: Limit) -> bool {
        self.live.len() > limit.events || self.bytes > limit.bytes
    }

    fn lose(&mut self, id: usize) {
        let told = self.told.get_mut(id).unwrap();
        told.gone = true;
        self.bytes -= told.size;
    }

    fn settle(&mut self, request: &str) {
        for told in &mut self.told {
            if let Content::FixedData(EventType::ApprovalRequest, data) = &told.content
                && data.get("requestId") == Some(&json!(request))
            {
                told.rank = Rank::Settled;
            }
        }
    }

    fn forget_ends(&mut self) {
        for id in std::mem::take(&mut self.live) {
            match self.told.get(id).unwrap().content {
                Content::FixedData(EventType::Result | EventType::Error, ..) => self.lose(id),
                _ => self.live.push(id),
            }
        }
    }
}

/// A log and its model.
#[derive(Debug, Default)]
struct Pair {
    log: EventLog,
    model: Model,
}

impl Pair {
    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Text(item, text) => self.push_text(item, &text),
            Step::FixedData(kind, length) => self.push_fixed(kind, &an_event(kind, length, length)),
            Step::Many(kind, length, count) => {
                let event = an_event(kind, length, count);
                (0..count).for_each(|_| self.push_fixed(kind, &event));
            }
            Step::ManyTexts(count) => {
                let long = "😀".repeat(GROWTH_LIMIT);
                (0..count).for_each(|_| self.push_text("long", &long));
            }
            Step::Settle(request) => {
                self.log.settle(request);
                self.model.settle(request);
            }
            Step::Reply => {
                self.log.forget(|event| {
                    matches!(event.data.kind(), EventType::Result | EventType::Error)
                });
                self.model.forget_ends();
            }
            Step::PollStep(look) => {
                self.look(&look)?;
            }
            Step::ReadToTheEnd(look) => self.read_to_the_end(look)?,
            Step::MarkRead(share) => {
                let cursor = self.log.next_id() * share / 1000;
                self.log.mark_read(cursor);
                let end = self.model.told.len();
                let cursor = usize::try_from(cursor).unwrap();
                self.model.read_to = self.model.read_to.max(cursor.min(end));
            }
        }
        self.check()
    }

    fn push_text(&mut self, item: &'static str, told: &str) {
        self.log.push(at(0), text(item, told));
        self.model.push_text(item, told);
    }

    fn push_fixed(&mut self, kind: EventType, data: &EventData) {
        self.log.push(at(0), data.clone());
        self.model.push_fixed(kind, data);
    }

    /// The log holds exactly the events of the model.
    fn check(&self) -> Result<(), TestCaseError> {
        let Self { log, model } = self;
        prop_assert_eq!(log.next_id(), model.told.len() as u64);
        prop_assert_eq!(log.read_to(), model.read_to as u64);
        prop_assert_eq!(log.bytes, model.bytes);
        prop_assert!(log.events.len() <= HARD.events && log.bytes <= HARD.bytes);
        let facts = |event: &Event| (event.id, event.data.rank(), event.data.size());
        let held: Vec<_> = log.events.iter().map(facts).collect();
        let live = model.live.iter().map(|id| {
            let told = model.told.get(*id).unwrap();
            (*id as u64, told.rank, told.size)
        });
        prop_assert!(held.into_iter().eq(live));
        Ok(())
    }

    /// The contents are the same, and together the texts contain all that was pushed, in
    /// order.
    fn check_contents(&self) -> Result<(), TestCaseError> {
        for event in &self.log.events {
            let id = usize::try_from(event.id).unwrap();
            let told = self.model.told.get(id).unwrap();
            prop_assert_eq!(Value::Object(event.data.whole()), told.data());
            if let Content::FixedData(kind, ..) = told.content {
                prop_assert_eq!(event.data.kind(), kind);
            }
        }
        let mut said: HashMap<&str, String> = HashMap::new();
        for told in &self.model.told {
            if let Content::Text { item, text } = &told.content {
                prop_assert!((1..=GROWTH_LIMIT).contains(&text.chars().count()));
                said.entry(item).or_default().push_str(text);
            }
        }
        prop_assert!(said == self.model.said);
        Ok(())
    }

    fn look(&mut self, look: &PollStep) -> Result<PollContent, TestCaseError> {
        let cursor = look.cursor.map(|share| self.log.next_id() * share / 1000);
        self.look_from(cursor, look)
    }

    fn look_from(
        &mut self,
        cursor: Option<u64>,
        look: &PollStep,
    ) -> Result<PollContent, TestCaseError> {
        let end = self.model.told.len();
        let poll = Poll {
            cursor,
            ..look.poll.clone()
        };
        let from = usize::try_from(cursor.unwrap_or(self.log.read_to())).unwrap();
        let shown = self
            .log
            .read(&poll, look.actions.clone(), look.result.clone());

        let most = match poll.options.include_events {
            true => poll.max_events,
            false => 0,
        };
        let start = self.model.live.partition_point(|id| *id < from);
        let mut there = self.model.live.iter().skip(start).copied();
        let expected: Vec<usize> = there.clone().take(most).collect();
        let first = there.next().unwrap_or(end);
        let reset = (first > from && most > 0).then_some(first as u64);
        prop_assert_eq!(shown.cursor_reset_to, reset);
        self.check_events(&shown, &expected, &poll)?;

        let last = expected.iter().take(shown.events.len()).next_back();
        let next = match (last, reset) {
            (Some(last), _) => last + 1,
            (None, Some(_)) => first,
            (None, None) => from,
        };
        prop_assert_eq!(shown.next_cursor, next as u64);
        let gone = |id: &usize| self.model.told.get(*id).unwrap().gone;
        let holes = (first..next).filter(gone).count();
        prop_assert_eq!(shown.dropped, holes as u64);
        if next > from {
            self.model.read_to = self.model.read_to.max(next);
        }
        check_bounds(&shown, look)?;
        Ok(shown)
    }

    fn check_events(
        &mut self,
        shown: &PollContent,
        expected: &[usize],
        poll: &Poll,
    ) -> Result<(), TestCaseError> {
        prop_assert!(shown.events.len() <= expected.len());
        prop_assert_eq!(shown.events.is_empty(), expected.is_empty());
        let left_out = shown.truncated_fields.iter().any(|field| field == "events");
        prop_assert!(left_out || shown.events.len() == expected.len());
        for (event, id) in shown.events.iter().zip(expected) {
            prop_assert_eq!(&event["id"], *id);
            if poll.mode != ResponseMode::Full || left_out {
                continue;
            }
            let told = self.model.told.get_mut(*id).unwrap();
            prop_assert_eq!(&event["data"], &told.data());
            let before = told.seen.get_or_insert_with(|| event.clone());
            prop_assert!(before == event, "what was shown has changed");
        }
        Ok(())
    }

    /// A reader that follows the returned cursors advances each time, and reaches the
    /// end.
    fn read_to_the_end(&mut self, mut look: PollStep) -> Result<(), TestCaseError> {
        look.poll.options.include_events = true;
        look.poll.max_events = look.poll.max_events.clamp(1, 8);
        let mut cursor = self.look(&look)?.next_cursor;
        (look.actions, look.result) = (Vec::new(), None);
        for count in 0.. {
            if cursor == self.log.next_id() {
                break;
            }
            if count == 100 {
                // Reads the rest at once, to bound the test's duration.
                look.poll.options.max_bytes = None;
                look.poll.max_events = usize::MAX;
            }
            let next = self.look_from(Some(cursor), &look)?.next_cursor;
            prop_assert!(next > cursor);
            cursor = next;
        }
        Ok(())
    }
}

/// The response keeps to its size limit, and names the parts left out for it.
fn check_bounds(shown: &PollContent, look: &PollStep) -> Result<(), TestCaseError> {
    if let Some(limit) = look.poll.options.max_bytes {
        let limit = usize::try_from(limit).unwrap().max(FLOOR);
        prop_assert!(
            size(shown) <= limit,
            "{} > {}: {:?}",
            size(shown),
            limit,
            shown
        );
    }
    prop_assert_eq!(shown.truncated, !shown.truncated_fields.is_empty());
    let cut = |field: &str| {
        shown
            .truncated_fields
            .iter()
            .any(|one| one.starts_with(field))
    };
    let options = look.poll.options;
    let actions = options.include_actions && !cut("actions");
    if actions {
        prop_assert_eq!(&shown.actions, &look.actions);
    }
    if options.include_result && !cut("result") {
        prop_assert_eq!(&shown.result, &look.result);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn log_behaves_like_its_model(steps in proptest::collection::vec(a_step(), 1..40)) {
        let mut pair = Pair::default();
        for step in steps {
            pair.apply(step)?;
        }
        pair.check_contents()?;
    }

    /// A reader that polls often enough sees every byte once, in order.
    #[test]
    fn frequent_reader_sees_every_byte_once(
        pieces in proptest::collection::vec((select(ITEMS.to_vec()), a_text(), any::<bool>()), 0..60),
    ) {
        let mut pair = Pair::default();
        let mut seen: HashMap<String, String> = HashMap::new();
        let count = pieces.len();
        for (place, (item, told, looks)) in pieces.into_iter().enumerate() {
            pair.push_text(item, &told);
            if looks || place + 1 == count {
                let shown = pair.log.read(&full(usize::MAX), Vec::new(), None);
                prop_assert_eq!((shown.cursor_reset_to, shown.dropped), (None, 0));
                for event in shown.events {
                    let data = &event["data"];
                    let text = seen.entry(data["itemId"].as_str().unwrap().to_owned()).or_default();
                    text.push_str(data["delta"].as_str().unwrap());
                }
            }
        }
        let said: HashMap<String, String> =
            pair.model.said.iter().map(|(item, text)| ((*item).to_owned(), text.clone())).collect();
        prop_assert!(seen == said);
    }
}
