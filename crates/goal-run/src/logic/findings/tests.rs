use std::collections::BTreeMap;
use std::time::Duration;

use codex_engine::logic::session::Steps;
use codex_engine::logic::work::{Evidence, Refusal};
use git_probe::logic::git_state::{ChangeKind, FileState, GitState};
use proptest::prelude::*;

use super::*;
use crate::logic::artifacts::{self, Gain, SeenArtifacts};
use crate::logic::review::{BranchBase, OtherBranch, ReviewEnd};
use crate::logic::snapshot::{
    Age, CommandEnd, Comment, Commit, Head, History, Probe, PullRequest, Tree,
};

fn history(tip: Option<&str>, total: u64, new: u64) -> History {
    let newest = (0..new).map(|number| Commit {
        id: format!("{}-{number}", tip.unwrap_or_default()),
        subject: "work".to_owned(),
    });
    History {
        tip: tip.map(str::to_owned),
        tip_is_foreign: false,
        total,
        new,
        newest: newest.collect(),
    }
}

fn head(tip: Option<&str>, total: u64, new: u64) -> Probe<Head> {
    Probe::Found(Head {
        branch: Some("main".to_owned()),
        history: history(tip, total, new),
    })
}

fn map(pairs: &[(&str, &str)]) -> Probe<BTreeMap<String, String>> {
    let pairs = pairs.iter();
    Probe::Found(
        pairs
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
    )
}

fn tree(dirty: &[(&str, &str)], committed: &[&str]) -> Probe<Tree> {
    let look = |stamp: &str| FileState {
        kind: ChangeKind::Modified,
        stamp: stamp.to_owned(),
    };
    let dirty = dirty
        .iter()
        .map(|(path, stamp)| (path.to_string(), look(stamp)));
    let committed = committed.iter();
    Probe::Found(Tree {
        state: GitState {
            head: None,
            dirty: dirty.collect(),
        },
        committed: committed
            .map(|path| (path.to_string(), ChangeKind::Added))
            .collect(),
    })
}

fn changes(paths: &[&str]) -> Probe<BTreeMap<String, ChangeKind>> {
    let paths = paths.iter();
    Probe::Found(
        paths
            .map(|path| (path.to_string(), ChangeKind::Modified))
            .collect(),
    )
}

fn requests(requests: &[(u64, Age)]) -> Probe<Vec<PullRequest>> {
    let request = |(number, age): &(u64, Age)| PullRequest {
        url: format!("https://github.com/o/r/pull/{number}"),
        number: *number,
        age: *age,
    };
    Probe::Found(requests.iter().map(request).collect())
}

fn comments(comments: &[(u64, Age)]) -> Probe<Vec<Comment>> {
    let comment = |(number, age): &(u64, Age)| Comment {
        url: format!("https://github.com/o/r/issues/7#issuecomment-{number}"),
        age: *age,
    };
    Probe::Found(comments.iter().map(comment).collect())
}

const ISSUE: &str = "o/r#7";
const COMMAND: &str = "cargo test";

/// As a run begins: a file, two branches, both pushed, nothing uncommitted.
fn start() -> Snapshot {
    Snapshot {
        tree: tree(&[("users.txt", "1")], &[]),
        head: head(Some("aaaa"), 3, 0),
        branches: BTreeMap::from([
            (
                "main".parse().unwrap(),
                Probe::Found(Some(history(Some("aaaa"), 3, 0))),
            ),
            ("x".parse().unwrap(), Probe::Found(None)),
        ]),
        branch_changes: BTreeMap::new(),
        remote: map(&[("main", "aaaa"), ("old", "0000")]),
        remote_had_tip: false,
        files: map(&[("src/a.rs", "1")]),
        pull_requests: requests(&[]),
        comments: BTreeMap::from([(ISSUE.parse().unwrap(), comments(&[(1, Age::Old)]))]),
        commands: BTreeMap::new(),
        review: None,
    }
}

