//! What is promised of jobs and runs, read from outside.

use std::collections::HashMap;

use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{AcceptedJob, ApprovedJob, EndedRun, PAUSE, TIME_LIMIT};
use crate::real::CodexFixture;
use crate::real::kill_storm::{report, times};

/// The record of a job, if it has ended.
pub(super) async fn end_of(stage: &CodexFixture, id: &str) -> Option<Value> {
    let mut show = stage.jobs_command(&["show", id, "--json"]);
    let output = show.output().await.unwrap();
    let job: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let mut ends = ["completed", "failed", "cancelled"].iter();
    ends.any(|end| job["status"] == *end).then_some(job)
}

/// The record of a job once it has ended.
async fn ended(stage: &CodexFixture, id: &str) -> Value {
    let waiting = async {
        loop {
            match end_of(stage, id).await {
                Some(job) => return job,
                None => sleep(PAUSE).await,
            }
        }
    };
    let ended = timeout(TIME_LIMIT, waiting).await;
    ended.unwrap_or_else(|_| panic!("job {id} does not end"))
}

/// Checks that each accepted job has ended, and was executed no more often than it was begun; returns how
/// many ended in which way.
pub(super) async fn check_jobs(
    stage: &CodexFixture,
    jobs: &[AcceptedJob],
) -> HashMap<String, usize> {
    let mut counted: HashMap<String, usize> = HashMap::new();
    for AcceptedJob { number, id } in jobs {
        let job = ended(stage, id).await;
        let status = job["status"].as_str().unwrap().to_owned();
        let attempts = job["attempts"].as_u64().unwrap();
        let times = u64::try_from(times(stage, *number)).unwrap();
        assert!(times <= attempts.max(1), "executed {times} times: {job:#}");
        match status.as_str() {
            "completed" => assert!(times > 0, "never executed: {job:#}"),
            _ => assert!(job["error"].is_string(), "without a word: {job:#}"),
        }
        *counted.entry(status).or_default() += 1;
    }
    counted
}

/// Checks that nothing was executed that was not allowed, or twice for one approval; returns how many
/// approvals there were.
pub(super) async fn check_approvals(stage: &CodexFixture, jobs: &[ApprovedJob]) -> usize {
    for ApprovedJob { job, approvals } in jobs {
        let record = ended(stage, &job.id).await;
        let executed = times(stage, job.number);
        assert!(
            executed <= *approvals,
            "executed {executed} times, {approvals} approvals: {record:#}"
        );
        let is_completed = record["status"] == "completed";
        assert!(!is_completed || executed > 0, "never executed: {record:#}");
    }
    jobs.iter().map(|one| one.approvals).sum()
}

/// Checks that the file of each run that is done is there; returns how many are.
pub(super) fn check_runs(stage: &CodexFixture, runs: &[EndedRun]) -> usize {
    let done = runs.iter().filter(|run| run.is_done);
    done.inspect(|run| {
        let file = stage.file(&format!("made-{}.txt", run.number));
        assert!(file.exists(), "run {} is done without it", run.number);
    })
    .count()
}

/// Checks that each submitted run has ended, that one that is done has its file, and that none has
/// executed its command in more turns than it reports; returns how many are done.
pub(super) async fn check_submitted_runs(stage: &CodexFixture, runs: &[AcceptedJob]) -> usize {
    let mut done = 0;
    for AcceptedJob { number, id } in runs {
        let job = ended(stage, id).await;
        let file = stage.file(&format!("made-{number}.txt"));
        let executed = std::fs::read_to_string(file).unwrap_or_default();
        let executed = executed.lines().count();
        if job["status"] == "completed" {
            let turns = job["result"]["turns"].as_u64().unwrap();
            assert!(executed > 0, "never executed: {job:#}");
            let turns = usize::try_from(turns).unwrap();
            assert!(executed <= turns, "executed {executed} times: {job:#}");
            done += 1;
        } else {
            let error = job["error"].as_str();
            let error = error.unwrap_or_else(|| panic!("without a word: {job:#}"));
            report(&format!("a submitted run has failed: {error}"));
        }
    }
    done
}

/// How each of these jobs has ended, which must not change any more.
pub(super) async fn ends<'a>(
    stage: &CodexFixture,
    jobs: impl IntoIterator<Item = &'a AcceptedJob>,
) -> Vec<[Value; 5]> {
    let mut ends = Vec::new();
    for AcceptedJob { id, .. } in jobs {
        let job = ended(stage, id).await;
        let members = ["job_id", "status", "error", "attempts", "completed_at"];
        ends.push(members.map(|member| job[member].clone()));
    }
    ends
}
