use std::time::Duration;

use codex_engine::logic::work::FailureClass;
use git_probe::logic::git_state::ChangeKind;
use proptest::prelude::*;

use super::*;
use crate::logic::criteria::{Criteria, Criterion};
use crate::logic::findings::judge;
use crate::logic::machine::milliseconds;
use crate::logic::snapshot::{Answer, Preexisting, Snapshot, Work};

fn evidence(criteria: &[&str]) -> RunEvidence {
    let criteria = criteria
        .iter()
        .map(|text| text.parse::<Criterion>().unwrap());
    let criteria = Criteria::new(criteria).unwrap();
    let total = Evidence {
        commands: 3,
        declined: 1,
        ..Evidence::default()
    };
    let work = Work {
        evidence: total,
        succeeded: 2,
        answer: Answer::Present,
        ..Work::default()
    };
    let nothing = Snapshot::default();
    let verdict = judge(&criteria, &nothing, &nothing, &work, Preexisting::Ignored);
    let record = TurnRecord {
        turn: 1,
        prompt: PromptKind::Initial,
        conversation: Conversation::Same,
        end: TurnEnd::Completed.name().to_owned(),
        duration_ms: milliseconds(Duration::from_millis(1500)),
        evidence: total,
        usage: Usage::default(),
        denied: vec!["git push".to_owned()],
        errors: Vec::new(),
        promises: vec!["i will".to_owned()],
        gain: Gain::Nothing,
        review: None,
        criteria: verdict.clone(),
    };
    RunEvidence {
        total,
        criteria: verdict,
        log: vec![record],
    }
}

fn made() -> Vec<Artifact> {
    vec![
        Artifact::PullRequest {
            url: "https://github.com/o/r/pull/12".to_owned(),
            number: 12,
        },
        Artifact::IssueComment {
            url: "https://github.com/o/r/issues/7#issuecomment-1".to_owned(),
            issue: "o/r#7".parse().unwrap(),
        },
        Artifact::Push {
            branch: "x".to_owned(),
            commit: "c0ffee".to_owned(),
        },
        Artifact::Commit {
            id: "c0ffee".to_owned(),
            subject: "Do it".to_owned(),
        },
        Artifact::Branch {
            name: "x".to_owned(),
            commit: "c0ffee".to_owned(),
        },
        Artifact::File {
            path: "a.tex".to_owned(),
            change: ChangeKind::Added,
        },
        Artifact::Command {
            command: "make".to_owned(),
        },
    ]
}

fn pretty(outcome: &RunOutcome) -> String {
    serde_json::to_string_pretty(outcome).unwrap()
}

#[test]
fn outcome_of_a_satisfied_run_is_serialized() {
    let outcome = RunOutcome::new(RunEnd::Satisfied, made(), evidence(&[]), 2, None);
    insta::assert_snapshot!(pretty(&outcome));
    assert_eq!(outcome.made(), &made()[..]);
}

#[test]
fn outcome_of_an_unsatisfied_run_is_serialized() {
    let files = made().split_off(5);
    let outcome = RunOutcome::new(RunEnd::MaxTurns, files.clone(), evidence(&["pr"]), 10, None);
    insta::assert_snapshot!(pretty(&outcome));
    assert_eq!(outcome.made(), &files[..]);
}

#[test]
fn artifacts_past_the_limit_are_counted() {
    let many = vec![made().remove(5); ARTIFACTS_LIMIT + 3];
    let outcome = RunOutcome::new(RunEnd::Stalled, many, evidence(&[]), 1, None);
    assert_eq!(
        (outcome.made().len(), outcome.more_artifacts),
        (ARTIFACTS_LIMIT, 3)
    );
}

#[test]
fn notes_are_bounded() {
    let notes = notes((0..50).map(|number| format!("exit\n{number} {}", "ß".repeat(1000))));
    assert_eq!(notes.len(), NOTES_LIMIT + 1);
    assert!(
        notes
            .iter()
            .all(|note| note.len() < 250 && !note.contains('\n'))
    );
    assert_eq!(notes[NOTES_LIMIT], "and 30 more");
}

#[test]
fn notices_name_result_or_reason() {
    let mut table = String::new();
    for end in [
        RunEnd::Satisfied,
        RunEnd::Stalled,
        RunEnd::MaxTurns,
        RunEnd::TotalTime,
        RunEnd::CouldNotRun(FailureClass::Auth),
        RunEnd::Cancelled,
    ] {
        for (criteria, why) in [
            (&["pr"][..], None),
            (&[], None),
            (&[], Some("in words".to_owned())),
        ] {
            let outcome = RunOutcome::new(end, made(), evidence(criteria), 1, why);
            table += &format!("{}\n", outcome.notice(7));
        }
    }
    for artifact in made() {
        let outcome = RunOutcome::new(RunEnd::Satisfied, vec![artifact], evidence(&[]), 1, None);
        table += &format!("{}\n", outcome.notice(7));
    }
    let nothing = RunOutcome::new(RunEnd::Satisfied, Vec::new(), evidence(&[]), 1, None);
    table += &nothing.notice(7);
    insta::assert_snapshot!(table);
}

proptest! {
    #[test]
    fn notice_is_one_line_without_control_characters(text in any::<String>(), length in 0..2000_usize) {
        let hostile = format!("{text}\r\nQUIT :\u{3}4\0\u{202e}{}", "ß".repeat(length));
        let file = Artifact::File { path: hostile.clone(), change: ChangeKind::Added };
        for (end, made, why) in [
            (RunEnd::Satisfied, vec![file], None),
            (RunEnd::Stalled, Vec::new(), Some(hostile)),
        ] {
            let notice = RunOutcome::new(end, made, evidence(&[]), 1, why).notice(1);
            prop_assert!(notice.len() <= NOTICE_LIMIT);
            prop_assert!(notice.starts_with("DONE #1 :: ") || notice.starts_with("BLOCKED :: "));
            let is_harmful = |one: char| one.is_control() || one == '\u{202e}';
            prop_assert!(!notice.chars().any(is_harmful));
        }
    }
}

fn letter_of(outcome: &RunOutcome) -> String {
    letter(&outcome.notice(7), &serde_json::to_value(outcome).unwrap())
}

#[test]
fn letter_lists_artifacts_and_missing_criteria() {
    let done = RunOutcome::new(RunEnd::Satisfied, made(), evidence(&[]), 2, None);
    let mut files = made().split_off(5);
    files.extend(vec![files.first().unwrap().clone(); ARTIFACTS_LIMIT]);
    let not = RunOutcome::new(RunEnd::MaxTurns, files, evidence(&["pr"]), 10, None);
    let nothing = RunOutcome::new(RunEnd::Cancelled, Vec::new(), evidence(&[]), 0, None);
    let letters = [done, not, nothing].map(|outcome| letter_of(&outcome));
    insta::assert_snapshot!(letters.join("\n\n===\n\n"));
}

#[test]
fn letter_of_any_result_is_bounded() {
    let long = "ß\n".repeat(10_000);
    let many = vec![serde_json::json!(long); 1000];
    let result =
        serde_json::json!({"missing": many, "partial": many, "artifacts": [1, {"type": "new"}]});
    let text = letter(&long, &result);
    assert!(
        text.len() <= 32 * 1024 && text.contains("- and 960 more"),
        "{text}"
    );
    for odd in ["null", "[]", "1", "{\"missing\":7,\"more_artifacts\":-1}"] {
        let odd = serde_json::from_str(odd).unwrap();
        assert_eq!(letter("DONE #7 :: x", &odd), "DONE #7 :: x");
    }
}
