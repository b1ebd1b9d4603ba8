//! What has come of a run, as its caller is told: within bounds, as the worker leaves
//! it in the store.

use serde_json::{Map, Value, json};

use crate::logic::{JobState, WORKER_LOST, WORKER_STOPPED};
use crate::store::Job;

/// How long a result may be as JSON, in bytes (64 KiB): clients cut what is longer, or
/// refuse it. The file of evidence has all of it.
pub const RESULT_LIMIT: usize = 64 << 10;

/// How much of it may be Codex's final message, in bytes; the job has all of that.
const RESPONSE_LIMIT: usize = 16 << 10;

/// The least turns whose evidence is told: the first and the last.
const TURNS: usize = 2;

/// A result that fits: the middle of the turns is left out, then artifacts are.
/// `evidence.log_left_out` and `more_artifacts` say how many.
#[must_use]
pub fn bounded(mut result: Value) -> Value {
    cut_response(&mut result);
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

/// Leaves out turns from the middle, until there is that much less; says how much is
/// left to leave out.
fn leave_out_turns(evidence: &mut Map<String, Value>, mut too_much: usize) -> usize {
    let mut left_out = 0;
    if let Some(Value::Array(log)) = evidence.get_mut("log") {
        // The note that some are missing takes room too.
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

/// The same with artifacts, from the end: those that weigh most come first.
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

/// The result of a run that came to nothing, for this reason and in these words.
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

/// What the caller of a run is told of its end; `None` of a job that is no run or has
/// not ended.
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

/// A worker that was lost has left nothing.
fn of_no_report(job: &Job) -> Value {
    let error = job.summary.error.as_deref();
    match (job.summary.state, error) {
        (JobState::Cancelled, _) => nothing("cancelled", "it was called off"),
        (_, Some(WORKER_LOST | WORKER_STOPPED)) => nothing(
            "worker_lost",
            "its worker has ended, and Codex with it; what it had changed is still there. \
             codex_run with thread_id goes on; with retry a run goes on by itself",
        ),
        (_, error) => nothing("could_not_run", error.unwrap_or("nobody knows why")),
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
    fn what_fits_stays_as_it_is() {
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
    fn then_artifacts_are_and_a_long_message_is_cut() {
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
