//! The list of all work. However many viewers it has, it is built once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};
use work_board::{AllWork, WorkBoard};

use crate::logic::access::Scope;
use crate::page::home;

/// The interval at which the store of jobs is checked.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The pause after a change, in which further changes gather.
const GATHER: Duration = Duration::from_millis(50);

/// The list as the script of the page takes it: JSON on one line.
#[derive(Debug)]
pub(crate) struct Listed {
    work: AllWork,
    look: Arc<str>,
    decide: Arc<str>,
}

impl Listed {
    fn new(work: AllWork) -> Self {
        let now = SystemTime::now();
        let message = |scope| {
            let html = home::list(scope, &work, now).into_string();
            json!({ "part": home::WORK, "html": html })
                .to_string()
                .into()
        };
        Self {
            look: message(Scope::Look),
            decide: message(Scope::Decide),
            work,
        }
    }

    pub(crate) fn message(&self, scope: Scope) -> Arc<str> {
        Arc::clone(match scope {
            Scope::Look => &self.look,
            Scope::Decide => &self.decide,
        })
    }
}

/// The list, and those who watch it.
pub(crate) struct Lists {
    board: Arc<WorkBoard>,
    listed: watch::Sender<Arc<Listed>>,
    /// Held from the moment when the work is read until the list is published.
    publishing: Mutex<()>,
}

impl Lists {
    pub(crate) fn new(board: Arc<WorkBoard>) -> Self {
        Self {
            board,
            listed: watch::Sender::new(Arc::new(Listed::new(AllWork::default()))),
            publishing: Mutex::default(),
        }
    }

    /// The list now, for a page that is opened. It is also sent to all open pages.
    pub(crate) async fn list(&self) -> Arc<Listed> {
        publish(&self.publishing, &self.listed, self.board.work()).await
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Listed>> {
        self.listed.subscribe()
    }

    /// Keeps the list up to date while somebody watches it, for ever.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut changes = self.board.hosts.changes();
        loop {
            changes.mark_unchanged();
            if self.listed.receiver_count() > 0 {
                self.list().await;
            }
            // The sender lives as long as the hosts, which this has.
            let _ = timeout(LOOK_AFTER, changes.changed()).await;
            sleep(GATHER).await;
        }
    }
}

/// Publishes the list if it has changed, and returns it. A page must not get an unpublished list: if the
/// work then changed back, no update would follow. The lock keeps an older list from replacing a newer one.
async fn publish(
    publishing: &Mutex<()>,
    listed: &watch::Sender<Arc<Listed>>,
    work: impl Future<Output = AllWork>,
) -> Arc<Listed> {
    let _publishing = publishing.lock().await;
    let work = work.await;
    if work != listed.borrow().work {
        listed.send_replace(Arc::new(Listed::new(work)));
    }
    Arc::clone(&listed.borrow())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use tokio::task::yield_now;

    use super::*;

    fn work(failure: &str) -> AllWork {
        AllWork {
            work: Vec::new(),
            failure: Some(failure.to_owned()),
        }
    }

    #[tokio::test]
    async fn page_that_is_opened_between_two_changes_learns_of_the_second() {
        let listed = watch::Sender::new(Arc::new(Listed::new(work("one"))));
        let publishing = Mutex::default();
        let publish = |failure| publish(&publishing, &listed, ready(work(failure)));
        let opened = publish("other").await;
        let mut watching = listed.subscribe();
        publish("one").await;
        assert!(watching.has_changed().unwrap());
        let told = watching.borrow_and_update().message(Scope::Look);
        assert_ne!(told, opened.message(Scope::Look));
        publish("one").await;
        assert!(!watching.has_changed().unwrap());
    }

    #[tokio::test]
    async fn older_list_does_not_replace_a_newer_one() {
        let listed = watch::Sender::new(Arc::new(Listed::new(work(""))));
        let publishing = Mutex::default();
        let now = Cell::new("older");
        let slow = async {
            let read = work(now.get());
            yield_now().await;
            read
        };
        let fast = async {
            now.set("newer");
            publish(&publishing, &listed, async { work(now.get()) }).await
        };
        tokio::join!(publish(&publishing, &listed, slow), fast);
        assert_eq!(listed.borrow().work, work("newer"));
    }
}
