//! The command that continues the thread of a run.

use std::collections::BTreeSet;
use std::path::Path;

use codex_protocol::codex::{SandboxMode, ThreadId};
use common::json::as_word;
use goal_run::logic::criteria::{Basis, Criterion};
use goal_run::logic::findings::{Finding, Subject, Verdict};
use goal_run::logic::machine::{Limits, RawLimits};
use goal_run::logic::outcome::{Reason, RunOutcome};
use goal_run::logic::snapshot::Preexisting;
use serde::Serialize;

use super::args::Args;

/// The prompt of the pasted command: the thread already contains the task.
const CONTINUE_PROMPT: &str = "Go on with the task.";

/// The purpose of the next run in the thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// To meet the criteria that a run with this outcome has not met.
    Remaining(&'a RunOutcome),
    /// A new task, which the command reads from stdin.
    NewTask,
}

/// How the thread of a run is continued.
#[derive(Debug, Default, Serialize)]
pub(super) struct Continuation {
    /// The command, quoted for a shell.
    #[serde(rename = "resume_command", skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    /// One line: what to add to the command; or, if there is no command, what to do first, and the
    /// command for after that.
    #[serde(rename = "resume_hint", skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

/// An option about notices.
struct NoticeOption {
    flag: &'static str,
    /// The value as it can be shown.
    shown: String,
    /// Whether a part of the value is not shown, such as a secret.
    is_cut: bool,
}

impl Args {
    /// How the thread of this run is continued.
    pub(super) fn continuation(
        &self,
        repo: &Path,
        thread: &ThreadId,
        sandbox: Option<SandboxMode>,
        purpose: Purpose<'_>,
    ) -> Continuation {
        let command = self.resume_command(repo, thread, sandbox, purpose);
        let Purpose::Remaining(outcome) = purpose else {
            return Continuation {
                command: Some(command),
                hint: None,
            };
        };
        let excess = excess_of_diff_within(outcome);
        let is_offered = excess.is_none();
        let undo = excess.map(|excess| {
            format!(
                "{excess}. The next run would accept such changes as the state of its start: undo \
                 them, or choose other criteria, and then run: {command}"
            )
        });
        // A command at the end of the line can be copied.
        let hints = [self.fewer_grants(outcome), self.left_out(), undo];
        let hints: Vec<String> = hints.into_iter().flatten().collect();
        Continuation {
            command: is_offered.then_some(command),
            hint: (!hints.is_empty()).then(|| hints.join("; ")),
        }
    }

    fn resume_command(
        &self,
        repo: &Path,
        thread: &ThreadId,
        sandbox: Option<SandboxMode>,
        purpose: Purpose<'_>,
    ) -> String {
        let mut words = vec!["codex-mcp".to_owned(), "run".to_owned()];
        let mut add = |flag: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        };
        let path = |path: &Path| Some(path.display().to_string());
        add("--cwd", path(repo));
        add("--thread", Some(thread.to_string()));
        add("--sandbox", sandbox.and_then(as_word));
        add("--model", self.model.clone());
        add("--effort", self.effort.and_then(as_word));
        add("--profile", self.profile.as_ref().map(ToString::to_string));
        add("--approve", self.approve.and_then(as_word));
        add("--codex-bin", self.codex_bin.as_deref().and_then(path));
        add(
            "--identity",
            self.identity.as_ref().map(ToString::to_string),
        );
        add("--team", self.team.as_ref().map(ToString::to_string));
        add("--role", self.role.as_ref().map(ToString::to_string));
        words.extend(match purpose {
            Purpose::Remaining(outcome) => self.remaining_words(outcome),
            Purpose::NewTask => vec!["-".to_owned()],
        });
        // No argument contains a NUL, so quoting cannot fail.
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
    }

    /// The limits, notices and criteria of the next run, and its prompt.
    fn remaining_words(&self, outcome: &RunOutcome) -> Vec<String> {
        let notices = self.notice_options().into_iter();
        let notices = notices.filter(|option| !option.is_cut);
        let notices = notices.map(|option| (option.flag, option.shown));
        let (criteria, preexisting) = self.remaining(&outcome.evidence.criteria);
        let criteria = criteria.into_iter();
        let criteria = criteria.map(|criterion| ("--until", criterion.to_string()));
        let options = self.set_limits().into_iter().chain(notices).chain(criteria);
        let options = options.flat_map(|(flag, value)| [flag.to_owned(), value]);
        let mut words: Vec<String> = options.collect();
        if preexisting == Preexisting::Counts {
            words.push("--allow-preexisting".to_owned());
        }
        words.push(CONTINUE_PROMPT.to_owned());
        words
    }

