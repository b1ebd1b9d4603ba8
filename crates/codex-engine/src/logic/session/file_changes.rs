//! The file changes that Codex has announced.
//!
//! Codex names the files when a step begins, but not in its question about the step. Several steps
//! can be open at once, in the session's thread and in the threads of its sub-agents.

use std::collections::VecDeque;

use codex_protocol::codex::{Ask, FileChange};

/// The most steps that are remembered. A step's question follows immediately after its beginning.
const STEPS: usize = 64;

/// The most bytes of the remembered changes. The latest step is always kept.
const BYTES: usize = 4 << 20;

/// The latest steps that change files.
#[derive(Debug, Default)]
pub(super) struct AnnouncedChanges {
    /// The oldest is the first.
    steps: VecDeque<Step>,
    bytes: usize,
}

#[derive(Debug)]
struct Step {
    thread: String,
    item: String,
    changes: Vec<FileChange>,
}

impl Step {
    fn is(&self, thread: &str, item: &str) -> bool {
        self.thread == thread && self.item == item
    }

    fn bytes(&self) -> usize {
        let length = |change: &FileChange| change.path.len() + change.diff.len();
        self.changes.iter().map(length).sum()
    }
}

impl AnnouncedChanges {
    /// Adds a step, and forgets the oldest ones beyond the limits.
    pub(super) fn add(&mut self, thread: &str, item: String, changes: Vec<FileChange>) {
        if let Some(position) = self.steps.iter().position(|step| step.is(thread, &item)) {
            self.remove(position);
        }
        let step = Step {
            thread: thread.to_owned(),
            item,
            changes,
        };
        self.bytes += step.bytes();
        self.steps.push_back(step);
        while self.steps.len() > STEPS || (self.bytes > BYTES && self.steps.len() > 1) {
            self.remove(0);
        }
    }

    fn remove(&mut self, position: usize) {
        if let Some(step) = self.steps.remove(position) {
            self.bytes -= step.bytes();
        }
    }

    /// Adds the changes of the step to a question about files of this thread. There are none if the
    /// step is not known.
    pub(super) fn complete(&self, thread: &str, ask: &mut Ask) {
        if let Ask::FileChange(asked) = ask
            && let Some(step) = self
                .steps
                .iter()
                .find(|step| step.is(thread, &asked.item_id))
        {
            asked.changes.clone_from(&step.changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use codex_protocol::codex::{FileChangeApproval, FileChangeKind};

    use super::*;

    fn change(diff: String) -> Vec<FileChange> {
        vec![FileChange {
            path: String::new(),
            kind: FileChangeKind::Add,
            diff,
        }]
    }

    fn is_known(announced: &AnnouncedChanges, item: usize) -> bool {
        let mut ask = Ask::FileChange(FileChangeApproval {
            item_id: item.to_string(),
            ..FileChangeApproval::default()
        });
        announced.complete("t", &mut ask);
        matches!(ask, Ask::FileChange(asked) if !asked.changes.is_empty())
    }

    #[test]
    fn oldest_steps_are_forgotten_beyond_the_limits() {
        let mut announced = AnnouncedChanges::default();
        for item in 0..=STEPS {
            announced.add("t", item.to_string(), change("x".to_owned()));
        }
        assert_eq!(announced.bytes, STEPS);
        assert!(!is_known(&announced, 0) && is_known(&announced, 1));
        announced.add("t", "long".to_owned(), change("x".repeat(BYTES + 1)));
        assert_eq!((announced.steps.len(), announced.bytes), (1, BYTES + 1));
        announced.add("t", "0".to_owned(), change("x".to_owned()));
        assert_eq!((announced.steps.len(), announced.bytes), (1, 1));
        assert!(is_known(&announced, 0));
    }
}
