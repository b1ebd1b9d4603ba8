//! The parsers of requests, for the fuzz targets.

use axum::extract::Query;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use codex_engine::logic::action::Decision;
use job_queue::service::Response as Answer;
use serde_json::{Map, Value};

use crate::forms::{Fields, answer_of};
use crate::{auth, job_acts, streams};

/// The content of a form, or of a query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Form {
    /// The decision about a question.
    pub decision: Option<Decision>,
    /// The criteria of a run.
    pub criteria: Option<Map<String, Value>>,
    /// The number of the last message that a page has.
    pub after: Option<u64>,
}

/// The secrets that a request names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The token of a program.
    pub bearer: Option<String>,
    /// The cookie of a browser.
    pub cookie: Option<String>,
}

/// Reads the text of a form.
#[must_use]
pub fn form(text: &str) -> Form {
    let Ok(uri) = format!("/?{text}").parse::<Uri>() else {
        return Form::default();
    };
    let fields = Query::<Fields>::try_from_uri(&uri);
    let fields = fields.map(|Query(fields)| fields).unwrap_or_default();
    let decision = match answer_of(&fields) {
        Ok(Answer::Decision(decision)) => Some(decision),
        _ => None,
    };
    Form {
        decision,
        criteria: job_acts::criteria(&fields).ok(),
        after: streams::after(&uri),
    }
}

/// Reads the secrets in headers. A header that HTTP does not allow is left out.
#[must_use]
pub fn secrets(headers: &[(&[u8], &[u8])]) -> Secrets {
    let mut all = HeaderMap::new();
    for (name, value) in headers {
        let header = HeaderName::from_bytes(name).ok();
        if let Some((name, value)) = header.zip(HeaderValue::from_bytes(value).ok()) {
            all.append(name, value);
        }
    }
    let bearer = auth::bearer(&all).ok().flatten();
    Secrets {
        bearer: bearer.map(str::to_owned),
        cookie: auth::cookie(&all).map(str::to_owned),
    }
}
