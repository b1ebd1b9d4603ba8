//! Forms, and the responses after an action.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Deref;

use axum::Json;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use codex_engine::logic::action::Decision;
use common::nearest::nearest;
use common::text::one_line;
use job_queue::service::Response as Answer;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::refusal::Refusal;

/// The longest part of an unknown field's name in a message, in bytes.
const SHOWN: usize = 60;

/// The fields of an answer, see [`check_names`].
pub(crate) const ANSWER: [&str; 4] = ["question", "decision", "answer.FIELD", "other.FIELD"];

/// The response to a form: JSON for the script and for programs, or the page again for a form
/// without script.
pub(crate) struct FormResponse {
    words: Cow<'static, str>,
    /// The page on which to go on.
    address: String,
    /// Whether the script has to load that page.
    is_elsewhere: bool,
}

impl FormResponse {
    pub(crate) fn on(address: String, words: &'static str) -> Self {
        Self {
            words: words.into(),
            address,
            is_elsewhere: false,
        }
    }

    /// A response after which the script also has to load another page.
    pub(crate) fn elsewhere(address: String, words: impl Into<Cow<'static, str>>) -> Self {
        Self {
            words: words.into(),
            address,
            is_elsewhere: true,
        }
    }

    fn for_request(self, headers: &HeaderMap) -> Response {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok());
        if accept.is_some_and(|accept| accept.contains("text/html")) {
            return Redirect::to(&self.address).into_response();
        }
        let address = self.is_elsewhere.then_some(self.address);
        Json(json!({ "done": self.words, "address": address })).into_response()
    }
}

pub(crate) fn respond(done: Result<FormResponse, Refusal>, headers: &HeaderMap) -> Response {
    match done {
        Ok(done) => done.for_request(headers),
        Err(refusal) => refusal.for_request(headers),
    }
}

/// The fields of a form. Those of an answer are named `answer.FIELD`, or `other.FIELD` for a text in
/// place of a choice.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "Vec<(String, String)>")]
pub(crate) struct Fields {
    values: HashMap<String, String>,
    /// A name that occurs more than once.
    repeated: Option<String>,
}

impl From<Vec<(String, String)>> for Fields {
    fn from(pairs: Vec<(String, String)>) -> Self {
        pairs.into_iter().collect()
    }
}

impl FromIterator<(String, String)> for Fields {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(pairs: T) -> Self {
        let mut fields = Self::default();
        for (name, value) in pairs {
            if fields.values.insert(name.clone(), value).is_some() {
                fields.repeated = Some(name);
            }
        }
        fields
    }
}

impl Deref for Fields {
    type Target = HashMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.values
    }
}

/// Refuses a field that the form does not have, or that is given more than once. If it were ignored, a
/// criterion would be lost. `FIELD` in a known name stands for any text.
pub(crate) fn check_names(fields: &Fields, known: &[&str]) -> Result<(), Refusal> {
    if let Some(repeated) = &fields.repeated {
        let shown = one_line(repeated, SHOWN);
        return Err(Refusal::Wrong(format!(
            "the field `{shown}` is given more than once"
        )));
    }
    let is_known = |name: &str| {
        known.iter().any(|known| match known.strip_suffix("FIELD") {
            Some(prefix) => name.starts_with(prefix),
            None => name == *known,
        })
    };
    let unknown = fields.keys().filter(|name| !is_known(name)).min();
    let Some(unknown) = unknown else {
        return Ok(());
    };
    let advice = match nearest(unknown, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", known.join(", ")),
    };
    let shown = one_line(unknown, SHOWN);
    Err(Refusal::Wrong(format!("unknown field `{shown}`; {advice}")))
}

pub(crate) fn field<'a>(fields: &'a Fields, name: &'static str) -> Result<&'a str, Refusal> {
    let value = fields.get(name).map(String::as_str).unwrap_or_default();
    match value.trim().is_empty() {
        true => Err(Refusal::Wrong(format!("the field {name:?} is missing"))),
        false => Ok(value),
    }
}

