//! The columns of the table of jobs, in groups that are read or written together.
//! `docs/decisions/0008-job-request-columns.md` says why a request has columns.

use std::sync::LazyLock;

use super::record::LONGEST_TEXT;

/// The columns of a request, in the order in which they are written.
pub(super) const REQUEST: &str = "tool_name, task_name, agent_source, agent_instance, prompt, \
    cwd, model_override, timeout_ms, tool_timeout_ms, expose_stream, fire_and_forget, \
    continue_latest, resume_session_id, sandbox, effort, profile, images, output_schema, \
    codex_home, codex_bin, host, submitted_by, run_on, retry, run, settings";

/// The columns that a job list reads besides those of a request.
const SUMMARY: &str = "id, state, tool_name, task_name, cwd, created_at, started_at, \
    completed_at, session_id, error, cancel_requested, not_before, waits_for, owner, owner_role, \
    signer";

/// The columns of a job that are neither in a request nor in a list.
const REST: &str = "attempts, waits, wait_since, wait_resets, wait_pauses, worker, worker_host, \
    exchange_id, result, signature, ended_signature, session_signature, masked";

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

/// The other columns of a job that are numbers.
const OTHER_NUMBERS: [&str; 11] = [
    "created_at",
    "started_at",
    "completed_at",
    "cancel_requested",
    "not_before",
    "attempts",
    "waits",
    "wait_since",
    "wait_resets",
    "wait_pauses",
    "masked",
];

/// The columns of texts that may have [`LONGEST_TEXT`] bytes.
const LONG: [&str; 10] = [
    "prompt",
    "images",
    "output_schema",
    "run",
    "settings",
    "result",
    "kind",
    "data",
    "question",
    "outcome",
];

/// The limit of every other text, such as a path or a name, in bytes.
const LONGEST_NAME: usize = 16 << 10;

/// How much of an error is read, in characters.
const ERROR_BEGINNING: usize = 16 << 10;

/// The columns of a summary, as they are read.
pub(super) static READ_SUMMARY: LazyLock<String> =
    LazyLock::new(|| format!("{}, {{role matches}} AS same_role", read(SUMMARY)));

/// The other columns of a job, as they are read.
pub(super) static READ_DETAILS: LazyLock<String> =
    LazyLock::new(|| format!("{}, {}", read(REQUEST), read(REST)));

/// The columns of a request, one by one.
pub(super) fn request_columns() -> impl Iterator<Item = &'static str> {
    each(REQUEST)
}

/// The limit of the text in a column, in bytes.
pub(super) fn longest(column: &str) -> usize {
    match LONG.contains(&column) {
        true => LONGEST_TEXT,
        false => LONGEST_NAME,
    }
}

/// The expression that reads a text column. Others may have written a text that does not fit into
/// memory. Such a text is replaced by one that no reader accepts, or in an optional name by one
/// that a person can read.
pub(super) fn bounded(column: &str) -> String {
    let name = column.rsplit('.').next().unwrap_or(column);
    let (most, within, beyond) = match name {
        "error" => (
            LONGEST_TEXT,
            format!("SUBSTR({column}, 1, {ERROR_BEGINNING})"),
            "'(too long)'",
        ),
        "prompt" | "data" => (longest(name), column.to_owned(), "NULL"),
        _ => (longest(name), column.to_owned(), "'(too long)'"),
    };
    format!("CASE WHEN OCTET_LENGTH({column}) > {most} THEN {beyond} ELSE {within} END AS {name}")
}

/// A list of columns, as it is read.
fn read(columns: &'static str) -> String {
    let read = each(columns).map(|column| {
        match NUMBERS.contains(&column) || OTHER_NUMBERS.contains(&column) {
            true => column.to_owned(),
            false => bounded(column),
        }
    });
    read.collect::<Vec<_>>().join(", ")
}

fn each(columns: &'static str) -> impl Iterator<Item = &'static str> {
    columns.split(',').map(str::trim)
}
