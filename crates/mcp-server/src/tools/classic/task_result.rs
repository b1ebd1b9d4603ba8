//! Results of calls of the classic tools that were answered by a task.

use std::time::Duration;

use codex_engine::EngineError;
use codex_engine::command::SessionId;
use codex_engine::logic::work::FailureClass;
use codex_protocol::codex::ThreadId;
use job_queue::call_settings::CallSettings;
use job_queue::classic::call::ClassicFailure;
use job_queue::job_json::report_of;
use job_queue::logic::JobState;
use job_queue::report::Report;
use job_queue::store::Job;
use rmcp::model::CallToolResult;

use crate::answer::{TurnAnswer, TurnStatus};
use crate::code::Code;
use crate::error::ToolError;

/// The result of a call that was answered by a task, once its job has ended; `None` if the job
/// answers another tool.
pub(crate) fn result_of(job: &Job) -> Option<CallToolResult> {
    let call = CallSettings::of(&job.request).ok()?.classic?;
    let report = report_of(job);
    let thread = job.summary.session_id.as_deref();
    let thread = thread.and_then(|thread| ThreadId::parse(thread).ok());
    let text = report.response.clone().unwrap_or_default();
    let session = report.classic.as_ref();
    let session = session.and_then(|end| end.session.clone());
    Some(match (job.summary.state, thread) {
        (JobState::Completed, Some(thread)) => TurnAnswer {
            thread,
            session: session.unwrap_or_else(|| SessionId::named("")),
            content: text,
            status: TurnStatus::Completed,
            warnings: call.warnings,
        }
        .into_result(),
        (_, thread) => {
            let limit = Duration::from_millis(job.request.timeout_ms.into());
            let error = error_of(report, job.summary.error.clone(), limit).with_partial(text);
            match thread {
                Some(thread) => error.in_thread(&thread),
                None => error,
            }
            .into_result()
        }
    })
}

/// The error of a failed job, as the call would have been answered. `why` is the error of the job,
/// which is all there is where its worker was lost, and `limit` the time limit of the turn.
fn error_of(report: Report, why: Option<String>, limit: Duration) -> ToolError {
    let Some(failure) = report.failure else {
        let why = why.unwrap_or_else(|| "its worker has ended".to_owned());
        return ToolError::new(Code::Interrupted, why);
    };
    match report.classic.unwrap_or_default().failure {
        Some(ClassicFailure::Turn(error)) => error.into(),
        Some(ClassicFailure::Refused) => ToolError::new(Code::CodexRefused, failure.message),
        Some(ClassicFailure::Interrupted) => {
            ToolError::new(Code::Interrupted, "the turn was interrupted")
        }
        Some(ClassicFailure::Died) => ToolError::new(Code::CodexDied, failure.message),
        None if failure.class == FailureClass::Auth.name() => EngineError::NoLogin.into(),
        None if failure.class == FailureClass::Timeout.name() => ToolError::new(
            Code::Timeout,
            format!(
                "the turn took longer than {} s and was interrupted",
                limit.as_secs()
            ),
        ),
        None => ToolError::new(code_of(&failure.class), failure.message),
    }
}

fn code_of(class: &str) -> Code {
    let codes = [
        (FailureClass::RateLimit, Code::UsageLimit),
        (FailureClass::UnknownSession, Code::ThreadNotFound),
        (FailureClass::SessionBusy, Code::ThreadInUse),
        (FailureClass::Cancelled, Code::Interrupted),
        (FailureClass::NotStarted, Code::AppServerStartFailed),
    ];
    let mut codes = codes.into_iter();
    let found = codes.find(|(known, _)| known.name() == class);
    found.map_or(Code::TurnFailed, |(_, code)| code)
}

#[cfg(test)]
mod tests {
    use codex_protocol::codex::TurnError;
    use job_queue::classic::call::ClassicEnd;
    use job_queue::report::FailureReport;

    use super::*;

    fn told(class: FailureClass, failure: Option<ClassicFailure>) -> String {
        let report = Report {
            failure: Some(FailureReport {
                class: class.name().to_owned(),
                message: "why".to_owned(),
                ..FailureReport::default()
            }),
            classic: Some(ClassicEnd {
                session: None,
                failure,
            }),
            ..Report::default()
        };
        error_of(report, None, Duration::from_secs(60)).text()
    }

    #[test]
    fn failed_job_has_the_error_of_the_tool() {
        let turn = ClassicFailure::Turn(TurnError {
            message: "no".to_owned(),
            codex_error_info: None,
            additional_details: None,
        });
        for (class, failure, expected) in [
            (FailureClass::Exit, Some(turn), "[TURN_FAILED]: no."),
            (
                FailureClass::Exit,
                Some(ClassicFailure::Refused),
                "[CODEX_REFUSED]: why.",
            ),
            (
                FailureClass::Declined,
                Some(ClassicFailure::Interrupted),
                "[INTERRUPTED]: the turn was interrupted.",
            ),
            (
                FailureClass::Signal,
                Some(ClassicFailure::Died),
                "[CODEX_DIED]: why.",
            ),
            (
                FailureClass::Timeout,
                None,
                "[TIMEOUT]: the turn took longer than 60 s",
            ),
            (FailureClass::Auth, None, "[UNAUTHORIZED]: "),
            (FailureClass::RateLimit, None, "[USAGE_LIMIT]: why."),
            (FailureClass::SessionBusy, None, "[THREAD_IN_USE]: why."),
            (
                FailureClass::UnknownSession,
                None,
                "[THREAD_NOT_FOUND]: why.",
            ),
        ] {
            let told = told(class, failure);
            assert!(told.starts_with(&format!("Error {expected}")), "{told}");
        }
    }

    #[test]
    fn job_without_a_report_was_interrupted() {
        let why = "the worker was lost".to_owned();
        let error = error_of(Report::default(), Some(why), Duration::ZERO);
        assert!(
            error
                .text()
                .starts_with("Error [INTERRUPTED]: the worker was lost.")
        );
    }
}
