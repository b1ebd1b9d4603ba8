//! The conversations that are being viewed. However many viewers a session has, its host is watched
//! once, and each step is rendered to HTML once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use common::sync::lock;
use host_process::logic::handshake::SessionAnswer;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use work_board::WorkBoard;
use work_board::logic::conversation::{Change, Conversation};

use crate::logic::access::CredentialId;
use crate::page::session as page;
use crate::refusal::{NO_SESSION, Refusal};
use crate::slots::{SlotGuard, SlotPool};

/// How many of the latest messages are kept, for browsers whose connection was lost.
const KEPT: usize = 2000;

/// How much of them is kept, in bytes (2 MiB).
const KEPT_BYTES: usize = 2 << 20;

/// The most conversations that are followed at a time.
const FEEDS: u32 = 16;

/// The most of them that are read with the same credential, so that others keep a share.
const FEEDS_OF_ONE: u32 = FEEDS / 2;

/// How much text of all conversations is kept, in bytes (24 MiB). They share it equally.
const ALL_TEXT: usize = 24 << 20;

/// How much of the messages of all conversations is kept, in bytes (8 MiB). They share it equally.
const ALL_KEPT_BYTES: usize = 8 << 20;

/// How long a conversation is followed after the last watcher has gone.
const LINGER: Duration = Duration::from_secs(30);

/// How long a host may take to send the first events.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which feeds are checked for viewers.
const PAUSE: Duration = Duration::from_millis(500);

/// The progress of a feed's messages.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// The number of the latest message.
    latest: u64,
    /// Why no further message follows, if none does.
    end: Option<FeedEnd>,
}

/// Why a feed has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedEnd {
    /// The session has ended.
    SessionGone,
    /// Nobody has watched it. A viewer that arrives at this moment starts another feed.
    Unwatched,
}

/// The next message for a reader.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    /// The next message.
    Message(Message),
    /// The next message is no longer kept, or never was.
    Gap,
    /// The session has ended.
    End,
}

/// A reader of a feed. It holds no messages, so a slow reader misses messages that are dropped
/// meanwhile.
#[derive(Debug)]
pub(crate) struct Reader {
    feed: Arc<Feed>,
    /// The number of the last message that was read.
    after: u64,
    progress: watch::Receiver<Progress>,
    _slot: Arc<SlotGuard>,
}

/// A message for the page.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// The number of the message. Later messages have higher numbers, even those of a later feed.
    pub(crate) number: u64,
    /// JSON on one line.
    pub(crate) data: Arc<str>,
}

/// A conversation that is followed.
#[derive(Debug)]
pub(crate) struct Feed {
    /// The address of the session on the page.
    address: String,
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
    is_ready: watch::Sender<bool>,
    /// Held as long as anybody has the feed, even after its end.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// The slots of its readers, one for all readers with the same credential.
    slots: Mutex<HashMap<CredentialId, Weak<SlotGuard>>>,
}

#[derive(Debug, Default)]
struct State {
    conversation: Conversation,
    kept: VecDeque<Message>,
    kept_bytes: usize,
    /// How much of the messages is kept, in bytes.
    most_bytes: usize,
    /// The number of the latest message.
    latest: u64,
}

impl Feed {
    fn new(session: &str, permit: OwnedSemaphorePermit) -> Self {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began = began.unwrap_or_default().as_micros();
        let latest = u64::try_from(began).unwrap_or_default();
        Self {
            address: format!("/sessions/{session}"),
            state: Mutex::new(State {
                most_bytes: KEPT_BYTES,
                latest,
                ..State::default()
            }),
            progress: watch::Sender::new(Progress { latest, end: None }),
            is_ready: watch::Sender::new(false),
            permit: Mutex::new(Some(permit)),
            slots: Mutex::default(),
        }
    }

