//! Texts about a run for people.

use codex_config::logic::prompt_kind::PromptKind;
use codex_engine::Grants;
use codex_engine::logic::usage_limits::used;
use codex_protocol::codex::RateLimits;
use git_probe::logic::git_state::ChangeKind;

use crate::logic::artifacts::Artifact;
use crate::logic::findings::{Finding, Subject, Verdict};
use crate::logic::machine::{Conversation, TurnPrompt};
use crate::logic::outcome::{TurnRecord, Usage};

/// How many digits of a commit's id are shown.
const SHORT_HASH: usize = 12;

/// An artifact: its kind and its name.
pub fn artifact(artifact: &Artifact) -> (&'static str, String) {
    match artifact {
        Artifact::PullRequest { url, .. } => ("pull request", url.clone()),
        Artifact::IssueComment { url, .. } => ("comment", url.clone()),
        Artifact::Push { branch, commit } => ("pushed", format!("{branch} at {}", short(commit))),
        Artifact::Commit { id, subject } => ("commit", format!("{} {subject}", short(id))),
        Artifact::Branch { name, commit } => ("branch", format!("{name} at {}", short(commit))),
        Artifact::File { path, change } => match change {
            ChangeKind::Added => ("new file", path.clone()),
            ChangeKind::Deleted => ("deleted", path.clone()),
            _ => ("changed", path.clone()),
        },
        Artifact::Command { command } => ("passes", command.clone()),
    }
}

fn short(hash: &str) -> &str {
    hash.get(..SHORT_HASH).unwrap_or(hash)
}

/// The finding of a command or review that was not run. Its line names the criterion already.
const CHECKED_LAST: &str = "runs once all else holds";

/// The findings of a verdict, a line each.
pub fn verdict(verdict: &Verdict) -> Vec<String> {
    let lines = verdict.iter().map(|judged| {
        let (mark, found) = match &judged.finding {
            Finding::Satisfied { found } => ("holds   ", found.as_str()),
            Finding::NotYet { missing, .. } => ("not met ", missing.as_str()),
            Finding::NotRun { .. } => ("not run ", CHECKED_LAST),
            Finding::Unknown { why } => ("unknown ", why.as_str()),
        };
        format!("  {mark} {}: {found}", judged.subject)
    });
    lines.collect()
}

/// The criteria before the first turn, one line each, whether met or not. The implied criteria of
/// work and of an answer are left out.
pub fn to_do(verdict: &Verdict) -> Vec<String> {
    let asked = verdict
        .iter()
        .filter(|judged| matches!(judged.subject, Subject::Criterion(_)));
    let lines = asked.map(|judged| {
        let (mark, found) = match &judged.finding {
            Finding::Satisfied { found } => ("holds   ", found.as_str()),
            Finding::NotYet { missing, .. } => ("to do   ", missing.as_str()),
            Finding::NotRun { .. } => ("to do   ", CHECKED_LAST),
            Finding::Unknown { why } => ("unknown ", why.as_str()),
        };
        format!("  {mark} {}: {found}", judged.subject)
    });
    lines.collect()
}

/// The beginning of a turn.
pub fn turn(prompt: &TurnPrompt, most: u32) -> String {
    let why = match prompt.kind {
        PromptKind::Initial => "",
        PromptKind::Nudge => ": the last turn executed nothing, so Codex is told to do the work",
        PromptKind::Recovery => ": Codex is told what went wrong",
        PromptKind::Continuation => ": Codex is told what is missing",
    };
    let conversation = match prompt.conversation {
        Conversation::Same => "",
        Conversation::New => ", in a new conversation",
    };
    format!("turn {} of {most}{why}{conversation}", prompt.turn)
}

/// The steps and the end of a turn, without its verdict.
pub fn ended(record: &TurnRecord) -> String {
    let steps = match record.evidence.executed() {
        0 => "nothing was executed".to_owned(),
        1 => "1 step executed".to_owned(),
        steps => format!("{steps} steps executed"),
    };
    let end = match record.end.as_str() {
        "completed" => String::new(),
        // Codex has reported an error; its process need not have ended.
        "exit" => ", failed".to_owned(),
        end => format!(", {}", end.replace('_', " ")),
    };
    format!("  {steps}{end}")
}

