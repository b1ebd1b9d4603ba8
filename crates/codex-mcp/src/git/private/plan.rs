//! What happens to the repository's refs, decided without git: by the refs of three
//! moments, when both sides were last the same, of the repository and of Codex now.

use std::collections::BTreeSet;

use super::refs::{Head, Refs};

/// What is to be done to the repository's refs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// As `git update-ref` reads them.
    pub(super) updates: Vec<String>,
    /// Tips that are kept aside.
    pub(super) aside: Vec<(String, String)>,
    /// Branches that have lost commits, and their tips of before.
    pub(super) rewritten: Vec<(String, String)>,
    /// Why they are.
    pub(super) why_aside: &'static str,
    /// What is checked out now, if that is to change.
    pub(super) head: Option<String>,
    /// Whether `HEAD` and the index stay as they are.
    pub(super) keeps_checkout: bool,
    /// What the user is told.
    pub(super) warnings: Vec<String>,
}

/// Why tips are kept aside.
pub(super) const CHANGED_BY_OTHERS: &str =
    "another process has changed or checked out the branch since";
pub(super) const ABANDONED: &str = "the working tree has changed since the run was interrupted, so no \
    branch was moved";
pub(super) const NO_WORKTREE: &str = "the working tree of the run is gone";

impl Plan {
    /// Has no branch, `HEAD` or index change: all tips that are new are kept aside.
    pub(super) fn aside(before: &Refs, theirs: &Refs, why: &'static str) -> Self {
        let new = theirs.all.iter();
        let new = new.filter(|(name, id)| before.all.get(*name) != Some(*id));
        let detached = match theirs.head() {
            Some(Head::Commit(id)) if theirs.head != before.head => {
                Some(("refs/detached".to_owned(), id.to_owned()))
            }
            _ => None,
        };
        let new = new.map(|(name, id)| (name.clone(), id.clone()));
        Self {
            aside: new.chain(detached).collect(),
            why_aside: why,
            keeps_checkout: true,
            ..Self::default()
        }
    }

    /// How `HEAD` changes, for the user.
    pub(super) fn head_change(&self, now: &Refs) -> Option<String> {
        let was = now.head.trim_end();
        let was = was.strip_prefix("ref: ").unwrap_or(was);
        match &self.head {
            _ if self.keeps_checkout => None,
            Some(head) => Some(format!("HEAD is {head} now, it was {was}")),
            None => {
                let old = now.all.get(was)?;
                let moved = self.changed().any(|name| name == was);
                moved.then(|| format!("HEAD ({was}) has moved on from {old}"))
            }
        }
    }

    /// Leaves the branch alone that is checked out, as its index is not taken over.
    pub(super) fn keep_checkout(&mut self, now: &Refs, theirs: &Refs) {
        (self.keeps_checkout, self.why_aside) = (true, CHANGED_BY_OTHERS);
        self.head = None;
        let Some(Head::Branch(branch)) = now.head() else {
            return;
        };
        let is_branch = |line: &String| line.split(' ').nth(1).map(str::trim_end) == Some(branch);
        if let (true, Some(id)) = (self.updates.iter().any(is_branch), theirs.all.get(branch)) {
            self.updates.retain(|line| !is_branch(line));
            self.aside.push((branch.to_owned(), id.clone()));
        }
    }

    /// The names of the refs that the repository gets.
    pub(super) fn changed(&self) -> impl Iterator<Item = &str> {
        let names = self.updates.iter().map(|line| line.split(' ').nth(1));
        names.flatten()
    }

    /// `before` is what both had when they were last the same. `elsewhere` are branches
    /// that other working trees have checked out.
    pub(super) fn of(
        before: &Refs,
        now: &Refs,
        theirs: &Refs,
        elsewhere: &BTreeSet<String>,
    ) -> Self {
        let mut plan = Self::default();
        let names: BTreeSet<&String> = before.all.keys().chain(theirs.all.keys()).collect();
        for name in names {
            let (old, new) = (before.all.get(name), theirs.all.get(name));
            let here = now.all.get(name);
            if old == new || here == new {
                continue;
            }
            match (old, new) {
                (Some(_), Some(id)) if name.starts_with("refs/tags/") => plan.warnings.push(
                    format!("{name} was there before and is not moved; Codex has moved it to {id}"),
                ),
                (old, Some(id)) if here == old && !elsewhere.contains(name) => {
                    plan.updates.push(change(name, old, id));
                }
                (_, Some(id)) => plan.aside.push((name.clone(), id.clone())),
                // It may be the only way to the user's commits.
                (_, None) => plan
                    .warnings
                    .push(format!("{name}, which Codex has deleted, is still here")),
            }
        }
        if theirs.head != before.head && theirs.head != now.head {
            plan.check_out(before, now, theirs, elsewhere);
        }
        if !plan.aside.is_empty() {
            plan.keep_checkout(now, theirs);
        }
        plan
    }

