//! The reasons for which requests are refused: the only table of statuses and texts.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use job_queue::service::{InstructError, JobsError};
use job_queue::store::StoreError;
use serde_json::json;

use crate::logic::authority::WrongAuthority;
use crate::page::login;
use work_board::{ActError, MailBoardError, RetryError};

/// The session is not known, or no longer.
pub(crate) const NO_SESSION: Refusal =
    Refusal::Missing("such session; it may have ended with its host");

/// The MCP session has ended, or belongs to another caller. The client then begins a new one.
/// Source: MCP 2025-11-25, transports, session management.
pub(crate) const NO_MCP_SESSION: Refusal = Refusal::Missing("such MCP session");

/// There is no such job.
pub(crate) const NO_JOB: Refusal = Refusal::Missing("such job");

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Authority(#[from] WrongAuthority),
    #[error("the request comes from a page of another site")]
    CrossSite,
    #[error("sign in: `codex-mcp web link` prints a link, `codex-mcp web token NAME` a token")]
    NotSignedIn,
    #[error("only `Authorization: Bearer TOKEN` is understood")]
    NotBearer,
    #[error("the token, link or cookie is not valid: it is unknown, revoked, used or too old")]
    WrongSecret,
    #[error("the link is not valid: it is unknown, revoked, used or too old")]
    WrongLink,
    #[error("too many wrong tries; wait {} s", .0.as_secs() + 1)]
    TooManyTries(Duration),
    #[error("this credential may look, but not decide")]
    MayOnlyLook,
    #[error("the message is too long; the most is {0} bytes")]
    TooLong(usize),
    #[error("there is no {0}")]
    Missing(&'static str),
    #[error("{0}")]
    Wrong(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Failed(String),
    #[error("many large answers are being read; try again in a moment")]
    Busy,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Authority(WrongAuthority::Host) => StatusCode::MISDIRECTED_REQUEST,
            Self::Authority(WrongAuthority::Origin) | Self::CrossSite | Self::MayOnlyLook => {
                StatusCode::FORBIDDEN
            }
            Self::NotSignedIn | Self::NotBearer | Self::WrongSecret | Self::WrongLink => {
                StatusCode::UNAUTHORIZED
            }
            Self::TooManyTries(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Wrong(_) => StatusCode::BAD_REQUEST,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Failed(_) => StatusCode::BAD_GATEWAY,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Missing(_) => "Not found",
            Self::Conflict(_) | Self::Wrong(_) => "Not done",
            Self::Failed(_) => "Failed",
            _ => "Refused",
        }
    }

    /// The response for this client: a page for a browser that opens one, JSON for all others.
    pub(crate) fn for_request(self, headers: &HeaderMap) -> Response {
        let accept = headers.get(header::ACCEPT);
        let accept = accept
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if !accept.contains("text/html") {
            return self.into_response();
        }
        let words = self.to_string();
        let page = match self {
            Self::NotSignedIn => login::sign_in(None, None),
            Self::WrongSecret | Self::WrongLink | Self::TooManyTries(_) => {
                login::sign_in(None, Some(&words))
            }
            _ => login::refused(self.title(), &words),
        };
        let page = Html(page.into_string());
        self.with_headers((self.status(), page).into_response())
    }

    fn with_headers(&self, mut response: Response) -> Response {
        match self {
            Self::NotSignedIn | Self::NotBearer | Self::WrongSecret | Self::WrongLink => {
                let scheme = HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, scheme);
            }
            Self::TooManyTries(wait) => {
                let seconds = HeaderValue::from(wait.as_secs() + 1);
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
            _ => {}
        }
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = Json(json!({ "error": self.to_string() }));
        let response = (self.status(), error).into_response();
        self.with_headers(response)
    }
}

impl From<ActError> for Refusal {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Unknown => NO_SESSION,
            ActError::Wrong(why) => Self::Wrong(why),
            ActError::Refused(why) | ActError::Busy(why) => Self::Conflict(why),
            ActError::Host(_) | ActError::Failed(_) | ActError::UnexpectedAnswer => {
                Self::Failed(error.to_string())
            }
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<MailBoardError> for Refusal {
    fn from(error: MailBoardError) -> Self {
        match error {
            MailBoardError::NoTeam | MailBoardError::Send(_) => Self::Conflict(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<RetryError> for Refusal {
    fn from(error: RetryError) -> Self {
        match error {
            RetryError::Unknown => NO_JOB,
            RetryError::Refused(why) => Self::Conflict(why),
            RetryError::Failed(why) => Self::Failed(why),
        }
    }
}

impl From<JobsError> for Refusal {
    fn from(error: JobsError) -> Self {
        match error {
            JobsError::NotFound(_) => NO_JOB,
            JobsError::Spec(_) => Self::Wrong(error.to_string()),
            JobsError::Store(_)
            | JobsError::SubmissionUnclear { .. }
            | JobsError::InstructionUnclear { .. }
            | JobsError::Audit(_) => Self::Failed(error.to_string()),
            JobsError::Instruct(
                InstructError::NotOffered { .. }
                | InstructError::WantsWords { .. }
                | InstructError::WrongAnswer { .. },
            ) => Self::Wrong(error.to_string()),
            error => Self::Conflict(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use codex_engine::logic::form::{WrongAnswer, WrongValue};

    use super::*;

    #[test]
    fn answer_that_does_not_fit_its_field_is_a_wrong_request() {
        let error = InstructError::WrongAnswer {
            question: "q".to_owned(),
            why: WrongAnswer {
                field: "count".to_owned(),
                why: WrongValue::NotAnInteger,
            },
        };
        let refusal = Refusal::from(JobsError::from(error));
        assert_eq!(refusal.status(), StatusCode::BAD_REQUEST);
        assert!(refusal.to_string().contains("whole number"), "{refusal}");
        let refusal = Refusal::from(JobsError::from(InstructError::Ended));
        assert_eq!(refusal.status(), StatusCode::CONFLICT);
    }
}