/// After the work: all of it.
fn done() -> Snapshot {
    let exited = CommandEnd::Exited {
        code: 0,
        tail: String::new(),
    };
    Snapshot {
        tree: tree(&[], &["src/b.rs", "users.txt"]),
        head: head(Some("bbbb"), 5, 2),
        branches: BTreeMap::from([
            (
                "main".parse().unwrap(),
                Probe::Found(Some(history(Some("bbbb"), 5, 2))),
            ),
            (
                "x".parse().unwrap(),
                Probe::Found(Some(history(Some("bbbb"), 5, 2))),
            ),
        ]),
        branch_changes: BTreeMap::from(
            ["main", "x"].map(|name| (name.parse().unwrap(), changes(&["src/b.rs", "users.txt"]))),
        ),
        remote: map(&[("main", "bbbb"), ("old", "0000")]),
        remote_had_tip: false,
        files: map(&[("src/a.rs", "1"), ("src/b.rs", "1")]),
        pull_requests: requests(&[(12, Age::New)]),
        comments: BTreeMap::from([(
            ISSUE.parse().unwrap(),
            comments(&[(1, Age::Old), (2, Age::New)]),
        )]),
        commands: BTreeMap::from([(COMMAND.parse().unwrap(), Probe::Found(exited))]),
        review: None,
    }
}

fn worked() -> Work {
    Work {
        evidence: Evidence {
            commands: 2,
            ..Evidence::default()
        },
        succeeded: 2,
        refusal: Refusal::None,
        answer: Answer::Present,
    }
}

fn criteria(texts: &[&str]) -> Criteria {
    Criteria::new(texts.iter().map(|text| text.parse().unwrap())).unwrap()
}

fn verdict(texts: &[&str], start: &Snapshot, now: &Snapshot, preexisting: Preexisting) -> Verdict {
    judge(&criteria(texts), start, now, &worked(), preexisting)
}

fn told(finding: &Finding) -> String {
    match finding {
        Finding::Satisfied { found } => format!("satisfied: {found}"),
        Finding::NotYet {
            missing,
            instruction,
        } => format!("not yet:   {missing} | {instruction}"),
        Finding::NotRun { missing } => format!("not run:   {missing}"),
        Finding::Unknown { why } => format!("unknown:   {why}"),
    }
}

const ALL: [&str; 13] = [
    "files=src/a.rs",
    "files=src/*.rs",
    "files=none.txt",
    "files=*.tex",
    "commits=2",
    "commits=1@x",
    "branch=main",
    "branch=x",
    "pushed",
    "pr",
    "issue_comment=o/r#7",
    "clean",
    "diff_within=src",
];

type Change = fn(&mut Snapshot);

/// What else can be found than at the start or when all is done.
const SCENES: [(&str, Change); 7] = [
    ("nobody could look", |now| *now = Snapshot::default()),
    ("an empty repository", |now| {
        now.head = head(None, 0, 0);
        now.files = map(&[]);
    }),
    ("one commit, on a branch, not pushed", |now| {
        now.head = head(Some("cccc"), 4, 1);
        let x = Probe::Found(Some(history(Some("cccc"), 4, 1)));
        now.branches.insert("x".parse().unwrap(), x);
        now.branch_changes
            .insert("x".parse().unwrap(), changes(&["src/b.rs"]));
    }),
    ("old work checked out", |now| {
        now.head = head(Some("0000"), 2, 0);
        now.pull_requests = requests(&[(9, Age::Old)]);
    }),
    ("a branch where nothing is", |now| {
        let x = Probe::Found(Some(history(Some("aaaa"), 3, 0)));
        now.branches.insert("x".parse().unwrap(), x);
        now.branch_changes
            .insert("x".parse().unwrap(), changes(&[]));
    }),
    ("a changed file, and others", |now| {
        now.files = map(&[("src/a.rs", "2")]);
        let names = ["src/a.rs", "b\nc", "d", "e", "f", "g", "h", "users.txt"];
        now.tree = tree(&names.map(|name| (name, "1")), &[]);
    }),
    ("a comment that GitHub calls old", |now| {
        now.comments
            .insert(ISSUE.parse().unwrap(), comments(&[(3, Age::Old)]));
    }),
];

