//! The list of all work, and which of it is selected.

use common::text::visible_line;
use work_board::{AllWork, Group, Work};

/// The list. What is selected stays selected when the list changes.
#[derive(Debug, Default)]
pub(crate) struct WorkList {
    all: AllWork,
    /// Whether the work has been read once.
    pub(crate) is_read: bool,
    pub(crate) filter: String,
    selected: Option<String>,
    /// Where the selection was last, for the time when the selected work is gone.
    position: usize,
}

impl WorkList {
    /// Takes another list; `false` if it is the same.
    pub(crate) fn set(&mut self, all: AllWork) -> bool {
        let is_new = self.all != all || !self.is_read;
        self.is_read = true;
        self.all = all;
        is_new
    }

    /// Why some work is not there.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.all.failure.as_deref()
    }

    /// The number of items that need an answer.
    pub(crate) fn asking(&self) -> usize {
        let asking = |work: &&Work| work.group() == Group::Asking;
        self.all.work.iter().filter(asking).count()
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Work> {
        self.all.work.iter().find(|work| work.id == id)
    }

    /// The items that match the filter: those that need an answer, then running ones, then the
    /// rest; in each group the newest first.
    pub(crate) fn shown(&self) -> Vec<&Work> {
        let groups = [Group::Asking, Group::Running, Group::Ended];
        let filter = self.filter.to_lowercase();
        let of = |group| {
            let all = self.all.work.iter();
            all.filter(move |work| work.group() == group)
        };
        let all = groups.into_iter().flat_map(of);
        all.filter(|work| fits(work, &filter)).collect()
    }

    /// The position of the selected work.
    pub(crate) fn position(&self) -> usize {
        let shown = self.shown();
        let selected = self.selected.as_deref();
        let found = shown.iter().position(|work| Some(&*work.id) == selected);
        found.unwrap_or(self.position.min(shown.len().saturating_sub(1)))
    }

    pub(crate) fn selected(&self) -> Option<&Work> {
        self.shown().get(self.position()).copied()
    }

    /// Moves the selection.
    pub(crate) fn select(&mut self, to: impl FnOnce(usize) -> usize) {
        let shown = self.shown();
        let position = to(self.position()).min(shown.len().saturating_sub(1));
        let selected = shown.get(position).map(|work| work.id.clone());
        self.selected = selected;
        self.position = position;
    }
}

/// Whether some text of the work, as it is shown, has the filter, which is in lower case.
fn fits(work: &Work, filter: &str) -> bool {
    let step = work.step.as_ref().map(|step| step.words.as_str());
    let asked = work.questions.iter().map(|one| one.question.text.as_str());
    let state: &str = &work.shown_state();
    let texts = [work.title(), &work.id, state, &work.directory];
    let more = step.into_iter().chain(work.note.as_deref()).chain(asked);
    let mut all = texts.into_iter().chain([work.kind.as_ref()]).chain(more);
    all.any(|text| visible_line(text).to_lowercase().contains(filter))
}