/// The response that a form makes: a decision in Codex's form, also a word without its quotes, or the
/// answers to a question. Whether the question offers it is checked later.
pub(crate) fn answer_of(fields: &Fields) -> Result<Answer, Refusal> {
    let decision = field(fields, "decision")?;
    if decision == "submit" {
        let named = |prefix: &'static str| {
            let named = fields.iter();
            named.filter_map(move |(name, text)| Some((name.strip_prefix(prefix)?, text)))
        };
        let others = named("other.").filter(|(_, text)| !text.trim().is_empty());
        let answers = named("answer.").chain(others);
        let answers = answers.map(|(name, text)| (name.to_owned(), text.as_str().into()));
        return Ok(Answer::Decision(Decision::Submit(Map::from_iter(answers))));
    }
    let given: Value = serde_json::from_str(decision).unwrap_or_else(|_| decision.trim().into());
    Ok(match Decision::deserialize(&given) {
        Ok(decision) => Answer::Decision(decision),
        Err(_) => Answer::Json(given),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_field_is_refused_with_a_tip() {
        let refused = |name: &str, known: &[&str]| {
            let fields = Fields::from_iter([(name.to_owned(), "on".to_owned())]);
            check_names(&fields, known).map_err(|refusal| refusal.to_string())
        };
        let run = ["task", "review"];
        let tip = |words: &str| -> Result<(), String> { Err(words.to_owned()) };
        assert_eq!(refused("review", &run), Ok(()));
        let misspelt = tip("unknown field `reviw`; did you mean `review`?");
        assert_eq!(refused("reviw", &run), misspelt);
        assert_eq!(
            refused("zzz", &run),
            tip("unknown field `zzz`; there are task, review")
        );
        assert_eq!(refused("answer.colour", &ANSWER), Ok(()));
        let bare = tip("unknown field `answer`; did you mean `answer.FIELD`?");
        assert_eq!(refused("answer", &ANSWER), bare);
    }

    #[test]
    fn field_that_is_given_twice_is_refused() {
        let pairs = [("command", "false"), ("files", "a"), ("command", "true")];
        let pairs = pairs.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let refused = |pairs: &[(String, String)]| {
            let checked = check_names(&Fields::from(pairs.to_vec()), &["command", "files"]);
            checked.map_err(|refusal| refusal.to_string())
        };
        let words = "the field `command` is given more than once";
        assert_eq!(refused(&pairs), Err(words.to_owned()));
        assert_eq!(refused(&pairs[1..]), Ok(()));
    }

    #[test]
    fn decision_is_json_or_a_bare_word() {
        let form = |decision: &str| {
            let fields = [("decision".to_owned(), decision.to_owned())];
            answer_of(&Fields::from_iter(fields)).ok()
        };
        let accept = Some(Answer::Decision(Decision::Accept));
        assert_eq!(form("\"accept\""), accept);
        assert_eq!(form(" accept "), accept);
        let rule = Decision::AcceptWithExecpolicyAmendment(vec!["ls".to_owned()]);
        let given = json!(rule).to_string();
        assert_eq!(form(&given), Some(Answer::Decision(rule)));
        for wrong in ["\"foo\"", "foo"] {
            assert_eq!(form(wrong), Some(Answer::Json("foo".into())));
        }
        assert_eq!(form(" "), None);
    }

    #[test]
    fn text_beside_a_choice_counts_if_it_is_not_empty() {
        let form = |other: &str| {
            let pairs = [
                ("decision", "submit"),
                ("answer.q", "red"),
                ("other.q", other),
            ];
            let pairs = pairs.map(|(name, text)| (name.to_owned(), text.to_owned()));
            match answer_of(&Fields::from_iter(pairs)) {
                Ok(Answer::Decision(Decision::Submit(answers))) => Some(json!(answers)),
                _ => None,
            }
        };
        assert_eq!(form(" "), Some(json!({ "q": "red" })));
        assert_eq!(form("green"), Some(json!({ "q": "green" })));
    }
}
