//! What a host tells those who watch it.

use std::rc::Rc;
use std::time::Duration;

use codex_engine::logic::events::{FollowCursor, FollowedEvent};
use codex_engine::logic::session::SentPrompt;
use codex_engine::{AppServers, SessionHandle};
use futures::Stream;
use futures::future::Either;
use futures::stream;
use host_process::logic::handshake::{Answer, SessionAnswer, SessionNews, WatchRequest};
use tokio::time::sleep;

use crate::cli::work;

/// How often the sessions are looked at for changes. A look costs some microseconds.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// The pause after news of a session, in which further news gather: Codex can write thousands of
/// pieces of text in a second.
const GATHER: Duration = Duration::from_millis(10);

/// How many events are told at once: an answer has room for as many of the longest ones, 64 KiB each,
/// and for as many texts that have grown.
const PAGE: usize = 32;

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
    /// The diff that was told.
    diff: String,
}

impl SessionWatcher {
    /// What was not told yet. A prompt comes before the first event after it.
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
    stream::unfold((watcher, false), |(mut watcher, has_begun)| async move {
        let mut changes = watcher.session.watch_news();
        if has_begun {
            sleep(GATHER).await;
        }
        loop {
            changes.mark_unchanged();
            let news = watcher.news();
            // The first answer comes at once, so that a watcher knows that it has all there is.
            if !news.is_empty() || !has_begun {
                let (first, next) = (watcher.session.first_event(), watcher.cursor.next());
                let answer = Answer::Session(SessionAnswer::News { news, first, next });
                return Some((answer, (watcher, true)));
            }
            // Fails only without the session, which this has.
            changes.changed().await.ok()?;
        }
    })
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
