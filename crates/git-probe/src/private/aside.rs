//! The refs that keep commits which a takeover does not import under their own names.

use std::ffi::OsStr;

use super::names::RefPaths;
use crate::{Git, GitError};

/// The prefix of these refs.
const ASIDE: &str = "refs/codex-mcp";

/// The refs that keep commits of one run.
#[derive(Debug)]
pub(super) struct AsideRefs {
    /// Their prefix.
    base: String,
    there: RefPaths,
}

impl AsideRefs {
    /// The refs of the run of this name that the repository already has.
    pub(super) async fn of_run(git: &Git, run: &OsStr) -> Result<Self, GitError> {
        let base = format!("{ASIDE}/{}", run.to_string_lossy());
        let question = ["for-each-ref", "--format=%(refname)", base.as_str()];
        let output = git.text(&question, &[]).await?;
        Ok(Self::new(base, output.lines()))
    }

    fn new<'a>(base: String, refs: impl Iterator<Item = &'a str>) -> Self {
        let mut there = RefPaths::default();
        for name in refs {
            there.add(name);
        }
        Self { base, there }
    }

    /// The prefix of the refs.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the ref that is to keep the tip of `name`. If git could not keep it next to a ref of
    /// an earlier turn, such as `x/y` next to `x`, a number is inserted before the name.
    pub(super) fn keep(&mut self, name: &str) -> String {
        let own = name.strip_prefix("refs/").unwrap_or(name);
        let mut kept = format!("{}/{own}", self.base);
        let mut number = 2_u32;
        while self.there.in_the_way(&kept).is_some() {
            kept = format!("{}/{number}/{own}", self.base);
            number += 1;
        }
        self.there.add(&kept);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tips_of_each_turn_are_kept_beside_those_of_earlier_turns() {
        let there = ["refs/codex-mcp/run/heads/x", "refs/codex-mcp/run/heads/a/b"];
        let mut aside = AsideRefs::new("refs/codex-mcp/run".to_owned(), there.into_iter());
        for (name, kept) in [
            ("refs/heads/x", "refs/codex-mcp/run/heads/x"),
            ("refs/heads/x/y", "refs/codex-mcp/run/2/heads/x/y"),
            ("refs/heads/x/y/z", "refs/codex-mcp/run/3/heads/x/y/z"),
            ("refs/heads/a", "refs/codex-mcp/run/2/heads/a"),
            ("refs/heads/new", "refs/codex-mcp/run/heads/new"),
        ] {
            assert_eq!(aside.keep(name), kept);
        }
    }
}
