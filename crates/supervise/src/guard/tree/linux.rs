//! A subreaper is the parent of all that have lost theirs, so that the tree is always complete.

use nix::unistd::Pid;

use crate::descendants::descendants;

/// The processes below this one, a guard.
#[derive(Debug)]
pub(in crate::guard) struct Tree;

impl Tree {
    pub(in crate::guard) fn new() -> Self {
        Self
    }

    /// Those that are there now. Processes start and end during the scan.
    pub(in crate::guard) fn processes(&mut self) -> Vec<Pid> {
        descendants(Pid::this())
    }

    /// Does nothing: when the guard has no child, it has no process below it.
    pub(in crate::guard) fn end_left(&self, _group: Pid) {}
}
