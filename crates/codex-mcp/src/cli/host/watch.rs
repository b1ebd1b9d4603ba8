//! News that a host sends to its watchers.

use std::rc::Rc;
use std::time::Duration;

use codex_engine::logic::events::{FollowCursor, FollowedEvent};
use codex_engine::logic::session::SentPrompt;
use codex_engine::{AppServers, SessionHandle};
use futures::future::Either;
use futures::stream;
use futures::{Stream, StreamExt};
use host_process::logic::handshake::{Answer, SessionAnswer, SessionNews, WatchRequest};
use tokio::time::sleep;

use crate::cli::work;

/// The interval between two checks of the sessions for changes. A check costs some microseconds.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// The pause after news of a session, in which further news gather: Codex can write thousands of
/// pieces of text in a second.
const GATHER: Duration = Duration::from_millis(10);

/// The most events in one answer.
const PAGE: usize = 32;

/// The greatest size in bytes of the JSON of an answer with more than one piece of news. The
/// longest piece is a diff of 1 MiB, whose JSON is six times as long if it consists of control
/// characters.
const PART: usize = 2 << 20;

/// The answers to a watcher.
pub(super) fn answers(
    app_servers: Rc<AppServers>,
    request: WatchRequest,
) -> impl Stream<Item = Answer> {
    match request {
        WatchRequest::Sessions => Either::Left(sessions(app_servers)),
        WatchRequest::Session { session, from } => {
            Either::Right(match app_servers.session(&session) {
                Ok(Some(session)) => Either::Left(events(session, from)),
                Ok(None) => Either::Right(once(SessionAnswer::Unknown)),
                Err(error) => Either::Right(once(SessionAnswer::Refused {
                    why: error.to_string(),
                })),
            })
        }
    }
}

fn once(answer: SessionAnswer) -> impl Stream<Item = Answer> {
    stream::iter([Answer::Session(answer)])
}

/// All sessions, now and whenever one has changed.
fn sessions(app_servers: Rc<AppServers>) -> impl Stream<Item = Answer> {
    stream::unfold(None, move |told: Option<u64>| {
        let app_servers = Rc::clone(&app_servers);
        async move {
            loop {
                let revision = app_servers.revision();
                if told != Some(revision) {
                    let all = app_servers.sessions().into_iter();
                    let all = all.map(super::summary).collect();
                    return Some((Answer::Sessions(all), Some(revision)));
                }
                sleep(LOOK_AFTER).await;
            }
        }
    })
}

/// A watcher of a session.
struct SessionWatcher {
    session: SessionHandle,
    cursor: FollowCursor,
    /// The number of the next prompt.
    next_prompt: u64,
    /// The diff that was sent last.
    diff: String,
}

impl SessionWatcher {
    /// The news that has not been sent yet. A prompt comes before the first event that follows it.
    fn news(&mut self) -> Vec<SessionNews> {
        let mut prompts = self
            .session
            .prompts(self.next_prompt)
            .into_iter()
            .peekable();
        let mut news = Vec::new();
        for one in self.session.follow(&mut self.cursor, PAGE) {
            if let FollowedEvent::New(event) = &one {
                while let Some(prompt) = prompts.next_if(|prompt| prompt.before <= event.id) {
                    self.next_prompt = prompt.number + 1;
                    news.push(prompt_news(prompt));
                }
            }
            news.push(news_of(one));
        }
        let next = self.cursor.next();
        while let Some(prompt) = prompts.next_if(|prompt| prompt.before <= next) {
            self.next_prompt = prompt.number + 1;
            news.push(prompt_news(prompt));
        }
        if let Some(diff) = self.session.changed_diff(&self.diff) {
            self.diff.clone_from(&diff);
            news.push(SessionNews::Diff(diff));
        }
        news
    }
}