    /// Inspects the conversation, together with the number of the latest message about it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Conversation, u64) -> T) -> T {
        let state = lock(&self.state);
        look(&state.conversation, state.latest)
    }

    fn read(self: &Arc<Self>, after: u64, slot: Arc<SlotGuard>) -> Reader {
        Reader {
            feed: Arc::clone(self),
            after,
            progress: self.progress.subscribe(),
            _slot: slot,
        }
    }

    /// The slot of the holder of a credential for this feed, if there is one.
    fn slot(&self, owner: &CredentialId, readers: &Arc<SlotPool>) -> Option<Arc<SlotGuard>> {
        let mut slots = lock(&self.slots);
        slots.retain(|_, slot| slot.strong_count() > 0);
        if let Some(slot) = slots.get(owner).and_then(Weak::upgrade) {
            return Some(slot);
        }
        let slot = Arc::new(readers.take(owner)?);
        slots.insert(owner.clone(), Arc::downgrade(&slot));
        Some(slot)
    }

    fn take(&self, answer: SessionAnswer) {
        let SessionAnswer::News { news, first, .. } = answer else {
            return;
        };
        let mut state = lock(&self.state);
        state.conversation.begin(first);
        for one in news {
            for change in state.conversation.take(one) {
                if let Some(data) = data(&self.address, &state.conversation, &change) {
                    state.keep(data);
                }
            }
        }
        self.wake(&state);
    }

    /// Wakes the readers, before anybody else learns the number of the latest message.
    fn wake(&self, state: &State) {
        self.progress
            .send_modify(|progress| progress.latest = state.latest);
    }

    /// Limits the feed to its share of the memory, if there are this many feeds.
    fn share(&self, feeds: usize) {
        let mut state = lock(&self.state);
        state.conversation.bound_text(ALL_TEXT / feeds.max(1));
        state.most_bytes = KEPT_BYTES.min(ALL_KEPT_BYTES / feeds.max(1));
        state.drop_oldest();
    }

    fn end(&self, end: FeedEnd) {
        self.progress
            .send_modify(|progress| progress.end = Some(end));
    }

    fn is_watched(&self) -> bool {
        self.progress.receiver_count() > 0
    }

    /// Whether the feed has no viewers and can be ended. A feed that is not ready stays, as
    /// somebody may be waiting for its first events.
    fn lingers(&self) -> bool {
        !self.is_watched() && *self.is_ready.borrow()
    }
}

impl Reader {
    /// The next message, when it is there.
    pub(crate) async fn next(&mut self) -> Next {
        loop {
            let Progress { latest, end } = *self.progress.borrow_and_update();
            if self.after != latest {
                return match lock(&self.feed.state).after(self.after) {
                    Some(message) => {
                        self.after = message.number;
                        Next::Message(message)
                    }
                    None => Next::Gap,
                };
            }
            match end {
                Some(FeedEnd::SessionGone) => return Next::End,
                Some(FeedEnd::Unwatched) => return Next::Gap,
                None => {}
            }
            // The sender lives as long as the feed, which this has.
            let _ = self.progress.changed().await;
        }
    }
}

impl State {
    fn keep(&mut self, data: String) {
        self.latest += 1;
        let message = Message {
            number: self.latest,
            data: data.into(),
        };
        self.kept_bytes += message.data.len();
        self.kept.push_back(message);
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        while self.kept.len() > KEPT || self.kept_bytes > self.most_bytes {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.kept_bytes -= oldest.data.len();
        }
    }

    /// The message that follows number `after`, if it is still kept.
    fn after(&self, after: u64) -> Option<Message> {
        let first = self.kept.front()?.number;
        let position = after.checked_add(1)?.checked_sub(first)?;
        self.kept.get(usize::try_from(position).ok()?).cloned()
    }
}

/// A change in the format that the page's script reads.
fn data(address: &str, conversation: &Conversation, change: &Change) -> Option<String> {
    let data = match change {
        Change::Put(number) => {
            let html = page::step(address, conversation.step(*number)?).into_string();
            json!({ "put": page::step_id(*number), "html": html })
        }
        Change::Append { number, text } => {
            json!({ "append": page::text_id(*number), "text": page::shown(text) })
        }
        Change::Plan => {
            json!({ "part": page::PLAN, "html": page::plan(conversation).into_string() })
        }
        Change::Diff => {
            json!({ "part": page::DIFF, "html": page::diff(conversation).into_string() })
        }
        Change::Tokens => {
            json!({ "part": page::TOKENS, "html": page::tokens(conversation).into_string() })
        }
    };
    Some(data.to_string())
}

/// All conversations that are followed.
pub(crate) struct Feeds {
    board: Arc<WorkBoard>,
    feeds: Mutex<HashMap<String, WatchedFeed>>,
    free: Arc<Semaphore>,
    /// The slots of all readers. A credential has one for each feed that is read with it.
    readers: Arc<SlotPool>,
}

/// A feed, with the token that ends it.
struct WatchedFeed {
    feed: Arc<Feed>,
    ending: CancellationToken,
}

impl Feeds {
    /// Feeds with at most so many readers.
    pub(crate) fn new(board: Arc<WorkBoard>, most_readers: u32) -> Self {
        Self {
            board,
            feeds: Mutex::default(),
            free: Arc::new(Semaphore::new(FEEDS as usize)),
            readers: SlotPool::with_share(most_readers, FEEDS_OF_ONE),
        }
    }

    /// A reader of the messages of a feed after number `after`, for the holder of a credential.
    pub(crate) fn read(
        &self,
        feed: &Arc<Feed>,
        after: u64,
        owner: &CredentialId,
    ) -> Result<Reader, Refusal> {
        let slot = feed.slot(owner, &self.readers).ok_or_else(|| {
            Refusal::Conflict(format!(
                "{FEEDS_OF_ONE} sessions are watched with this credential, which is the most; close \
                 the page of one of them"
            ))
        })?;
        Ok(feed.read(after, slot))
    }