    fn notice_options(&self) -> Vec<NoticeOption> {
        let notifiers = self.notify.iter().map(|notifier| {
            let shown = notifier.to_string();
            NoticeOption {
                flag: "--notify",
                is_cut: notifier.secret() != shown,
                shown,
            }
        });
        let store = self.store.iter().map(|store| {
            let shown = store.to_string();
            NoticeOption {
                flag: "--store",
                is_cut: store.with_secrets() != shown.as_str(),
                shown,
            }
        });
        notifiers.chain(store).collect()
    }

    /// The hint that names the options that the command leaves out.
    fn left_out(&self) -> Option<String> {
        let options = self.notice_options().into_iter();
        let options = options.filter(|option| option.is_cut);
        let options = options.map(|NoticeOption { flag, shown, .. }| format!("{flag} {shown}"));
        let options: Vec<String> = options.collect();
        (!options.is_empty()).then(|| {
            format!(
                "the command leaves out options that cannot be shown whole; add them again: {}",
                options.join(", ")
            )
        })
    }

    /// The hint that the criteria of the next run need fewer permissions than those of this one.
    fn fewer_grants(&self, outcome: &RunOutcome) -> Option<String> {
        let (criteria, _) = self.remaining(&outcome.evidence.criteria);
        let next: BTreeSet<_> = criteria.into_iter().flat_map(Criterion::grants).collect();
        let mut grants = self.until.iter().flat_map(Criterion::grants);
        grants.any(|grant| !next.contains(grant)).then(|| {
            "the next run gives Codex fewer permissions, as the criteria that needed them hold: add \
             --until commits=1 or --until pushed if Codex is to commit or push what is still to \
             change"
                .to_owned()
        })
    }

    /// The criteria of the next run, and whether what was made before it counts. A criterion of
    /// new work that holds would demand it a second time. Such criteria are left out, unless all
    /// of them hold: then they stay, since Codex needs their permissions to commit and to push
    /// what is still to change.
    fn remaining(&self, verdict: &Verdict) -> (Vec<&Criterion>, Preexisting) {
        let (done, open): (Vec<&Criterion>, Vec<&Criterion>) = self
            .until
            .iter()
            .partition(|criterion| is_done(criterion, verdict));
        let wants_new = open
            .iter()
            .any(|criterion| criterion.basis() == Basis::NewWork);
        match self.allow_preexisting || (!done.is_empty() && !wants_new) {
            true => (self.until.iter().collect(), Preexisting::Counts),
            false => (open, Preexisting::Ignored),
        }
    }

    /// The limits that differ from the defaults.
    fn set_limits(&self) -> Vec<(&'static str, String)> {
        let usual = RawLimits::from(Limits::default());
        let millis = |time: std::time::Duration| goal_run::logic::machine::milliseconds(time);
        let time = |time| {
            humantime::format_duration(time)
                .to_string()
                .replace(' ', "")
        };
        let mut set = Vec::new();
        if usual.max_turns != Some(self.max_turns) {
            set.push(("--max-turns", self.max_turns.to_string()));
        }
        if usual.turn_timeout_ms != Some(millis(self.turn_timeout)) {
            set.push(("--turn-timeout", time(self.turn_timeout)));
        }
        if usual.total_timeout_ms != Some(millis(self.total_timeout)) {
            set.push(("--total-timeout", time(self.total_timeout)));
        }
        if usual.stall_after != Some(self.stall_after) {
            set.push(("--stall-after", self.stall_after.to_string()));
        }
        if let Some(tokens) = self.max_tokens {
            set.push(("--max-tokens", tokens.to_string()));
        }
        set
    }
}

/// Whether a criterion wants new work, and holds.
fn is_done(criterion: &Criterion, verdict: &Verdict) -> bool {
    let mut judged = verdict.iter();
    criterion.basis() == Basis::NewWork
        && judged.any(|judged| {
            matches!(&judged.subject, Subject::Criterion(one) if one == criterion)
                && matches!(judged.finding, Finding::Satisfied { .. })
        })
}