    pub(super) fn check_out(
        &mut self,
        before: &Refs,
        now: &Refs,
        theirs: &Refs,
        elsewhere: &BTreeSet<String>,
    ) {
        match theirs.head() {
            Some(Head::Branch(name)) if now.head == before.head && !elsewhere.contains(name) => {
                self.head = Some(name.to_owned());
            }
            Some(Head::Commit(id)) if now.head == before.head => self.head = Some(id.to_owned()),
            Some(Head::Commit(id)) => self.aside.push(("refs/detached".to_owned(), id.to_owned())),
            Some(_) => self.warnings.push(
                "what Codex has checked out is not checked out here, since another process has \
                 checked out something meanwhile"
                    .to_owned(),
            ),
            None => self
                .warnings
                .push("what Codex has checked out is nothing that git knows".to_owned()),
        }
    }
}

fn change(name: &str, old: Option<&String>, new: &str) -> String {
    match old {
        None => format!("create {name} {new}\n"),
        Some(old) => format!("update {name} {new} {old}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refs(head: &str, all: &[(&str, &str)]) -> Refs {
        Refs {
            head: format!("ref: refs/heads/{head}\n"),
            all: all
                .iter()
                .map(|(name, id)| (format!("refs/heads/{name}"), (*id).to_owned()))
                .collect(),
            others: 0,
        }
    }

    fn none() -> BTreeSet<String> {
        BTreeSet::new()
    }

    #[test]
    fn what_only_codex_has_changed_is_taken_over() {
        let before = refs("main", &[("main", "1"), ("old", "1"), ("kept", "1")]);
        let theirs = refs("new", &[("main", "2"), ("new", "3"), ("kept", "1")]);
        let plan = Plan::of(&before, &before, &theirs, &none());
        assert_eq!(
            plan.updates,
            ["update refs/heads/main 2 1\n", "create refs/heads/new 3\n"]
        );
        assert_eq!(plan.head.as_deref(), Some("refs/heads/new"));
        assert_eq!(plan.aside, vec![]);
        let told = ["refs/heads/old, which Codex has deleted, is still here"];
        assert_eq!(plan.warnings, told);
    }

    #[test]
    fn what_somebody_else_has_changed_or_checked_out_is_kept_aside() {
        let before = refs("main", &[("main", "1"), ("side", "1"), ("gone", "1")]);
        let now = refs("main", &[("main", "9"), ("side", "1"), ("gone", "9")]);
        let theirs = refs("main", &[("main", "2"), ("side", "2")]);
        let side = BTreeSet::from(["refs/heads/side".to_owned()]);
        let plan = Plan::of(&before, &now, &theirs, &side);
        assert_eq!(plan.updates, [] as [&str; 0]);
        let aside: Vec<_> = plan.aside.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(aside, ["refs/heads/main", "refs/heads/side"]);
        let both = Plan::of(&before, &theirs, &theirs, &none());
        assert_eq!(both, Plan::default(), "taken over already");
    }

    #[test]
    fn checkout_of_somebody_else_stays() {
        let before = refs("main", &[]);
        let plan = Plan::of(&before, &refs("other", &[]), &refs("new", &[]), &none());
        assert_eq!(plan.head, None);
        assert_eq!(plan.warnings.len(), 1);
    }

    #[test]
    fn checked_out_branch_stays_where_the_index_does() {
        let before = refs("main", &[("main", "1"), ("side", "1")]);
        let now = refs("main", &[("main", "1"), ("side", "9")]);
        let theirs = refs("main", &[("main", "2"), ("side", "2"), ("new", "3")]);
        let plan = Plan::of(&before, &now, &theirs, &none());
        assert_eq!(plan.updates, ["create refs/heads/new 3\n"]);
        let aside: Vec<_> = plan.aside.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(aside, ["refs/heads/side", "refs/heads/main"]);
        assert!(plan.keeps_checkout);
        assert_eq!(plan.head_change(&now), None);
    }

    #[test]
    fn change_of_head_is_reported() {
        let before = refs("main", &[("main", "1")]);
        let moved = Plan::of(&before, &before, &refs("main", &[("main", "2")]), &none());
        let told = "HEAD (refs/heads/main) has moved on from 1";
        assert_eq!(moved.head_change(&before).as_deref(), Some(told));
        let switched = refs("new", &[("main", "1"), ("new", "1")]);
        let switched = Plan::of(&before, &before, &switched, &none());
        let told = "HEAD is refs/heads/new now, it was refs/heads/main";
        assert_eq!(switched.head_change(&before).as_deref(), Some(told));
    }

    #[test]
    fn work_of_an_abandoned_run_is_kept_aside() {
        let before = refs("main", &[("main", "1"), ("same", "1")]);
        let theirs = refs("new", &[("main", "2"), ("same", "1"), ("new", "3")]);
        let plan = Plan::aside(&before, &theirs, ABANDONED);
        let aside: Vec<_> = plan.aside.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(aside, ["refs/heads/main", "refs/heads/new"]);
        assert_eq!((plan.updates.len(), plan.head), (0, None));
        assert!(plan.keeps_checkout);
    }
}