/// Each criterion in each scene; and where old things count, if that is different.
#[test]
fn criteria_are_judged_in_every_scene() {
    let mut scenes: Vec<(&str, Snapshot)> =
        vec![("as at the start", start()), ("all done", done())];
    for (name, change) in SCENES {
        let mut now = start();
        change(&mut now);
        scenes.push((name, now));
    }
    let mut table = String::new();
    for (name, now) in scenes {
        table += &format!("{name}\n");
        let new = verdict(&ALL, &start(), &now, Preexisting::Ignored);
        let any = verdict(&ALL, &start(), &now, Preexisting::Counts);
        for (new, any) in new.iter().zip(any.iter()) {
            table += &format!("  {:<20} {}\n", new.subject.to_string(), told(&new.finding));
            if new != any {
                table += &format!("    old things count:  {}\n", told(&any.finding));
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn state_unknown_at_the_start_is_not_new() {
    let verdict = verdict(&ALL, &Snapshot::default(), &done(), Preexisting::Ignored);
    for judged in verdict.iter() {
        let by_itself = [
            "commits=2",
            "commits=1@x",
            "branch=main",
            "branch=x",
            "clean",
            "work",
        ];
        let by_itself = by_itself.contains(&judged.subject.to_string().as_str())
            || judged.subject.to_string().starts_with("issue_comment");
        let holds = matches!(judged.finding, Finding::Satisfied { .. });
        assert_eq!(holds, by_itself, "{judged:?}");
    }
}

/// The remote is at the checked-out commit, which came from there.
#[test]
fn fetched_commits_do_not_count_as_a_push() {
    let pulled = |new: u64| {
        let mut now = start();
        now.head = Probe::Found(Head {
            branch: Some("main".to_owned()),
            history: History {
                tip_is_foreign: true,
                ..history(Some("bbbb"), 4 + new, new)
            },
        });
        now.remote = map(&[("main", "bbbb"), ("old", "0000")]);
        now
    };
    let status =
        |new, preexisting| verdict(&["pushed"], &start(), &pulled(new), preexisting).status();
    assert_eq!(status(0, Preexisting::Ignored), VerdictStatus::Incomplete);
    assert_eq!(status(0, Preexisting::Counts), VerdictStatus::Satisfied);
    assert_eq!(artifacts::new_artifacts(&start(), &pulled(0)), []);
    // A commit of others on one of ours, which they could only have from the remote.
    assert_eq!(status(1, Preexisting::Ignored), VerdictStatus::Satisfied);
}

#[test]
fn old_file_that_cannot_be_read_is_not_changed() {
    for stamp in ["unreadable 1 5.000000000", "changing 1 5.000000000"] {
        let mut now = start();
        let finding = |now: &Snapshot| {
            let verdict = verdict(&["files=src/*.rs"], &start(), now, Preexisting::Ignored);
            told(&verdict.iter().next().unwrap().finding)
        };
        now.files = map(&[("src/a.rs", stamp)]);
        assert_eq!(
            finding(&now),
            "not yet:   1 file is not readable, now or at the start: \"src/a.rs\" | create or \
             change what the task asks for, and leave it readable"
        );
        let mut before = start();
        before.files = map(&[("src/a.rs", stamp)]);
        now.files = map(&[("src/a.rs", "1")]);
        assert!(now.new_files(&before).is_empty());
        now.files = map(&[("src/a.rs", stamp)]);
        assert_eq!(artifacts::new_artifacts(&start(), &now), []);
        now.files = map(&[("src/a.rs", "1"), ("src/b.rs", stamp)]);
        let found = finding(&now);
        assert_eq!(found, "satisfied: 1 file is new or changed: \"src/b.rs\"");
    }
}

#[test]
fn old_commit_on_a_new_branch_of_the_remote_is_no_push() {
    let at = |commit: &str| {
        let mut now = start();
        now.head = head(Some(commit), 4, 0);
        now.remote = map(&[("main", "aaaa"), ("old", "0000"), ("x", commit)]);
        now
    };
    let finding = |now: &Snapshot| {
        let verdict = verdict(&["pushed"], &start(), now, Preexisting::Ignored);
        told(&verdict.iter().next().unwrap().finding)
    };
    let below_main = Snapshot {
        remote_had_tip: true,
        ..at("cccc")
    };
    for now in [at("aaaa"), at("0000"), below_main] {
        assert_eq!(
            finding(&now),
            "not yet:   the remote had the checked-out commit at the start | \
             commit the work, then push it"
        );
        assert_eq!(artifacts::new_artifacts(&start(), &now), []);
    }
    let found = finding(&at("cccc"));
    assert_eq!(found, "satisfied: \"x\" of the remote is at cccc");
}

/// Another branch is checked out.
#[test]
fn changes_on_a_named_branch_are_judged() {
    let judged = |changes: Option<Probe<_>>| {
        let mut now = start();
        let x = Probe::Found(Some(history(Some("cccc"), 4, 1)));
        now.branches.insert("x".parse().unwrap(), x);
        now.branch_changes = changes
            .map(|changes| ("x".parse().unwrap(), changes))
            .into_iter()
            .collect();
        let criteria = ["branch=x", "diff_within=src"];
        let verdict = verdict(&criteria, &start(), &now, Preexisting::Ignored);
        told(&verdict.iter().nth(1).unwrap().finding)
    };
    for (changes, expected) in [
        (
            Some(changes(&["src/c.rs", "src/d.rs"])),
            "satisfied: 2 files are changed, none outside of what may be changed",
        ),
        (
            Some(changes(&["src/c.rs", "check.sh"])),
            "not yet:   1 file is changed on the branch x outside of what may be changed: \
             \"check.sh\" | take back those changes that are yours, on that branch",
        ),
        (
            Some(Probe::Failed("git failed".to_owned())),
            "unknown:   git failed",
        ),
        (None, "unknown:   nobody has looked"),
    ] {
        assert_eq!(judged(changes), expected);
    }
}

#[test]
fn named_branches_at_other_commits_are_to_be_reviewed() {
    let with = |branches: &[(&str, Option<(&str, u64)>)]| {
        let mut snapshot = start();
        for (name, at) in branches {
            let history = at.map(|(tip, new)| history(Some(tip), 4, new));
            let name = name.parse().unwrap();
            snapshot.branches.insert(name, Probe::Found(history));
        }
        snapshot
    };
    let start = with(&[
        ("idle", Some(("2222", 0))),
        ("moved", Some(("6666", 0))),
        ("old", Some(("3333", 0))),
    ]);
    let now = with(&[
        ("idle", Some(("2222", 0))),
        ("main", Some(("aaaa", 1))),
        ("moved", Some(("7777", 0))),
        ("old", Some(("4444", 2))),
        ("x", Some(("5555", 1))),
    ]);
    let other = |name, base, tip| OtherBranch { name, base, tip };
    assert_eq!(start.other_branches(&start), []);
    assert_eq!(
        now.other_branches(&start),
        [
            other("moved", BranchBase::Own("6666"), "7777"),
            other("old", BranchBase::Own("3333"), "4444"),
            other("x", BranchBase::Head("aaaa"), "5555")
        ]
    );
}

#[test]
fn command_ends_are_judged() {
    let exited = |code, tail: &str| {
        let tail = tail.to_owned();
        Probe::Found(CommandEnd::Exited { code, tail })
    };
    let mut table = String::new();
    for end in [
        None,
        Some(Probe::Failed("no such program".to_owned())),
        Some(exited(0, "fine")),
        Some(exited(101, " \n")),
        Some(exited(1, "line one\nline\ttwo")),
        Some(Probe::Found(CommandEnd::Signalled(9))),
        Some(Probe::Found(CommandEnd::TimedOut(Duration::from_secs(60)))),
    ] {
        let mut now = start();
        now.commands = end
            .map(|end| (COMMAND.parse().unwrap(), end))
            .into_iter()
            .collect();
        let verdict = verdict(
            &["command=cargo test"],
            &start(),
            &now,
            Preexisting::Ignored,
        );
        table += &format!("{}\n", told(&verdict.iter().next().unwrap().finding));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn work_and_answer_are_implied_by_criteria() {
    let subjects = |texts: &[&str]| {
        let verdict = verdict(texts, &start(), &start(), Preexisting::Ignored);
        let subjects = verdict.iter().map(|judged| judged.subject.to_string());
        subjects.collect::<Vec<_>>()
    };
    assert_eq!(subjects(&[]), ["work", "answer"]);
    assert_eq!(subjects(&["clean"]), ["clean", "work", "answer"]);
    assert_eq!(
        subjects(&["commits=1", "clean"]),
        ["commits=1", "clean", "work"]
    );
    assert_eq!(subjects(&["commits=1"]), ["commits=1"]);
}

#[test]
fn runs_without_criteria_need_a_success_and_no_refusal_at_the_end() {
    let (start, after) = (start(), done());
    let status = |work: &Work, now: &Snapshot| {
        let nothing = Criteria::default();
        judge(&nothing, &start, now, work, Preexisting::Ignored).status()
    };
    let only_failed = Work {
        succeeded: 0,
        ..worked()
    };
    assert_eq!(status(&only_failed, &after), VerdictStatus::Incomplete);
    let refused = |refusal| Work {
        refusal,
        ..worked()
    };
    for now in [&start, &after] {
        assert_eq!(
            status(&refused(Refusal::Last), now),
            VerdictStatus::Incomplete
        );
        assert_eq!(
            status(&refused(Refusal::None), now),
            VerdictStatus::Satisfied
        );
    }
    // Looking around after a refusal is not the work.
    let followed = refused(Refusal::Followed);
    assert_eq!(status(&followed, &start), VerdictStatus::Incomplete);
    assert_eq!(status(&followed, &after), VerdictStatus::Satisfied);
}

#[test]
fn instructions_are_only_for_codex() {
    let nothing = Criteria::default();
    let start = start();
    let verdict = judge(
        &nothing,
        &start,
        &start,
        &Work::default(),
        Preexisting::Ignored,
    );
    assert_eq!(
        verdict.missing(),
        ["nothing was executed", "there is no final message"]
    );
    assert_eq!(
        verdict.instructions(),
        [
            "nothing was executed: use your tools to do the work",
            "there is no final message: when the work is done, report what you did",
        ]
    );
    let told = serde_json::to_string(&verdict).unwrap();
    assert!(!told.contains("use your tools"), "{told}");
}

#[test]
fn refusals_last_over_turns_of_words() {
    let mut work = Work::default();
    let steps = |succeeded| Steps {
        succeeded,
        ..Steps::default()
    };
    for (succeeded, refusal, expected) in [
        (1, Refusal::Last, Refusal::Last),
        (0, Refusal::None, Refusal::Last),
        (1, Refusal::Followed, Refusal::Followed),
        (1, Refusal::None, Refusal::None),
    ] {
        work.add(&steps(succeeded), refusal);
        assert_eq!(work.refusal, expected);
    }
    assert_eq!(work.succeeded, 3);
}

#[test]
fn criteria_that_held_before_need_work() {
    let idle = Work::default();
    let denied = Work {
        evidence: Evidence {
            commands: 1,
            declined: 1,
            ..Evidence::default()
        },
        refusal: Refusal::Last,
        answer: Answer::Present,
        ..Work::default()
    };
    let refused = Work {
        evidence: Evidence {
            tool_calls: 2,
            failed_calls: 2,
            ..Evidence::default()
        },
        answer: Answer::Present,
        ..Work::default()
    };
    let silent = Work {
        answer: Answer::Missing,
        ..worked()
    };
    let (start, mut clean) = (start(), start());
    clean.tree = tree(&[], &[]);
    let status = |texts: &[&str], now: &Snapshot, work: &Work| {
        judge(&criteria(texts), &start, now, work, Preexisting::Counts).status()
    };
    for work in [idle, denied, refused, silent] {
        assert_eq!(status(&[], &start, &work), VerdictStatus::Incomplete);
        assert_eq!(
            status(&["diff_within=src"], &start, &work),
            VerdictStatus::Incomplete
        );
    }
    assert_eq!(status(&[], &start, &worked()), VerdictStatus::Satisfied);
    assert_eq!(
        status(&["diff_within=src"], &start, &worked()),
        VerdictStatus::Satisfied
    );
    // Something new is work, whoever has noted how it came to be.
    assert_eq!(
        status(&["commits=1", "clean"], &done(), &idle),
        VerdictStatus::Satisfied
    );
    assert_eq!(
        status(&["files=src/a.rs"], &start, &idle),
        VerdictStatus::Satisfied
    );
    assert_eq!(
        status(&["clean"], &Snapshot::default(), &worked()),
        VerdictStatus::Unknown
    );
}

#[test]
fn commands_run_only_when_all_else_holds() {
    let is_worth = |texts: &[&str], now: &Snapshot| {
        verdict(texts, &start(), now, Preexisting::Ignored).is_worth_commands()
    };
    let mut unchecked = done();
    unchecked.commands.clear();
    assert!(is_worth(&["commits=1", "command=cargo test"], &unchecked));
    assert!(!is_worth(&["commits=9", "command=cargo test"], &unchecked));
    assert!(!is_worth(&["commits=1", "command=cargo test"], &start()));
    unchecked.pull_requests = Probe::default();
    assert!(is_worth(&["pr", "command=cargo test"], &unchecked));
}

#[test]
fn unmet_criteria_need_a_change_if_nothing_else_can_meet_them() {
    let needs_change = |criterion: &str, now: &Snapshot| {
        verdict(&[criterion], &start(), now, Preexisting::Ignored).needs_change()
    };
    assert!(needs_change("clean", &start()));
    assert!(!needs_change("clean", &done()));
    assert!(!needs_change("clean", &Snapshot::default()));
    assert!(needs_change("diff_within=src", &done()));
    let mut now = done();
    assert!(!needs_change("command=cargo test", &now));
    now.commands.clear();
    assert!(!needs_change("command=cargo test", &now));
    let failed = CommandEnd::Exited {
        code: 1,
        tail: String::new(),
    };
    now.commands = BTreeMap::from([(COMMAND.parse().unwrap(), Probe::Found(failed))]);
    assert!(needs_change("command=cargo test", &now));
    now.review = Some(Probe::Found(ReviewEnd::Failed {
        first: "no".to_owned(),
        text: "no".to_owned(),
    }));
    assert!(!needs_change("review", &now));
}

#[test]
fn verdict_is_serialized() {
    let mut now = done();
    now.pull_requests = Probe::Failed("gh is not installed".to_owned());
    let verdict = verdict(
        &["commits=3", "pr", "clean"],
        &start(),
        &now,
        Preexisting::Ignored,
    );
    let json = serde_json::to_string_pretty(&verdict).unwrap();
    insta::assert_snapshot!(format!("{json}\n{:#?}", verdict.missing()));
}

#[test]
fn artifacts_are_new_things_only() {
    assert_eq!(artifacts::all_artifacts(&start(), &start()), []);
    let listed = artifacts::all_artifacts(&start(), &done());
    insta::assert_snapshot!(serde_json::to_string_pretty(&listed).unwrap());
    assert_eq!(
        artifacts::new_artifacts(&Snapshot::default(), &Snapshot::default()),
        []
    );
}

#[test]
fn gain_is_something_never_seen_before() {
    let start = start();
    let with = |dirty: &[(&str, &str)]| {
        let mut now = start.clone();
        now.tree = tree(dirty, &[]);
        now
    };
    let before = ("users.txt", "1");
    let mut seen = SeenArtifacts::default();
    for (now, gain) in [
        (with(&[before]), Gain::Nothing),
        (with(&[before, ("a", "1")]), Gain::Something),
        (with(&[before, ("a", "1")]), Gain::Nothing),
        (with(&[before, ("a", "2")]), Gain::Something),
        (with(&[before]), Gain::Nothing),
        (with(&[before, ("a", "1")]), Gain::Nothing),
        (with(&[]), Gain::Something),
        (done(), Gain::Something),
        (done(), Gain::Nothing),
        (Snapshot::default(), Gain::Nothing),
    ] {
        assert_eq!(seen.record(&start, &now), gain, "{:?}", now.tree);
    }
    let mut ignored = start.clone();
    ignored.files = map(&[("src/a.rs", "1"), ("build/out", "1")]);
    assert_eq!(seen.record(&start, &ignored), Gain::Something);
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let changes = SCENES.map(|(_, change)| change).to_vec();
    let changes = proptest::sample::subsequence(changes, 0..4);
    (any::<bool>(), changes).prop_map(|(is_done, changes)| {
        let mut snapshot = if is_done { done() } else { start() };
        for change in changes {
            change(&mut snapshot);
        }
        snapshot
    })
}

proptest! {
    /// What is there counts at least as much where old things count, something is
    /// missing exactly if not all holds, and every account is a line.
    #[test]
    fn verdict_of_arbitrary_snapshots_is_consistent(start in snapshots(), now in snapshots()) {
        let new = verdict(&ALL, &start, &now, Preexisting::Ignored);
        let any = verdict(&ALL, &start, &now, Preexisting::Counts);
        let holds = |judged: &SubjectFinding| matches!(judged.finding, Finding::Satisfied { .. });
        for (new, any) in new.iter().zip(any.iter()) {
            prop_assert!(holds(any) || !holds(new), "{:?} {:?}", new, any);
        }
        for verdict in [new, any] {
            let satisfied = verdict.status() == VerdictStatus::Satisfied;
            prop_assert_eq!(satisfied, verdict.iter().all(holds));
            prop_assert_eq!(satisfied, verdict.missing().is_empty());
            prop_assert!(!verdict.missing().concat().contains('\n'));
        }
    }

    /// Where nothing has changed, nothing is new.
    #[test]
    fn unchanged_repository_satisfies_no_new_work_criterion(snapshot in snapshots()) {
        let mut start = snapshot;
        if let Probe::Found(head) = &mut start.head {
            head.history.new = 0;
            head.history.newest.clear();
        }
        for branch in start.branches.values_mut() {
            if let Probe::Found(Some(history)) = branch {
                history.new = 0;
                history.newest.clear();
            }
        }
        if let Probe::Found(tree) = &mut start.tree {
            tree.committed.clear();
        }
        for criterion in criteria(&ALL).iter().filter(|one| one.basis() == Basis::NewWork) {
            let verdict = verdict(&[&criterion.to_string()], &start, &start, Preexisting::Ignored);
            prop_assert!(verdict.status() != VerdictStatus::Satisfied, "{:?}", verdict);
        }
        prop_assert_eq!(artifacts::new_artifacts(&start, &start), []);
        prop_assert_eq!(SeenArtifacts::default().record(&start, &start), Gain::Nothing);
    }
}
