//! The journal of a takeover, written before the takeover changes anything in the repository.
//!
//! A run that is killed leaves the journal behind. From it, the next run can tell a takeover that
//! must be finished from commits whose import has not begun, and the lock of the killed run from
//! that of a live git.

use std::io;
use std::path::Path;

use safe_files::untrusted_file::{Links, read};
use serde::{Deserialize, Serialize};

use super::refs::{Refs, TRACKING};
use super::{INDEX_LIMIT, remove_file};

/// The file, below the directory of the run.
pub(super) const JOURNAL: &str = "takeover.json";

/// The steps of a takeover.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The refs and `HEAD` that the repository is to get.
    refs: Refs,
    /// The stamp of the private index whose entries it is to get.
    index: Option<String>,
    /// The stamp of the new index, which is that of `index.lock`, if the index changes.
    pub(super) lock: Option<String>,
}

impl Journal {
    /// The journal for a takeover of these refs and this private index.
    pub(super) fn new(refs: &Refs, index: Option<&str>, lock: Option<String>) -> Self {
        Self {
            refs: refs.clone(),
            index: index.map(str::to_owned),
            lock,
        }
    }

    /// Reads the journal in a run's directory; `None` if no takeover was interrupted.
    pub(super) fn load(directory: &Path) -> io::Result<Option<Self>> {
        match read(&directory.join(JOURNAL), INDEX_LIMIT, Links::Refused) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Removes the journal in a run's directory, if there is one.
    pub(super) fn remove(directory: &Path) -> io::Result<()> {
        remove_file(&directory.join(JOURNAL))
    }

    /// Whether this takeover had begun to change the repository, and the private directory
    /// (`theirs`, `index`) is still in the state to be taken over. It had begun if `now` has a ref
    /// or `HEAD` of it that `before` did not have. Remote-tracking refs do not count, as a fetch by
    /// the user may have changed them in the same way.
    pub(super) fn has_begun(
        &self,
        before: &Refs,
        now: &Refs,
        theirs: &Refs,
        index: Option<&str>,
    ) -> bool {
        let has_moved = |name: &String| {
            let there = now.all.get(name);
            let is_new = there.is_some() && there != before.all.get(name);
            is_new && there == theirs.all.get(name) && !name.starts_with(TRACKING)
        };
        let is_same = self.refs == *theirs && self.index.as_deref() == index;
        let has_head = now.head == theirs.head && now.head != before.head;
        is_same && (has_head || theirs.all.keys().any(has_moved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refs(id: &str) -> Refs {
        Refs {
            head: "ref: refs/heads/main\n".to_owned(),
            all: [("refs/heads/main".to_owned(), id.to_owned())].into(),
            others: 0,
        }
    }

    #[test]
    fn takeover_has_begun_once_a_ref_has_moved() {
        let (before, theirs) = (refs("1"), refs("2"));
        let journal = Journal::new(&theirs, Some("stamp"), None);
        let has_begun =
            |now: &Refs, theirs: &Refs, index| journal.has_begun(&before, now, theirs, Some(index));
        assert!(has_begun(&theirs, &theirs, "stamp"));
        assert!(!has_begun(&before, &theirs, "stamp"), "nothing has moved");
        assert!(!has_begun(&refs("3"), &theirs, "stamp"), "moved elsewhere");
        assert!(!has_begun(&theirs, &refs("3"), "stamp"), "other commits");
        assert!(!has_begun(&theirs, &theirs, "another"), "another index");

        let fetched = |mut refs: Refs| {
            let name = "refs/remotes/origin/main".to_owned();
            refs.all.insert(name, "4".to_owned());
            refs
        };
        let theirs = fetched(theirs);
        let journal = Journal::new(&theirs, None, None);
        let now = fetched(before.clone());
        assert!(!journal.has_begun(&before, &now, &theirs, None), "a fetch");
    }
}
