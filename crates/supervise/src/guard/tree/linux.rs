//! The tree below a subreaper. A subreaper becomes the parent of all processes that have lost
//! theirs, so the tree is always complete.

use nix::unistd::Pid;

use crate::descendants::descendants;
use crate::platform;

/// The processes below this one, a guard.
#[derive(Debug)]
pub(in crate::guard) struct Tree;

impl Tree {
    pub(in crate::guard) fn new() -> Self {
        Self
    }

    /// The current processes. Processes start and end during the scan.
    pub(in crate::guard) fn processes(&mut self) -> Vec<Pid> {
        descendants(Pid::this())
    }

    /// The children of the guard.
    pub(in crate::guard) fn children(&self) -> Vec<Pid> {
        platform::children()
    }

    /// Does nothing: a guard without children has no processes below it.
    pub(in crate::guard) fn end_left(&self, _group: Pid) {}
}