/// The events of a session from number `from` on, with its prompts and its diff, as they come.
fn events(session: SessionHandle, from: u64) -> impl Stream<Item = Answer> {
    let watcher = SessionWatcher {
        session,
        cursor: FollowCursor::before(from),
        next_prompt: 0,
        diff: String::new(),
    };
    let tellings = stream::unfold((watcher, false), |(mut watcher, has_begun)| async move {
        let mut changes = watcher.session.watch_news();
        if has_begun {
            sleep(GATHER).await;
        }
        loop {
            changes.mark_unchanged();
            let news = watcher.news();
            // The first answer comes at once, even if it is empty: the watcher then knows that it
            // has everything.
            if !news.is_empty() || !has_begun {
                let (first, next) = (watcher.session.first_event(), watcher.cursor.next());
                return Some((parts(news, first, next), (watcher, true)));
            }
            // Fails only without the session, which this has.
            changes.changed().await.ok()?;
        }
    });
    tellings.flat_map(|parts| stream::iter(parts).map(Answer::Session))
}

/// Splits news into answers that are not too long, at least one. A watcher that has received one of
/// them can continue with the first event of the next.
fn parts(news: Vec<SessionNews>, first: u64, next: u64) -> Vec<SessionAnswer> {
    // Usually there is one piece, which is sent without being measured.
    if news.len() < 2 {
        return vec![SessionAnswer::News { news, first, next }];
    }
    let mut parts = vec![Vec::new()];
    let mut room = PART;
    for one in news {
        // A piece that cannot be serialized makes its answer fail later.
        let length = serde_json::to_string(&one).map_or(0, |json| json.len());
        if length > room && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(Vec::new());
            room = PART;
        }
        room = room.saturating_sub(length);
        if let Some(part) = parts.last_mut() {
            part.push(one);
        }
    }
    let mut after = next;
    let mut answers: Vec<SessionAnswer> = Vec::new();
    for news in parts.into_iter().rev() {
        let begins = news.iter().find_map(SessionNews::number).unwrap_or(after);
        answers.push(SessionAnswer::News {
            news,
            first,
            next: after,
        });
        after = begins;
    }
    answers.reverse();
    answers
}

fn prompt_news(prompt: SentPrompt) -> SessionNews {
    let SentPrompt {
        before, at, text, ..
    } = prompt;
    SessionNews::Prompt { before, at, text }
}

fn news_of(news: FollowedEvent) -> SessionNews {
    match news {
        FollowedEvent::New(event) => SessionNews::Event(work::told(&event)),
        FollowedEvent::More { id, text } => SessionNews::More { id, text },
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use host_process::logic::handshake::{ANSWER_LIMIT, SessionEvent};
    use serde_json::json;

    use super::*;

    fn event(id: u64, text: &str) -> SessionNews {
        SessionNews::Event(SessionEvent {
            at: SystemTime::UNIX_EPOCH,
            words: None,
            data: json!({ "id": id, "text": text }),
        })
    }

    #[test]
    fn answers_are_no_longer_than_a_watcher_reads() {
        // Each byte takes six of JSON.
        let text = "\u{1}".repeat(64 * 1024);
        let prompt = |before| SessionNews::Prompt {
            before,
            at: SystemTime::UNIX_EPOCH,
            text: text.clone(),
        };
        let mut news: Vec<SessionNews> = (0..100).map(prompt).collect();
        news.extend((5..37).map(|id| event(id, &text)));
        news.push(SessionNews::Diff("\u{1}".repeat(1 << 20)));
        let parts = parts(news.clone(), 5, 37);
        let mut told = Vec::new();
        let mut nexts = Vec::new();
        for part in parts {
            let answer = Answer::Session(part.clone());
            assert!(json!(answer).to_string().len() < ANSWER_LIMIT);
            let SessionAnswer::News { news, next, .. } = part else {
                panic!("{part:?}");
            };
            // Whoever continues there gets no event twice, and misses none.
            let last = news.iter().rev().find_map(SessionNews::number);
            assert!(last.is_none_or(|last| next == last + 1), "{next} {last:?}");
            told.extend(news);
            nexts.push(next);
        }
        assert_eq!(told, news);
        assert!(nexts.is_sorted(), "{nexts:?}");
        assert_eq!((nexts[0], nexts.last()), (5, Some(&37)));
    }

    #[test]
    fn no_news_are_one_answer() {
        assert_eq!(parts(Vec::new(), 0, 3).len(), 1);
    }
}