/// The phrases with which Codex announced work that it did not do.
pub fn promised(record: &TurnRecord) -> Option<String> {
    let words: Vec<String> = record
        .promises
        .iter()
        .map(|words| format!("{words:?}"))
        .collect();
    (record.evidence.executed() == 0 && !words.is_empty())
        .then(|| format!("  promised {}", words.join(", ")))
}

/// The end of a satisfied run.
pub fn done(turns: &str, verified: bool) -> String {
    match verified {
        true => format!("done after {turns}: all criteria hold"),
        false => format!("done, not verified: no --until was given ({turns})"),
    }
}

/// A number of tokens, abbreviated.
pub fn tokens(count: u64) -> String {
    match count {
        0..1000 => format!("{count} tokens"),
        1000..1_000_000 => format!("{}.{}k tokens", count / 1000, count % 1000 / 100),
        _ => format!(
            "{}.{}M tokens",
            count / 1_000_000,
            count % 1_000_000 / 100_000
        ),
    }
}

/// The use of tokens and of the account's limits, a line each.
pub fn usage(usage: &Usage, limits: Option<&RateLimits>) -> Vec<String> {
    let mut lines = Vec::new();
    if !usage.is_nothing() {
        lines.push(format!(
            "tokens: {} ({} read, {} of them cached; {} written)",
            usage.total_tokens, usage.input_tokens, usage.cached_input_tokens, usage.output_tokens
        ));
    }
    let windows: Vec<String> = limits
        .into_iter()
        .flat_map(RateLimits::windows)
        .map(|window| used(&window))
        .collect();
    if !windows.is_empty() {
        lines.push(format!("rate limits: {}", windows.join(", ")));
    }
    lines
}

/// The permissions that Codex gets for the criteria.
pub fn grants(grants: &Grants) -> Option<String> {
    let mut words = Vec::new();
    if grants.git.is_some() {
        words.push("to commit, in a git directory of its own".to_owned());
    }
    if grants.network {
        words.push("to use the network".to_owned());
    }
    (!words.is_empty()).then(|| words.join(" and "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::logic::criteria::Criteria;
    use crate::logic::findings::judge;
    use crate::logic::snapshot::{Preexisting, Probe, Snapshot, Tree, Work};

    /// A run that has committed `x`.
    #[test]
    fn criterion_that_was_not_checked_is_not_run() {
        let criteria = ["files=a.txt", "command=true", "diff_within=src"];
        let criteria = Criteria::new(criteria.map(|text| text.parse().unwrap())).unwrap();
        let start = Snapshot {
            files: Probe::Found(BTreeMap::new()),
            tree: Probe::Found(Tree::default()),
            ..Snapshot::default()
        };
        let now = Snapshot {
            tree: Probe::Found(Tree {
                committed: BTreeMap::from([("x".to_owned(), ChangeKind::Added)]),
                ..Tree::default()
            }),
            ..start.clone()
        };
        let judged = |now| {
            let work = Work::default();
            judge(&criteria, &start, now, &work, Preexisting::Ignored)
        };
        let beginnings = |lines: Vec<String>| {
            let beginnings = lines.iter().map(|line| line.split(':').next().unwrap());
            beginnings.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            beginnings(to_do(&judged(&start))),
            [
                "  to do    files=a.txt",
                "  to do    command=true",
                "  holds    diff_within=src",
            ]
        );
        assert_eq!(
            to_do(&judged(&start))[1],
            "  to do    command=true: runs once all else holds"
        );
        assert_eq!(
            beginnings(verdict(&judged(&now))),
            [
                "  not met  files=a.txt",
                "  not run  command=true",
                "  not met  diff_within=src",
                "  holds    work",
            ]
        );
    }

    #[test]
    fn tokens_are_shown_in_short() {
        let shown = [0, 999, 1000, 12_345, 999_999, 1_250_000].map(tokens);
        let expected = ["0", "999", "1.0k", "12.3k", "999.9k", "1.2M"];
        assert_eq!(shown, expected.map(|number| format!("{number} tokens")));
    }
}