/// The changes outside of `diff_within`, in words, if there are or may be some: it does not hold,
/// or the repository changed after it was judged.
fn excess_of_diff_within(outcome: &RunOutcome) -> Option<String> {
    let of_paths =
        |subject: &Subject| matches!(subject, Subject::Criterion(Criterion::DiffWithin(_)));
    let mut judged = outcome.evidence.criteria.iter();
    match &judged.find(|judged| of_paths(&judged.subject))?.finding {
        Finding::Satisfied { .. } if outcome.reason != Some(Reason::Unconfirmed) => None,
        Finding::NotYet { missing, .. } => Some(missing.clone()),
        Finding::Satisfied { .. } | Finding::NotRun { .. } | Finding::Unknown { .. } => {
            Some("files may be changed outside of what diff_within allows".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;
    use git_probe::logic::git_state::ChangeKind;
    use goal_run::logic::criteria::Criteria;
    use goal_run::logic::findings::judge;
    use goal_run::logic::machine::RunEnd;
    use goal_run::logic::notifier::Notifier;
    use goal_run::logic::outcome::RunEvidence;
    use goal_run::logic::snapshot::{Age, Probe, PullRequest, Snapshot, Tree, Work};

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(words: &[String]) -> Args {
        let words = words.iter().map(String::as_str);
        Command::try_parse_from(["run"].into_iter().chain(words))
            .unwrap_or_else(|error| panic!("{error}"))
            .args
    }

    /// The outcome of a run that has opened a pull request and committed `src/a.rs`.
    fn outcome(args: &Args, end: RunEnd) -> RunOutcome {
        let start = Snapshot {
            tree: Probe::Found(Tree::default()),
            pull_requests: Probe::Found(Vec::new()),
            ..Snapshot::default()
        };
        let now = Snapshot {
            tree: Probe::Found(Tree {
                committed: BTreeMap::from([("src/a.rs".to_owned(), ChangeKind::Added)]),
                ..Tree::default()
            }),
            pull_requests: Probe::Found(vec![PullRequest {
                url: "https://github.com/o/r/pull/1".to_owned(),
                number: 1,
                age: Age::New,
            }]),
            ..Snapshot::default()
        };
        let criteria = Criteria::new(args.until.iter().cloned()).unwrap();
        let work = Work::default();
        let evidence = RunEvidence {
            total: work.evidence,
            criteria: judge(&criteria, &start, &now, &work, Preexisting::Ignored),
            log: Vec::new(),
        };
        RunOutcome::new(end, Vec::new(), evidence, 1, None)
    }

    fn continuation(args: &Args, purpose: Purpose<'_>) -> Continuation {
        let thread = ThreadId::parse("0199a213-81c0-7800-8aa1-bbab2a035a53").unwrap();
        let repo = Path::new("/home/me/it's mine");
        args.continuation(repo, &thread, args.sandbox, purpose)
    }

    /// The arguments of a printed command.
    fn arguments(continuation: &Continuation) -> Vec<String> {
        arguments_of(continuation.command.as_ref().unwrap())
    }

    fn arguments_of(command: &str) -> Vec<String> {
        let words = shlex::split(command).unwrap();
        assert_eq!(words[..2], ["codex-mcp", "run"]);
        assert_eq!(words[3], "/home/me/it's mine");
        words[2..].to_vec()
    }

    /// The continuation of a run with these options that has ended like this.
    fn resumed(words: &[&str], end: RunEnd) -> Continuation {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let args = parsed(&words);
        continuation(&args, Purpose::Remaining(&outcome(&args, end)))
    }

    #[test]
    fn resume_command_repeats_the_options() {
        let words = [
            "--until",
            "command=sh -c 'test \"$x\"'",
            "--until",
            "files=*.md",
            "--sandbox",
            "workspace-write",
            "--turn-timeout",
            "90s",
            "--max-tokens",
            "1000",
            "--notify",
            "command:tee told",
            "--notify",
            "desktop",
            "--identity",
            "me",
            "--team",
            "ours",
            "--store",
            "jobs.db",
            "Do it",
        ];
        let resumed = resumed(&words, RunEnd::MaxTurns);
        assert_eq!(resumed.hint, None);
        let resumed = arguments(&resumed);
        let (first, again) = (
            parsed(&words.map(str::to_owned)).spec().unwrap(),
            parsed(&resumed).spec().unwrap(),
        );
        assert_eq!(again.criteria, first.criteria);
        assert_eq!(again.preexisting, first.preexisting);
        assert_eq!(again.limits, first.limits);
        assert_eq!(again.settings, first.settings);
        assert_eq!(again.notify, first.notify);
        let flags = parsed(&resumed).flags();
        assert_eq!(flags.identity.unwrap().to_string(), "me");
        assert_eq!(flags.team.unwrap().to_string(), "ours");
        assert_eq!(flags.store.unwrap().to_string(), "jobs.db");
        assert!(parsed(&resumed).thread.is_some());
        assert_eq!(again.task, CONTINUE_PROMPT);
    }

    #[test]
    fn resume_command_leaves_out_secrets_and_a_hint_names_their_options() {
        let words = [
            "--notify",
            "webhook:https://hooks.example/T0/s3cret",
            "--notify",
            "ntfy:s3cret",
            "--notify",
            "desktop",
            "--store",
            "postgres://me:s3cret@host/jobs",
            "Do it",
        ];
        let resumed = resumed(&words, RunEnd::MaxTurns);
        let again = parsed(&arguments(&resumed));
        assert_eq!(again.notify, [Notifier::Desktop]);
        assert!(again.store.is_none());
        assert_eq!(
            resumed.hint.as_deref(),
            Some(
                "the command leaves out options that cannot be shown whole; add them again: \
                 --notify webhook:https://hooks.example/…, --notify ntfy:https://ntfy.sh/…, \
                 --store postgres://me@host/jobs"
            )
        );
        let json = serde_json::to_string(&resumed).unwrap();
        assert!(!json.contains("s3cret"), "{json}");
    }

    #[test]
    fn resume_command_demands_no_new_work_twice() {
        for (given, expected, allows) in [
            // Codex could not push a repair without the permissions of `pr`.
            (
                &["pr", "command=true"][..],
                &["pr", "command=true"][..],
                true,
            ),
            (&["pr", "files=*.md"], &["files=*.md"], false),
            (
                &["pr", "files=*.md", "clean"],
                &["files=*.md", "clean"],
                false,
            ),
            (
                &["clean", "command=true"],
                &["clean", "command=true"],
                false,
            ),
        ] {
            let mut words: Vec<&str> = given.iter().flat_map(|&one| ["--until", one]).collect();
            words.push("Do it");
            let again = parsed(&arguments(&resumed(&words, RunEnd::MaxTurns)));
            let criteria: Vec<String> = again.until.iter().map(ToString::to_string).collect();
            assert_eq!(criteria, expected, "{given:?}");
            assert_eq!(again.allow_preexisting, allows, "{given:?}");
        }
        let words = ["--allow-preexisting", "--until", "files=*.md", "Do it"];
        let again = parsed(&arguments(&resumed(&words, RunEnd::MaxTurns)));
        assert!(again.allow_preexisting);
    }

    #[test]
    fn hint_names_the_permissions_that_the_next_run_does_not_have() {
        for (given, is_named) in [
            (&["pr", "files=*.md"][..], true),
            // `clean` needs no network.
            (&["pr", "files=*.md", "clean"], true),
            (&["pr", "files=*.md", "pushed"], false),
            (&["pr", "command=true"], false),
            (&["files=src/*", "files=*.md"], false),
        ] {
            let mut words: Vec<&str> = given.iter().flat_map(|&one| ["--until", one]).collect();
            words.extend(["--notify", "ntfy:s3cret", "Do it"]);
            let hint = resumed(&words, RunEnd::MaxTurns).hint.unwrap();
            let told = hint.contains("fewer permissions");
            assert_eq!(told, is_named, "{given:?}: {hint}");
            assert!(hint.contains("--notify ntfy:"), "{hint}");
        }
    }

    #[test]
    fn resume_command_excuses_no_change_outside_of_diff_within() {
        let run = |within: &str, end| {
            resumed(
                &["--until", within, "--until", "command=true", "Do it"],
                end,
            )
        };
        let changed = "1 file is changed outside of what may be changed: \"src/a.rs\". ";
        for (within, end, excess) in [
            ("diff_within=docs", RunEnd::MaxTurns, changed),
            ("diff_within=src", RunEnd::Unconfirmed, "files may be "),
        ] {
            let resumed = run(within, end);
            assert!(resumed.command.is_none(), "{within}");
            let hint = resumed.hint.unwrap();
            assert!(hint.starts_with(excess), "{hint}");
            let (advice, command) = hint.split_once(" then run: ").unwrap();
            assert!(advice.contains("undo them"), "{hint}");
            let again = parsed(&arguments_of(command));
            let criteria: Vec<String> = again.until.iter().map(ToString::to_string).collect();
            assert_eq!(criteria, [within, "command=true"]);
            assert!(again.thread.is_some(), "{hint}");
        }
        let within = arguments(&run("diff_within=src", RunEnd::MaxTurns));
        assert!(within.contains(&"diff_within=src".to_owned()));
    }

    #[test]
    fn resume_command_of_a_completed_run_reads_the_task() {
        let words = ["--until", "pr", "--model", "m", "Do it"].map(str::to_owned);
        let resumed = arguments(&continuation(&parsed(&words), Purpose::NewTask));
        assert_eq!(resumed.last().unwrap(), "-");
        assert!(!resumed.contains(&"--until".to_owned()));
        assert!(resumed.contains(&"m".to_owned()));
    }
}
