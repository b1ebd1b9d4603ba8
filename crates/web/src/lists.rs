//! The list of all work. However many watch it, it is put together once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use work_board::{AllWork, WorkBoard};

use crate::logic::access::Scope;
use crate::page::home;

/// How often the store of jobs is looked at.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The pause after a change, in which further changes gather.
const GATHER: Duration = Duration::from_millis(50);

/// The list as the script of the page takes it: JSON on one line.
#[derive(Debug, Default)]
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
}

impl Lists {
    pub(crate) fn new(board: Arc<WorkBoard>) -> Self {
        Self {
            board,
            listed: watch::Sender::default(),
        }
    }

    /// The list now.
    pub(crate) async fn list(&self) -> Listed {
        Listed::new(self.board.work().await)
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
                let work = self.board.work().await;
                if work != self.listed.borrow().work {
                    self.listed.send_replace(Arc::new(Listed::new(work)));
                }
            }
            // The sender lives as long as the hosts, which this has.
            let _ = timeout(LOOK_AFTER, changes.changed()).await;
            sleep(GATHER).await;
        }
    }
}
