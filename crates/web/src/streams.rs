//! Live updates of the page, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::future::ready;
use futures::{Stream, StreamExt, stream};
use job_queue::logic::JobId;
use job_queue::store::Watch;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use crate::app::App;
use crate::auth::Caller;
use crate::feed::{Message, Next};
use crate::logic::access::Scope;
use crate::page::{job, session};
use crate::refusal::{NO_JOB, Refusal};
use crate::slots::SlotGuard;
use work_board::{JobRevision, Work};

/// The interval at which a stream sends a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The pause after a change of a job, in which further changes gather.
const GATHER: Duration = Duration::from_millis(50);

/// The most pages that watch a session or a job at a time. Each holds one message.
pub(crate) const MOST_WATCHERS: u32 = 64;

/// The event that makes the page load again.
fn reload() -> Event {
    Event::default().event("reload").data("{}")
}

/// The last event of a session that has gone with its host.
fn gone() -> Event {
    Event::default().event("gone").data("{}")
}

/// The last event of a job that has ended.
fn end() -> Event {
    Event::default().event("end").data("{}")
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
    let now = app.lists.list().await.message(caller.scope);
    // No change can be published between the two, as there is only one thread.
    let listed = app.lists.watch();
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

/// The number in the query of an address, for [`parsers`](crate::parsers).
pub(crate) fn after(uri: &Uri) -> Option<u64> {
    let Query(After { after }) = Query::try_from_uri(uri).ok()?;
    Some(after)
}

fn slot(app: &App, caller: &Caller) -> Result<SlotGuard, Refusal> {
    app.watchers.take(&caller.id).ok_or_else(|| {
        Refusal::Conflict(format!(
            "{} pages of this browser or {MOST_WATCHERS} of all watch sessions and jobs, which is the most; \
             close one of them",
            MOST_WATCHERS / 2
        ))
    })
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
    // A browser that connects again has received more messages than its page contained.
    let last = headers
        .get("last-event-id")
        .and_then(|last| last.to_str().ok());
    let after = last.and_then(|last| last.parse().ok()).unwrap_or(after);
    let slot = slot(&app, &caller)?;
    let reader = Some((app.feeds.read(&feed, after, &caller.id)?, slot));
    let news = stream::unfold(reader, |reader| async move {
        let (mut reader, slot) = reader?;
        match reader.next().await {
            Next::Message(message) => Some((event(&message), Some((reader, slot)))),
            Next::Gap => Some((reload(), None)),
            Next::End => Some((gone(), None)),
        }
    });
    let news = news.map(Some).chain(stream::iter([None]));
    let states = states(app, id, caller.scope).boxed();
    let both = stream::select(news, states.map(Some));
    // With the end of the news, the whole stream ends.
    let both = both
        .take_while(|event| ready(event.is_some()))
        .filter_map(ready);
    Ok(sse(both))
}

fn event(message: &Message) -> Event {
    let number = message.number.to_string();
    Event::default().id(number).data(&message.data)
}

/// The state of a session with its questions, and its cost, now and whenever they change.
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
                let parts = [
                    (
                        session::STATE,
                        session::state(scope, work, SystemTime::now()),
                    ),
                    (session::COST, session::cost(work)),
                ];
                let events = parts.map(|(part, html)| {
                    let data = json!({ "part": part, "html": html.into_string() });
                    Event::default().data(data.to_string())
                });
                return Some((events, (app, id, changes, now)));
            }
            changes.changed().await.ok()?;
        }
    })
    .flat_map(stream::iter)
}

/// The changes of a job.
pub(crate) async fn of_job(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let id = app.board.jobs.find(&id).await?.ok_or(NO_JOB)?;
    let watcher = JobWatcher {
        _slot: slot(&app, &caller)?,
        changes: app.board.jobs.changes().await?,
        app,
        id,
        scope: caller.scope,
        known: None,
        told: None,
        is_over: false,
    };
    let parts = stream::unfold(watcher, |mut watcher| async move {
        Some((watcher.next().await?, watcher))
    });
    Ok(sse(parts))
}

/// A watcher of a job.
struct JobWatcher {
    app: Arc<App>,
    id: JobId,
    scope: Scope,
    changes: Watch,
    /// The revision of the job that was sent last.
    known: Option<JobRevision>,
    /// The digest of the part that was sent last. The part itself can have some MiB.
    told: Option<[u8; 32]>,
    /// Whether the end of the job was told.
    is_over: bool,
    _slot: SlotGuard,
}

impl JobWatcher {
    /// The part of the page that shows the job, when it has changed, or the end of the job; `None`
    /// after that, or if the job cannot be read.
    async fn next(&mut self) -> Option<Event> {
        while !self.is_over {
            if self.known.as_ref().is_some_and(JobRevision::has_ended) {
                self.is_over = true;
                return Some(end());
            }
            // The revision is read before the job, so that a change in between is noticed.
            let revision = self
                .app
                .board
                .jobs
                .revision(&self.id)
                .await
                .ok()
                .flatten()?;
            if self.known.as_ref() != Some(&revision) {
                let html = self.html().await?;
                self.known = Some(revision);
                let told: Option<[u8; 32]> = Some(Sha256::digest(&html).into());
                if told != self.told {
                    let data = json!({ "part": job::JOB, "html": html }).to_string();
                    self.told = told;
                    return Some(Event::default().data(data));
                }
                continue;
            }
            self.changes.changed().await;
            sleep(GATHER).await;
        }
        None
    }

    async fn html(&self) -> Option<String> {
        let shown = self.app.board.jobs.job(self.id.as_str()).await;
        let shown = shown.ok().flatten()?;
        Some(job::part(self.scope, &shown, SystemTime::UNIX_EPOCH).into_string())
    }
}
