//! The result of a visit to one submodule.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use super::directory::MovedAside;
use super::shown;
use super::state::SubmoduleState;

/// How many actions a warning names.
const ACTIONS_SHOWN: usize = 20;

/// The result of a visit to one submodule.
#[derive(Debug, Default)]
pub(super) struct VisitResult {
    /// The recorded state; `None` if it, or the submodules below, could not be determined.
    pub(super) state: Option<SubmoduleState>,
    /// An index that may list submodules.
    pub(super) index: Option<Vec<u8>>,
    pub(super) actions: Vec<String>,
    pub(super) failures: Vec<String>,
}

impl VisitResult {
    pub(super) fn failed(error: &impl ToString) -> Self {
        Self {
            failures: vec![error.to_string()],
            ..Self::default()
        }
    }

    /// Takes an index that may list submodules. Returns whether the submodules below are known.
    pub(super) fn take_index(&mut self, index: io::Result<Option<Vec<u8>>>) -> bool {
        match index {
            Ok(index) => {
                self.index = index;
                true
            }
            Err(error) => {
                self.failures.push(error.to_string());
                false
            }
        }
    }

    pub(super) fn warning(&self, path: &Path) -> Option<String> {
        let name = shown(path);
        let mut text = String::new();
        // Writing to a string cannot fail.
        if !self.actions.is_empty() {
            let actions: Vec<&str> = self.actions.iter().map(String::as_str).collect();
            let (first, more) = actions.split_at(actions.len().min(ACTIONS_SHOWN));
            let more = match more.len() {
                0 => String::new(),
                count => format!("; and {count} more"),
            };
            let _ = write!(
                text,
                "the git settings of the repository \"{name}\" were changed during the run, and \
                 your git would have run programs that they name: {}{more}. Do not run git with \
                 what was moved aside before you have looked through it. If it is yours, rename \
                 it back",
                first.join("; ")
            );
        }
        if !self.failures.is_empty() {
            let separator = if text.is_empty() { "" } else { ". " };
            let _ = write!(
                text,
                "{separator}the repository \"{name}\" is not protected: {}. Look at its .git \
                 before you run git in the repository",
                self.failures.join("; ")
            );
        }
        (!text.is_empty()).then_some(text)
    }

    pub(super) fn moved(&mut self, path: &Path, aside: &MovedAside) {
        let mut action = format!("{} is now {}", shown(path), shown(&aside.path));
        for (path, new) in &aside.renamed {
            let _ = write!(
                action,
                ", in which {} is now {}",
                name_of(path),
                shown(Path::new(new))
            );
        }
        self.actions.push(action);
        if let Some(error) = &aside.failure {
            let path = shown(&aside.path);
            self.failures
                .push(format!("{path} may still be a repository to git ({error})"));
        }
    }
}

fn name_of(path: &Path) -> String {
    shown(Path::new(path.file_name().unwrap_or_default()))
}
