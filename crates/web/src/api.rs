//! JSON for programs.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use common::timestamp::timestamp;
use futures::stream;
use host_process::logic::handshake::{SessionAnswer, SessionNews};
use job_queue::job_json;
use serde_json::{Value, json};
use work_board::{AllWork, SessionFollower};

use crate::app::App;
use crate::auth::Caller;
use crate::refusal::{NO_JOB, Refusal};
use crate::slots::SlotGuard;
use crate::streams;

/// The most programs that read the events of a session at a time. Each holds one answer of a host,
/// which has up to 32 events.
pub(crate) const MOST_READERS: u32 = 16;

/// The note of a session whose host was killed.
const LOST: &str = "its host process was killed; this is how the session was last";

pub(crate) async fn work(State(app): State<Arc<App>>) -> Response {
    // Otherwise a program could not distinguish sessions that continue from sessions that have ended.
    app.board.hosts.until_none_is_lost().await;
    let mut all = app.board.work().await;
    if all.failure.is_some() {
        let work = all.work.iter_mut();
        for lost in work.filter(|one| app.board.hosts.has_lost(&one.id)) {
            lost.note = Some(LOST.to_owned());
        }
    }
    listing(all)
}

/// All work. If some may be missing, it is an error, with the work that is known.
fn listing(all: AllWork) -> Response {
    let AllWork { work, failure } = all;
    match failure {
        Some(failure) => {
            let known = Json(json!({ "error": failure, "work": work }));
            (StatusCode::BAD_GATEWAY, known).into_response()
        }
        None => Json(json!({ "work": work })).into_response(),
    }
}

pub(crate) async fn session(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let work = app.board.find_session(&id).await?;
    let feed = app.feeds.feed(&id).await?;
    Ok(Json(feed.look(|conversation, _| {
        let steps: Vec<_> = conversation.steps().collect();
        json!({
            "work": work,
            "steps": steps,
            "plan": conversation.plan(),
            "diff": conversation.diff(),
            "tokens": conversation.tokens(),
            "cost": work.cost,
        })
    })))
}

/// The events of a session: those that exist, and those that follow. A program that connects again
/// gets the events after its `Last-Event-ID`.
pub(crate) async fn session_events(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Refusal> {
    app.board.find_session(&id).await?;
    let last = headers
        .get("last-event-id")
        .and_then(|last| last.to_str().ok());
    let last: Option<u64> = last.and_then(|last| last.parse().ok());
    let slot = app.readers.take(&caller.id).ok_or_else(|| {
        Refusal::Conflict(format!(
            "{} programs with this credential or {MOST_READERS} of all read events, which is the most; try \
             again later",
            MOST_READERS / 2
        ))
    })?;
    let reader = EventReader {
        follower: app.board.follower(&id),
        log: EventLog::after(last),
        _slot: slot,
    };
    let events = stream::unfold(reader, |mut reader| async move {
        Some((reader.next().await?, reader))
    });
    Ok(streams::sse(events))
}

/// Reads the events of a session at the pace of the receiving program.
struct EventReader {
    follower: SessionFollower,
    log: EventLog,
    _slot: SlotGuard,
}

impl EventReader {
    /// The next event; `None` when the session has gone.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.log.next_event() {
                return Some(event);
            }
            let next = self.log.next;
            let answer = self.follower.next(|| next).await?;
            self.log.take(answer);
        }
    }
}

/// The events that were received from a host, and how many of them the program has got. A host
/// sends all prompts, even those before the last event that the program has. Its log holds only the
/// latest events.
#[derive(Debug)]
struct EventLog {
    /// News that was received and not passed on yet.
    news: VecDeque<SessionNews>,
    /// The last event that the program had when it connected.
    last: Option<u64>,
    /// The number of the next event.
    next: u64,
}

impl EventLog {
    fn after(last: Option<u64>) -> Self {
        Self {
            news: VecDeque::new(),
            last,
            next: last.map_or(0, |last| last.saturating_add(1)),
        }
    }

