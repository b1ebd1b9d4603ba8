//! The columns of the table of jobs, in groups that are read or written together.

/// The columns of a request, in the order in which they are written.
pub(super) const REQUEST: &str = "tool_name, task_name, agent_source, agent_instance, prompt, \
    cwd, model_override, timeout_ms, tool_timeout_ms, expose_stream, fire_and_forget, \
    continue_latest, resume_session_id, sandbox, effort, profile, images, output_schema, \
    codex_home, codex_bin, host, submitted_by, run_on, retry, run, settings";

/// The columns that a job list reads besides those of a request.
pub(super) const SUMMARY: &str = "id, state, tool_name, task_name, cwd, created_at, started_at, \
    completed_at, session_id, error, cancel_requested, not_before, waits_for, owner, owner_role, \
    signer, {role matches} AS same_role";

/// The columns of a job that are neither in a request nor in a list.
pub(super) const REST: &str = "attempts, waits, wait_since, wait_resets, wait_pauses, worker, \
    worker_host, exchange_id, result, signature, ended_signature, session_signature, masked";

/// The columns that a machine signs with, in the order in which they are written.
pub(super) const SIGNED: &str = "owner, signer, signature, ended_signature";

/// The columns of a request that are numbers; the others are texts.
pub(super) const NUMBERS: [&str; 6] = [
    "timeout_ms",
    "tool_timeout_ms",
    "expose_stream",
    "fire_and_forget",
    "continue_latest",
    "retry",
];

/// The columns of a request, one by one.
pub(super) fn request_columns() -> impl Iterator<Item = &'static str> {
    REQUEST.split(',').map(str::trim)
}