    /// The conversation of a session, when its first events are there.
    pub(crate) async fn feed(self: &Arc<Self>, session: &str) -> Result<Arc<Feed>, Refusal> {
        // A feed continues with the next host.
        let is_followed = lock(&self.feeds).contains_key(session);
        if !is_followed {
            self.board.find_session(session).await?;
        }
        let feed = self.begin(session)?;
        let mut is_ready = feed.is_ready.subscribe();
        match timeout(FIRST_TIMEOUT, is_ready.wait_for(|is_ready| *is_ready)).await {
            Ok(Ok(_)) => {}
            _ => return Err(NO_SESSION),
        }
        Ok(feed)
    }

    fn begin(self: &Arc<Self>, session: &str) -> Result<Arc<Feed>, Refusal> {
        let mut feeds = lock(&self.feeds);
        if let Some(watched) = feeds.get(session) {
            return Ok(Arc::clone(&watched.feed));
        }
        self.board.session(session).ok_or(NO_SESSION)?;
        let feed = Arc::new(Feed::new(session, permit(&self.free, &mut feeds)?));
        let ending = CancellationToken::new();
        let watched = WatchedFeed {
            feed: Arc::clone(&feed),
            ending: ending.clone(),
        };
        feeds.insert(session.to_owned(), watched);
        self.share(&feeds);
        tokio::spawn(follow(
            Arc::clone(self),
            session.to_owned(),
            Arc::clone(&feed),
            ending,
        ));
        Ok(feed)
    }

    /// Limits each feed to its share. Ended feeds count as long as anybody reads them.
    fn share(&self, feeds: &HashMap<String, WatchedFeed>) {
        let count = FEEDS as usize - self.free.available_permits();
        for watched in feeds.values() {
            watched.feed.share(count);
        }
    }
}

/// A permit for one more feed: a free one, or that of a feed without viewers, which is ended.
fn permit(
    free: &Arc<Semaphore>,
    feeds: &mut HashMap<String, WatchedFeed>,
) -> Result<OwnedSemaphorePermit, Refusal> {
    if let Ok(permit) = Arc::clone(free).try_acquire_owned() {
        return Ok(permit);
    }
    let mut lingering = feeds.extract_if(|_, watched| watched.feed.lingers());
    let freed = lingering.next().and_then(|(_, watched)| {
        watched.ending.cancel();
        lock(&watched.feed.permit).take()
    });
    freed.ok_or_else(|| {
        Refusal::Conflict(format!(
            "{FEEDS} sessions are watched, which is the most; close the page of one of them"
        ))
    })
}

/// Follows a session until it has ended, or nobody watches it.
async fn follow(feeds: Arc<Feeds>, session: String, feed: Arc<Feed>, ending: CancellationToken) {
    let next = || feed.look(|conversation, _| conversation.next());
    let take = |answer| {
        feed.take(answer);
        feed.is_ready.send_replace(true);
    };
    let end = tokio::select! {
        () = feeds.board.follow_session(&session, next, take) => FeedEnd::SessionGone,
        () = unwatched(&feed) => FeedEnd::Unwatched,
        () = ending.cancelled() => FeedEnd::Unwatched,
    };
    feed.end(end);
    let mut all = lock(&feeds.feeds);
    // Another feed of the session may have begun.
    let is_this = |watched: &WatchedFeed| Arc::ptr_eq(&watched.feed, &feed);
    if all.get(&session).is_some_and(is_this) {
        all.remove(&session);
    }
}

