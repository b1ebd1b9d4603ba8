//! The result of a run for its caller, within bounds, as the worker stores it.

use goal_run::Caller;
use serde_json::{Map, Value, json};

use super::spec::StoredRun;
use crate::logic::{JobState, WORKER_LOST, WORKER_STOPPED};
use crate::store::Job;

/// The limit of a result, in bytes of JSON (64 KiB): clients cut or refuse longer ones. The
/// file of evidence is complete.
pub const RESULT_LIMIT: usize = 64 << 10;

/// The limit of Codex's final message in a result, in bytes; the job has the whole message.
const RESPONSE_LIMIT: usize = 16 << 10;

/// The limit of the last review in a result that would be too long, in bytes. In JSON, some of
/// these bytes take six.
const SHORT_REVIEW: usize = 2 * 1024;

/// The fewest turns whose evidence is kept: the first and the last.
const TURNS: usize = 2;

/// Shortens a result to the limit: first the reviews of all turns but the last are left out,
/// then turns in the middle, then artifacts. `evidence.log_left_out` and `more_artifacts`
/// count the latter.
#[must_use]
pub fn bounded(mut result: Value) -> Value {
    cut_response(&mut result);
    if size(&result) > RESULT_LIMIT {
        shorten_reviews(&mut result);
    }
    let mut too_much = size(&result).saturating_sub(RESULT_LIMIT);
    if too_much > 0
        && let Some(evidence) = result.get_mut("evidence").and_then(Value::as_object_mut)
    {
        too_much = leave_out_turns(evidence, too_much);
    }
    for key in ["artifacts", "partial"] {
        if let Some(object) = result.as_object_mut().filter(|_| too_much > 0) {
            too_much = leave_out_artifacts(object, key, too_much);
        }
    }
    result
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

fn cut_response(result: &mut Value) {
    let Some(Value::String(text)) = result.get_mut("response") else {
        return;
    };
    if text.len() > RESPONSE_LIMIT {
        let length = text.len();
        text.truncate(text.floor_char_boundary(RESPONSE_LIMIT));
        *text += &format!("\n[… cut here, of {length} bytes]");
    }
}

/// Keeps only the review of the last turn, cut to a limit that also bounds its JSON.
fn shorten_reviews(result: &mut Value) {
    let log = result
        .pointer_mut("/evidence/log")
        .and_then(Value::as_array_mut);
    let turns = log.into_iter().flatten().filter_map(Value::as_object_mut);
    let mut turns: Vec<&mut Map<String, Value>> = turns.collect();
    let last = turns.pop();
    for turn in turns {
        turn.remove("review");
    }
    let review = last.and_then(|turn| turn.get_mut("review"));
    if let Some(Value::String(text)) = review
        && text.len() > SHORT_REVIEW
    {
        text.truncate(text.floor_char_boundary(SHORT_REVIEW));
        *text += "\n[… cut here; the file of the evidence has all of it]";
    }
}

/// Leaves out turns from the middle until the result is shorter by `too_much` bytes; returns
/// how many bytes are still too much.
fn leave_out_turns(evidence: &mut Map<String, Value>, mut too_much: usize) -> usize {
    let mut left_out = 0;
    if let Some(Value::Array(log)) = evidence.get_mut("log") {
        // The count of the missing turns takes room too.
        too_much += 32;
        while too_much > 0 && log.len() > TURNS {
            let gone = log.remove(log.len() / 2);
            too_much = too_much.saturating_sub(size(&gone) + 1);
            left_out += 1;
        }
    }
    if left_out > 0 {
        evidence.insert("log_left_out".to_owned(), left_out.into());
    }
    too_much
}

/// Like [`leave_out_turns`], for artifacts from the end: the most important ones come first.
fn leave_out_artifacts(result: &mut Map<String, Value>, key: &str, mut too_much: usize) -> usize {
    let mut left_out = 0;
    if let Some(Value::Array(artifacts)) = result.get_mut(key) {
        while too_much > 0
            && let Some(gone) = artifacts.pop()
        {
            too_much = too_much.saturating_sub(size(&gone) + 1);
            left_out += 1;
        }
    }
    let more = result.get("more_artifacts").and_then(Value::as_u64);
    if left_out > 0 {
        let more = more.unwrap_or_default().saturating_add(left_out);
        result.insert("more_artifacts".to_owned(), more.into());
    }
    too_much
}

/// The result of a run that has achieved nothing, with the reason and its explanation.
#[must_use]
pub fn nothing(reason: &str, why: &str) -> Value {
    json!({
        "ok": false,
        "artifacts": [],
        "evidence": {},
        "turns": 0,
        "reason": reason,
        "why": why,
    })
}

/// The result of a run for its caller; `None` if the job is no run or has not ended.
#[must_use]
pub fn of(job: &Job) -> Option<Value> {
    let state = job.summary.state;
    if job.request.run.is_none() || !state.has_ended() {
        return None;
    }
    let kept = job.result.as_ref().and_then(|report| report.get("run"));
    let mut result = kept.cloned().unwrap_or_else(|| of_no_report(job));
    if let Value::Object(members) = &mut result {
        members.insert("status".to_owned(), json!(state));
        members.insert("job_id".to_owned(), json!(job.summary.id));
        if let Some(session) = &job.summary.session_id {
            let thread = members.entry("thread_id");
            thread.or_insert_with(|| session.as_str().into());
        }
    }
    Some(result)
}

/// The result of a run whose worker has stored no report.
fn of_no_report(job: &Job) -> Value {
    let error = job.summary.error.as_deref();
    match (job.summary.state, error) {
        (JobState::Cancelled, _) => nothing("cancelled", "it was cancelled"),
        (_, Some(WORKER_LOST | WORKER_STOPPED)) => nothing(
            "worker_lost",
            &format!(
                "its worker has ended, and Codex with it; what it had changed is still there. {}",
                how_to_continue(caller(job))
            ),
        ),
        (_, error) => nothing("could_not_run", error.unwrap_or("the reason is unknown")),
    }
}

fn caller(job: &Job) -> Caller {
    match StoredRun::of(&job.request) {
        Some(Ok(stored)) => stored.caller,
        _ => Caller::default(),
    }
}

fn how_to_continue(caller: Caller) -> &'static str {
    match caller {
        Caller::Shell => {
            "`codex-mcp jobs resume` continues its thread; with --retry a run continues by itself"
        }
        Caller::Page => "`codex-mcp jobs resume` continues its thread",
        Caller::Client => {
            "codex_run with thread_id continues it; with retry a run continues by itself"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(turns: usize, artifacts: usize) -> Value {
        let turn = |turn| json!({ "turn": turn, "errors": ["x".repeat(900)] });
        let file = json!({ "type": "file", "path": "p".repeat(300), "change": "added" });
        json!({
            "ok": false,
            "partial": vec![file; artifacts],
            "evidence": { "commands": 7, "log": (1..=turns).map(turn).collect::<Vec<_>>() },
            "turns": turns,
        })
    }

    #[test]
    fn result_that_fits_is_unchanged() {
        assert_eq!(bounded(result(3, 3)), result(3, 3));
    }

    #[test]
    fn turns_are_left_out_from_the_middle() {
        let bounded = bounded(result(100, 3));
        assert!(size(&bounded) <= RESULT_LIMIT);
        let evidence = &bounded["evidence"];
        let log = evidence["log"].as_array().unwrap();
        assert_eq!(
            (&log[0]["turn"], &log[log.len() - 1]["turn"]),
            (&json!(1), &json!(100))
        );
        let left_out = evidence["log_left_out"].as_u64().unwrap();
        assert_eq!(left_out, 100 - log.len() as u64);
        assert!(log.len() > 60, "{}", log.len());
        assert_eq!(bounded["partial"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn review_of_the_last_turn_is_kept_and_shortened() {
        let mut long = result(10, 3);
        for turn in long["evidence"]["log"].as_array_mut().unwrap() {
            turn["review"] = "\u{1}".repeat(8 * 1024).into();
        }
        let bounded = bounded(long);
        assert!(size(&bounded) <= RESULT_LIMIT, "{}", size(&bounded));
        let log = bounded["evidence"]["log"].as_array().unwrap();
        assert_eq!(log.len(), 10);
        let has_review: Vec<bool> = log.iter().map(|turn| turn["review"].is_string()).collect();
        assert_eq!(has_review, [vec![false; 9], vec![true]].concat());
        assert_eq!(bounded["partial"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn artifacts_are_left_out_and_a_long_message_is_cut() {
        let mut long = result(9, 500);
        long["more_artifacts"] = json!(5);
        long["response"] = json!("ß".repeat(100_000));
        let bounded = bounded(long);
        assert!(size(&bounded) <= RESULT_LIMIT, "{}", size(&bounded));
        assert_eq!(bounded["evidence"]["log"].as_array().unwrap().len(), TURNS);
        let kept = bounded["partial"].as_array().unwrap().len() as u64;
        assert!(kept > 100, "{kept}");
        assert_eq!(bounded["more_artifacts"].as_u64().unwrap(), 505 - kept);
        let response = bounded["response"].as_str().unwrap();
        assert!(
            response.ends_with("[… cut here, of 200000 bytes]"),
            "{response}"
        );
    }
}