    fn take(&mut self, answer: SessionAnswer) {
        if let SessionAnswer::News { news, first, .. } = answer {
            self.next = self.next.max(first);
            self.news.extend(news);
        }
    }

    /// The next event. Events that the host no longer has are replaced by a notice about the gap.
    fn next_event(&mut self) -> Option<Event> {
        let (number, data) = self.next_parts()?;
        let event = Event::default().data(data.to_string());
        Some(match number {
            Some(number) => event.id(number.to_string()),
            None => event,
        })
    }

    /// The number, if it has one, and the data of the next event.
    fn next_parts(&mut self) -> Option<(Option<u64>, Value)> {
        let last = self.last;
        while self.news.pop_front_if(|one| is_known(one, last)).is_some() {}
        let number = self.news.front().and_then(SessionNews::number);
        if let Some(number) = number {
            let (from, count) = (self.next, number.saturating_sub(self.next));
            self.next = number;
            if count > 0 {
                let gap = json!({ "type": "gap", "from": from, "count": count });
                return Some((None, gap));
            }
            self.next += 1;
        }
        Some((number, data_of(self.news.pop_front()?)))
    }
}

/// Whether the news is a prompt that came before the last event that the program has.
fn is_known(news: &SessionNews, last: Option<u64>) -> bool {
    match news {
        SessionNews::Prompt { before, .. } => last.is_some_and(|last| *before <= last),
        _ => false,
    }
}

fn data_of(news: SessionNews) -> Value {
    match news {
        SessionNews::Event(event) => event.data,
        SessionNews::Prompt { at, text, .. } => {
            json!({ "type": "prompt", "at": timestamp(at), "text": text })
        }
        SessionNews::Diff(diff) => json!({ "type": "diff", "diff": diff }),
        SessionNews::More { id, text } => json!({ "type": "more", "id": id, "text": text }),
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
    let mail = app.board.mail.read().await?;
    Ok(Json(json!(*mail)))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use axum::body;
    use host_process::logic::handshake::SessionEvent;
    use work_board::{Kind, Work};

    use super::*;

    fn session() -> Work {
        Work {
            id: "sess_1".to_owned(),
            kind: Kind::Session,
            state: "running".to_owned(),
            step: None,
            note: None,
            has_problems: false,
            task: None,
            created: SystemTime::UNIX_EPOCH,
            tokens: None,
            cost: None,
            directory: String::new(),
            questions: Vec::new(),
            thread: None,
        }
    }

    #[tokio::test]
    async fn work_of_other_hosts_is_listed_although_one_is_lost() {
        for failure in [None, Some("a host was killed".to_owned())] {
            let status = match failure {
                Some(_) => StatusCode::BAD_GATEWAY,
                None => StatusCode::OK,
            };
            let listed = listing(AllWork {
                work: vec![session()],
                failure: failure.clone(),
            });
            assert_eq!(listed.status(), status);
            let listed = body::to_bytes(listed.into_body(), usize::MAX).await;
            let listed: Value = serde_json::from_slice(&listed.unwrap()).unwrap();
            assert_eq!(listed["work"][0]["id"], "sess_1", "{listed}");
            assert_eq!(listed.get("error"), failure.map(Value::from).as_ref());
        }
    }

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
        let mut log = EventLog::after(next.checked_sub(1));
        log.take(answer);
        let told = std::iter::from_fn(|| log.next_parts());
        told.map(|(number, _)| number).collect()
    }

    #[test]
    fn gap_is_reported_for_evicted_events() {
        assert_eq!(told(&[0, 1], 0, 0), [Some(0), Some(1)]);
        assert_eq!(told(&[7, 9], 0, 5), [None, Some(7), None, Some(9)]);
        // A host that has taken a session over begins its log anew.
        assert_eq!(told(&[40], 40, 5), [Some(40)]);
    }
}
