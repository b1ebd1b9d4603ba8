//! Writes the table of error codes in docs/.

use testkit::docs::{check, code_list, table};

use super::code::{Code, CodeRow, Retry};

/// The name of most codes in the session tools, as the page says above the table.
const MOST: &str = "INTERNAL";

#[test]
fn errors_in_docs_match_the_code() {
    check("troubleshooting.md", [("errors", errors())]);
}

/// The codes of all errors.
fn errors() -> String {
    let rows = Code::ALL.iter().map(|code| {
        let CodeRow { name, retry, hint } = code.row();
        let of_sessions = Some(code.name_for_sessions());
        let of_sessions = of_sessions.filter(|own| ![name, MOST].contains(own));
        let retry = match retry {
            Retry::Worthwhile => "yes",
            Retry::Pointless => "no",
        };
        [
            code_list([name]),
            meaning(*code).to_owned(),
            hint.to_owned(),
            retry.to_owned(),
            code_list(of_sessions),
        ]
    });
    let head = ["code", "meaning", "what to do", "retry", "session tools"];
    table(head, rows)
}

fn meaning(code: Code) -> &'static str {
    match code {
        Code::InvalidArgument => "A parameter is missing, unknown or invalid.",
        Code::OutOfBounds => "The call exceeds a bound that you have set.",
        Code::DirectoryReplaced => {
            "A directory of the thread was replaced by a symbolic link since the work began."
        }
        Code::CodexNotFound => "Codex was not found.",
        Code::AppServerStartFailed => "Codex does not start, or it is too old.",
        Code::CodexDied => "Codex ended during the call.",
        Code::ServerDied => "With `--backend mcp-server`: Codex's own MCP server ended.",
        Code::OverLimit => "With `--backend mcp-server`: a message of Codex was too long.",
        Code::CodexSilent => "Codex did not answer a request in 90 seconds.",
        Code::CodexRefused => "Codex refused the request.",
        Code::ThreadNotFound => "Codex has no thread with this ID.",
        Code::ThreadInUse => {
            "Another process of Codex has the thread open, such as that of another client's session."
        }
        Code::ThreadOutOfStep => {
            "With `--backend mcp-server`: the last turn of the thread failed, and Codex would \
             answer each further prompt with the result of the one before."
        }
        Code::SessionNotFound => "There is no such session, or it was forgotten.",
        Code::TooManySessions => "All 1,000 sessions are at work.",
        Code::SessionBusy => "A turn of the session is running.",
        Code::SessionWaiting => "The session waits for an answer to its question.",
        Code::ThreadLive => {
            "The thread has a live session, whose settings cannot be changed in this call."
        }
        Code::SessionNotRunning => "No turn is running, so none can be interrupted or steered.",
        Code::SessionCancelled => "The session was cancelled.",
        Code::CantFork => "The thread cannot be forked: it has no turn yet.",
        Code::RequestNotFound => "The question was answered, has timed out, or was never asked.",
        Code::Timeout => "The turn took longer than the time limit, and was interrupted.",
        Code::Interrupted => "The turn was interrupted.",
        Code::Cancelled => "The call was cancelled.",
        Code::ShuttingDown => "The server is shutting down.",
        Code::TaskFiles => "The [task](tools.md#tasks) of a call cannot be stored.",
        Code::TooManyTasks => "1,000 [tasks](tools.md#tasks) of the host process have not ended.",
        Code::HostLost => {
            "The [host process](clients.md#several-clients-one-codex) ended before the call was answered."
        }
        Code::JobHostLost => {
            "The host process ended before it answered a call that begins a job, or answers or steers \
             one: the call may or may not have taken effect."
        }
        Code::SessionHostLost => {
            "The host process that had the session has ended, or the session was forgotten since."
        }
        Code::UsageLimit => "The usage limit of the account is reached.",
        Code::RateLimited => "The model provider limits the rate of requests.",
        Code::Overloaded => "The model provider, or Codex, is overloaded.",
        Code::Unauthorized => "Codex has no login, or the model provider refuses it.",
        Code::ContextWindow => "The conversation is too long for the model.",
        Code::ModelNotFound => "The model provider does not have the model.",
        Code::Sandbox => "Codex's sandbox does not work here.",
        Code::Connection => "The connection to the model provider failed.",
        Code::TurnFailed => "The turn failed for another reason, which the message gives.",
        Code::Unreadable => "An answer of Codex could not be read.",
        Code::NoTeam => "The team does not exist, or no longer has this agent.",
        Code::UnknownRecipient => "The recipient of the message does not exist.",
        Code::MessageTooLong => "The message is too long.",
        Code::TeamFiles => "A file of the team cannot be read or written.",
        Code::JobStoreAway => "The job store cannot be reached at the moment.",
        Code::JobStore => "The job store cannot be used.",
        Code::JobUnclear => {
            "An answer of the job store, or of a job's worker, was lost: the call may or may not have \
             taken effect."
        }
        Code::JobNotFound => "There is no job with this ID.",
        Code::CouldNotRun => "The run could not begin.",
        Code::WorkerLost => "The process that ran the job died.",
        Code::JobEnded => "The job has ended, so it cannot be answered.",
        Code::Internal => "A fault without its own code.",
    }
}
