//! The conformance suite that both databases pass.

mod instructions;
mod lists;
mod questions;
mod queue;
mod records;
mod waits;
mod workers;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;
use testkit::wait::wait_for;

use super::counting::{
    counts_are_right_in_a_storm, store_of_the_first_version_is_upgraded,
    waiting_job_of_version_7_is_rechecked_after_the_migration,
};
use super::*;
use crate::logic::{
    CancelResponse, Cancellation, Ending, JobState, NextWait, WORKER_LOST, Wait, WaitHistory,
    WaitReason,
};

use instructions::{
    instruction_is_taken_by_its_attempt_until_it_is_concluded,
    instruction_of_another_host_is_unproven, malformed_rows_of_a_dialog_are_left_out,
    message_that_may_have_arrived_is_not_sent_again, question_has_one_answer,
};
use lists::{
    job_is_found_by_id_prefix, latest_job_of_a_directory_is_found,
    lists_are_newest_first_and_count_all, old_jobs_are_pruned,
    old_jobs_of_others_are_not_removed_unasked,
};
use questions::{changed_question_is_unproven, questions_are_listed_while_their_attempt_runs};
use queue::{
    cancellation_is_answered_in_every_state, given_up_job_fails_or_runs_again,
    job_for_one_host_waits_for_it, job_is_claimed_once, job_is_stored_as_requested,
    job_submitted_twice_is_stored_once, job_with_expired_lease_fails_or_runs_again,
    oldest_job_is_claimed_first, renewal_of_an_unreadable_row_fails_its_job,
    running_job_is_given_to_another_worker_once, unreadable_rows_fail_and_other_jobs_are_claimed,
    unreadable_rows_fail_and_other_jobs_are_recovered, worker_without_its_lease_changes_nothing,
};
use records::{
    changed_session_is_unproven, credentials_are_masked_when_a_job_ends,
    current_step_has_the_number_of_the_last_event, events_appended_again_are_stored_once,
    events_are_numbered_and_read_in_parts, hostile_text_is_stored_as_text, job_survives_reopening,
    long_events_are_passed_one_after_the_other, malformed_event_is_left_out_of_the_tail,
    text_of_others_that_is_too_long_is_not_read, text_that_is_too_long_is_refused,
};
use waits::{
    continued_wait_keeps_its_end, lost_recheck_keeps_the_job_waiting,
    moment_beyond_the_calendar_is_clamped, waiting_job_can_be_cancelled,
    waiting_job_is_not_claimed_before_its_time, waiting_job_is_rechecked_early,
};
pub(super) use workers::watcher_is_woken_by_changes;
use workers::{
    demand_depends_on_the_host, held_job_with_expired_lease_is_not_recovered,
    workers_are_registered_and_removed,
};

/// A lease of no time, which ends at the next moment of the database's clock.
pub(super) const NONE: Duration = Duration::ZERO;

/// Texts that would change a statement if they were a part of it, or that a database may not
/// store.
const HOSTILE: [&str; 7] = [
    "'; DROP TABLE codex_jobs; --",
    "' OR '1'='1",
    "$1 ?1 {now} {job} %s \\",
    "\"quoted\" 'quoted' `quoted`",
    "a\u{0}b",
    "\u{1f600}\u{202e}\u{feff}",
    "%_%",
];

/// Runs all tests, each on its own store.
pub(super) async fn all(make: &mut dyn FnMut(&str) -> TestStore) {
    let stage = make("first");
    store_of_the_first_version_is_upgraded(&stage).await;
    let stage = make("seventh");
    waiting_job_of_version_7_is_rechecked_after_the_migration(&stage).await;
    of_existing_tables(make).await;
}

/// Runs the tests that make no tables, each on its own store.
pub(super) async fn of_existing_tables(make: &mut dyn FnMut(&str) -> TestStore) {
    macro_rules! run {
        ($($check:ident)*) => { $(
            let stage = make(stringify!($check));
            $check(&stage).await;
        )* };
    }
    run! {
        job_is_stored_as_requested
        job_submitted_twice_is_stored_once
        oldest_job_is_claimed_first
        job_for_one_host_waits_for_it
        job_is_claimed_once
        worker_without_its_lease_changes_nothing
        running_job_is_given_to_another_worker_once
        job_with_expired_lease_fails_or_runs_again
        given_up_job_fails_or_runs_again
        unreadable_rows_fail_and_other_jobs_are_claimed
        unreadable_rows_fail_and_other_jobs_are_recovered
        renewal_of_an_unreadable_row_fails_its_job
        waiting_job_is_not_claimed_before_its_time
        waiting_job_can_be_cancelled
        waiting_job_is_rechecked_early
        lost_recheck_keeps_the_job_waiting
        continued_wait_keeps_its_end
        moment_beyond_the_calendar_is_clamped
        cancellation_is_answered_in_every_state
        events_are_numbered_and_read_in_parts
        events_appended_again_are_stored_once
        malformed_event_is_left_out_of_the_tail
        long_events_are_passed_one_after_the_other
        current_step_has_the_number_of_the_last_event
        lists_are_newest_first_and_count_all
        counts_are_right_in_a_storm
        hostile_text_is_stored_as_text
        latest_job_of_a_directory_is_found
        job_is_found_by_id_prefix
        old_jobs_are_pruned
        old_jobs_of_others_are_not_removed_unasked
        credentials_are_masked_when_a_job_ends
        workers_are_registered_and_removed
        held_job_with_expired_lease_is_not_recovered
        demand_depends_on_the_host
        questions_are_listed_while_their_attempt_runs
        changed_question_is_unproven
        instruction_is_taken_by_its_attempt_until_it_is_concluded
        message_that_may_have_arrived_is_not_sent_again
        question_has_one_answer
        instruction_of_another_host_is_unproven
        malformed_rows_of_a_dialog_are_left_out
        watcher_is_woken_by_changes
        text_that_is_too_long_is_refused
        text_of_others_that_is_too_long_is_not_read
        job_survives_reopening
        changed_session_is_unproven
    }
}

/// An expression for a text that is longer than what a program of ours stores.
fn too_long(stage: &TestStore) -> &'static str {
    match stage.location.path() {
        Some(_) => "hex(zeroblob(8388609))",
        None => "repeat('x', 16777218)",
    }
}

pub(super) fn finished(ending: Ending) -> FinishedJob {
    FinishedJob {
        ending,
        error: None,
        session_id: None,
        exchange_id: None,
        result: None,
    }
}

/// Waits until the database's clock has moved on.
async fn reap_one(store: &JobStore) -> ReapedJob {
    wait_for("a lease that has expired", async || {
        store.reap(&[]).await.unwrap().pop()
    })
    .await
}

fn asked(id: &str) -> NewQuestion {
    NewQuestion {
        id: id.to_owned(),
        question: json!({ "text": HOSTILE }).to_string(),
    }
}

async fn running(store: &JobStore, lease: Duration) -> Claim {
    store.submit(&new_job("p")).await.unwrap();
    let claimed = store.claim(&new_worker_id(), "here", lease).await.unwrap();
    claimed.unwrap().claim
}
