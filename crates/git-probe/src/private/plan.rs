//! Plans the changes of the repository's refs, without running git. The plan compares three sets of
//! refs: those when both sides were last the same, and the current ones of the repository and of
//! Codex.

use std::collections::BTreeSet;

use common::text::first_names;

use super::names::TakenNames;
use super::refs::{Head, Refs, TRACKING};

/// How many refs of a kind are named in warnings.
pub(super) const NAMED: usize = 20;

/// The changes to the repository's refs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The ref updates, in the format that `git update-ref` reads.
    pub(super) updates: Vec<String>,
    /// Tips that are kept aside.
    pub(super) aside: Vec<(String, String)>,
    /// Branches that have lost commits, with their earlier tips.
    pub(super) rewritten: Vec<(String, String)>,
    /// Why the tips are kept aside.
    pub(super) why_aside: &'static str,
    /// New refs with names that the repository must not have. They are kept aside separately.
    pub(super) refused: Vec<RefusedRef>,
    /// Remote-tracking refs that do not match the remote, or that conflict with other refs. The
    /// repository's own values stay.
    pub(super) unconfirmed: BTreeSet<String>,
    /// The new HEAD, if it is to change.
    pub(super) head: Option<String>,
    /// Whether `HEAD` and the index stay as they are.
    pub(super) keeps_checkout: bool,
    /// Warnings for the user.
    pub(super) warnings: Vec<String>,
}

/// A new ref with a name that git would take for something else.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedRef {
    pub(super) name: String,
    pub(super) id: String,
    pub(super) why: String,
}

/// The facts that the plan depends on besides the refs of the three moments.
#[derive(Debug, Default)]
pub(super) struct PlanContext {
    /// Branches that other working trees have checked out.
    pub(super) elsewhere: BTreeSet<String>,
    /// The names that are in use.
    pub(super) names: TakenNames,
    /// Remote-tracking refs that match the remote.
    pub(super) confirmed: BTreeSet<String>,
}

/// How many remote-tracking refs a warning names.
const UNCONFIRMED_NAMED: usize = 5;

/// Why tips are kept aside.
pub(super) const REFUSED_CHECKOUT: &str = "the branch that Codex has checked out has a name that git \
    could take for something else, or that conflicts with another ref";
pub(super) const CHANGED_BY_OTHERS: &str =
    "another process has changed or checked out the branch since";
pub(super) const ABANDONED: &str = "the working tree has changed since the run was interrupted, so no \
    branch was moved";
pub(super) const NO_WORKTREE: &str = "the working tree of the run is gone";

impl Plan {
    /// A plan without changes of branches, `HEAD` or the index: all new tips are kept aside.
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

    /// The change of `HEAD` in words for the user, if it changes.
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

