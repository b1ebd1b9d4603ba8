//! The conversations that somebody looks at. However many watch a session, its host is watched once,
//! and each step is written as HTML once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use common::sync::lock;
use host_process::logic::handshake::SessionAnswer;
use serde_json::json;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, timeout};
use work_board::logic::conversation::{Change, Conversation};
use work_board::{ActError, WorkBoard};

use crate::page::session as page;

/// How many of the latest messages are kept, for browsers whose connection was lost.
const KEPT: usize = 2000;

/// How much of them is kept, in bytes (4 MiB).
const KEPT_BYTES: usize = 4 << 20;

/// How many messages a browser may be behind. One that is further behind reads the page anew.
const BEHIND: usize = 1000;

/// How long a conversation is followed after the last watcher has gone.
const LINGER: Duration = Duration::from_secs(30);

/// How long a host may take to tell the first events.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is looked whether somebody still watches.
const PAUSE: Duration = Duration::from_millis(500);

/// A message for the page.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Its number: later messages have higher ones, also those of a later feed.
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
    sender: broadcast::Sender<Message>,
    is_ready: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    conversation: Conversation,
    kept: VecDeque<Message>,
    kept_bytes: usize,
    /// The number of the latest message.
    latest: u64,
}

impl Feed {
    fn new(session: &str) -> Self {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began = began.unwrap_or_default().as_micros();
        Self {
            address: format!("/sessions/{session}"),
            state: Mutex::new(State {
                latest: u64::try_from(began).unwrap_or_default(),
                ..State::default()
            }),
            sender: broadcast::Sender::new(BEHIND),
            is_ready: watch::Sender::new(false),
        }
    }

    /// Looks at the conversation, and at the number of the latest message about it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Conversation, u64) -> T) -> T {
        let state = lock(&self.state);
        look(&state.conversation, state.latest)
    }

    /// The messages after number `after`, and those that will follow; `None` if some are no longer
    /// known.
    pub(crate) fn join(&self, after: u64) -> (Option<Vec<Message>>, broadcast::Receiver<Message>) {
        let state = lock(&self.state);
        let receiver = self.sender.subscribe();
        let first = state
            .kept
            .front()
            .map_or(state.latest + 1, |first| first.number);
        let next = after.checked_add(1);
        let is_known = next.is_some_and(|next| (first..=state.latest + 1).contains(&next));
        let missed = state.kept.iter().filter(|one| one.number > after);
        (is_known.then(|| missed.cloned().collect()), receiver)
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
                    let message = state.keep(data);
                    // Nobody may be there.
                    let _ = self.sender.send(message);
                }
            }
        }
    }
}

impl State {
    fn keep(&mut self, data: String) -> Message {
        self.latest += 1;
        let message = Message {
            number: self.latest,
            data: data.into(),
        };
        self.kept_bytes += message.data.len();
        self.kept.push_back(message.clone());
        while self.kept.len() > KEPT || self.kept_bytes > KEPT_BYTES {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.kept_bytes -= oldest.data.len();
        }
        message
    }
}

/// A change, as the script of the page takes it.
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
    feeds: Mutex<HashMap<String, Arc<Feed>>>,
}

impl Feeds {
    pub(crate) fn new(board: Arc<WorkBoard>) -> Self {
        Self {
            board,
            feeds: Mutex::default(),
        }
    }

    /// The conversation of a session, when its first events are there.
    pub(crate) async fn feed(self: &Arc<Self>, session: &str) -> Result<Arc<Feed>, ActError> {
        let feed = self.begin(session)?;
        let mut is_ready = feed.is_ready.subscribe();
        match timeout(FIRST_TIMEOUT, is_ready.wait_for(|is_ready| *is_ready)).await {
            Ok(Ok(_)) => {}
            _ => return Err(ActError::Unknown),
        }
        Ok(feed)
    }

    fn begin(self: &Arc<Self>, session: &str) -> Result<Arc<Feed>, ActError> {
        let mut feeds = lock(&self.feeds);
        if let Some(feed) = feeds.get(session) {
            return Ok(Arc::clone(feed));
        }
        self.board.session(session).ok_or(ActError::Unknown)?;
        let feed = Arc::new(Feed::new(session));
        feeds.insert(session.to_owned(), Arc::clone(&feed));
        let (feeds, id, followed) = (Arc::clone(self), session.to_owned(), Arc::clone(&feed));
        tokio::spawn(async move {
            let next = || followed.look(|conversation, _| conversation.next());
            let take = |answer| {
                followed.take(answer);
                followed.is_ready.send_replace(true);
            };
            tokio::select! {
                () = feeds.board.follow_session(&id, next, take) => {}
                () = unwatched(&followed) => {}
            }
            lock(&feeds.feeds).remove(&id);
        });
        Ok(feed)
    }
}

/// Completes when nobody has watched a conversation for a while.
async fn unwatched(feed: &Feed) {
    let mut since = Instant::now();
    while since.elapsed() < LINGER {
        sleep(PAUSE).await;
        if feed.sender.receiver_count() > 0 {
            since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browser_gets_what_it_has_missed_or_learns_that_it_is_gone() {
        let feed = Feed::new("s");
        let begin = feed.look(|_, latest| latest);
        for number in 0..3000_u32 {
            lock(&feed.state).keep(number.to_string());
        }
        let end = feed.look(|_, latest| latest);
        let numbers = |after: u64| {
            let (missed, _) = feed.join(after);
            missed.map(|missed| missed.iter().map(|one| one.number).collect::<Vec<_>>())
        };
        assert_eq!(numbers(end), Some(Vec::new()));
        assert_eq!(numbers(end - 2), Some(vec![end - 1, end]));
        assert_eq!(numbers(begin), None);
        assert_eq!(numbers(end + 1), None);
        assert_eq!(numbers(0), None);
        assert_eq!(numbers(u64::MAX), None);
        let kept = u64::try_from(KEPT).unwrap();
        assert_eq!(numbers(end - kept).unwrap().len(), KEPT);
    }
}
