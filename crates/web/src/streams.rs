//! What the page gets as it happens, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::future::ready;
use futures::{Stream, StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::app::App;
use crate::auth::Caller;
use crate::feed::Message;
use crate::logic::access::Scope;
use crate::page::{job, session};
use crate::refusal::Refusal;
use work_board::Work;

/// How often a stream says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How often a job is looked at.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The event after which the page has to be loaded again.
fn reload() -> Event {
    Event::default().event("reload").data("{}")
}

/// The event after which nothing more comes.
fn gone() -> Event {
    Event::default().event("gone").data("{}")
}

pub(crate) fn sse(
    events: impl Stream<Item = Event> + Send + 'static,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(events.map(Ok)).keep_alive(keep_alive)
}

/// The changes of the list of all work.
pub(crate) async fn work(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let listed = app.lists.watch();
    let now = app.lists.list().await.message(caller.scope);
    let now = stream::iter([Event::default().data(now)]);
    let changes = stream::unfold(listed, move |mut listed| async move {
        // The sender lives as long as the server.
        listed.changed().await.ok()?;
        let message = listed.borrow_and_update().message(caller.scope);
        Some((Event::default().data(message), listed))
    });
    sse(now.chain(changes))
}

#[derive(Debug, Deserialize)]
pub(crate) struct After {
    /// The number of the last message that the page has.
    #[serde(default)]
    after: u64,
}

/// The changes of a session.
pub(crate) async fn of_session(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(After { after }): Query<After>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let feed = app.feeds.feed(&id).await?;
    // A browser that connects again knows more than its page did.
    let last = headers
        .get("last-event-id")
        .and_then(|last| last.to_str().ok());
    let after = last.and_then(|last| last.parse().ok()).unwrap_or(after);
    let (missed, messages) = feed.join(after);
    let states = states(app, id, caller.scope).boxed();
    let Some(missed) = missed else {
        return Ok(sse(stream::iter([reload()]).left_stream()));
    };
    // The feed ends with the session, so this must not hold it.
    drop(feed);
    let news = stream::unfold(Some(messages), |messages| async move {
        let mut messages = messages?;
        match messages.recv().await {
            Ok(message) => Some((event(&message), Some(messages))),
            Err(RecvError::Lagged(_)) => Some((reload(), None)),
            Err(RecvError::Closed) => Some((gone(), None)),
        }
    });
    let missed: Vec<Event> = missed.iter().map(event).collect();
    let news = stream::iter(missed)
        .chain(news)
        .map(Some)
        .chain(stream::iter([None]));
    let both = stream::select(news, states.map(Some));
    // With the end of the news, the whole stream ends.
    let both = both
        .take_while(|event| ready(event.is_some()))
        .filter_map(ready);
    Ok(sse(both.right_stream()))
}

fn event(message: &Message) -> Event {
    let number = message.number.to_string();
    Event::default().id(number).data(&message.data)
}

/// The state of a session and its questions, now and whenever they change.
fn states(app: Arc<App>, id: String, scope: Scope) -> impl Stream<Item = Event> + Send {
    let changes = app.board.hosts.changes();
    let state = (app, id, changes, None::<Work>);
    stream::unfold(state, move |(app, id, mut changes, told)| async move {
        loop {
            changes.mark_unchanged();
            let now = app.board.session(&id);
            if now != told
                && let Some(work) = &now
            {
                let html = session::state(scope, work, SystemTime::now()).into_string();
                let data = json!({ "part": session::STATE, "html": html }).to_string();
                return Some((Event::default().data(data), (app, id, changes, now)));
            }
            changes.changed().await.ok()?;
        }
    })
}

/// The changes of a job.
pub(crate) async fn of_job(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let job = app.board.jobs.find(&id).await?;
    let id = job.ok_or(Refusal::Missing("such job"))?.as_str().to_owned();
    let changes = app.board.jobs.changes().await?;
    let state = (app, id, changes, String::new());
    let parts = stream::unfold(state, move |(app, id, mut changes, told)| async move {
        loop {
            let shown = app.board.jobs.job(&id).await.ok().flatten()?;
            let html = job::part(caller.scope, &shown, SystemTime::UNIX_EPOCH).into_string();
            if html != told {
                let data = json!({ "part": job::JOB, "html": html }).to_string();
                let event = Event::default().data(data);
                return Some((event, (app, id, changes, html)));
            }
            // A look at each interval finds what no change was told of.
            let _ = timeout(LOOK_AFTER, changes.changed()).await;
        }
    });
    Ok(sse(parts))
}
