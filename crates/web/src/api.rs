//! JSON for programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::Event;
use common::timestamp::timestamp;
use futures::stream;
use host_process::logic::handshake::{SessionAnswer, SessionNews};
use job_queue::job_json;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use work_board::AllWork;

use crate::app::App;
use crate::refusal::{NO_JOB, NO_SESSION, Refusal};
use crate::streams;

/// How many events a program may be behind. One that is further behind has to ask again.
const BEHIND: usize = 1000;

pub(crate) async fn work(State(app): State<Arc<App>>) -> Result<Json<Value>, Refusal> {
    let AllWork { work, failure } = app.board.work().await;
    match failure {
        Some(failure) => Err(Refusal::Failed(failure)),
        None => Ok(Json(json!({ "work": work }))),
    }
}

pub(crate) async fn session(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let work = app.board.session(&id).ok_or(NO_SESSION)?;
    let feed = app.feeds.feed(&id).await?;
    Ok(Json(feed.look(|conversation, _| {
        let steps: Vec<_> = conversation.steps().collect();
        json!({
            "work": work,
            "steps": steps,
            "plan": conversation.plan(),
            "diff": conversation.diff(),
            "tokens": conversation.tokens(),
        })
    })))
}

/// The events of a session, also those that will follow. A program that connects again gets those
/// after its `Last-Event-ID`.
pub(crate) async fn session_events(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Refusal> {
    app.board.session(&id).ok_or(NO_SESSION)?;
    let last = headers
        .get("last-event-id")
        .and_then(|last| last.to_str().ok());
    let last: Option<u64> = last.and_then(|last| last.parse().ok());
    let (sender, receiver) = mpsc::channel(BEHIND);
    tokio::spawn(async move {
        // Both closures use it.
        let next = AtomicU64::new(last.map_or(0, |last| last.saturating_add(1)));
        let known = || next.load(Ordering::Relaxed);
        let behind = CancellationToken::new();
        let take = |answer| {
            for (number, event) in events(answer, last, known()) {
                // What comes after a lost event would hide that it is lost.
                if behind.is_cancelled() || sender.try_send(event).is_err() {
                    return behind.cancel();
                }
                if let Some(number) = number {
                    next.store(number + 1, Ordering::Relaxed);
                }
            }
        };
        tokio::select! {
            () = app.board.follow_session(&id, known, take) => {}
            () = behind.cancelled() => {}
            () = sender.closed() => {}
        }
    });
    let events = stream::unfold(receiver, |mut receiver: mpsc::Receiver<Event>| async move {
        Some((receiver.recv().await?, receiver))
    });
    Ok(streams::sse(events))
}

/// What a host tells, as events with their numbers, where they have some. A host tells all prompts,
/// also those before the last event that the program has got. Its log has room for the latest events
/// only: a gap is told in place of those before number `next` that it has no longer.
fn events(answer: SessionAnswer, last: Option<u64>, next: u64) -> Vec<(Option<u64>, Event)> {
    let SessionAnswer::News { news, first, .. } = answer else {
        return Vec::new();
    };
    let mut next = next.max(first);
    let mut told = Vec::new();
    for one in news.into_iter().filter(|one| !is_known(one, last)) {
        let (number, data) = parts(one);
        if let Some(number) = number {
            if let Some(count @ 1..) = number.checked_sub(next) {
                let gap = json!({ "type": "gap", "from": next, "count": count });
                told.push((None, Event::default().data(gap.to_string())));
            }
            next = number + 1;
        }
        let event = Event::default().data(data.to_string());
        let event = match number {
            Some(number) => event.id(number.to_string()),
            None => event,
        };
        told.push((number, event));
    }
    told
}

/// Whether it is a prompt before the last event that the program has got.
fn is_known(news: &SessionNews, last: Option<u64>) -> bool {
    match news {
        SessionNews::Prompt { before, .. } => last.is_some_and(|last| *before <= last),
        _ => false,
    }
}

/// The number, if it has one, and the data of an event.
fn parts(news: SessionNews) -> (Option<u64>, Value) {
    match news {
        SessionNews::Event(event) => (event.data.get("id").and_then(Value::as_u64), event.data),
        SessionNews::Prompt { at, text, .. } => {
            let at = timestamp(at);
            (None, json!({ "type": "prompt", "at": at, "text": text }))
        }
        SessionNews::Diff(diff) => (None, json!({ "type": "diff", "diff": diff })),
        SessionNews::More { id, text } => (None, json!({ "type": "more", "id": id, "text": text })),
    }
}
pub(crate) async fn job(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let shown = app.board.jobs.job(&id).await?.ok_or(NO_JOB)?;
    let job = job_json::record(&shown.view.job, &shown.view.questions);
    Ok(Json(json!({ "job": job, "criteria": shown.criteria })))
}

pub(crate) async fn threads(State(app): State<Arc<App>>) -> Result<Json<Value>, Refusal> {
    let threads = app.board.threads().await.map_err(Refusal::Failed)?;
    Ok(Json(json!({ "threads": threads })))
}

pub(crate) async fn mail(State(app): State<Arc<App>>) -> Result<Json<Value>, Refusal> {
    Ok(Json(json!(app.board.mail.read().await?)))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use host_process::logic::handshake::SessionEvent;

    use super::*;

    fn told(numbers: &[u64], first: u64, next: u64) -> Vec<Option<u64>> {
        let event = |number: &u64| {
            SessionNews::Event(SessionEvent {
                at: SystemTime::UNIX_EPOCH,
                words: None,
                data: json!({ "id": number }),
            })
        };
        let answer = SessionAnswer::News {
            news: numbers.iter().map(event).collect(),
            first,
            next: 0,
        };
        let told = events(answer, next.checked_sub(1), next);
        told.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn gap_is_told_where_events_are_gone() {
        assert_eq!(told(&[0, 1], 0, 0), [Some(0), Some(1)]);
        assert_eq!(told(&[7, 9], 0, 5), [None, Some(7), None, Some(9)]);
        // A host that has taken a session over begins its log anew.
        assert_eq!(told(&[40], 40, 5), [Some(40)]);
    }
}