    /// Removes the change of the checked-out branch from the plan, since its index is not taken
    /// over.
    pub(super) fn keep_checkout(&mut self, now: &Refs, theirs: &Refs, why: &'static str) {
        (self.keeps_checkout, self.why_aside) = (true, why);
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

    /// The names of the tips that are kept aside, for the user.
    pub(super) fn aside_names(&self) -> String {
        first_names(self.aside.iter().map(|(name, _)| name), NAMED)
    }

    /// Makes the plan. `before` are the refs that both sides had when they were last the same.
    pub(super) fn of(before: &Refs, now: &Refs, theirs: &Refs, around: &PlanContext) -> Self {
        let mut plan = Self::default();
        let mut taken = around.names.clone();
        let (mut deleted, mut moved) = (Vec::new(), Vec::new());
        let names: BTreeSet<&String> = before.all.keys().chain(theirs.all.keys()).collect();
        for name in names {
            let (old, new) = (before.all.get(name), theirs.all.get(name));
            let here = now.all.get(name);
            if old == new || here == new {
                continue;
            }
            let Some(id) = new else {
                // The ref may be the only way to the user's commits.
                deleted.push(format!("{name}, which Codex has deleted, is still here"));
                continue;
            };
            if name.starts_with(TRACKING) {
                let is_free = here.is_some() || taken.in_the_way(name).is_none();
                match is_free && around.confirmed.contains(name) {
                    true => {
                        taken.add(name);
                        plan.updates.push(change(name, here, id));
                    }
                    false => drop(plan.unconfirmed.insert(name.clone())),
                }
            } else if let (None, Some(why)) = (here, taken.refusal(name)) {
                let (name, id) = (name.clone(), id.clone());
                plan.refused.push(RefusedRef { name, id, why });
            } else if old.is_some() && name.starts_with("refs/tags/") {
                moved.push(format!(
                    "{name} was there before and is not moved; Codex has moved it to {id}"
                ));
            } else if here == old && !around.elsewhere.contains(name) {
                taken.add(name);
                plan.updates.push(change(name, old, id));
            } else {
                plan.aside.push((name.clone(), id.clone()));
            }
        }
        plan.warn_of_each(deleted, "refs that Codex has deleted are still here");
        plan.warn_of_each(moved, "tags that Codex has moved are not moved");
        plan.warn_of_unconfirmed();
        if theirs.head != before.head && theirs.head != now.head {
            plan.check_out(before, now, theirs, around);
        }
        if !plan.aside.is_empty() && !plan.keeps_checkout {
            plan.keep_checkout(now, theirs, CHANGED_BY_OTHERS);
        }
        plan
    }

    fn check_out(&mut self, before: &Refs, now: &Refs, theirs: &Refs, around: &PlanContext) {
        match theirs.head() {
            Some(Head::Branch(name))
                if !now.all.contains_key(name) && around.names.refusal(name).is_some() =>
            {
                self.keep_checkout(now, theirs, REFUSED_CHECKOUT);
            }
            Some(Head::Branch(name))
                if now.head == before.head && !around.elsewhere.contains(name) =>
            {
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

    /// Adds the first of these warnings, and the number of the others.
    pub(super) fn warn_of_each(&mut self, mut warnings: Vec<String>, more: &str) {
        let left_out = warnings.len().saturating_sub(NAMED);
        warnings.truncate(NAMED);
        self.warnings.append(&mut warnings);
        if left_out > 0 {
            self.warnings.push(format!("{left_out} more {more}"));
        }
    }

    fn warn_of_unconfirmed(&mut self) {
        if self.unconfirmed.is_empty() {
            return;
        }
        self.warnings.push(format!(
            "what Codex has written into {} was not imported, because the remote does not have \
             it or does not answer, or because it conflicts with another ref here: run \
             `git fetch --prune` to get what the remote has",
            first_names(&self.unconfirmed, UNCONFIRMED_NAMED)
        ));
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

    fn none() -> PlanContext {
        PlanContext::default()
    }

    /// The names that these refs take.
    fn names_of(refs: &Refs) -> PlanContext {
        let remotes = ["origin".to_owned()].into_iter();
        PlanContext {
            names: TakenNames::new(refs.all.keys().map(String::as_str), remotes),
            ..PlanContext::default()
        }
    }

    #[test]
    fn refs_changed_only_by_codex_are_taken_over() {
        let before = refs("main", &[("main", "1"), ("old", "1"), ("kept", "1")]);
        let theirs = refs("new", &[("main", "2"), ("new", "3"), ("kept", "1")]);
        let plan = Plan::of(&before, &before, &theirs, &none());
        assert_eq!(
            plan.updates,
            ["update refs/heads/main 2 1\n", "create refs/heads/new 3\n"]
        );
        assert_eq!(plan.head.as_deref(), Some("refs/heads/new"));
        assert_eq!(plan.aside, vec![]);
        let output = ["refs/heads/old, which Codex has deleted, is still here"];
        assert_eq!(plan.warnings, output);
    }

    #[test]
    fn warnings_of_deleted_and_moved_refs_are_bounded() {
        let mut before = refs("main", &[("main", "1")]);
        let mut theirs = before.clone();
        for number in 0..1000 {
            let (branch, tag) = (
                format!("refs/heads/{number}"),
                format!("refs/tags/{number}"),
            );
            before.all.insert(branch, "1".to_owned());
            before.all.insert(tag.clone(), "1".to_owned());
            theirs.all.insert(tag, "2".to_owned());
        }
        let plan = Plan::of(&before, &before, &theirs, &none());
        assert_eq!(plan.warnings.len(), 2 * (NAMED + 1));
        let last = plan.warnings.last().unwrap();
        assert_eq!(last, "980 more tags that Codex has moved are not moved");
    }

    #[test]
    fn names_of_tips_kept_aside_are_bounded() {
        let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let tips: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "2")).collect();
        let plan = Plan::aside(&refs("main", &[]), &refs("main", &tips), ABANDONED);
        assert_eq!(plan.aside.len(), 1000);
        let shown = plan.aside_names();
        assert!(shown.starts_with("refs/heads/0, refs/heads/1, "), "{shown}");
        assert!(shown.ends_with(" and 980 more"), "{shown}");
    }

    #[test]
    fn refs_changed_or_checked_out_elsewhere_are_kept_aside() {
        let before = refs("main", &[("main", "1"), ("side", "1"), ("gone", "1")]);
        let now = refs("main", &[("main", "9"), ("side", "1"), ("gone", "9")]);
        let theirs = refs("main", &[("main", "2"), ("side", "2")]);
        let side = PlanContext {
            elsewhere: BTreeSet::from(["refs/heads/side".to_owned()]),
            ..PlanContext::default()
        };
        let plan = Plan::of(&before, &now, &theirs, &side);
        assert_eq!(plan.updates, [] as [&str; 0]);
        let aside: Vec<_> = plan.aside.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(aside, ["refs/heads/main", "refs/heads/side"]);
        let both = Plan::of(&before, &theirs, &theirs, &none());
        assert_eq!(both, Plan::default(), "taken over already");
    }

    #[test]
    fn checkout_of_the_user_stays() {
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
        let output = "HEAD (refs/heads/main) has moved on from 1";
        assert_eq!(moved.head_change(&before).as_deref(), Some(output));
        let switched = refs("new", &[("main", "1"), ("new", "1")]);
        let switched = Plan::of(&before, &before, &switched, &none());
        let output = "HEAD is refs/heads/new now, it was refs/heads/main";
        assert_eq!(switched.head_change(&before).as_deref(), Some(output));
    }

    #[test]
    fn refs_that_hide_others_are_refused() {
        let before = refs("main", &[("main", "1")]);
        let mut theirs = refs("main", &[("main", "2"), ("new", "3"), ("origin/main", "4")]);
        for name in ["refs/tags/main", "refs/tags/new"] {
            theirs.all.insert(name.to_owned(), "5".to_owned());
        }
        let plan = Plan::of(&before, &before, &theirs, &names_of(&before));
        let refused: Vec<&str> = plan.refused.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            refused,
            ["refs/heads/origin/main", "refs/tags/main", "refs/tags/new"]
        );
        let updates = ["update refs/heads/main 2 1\n", "create refs/heads/new 3\n"];
        assert_eq!(plan.updates, updates);
        assert!(!plan.keeps_checkout);
    }

    #[test]
    fn refs_that_git_cannot_keep_beside_others_are_not_created() {
        let mut before = refs("main", &[("main", "1"), ("feature", "1")]);
        let tracked = |name: &str| (format!("refs/remotes/origin/{name}"), "1".to_owned());
        before.all.extend([tracked("foo")]);
        let mut theirs = refs("main", &[("main", "2"), ("feature/a", "3")]);
        theirs.all.extend([tracked("foo/bar"), tracked("new")]);
        let around = PlanContext {
            confirmed: [tracked("foo/bar").0, tracked("new").0].into(),
            ..names_of(&before)
        };
        let plan = Plan::of(&before, &before, &theirs, &around);
        let updates = [
            "update refs/heads/main 2 1\n",
            "create refs/remotes/origin/new 1\n",
        ];
        assert_eq!(plan.updates, updates);
        let refused: Vec<&str> = plan.refused.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(refused, ["refs/heads/feature/a"]);
        assert_eq!(plan.unconfirmed, [tracked("foo/bar").0].into());
        assert!(!plan.keeps_checkout);

        let theirs = refs("feature/a", &[("main", "1"), ("feature/a", "3")]);
        let plan = Plan::of(&before, &before, &theirs, &around);
        assert!(plan.keeps_checkout && plan.head.is_none());
        assert_eq!(plan.why_aside, REFUSED_CHECKOUT);
    }

    #[test]
    fn branch_that_hides_others_is_not_checked_out() {
        let before = refs("main", &[("main", "1")]);
        for theirs in [
            refs("HEAD", &[("main", "2"), ("HEAD", "3")]),
            refs("origin/main", &[("main", "2")]),
        ] {
            let plan = Plan::of(&before, &before, &theirs, &names_of(&before));
            assert!(plan.keeps_checkout && plan.head.is_none());
            assert_eq!(plan.why_aside, REFUSED_CHECKOUT);
            assert_eq!(plan.aside, [("refs/heads/main".to_owned(), "2".to_owned())]);
        }
    }

    #[test]
    fn remote_tracking_refs_are_taken_over_as_the_remote_has_them() {
        let name = |name: &str| format!("refs/remotes/origin/{name}");
        let all = |one: &str, two: &str| Refs {
            all: [(name("a"), one.to_owned()), (name("b"), two.to_owned())].into(),
            ..refs("main", &[])
        };
        let (before, theirs) = (all("1", "1"), all("2", "2"));
        let around = PlanContext {
            confirmed: [name("a")].into(),
            ..PlanContext::default()
        };
        let plan = Plan::of(&before, &before, &theirs, &around);
        assert_eq!(plan.updates, [format!("update {} 2 1\n", name("a"))]);
        assert_eq!(plan.unconfirmed, [name("b")].into());
        assert!(plan.warnings[0].contains(&name("b")), "{plan:?}");
        let fetched = Plan::of(&before, &all("3", "1"), &theirs, &around);
        assert_eq!(fetched.updates, [format!("update {} 2 3\n", name("a"))]);
        assert!(!fetched.keeps_checkout);
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
