//! The refs that keep commits which a takeover does not import under their own names.

use std::collections::BTreeMap;
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
    /// The commits that they have.
    tips: BTreeMap<String, String>,
}

impl AsideRefs {
    /// The refs of the run of this name that the repository already has.
    pub(super) async fn of_run(git: &Git, run: &OsStr) -> Result<Self, GitError> {
        let base = format!("{ASIDE}/{}", run.to_string_lossy());
        let format = "--format=%(refname) %(objectname)";
        let question = ["for-each-ref", format, base.as_str()];
        let output = git.text(&question, &[]).await?;
        let refs = output.lines().filter_map(|line| line.split_once(' '));
        Ok(Self::new(base, refs))
    }

    fn new<'a>(base: String, refs: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut there, mut tips) = (RefPaths::default(), BTreeMap::new());
        for (name, tip) in refs {
            there.add(name);
            tips.insert(name.to_owned(), tip.to_owned());
        }
        Self { base, there, tips }
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

    /// Returns the refs that keep the former tips of a branch; the last one is to keep `tip`. The
    /// others are those of earlier attempts at the run, which have the commits from before it.
    pub(super) fn keep_former(&mut self, branch: &str, tip: &str) -> Vec<String> {
        let own = branch.strip_prefix("refs/").unwrap_or(branch);
        let mut refs = Vec::new();
        let mut kept = format!("{}/before/{own}", self.base);
        let mut number = 2_u32;
        loop {
            match self.tips.get(&kept).map(String::as_str) {
                Some(there) => {
                    refs.push(kept.clone());
                    if there == tip {
                        return refs;
                    }
                }
                None if self.there.in_the_way(&kept).is_none() => {
                    self.there.add(&kept);
                    self.tips.insert(kept.clone(), tip.to_owned());
                    refs.push(kept);
                    return refs;
                }
                None => {}
            }
            kept = format!("{}/{number}/before/{own}", self.base);
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tips_of_each_turn_are_kept_beside_those_of_earlier_turns() {
        let there = ["refs/codex-mcp/run/heads/x", "refs/codex-mcp/run/heads/a/b"];
        let there = there.into_iter().map(|name| (name, "1"));
        let mut aside = AsideRefs::new("refs/codex-mcp/run".to_owned(), there);
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

    #[test]
    fn former_tips_of_an_earlier_attempt_stay() {
        let first = "refs/codex-mcp/run/before/heads/x";
        let second = "refs/codex-mcp/run/2/before/heads/x";
        let there = [(first, "1")].into_iter();
        let mut aside = AsideRefs::new("refs/codex-mcp/run".to_owned(), there);
        assert_eq!(aside.keep_former("refs/heads/x", "1"), [first]);
        for _ in 0..2 {
            assert_eq!(aside.keep_former("refs/heads/x", "2"), [first, second]);
        }
        let below = "refs/codex-mcp/run/3/before/heads/x/y";
        assert_eq!(aside.keep_former("refs/heads/x/y", "1"), [below]);
    }
}