/// Completes when nobody has watched a conversation for a while.
async fn unwatched(feed: &Feed) {
    let mut since = Instant::now();
    while since.elapsed() < LINGER {
        sleep(PAUSE).await;
        if feed.is_watched() {
            since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use futures::FutureExt;

    use super::*;

    fn feed() -> Arc<Feed> {
        let free = Arc::new(Semaphore::new(1));
        Arc::new(Feed::new("s", free.try_acquire_owned().unwrap()))
    }

    fn reader(feed: &Arc<Feed>, after: u64) -> Reader {
        let owner = CredentialId::of_test("a test");
        let slot = feed.slot(&owner, &SlotPool::new(2)).unwrap();
        feed.read(after, slot)
    }

    fn keep(feed: &Feed, data: String) {
        let mut state = lock(&feed.state);
        state.keep(data);
        feed.wake(&state);
    }

    /// The numbers of the messages that a reader gets at once, and what then follows, if anything does.
    fn read(reader: &mut Reader) -> (Vec<u64>, Option<Next>) {
        let mut numbers = Vec::new();
        loop {
            match reader.next().now_or_never() {
                Some(Next::Message(message)) => numbers.push(message.number),
                other => return (numbers, other),
            }
        }
    }

    #[test]
    fn reader_gets_the_messages_after_a_number_or_learns_of_a_gap() {
        let feed = feed();
        let begin = feed.look(|_, latest| latest);
        for number in 0..3000_u32 {
            keep(&feed, number.to_string());
        }
        let end = feed.look(|_, latest| latest);
        assert!(matches!(read(&mut reader(&feed, end)), (all, None) if all.is_empty()));
        let (numbers, next) = read(&mut reader(&feed, end - 2));
        assert_eq!(numbers, [end - 1, end]);
        assert!(next.is_none());
        for gone in [begin, end + 1, 0, u64::MAX] {
            let (numbers, next) = read(&mut reader(&feed, gone));
            assert_eq!(numbers, Vec::<u64>::new());
            assert!(matches!(next, Some(Next::Gap)), "{gone}");
        }
        let kept = u64::try_from(KEPT).unwrap();
        let (numbers, _) = read(&mut reader(&feed, end - kept));
        assert_eq!(numbers.len(), KEPT);
    }

    #[tokio::test]
    async fn reader_waits_for_the_next_message_and_for_the_end() {
        let feed = feed();
        let mut reader = reader(&feed, feed.look(|_, latest| latest));
        let (next, ()) = tokio::join!(reader.next(), async { keep(&feed, "x".to_owned()) });
        assert!(matches!(next, Next::Message(message) if &*message.data == "x"));
        keep(&feed, "last".to_owned());
        let (_, ()) = tokio::join!(reader.next(), async { feed.end(FeedEnd::SessionGone) });
        assert!(matches!(reader.next().await, Next::End));
    }

    #[test]
    fn lingering_feed_makes_room_for_another() {
        let free = Arc::new(Semaphore::new(2));
        let mut feeds = HashMap::new();
        for session in ["watched", "lingering"] {
            let feed = Arc::new(Feed::new(session, permit(&free, &mut feeds).unwrap()));
            let ending = CancellationToken::new();
            feeds.insert(session.to_owned(), WatchedFeed { feed, ending });
        }
        let reader = reader(&feeds["watched"].feed, 0);
        // Somebody may wait for the first events.
        assert!(permit(&free, &mut feeds).is_err());
        for watched in feeds.values() {
            watched.feed.is_ready.send_replace(true);
        }
        let ending = feeds["lingering"].ending.clone();
        let third = permit(&free, &mut feeds).unwrap();
        assert!(ending.is_cancelled());
        assert!(permit(&free, &mut feeds).is_err());
        drop(third);
        assert!(permit(&free, &mut feeds).is_ok());
        assert!(feeds.contains_key("watched"));
        drop(reader);
    }

    /// Somebody who may only look could otherwise watch all sessions that can be watched at a time.
    #[test]
    fn one_credential_reads_only_some_feeds() {
        let slots = SlotPool::with_share(100, FEEDS_OF_ONE);
        let [one, other] = ["one", "other"].map(CredentialId::of_test);
        let feeds: Vec<Arc<Feed>> = (0..FEEDS).map(|_| feed()).collect();
        let (theirs, rest) = feeds.split_at(FEEDS_OF_ONE as usize);
        let held: Vec<Arc<SlotGuard>> = theirs
            .iter()
            .map(|feed| feed.slot(&one, &slots).unwrap())
            .collect();
        // Another page of the same session takes no other slot.
        let again = theirs[0].slot(&one, &slots).unwrap();
        assert!(rest[0].slot(&one, &slots).is_none());
        for feed in [&theirs[0], &rest[0]] {
            assert!(feed.slot(&other, &slots).is_some());
        }
        drop(held);
        assert!(rest[0].slot(&one, &slots).is_some());
        drop(again);
        assert!(
            lock(&theirs[0].slots)
                .values()
                .all(|slot| slot.upgrade().is_none())
        );
    }

    #[test]
    fn reader_that_takes_nothing_holds_no_messages() {
        let feed = feed();
        let begin = feed.look(|_, latest| latest);
        let mut readers: Vec<Reader> = (0..100).map(|_| reader(&feed, begin)).collect();
        let mut all: Vec<Weak<str>> = Vec::new();
        for _ in 0..1000 {
            keep(&feed, "x".repeat(256 << 10));
            let state = lock(&feed.state);
            all.extend(
                state
                    .kept
                    .back()
                    .map(|message| Arc::downgrade(&message.data)),
            );
        }
        let held = || all.iter().filter_map(Weak::upgrade).map(|data| data.len());
        assert_eq!(held().sum::<usize>(), KEPT_BYTES);
        assert!(matches!(readers[0].next().now_or_never(), Some(Next::Gap)));
        feed.share(FEEDS as usize);
        assert_eq!(held().sum::<usize>(), ALL_KEPT_BYTES / FEEDS as usize);
    }
}
