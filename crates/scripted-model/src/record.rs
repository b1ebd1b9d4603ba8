//! The record of requests to the model.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::request::Request;

/// Which requests are kept for [`requests`](crate::ScriptedModel::requests). A
/// request holds its whole conversation, so a long run should not keep all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recording {
    /// All of them.
    #[default]
    All,
    /// The newest ones, this many.
    Last(usize),
    /// None. They are still counted.
    Off,
}

/// A request the script had no answer to, and why.
#[derive(Clone, Debug)]
pub struct Unanswered {
    /// The request.
    pub request: Request,
    /// The reason, which the client gets too.
    pub reason: String,
}

/// The newest unanswered requests are kept under every [`Recording`]: each one
/// is a mistake in a script.
const UNANSWERED: usize = 100;

#[derive(Debug)]
pub(crate) struct Record {
    recording: Recording,
    requests: Mutex<VecDeque<Request>>,
    unanswered: Mutex<VecDeque<Unanswered>>,
    count: watch::Sender<usize>,
}

impl Record {
    pub(crate) fn new(recording: Recording) -> Self {
        Self {
            recording,
            requests: Mutex::default(),
            unanswered: Mutex::default(),
            count: watch::Sender::new(0),
        }
    }

    /// Records a request and returns its number, from 1 on.
    pub(crate) fn note(&self, request: &Request) -> usize {
        match self.recording {
            Recording::All => lock(&self.requests).push_back(request.clone()),
            Recording::Last(limit) => keep(&self.requests, request.clone(), limit),
            Recording::Off => {}
        }
        let mut number = 0;
        self.count.send_modify(|count| {
            *count += 1;
            number = *count;
        });
        number
    }

    pub(crate) fn note_unanswered(&self, unanswered: Unanswered) {
        keep(&self.unanswered, unanswered, UNANSWERED);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        lock(&self.requests).iter().cloned().collect()
    }

    pub(crate) fn unanswered(&self) -> Vec<Unanswered> {
        lock(&self.unanswered).iter().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    pub(crate) async fn reached(&self, count: usize) {
        let mut counter = self.count.subscribe();
        // The sender lives as long as `self`, so this can't fail.
        let _ = counter.wait_for(|counted| *counted >= count).await;
    }
}

fn keep<T>(list: &Mutex<VecDeque<T>>, item: T, limit: usize) {
    let mut list = lock(list);
    list.push_back(item);
    while list.len() > limit {
        list.pop_front();
    }
}

/// Nothing panics while it holds one of these locks, and a list is whole at any
/// time: a poisoned lock is as good as another.
fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prompts_kept(recording: Recording) -> Vec<String> {
        let record = Record::new(recording);
        for prompt in ["one", "two", "three"] {
            record.note(&Request::new(json!({ "input": prompt })));
        }
        assert_eq!(record.count(), 3);
        record
            .requests()
            .iter()
            .map(|request| request.prompt().to_owned())
            .collect()
    }

    #[test]
    fn recording_is_bounded_on_demand() {
        assert_eq!(prompts_kept(Recording::All), ["one", "two", "three"]);
        assert_eq!(prompts_kept(Recording::Last(2)), ["two", "three"]);
        assert_eq!(prompts_kept(Recording::Off), [""; 0]);
    }
}
