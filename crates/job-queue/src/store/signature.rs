//! The messages that a machine signs.
//!
//! The message of a job has everything that decides what is run: the ID, the owner, and each
//! column of the request with its name. Columns that are NULL are left out, so that adding a
//! column changes no signature.

use common::secrets::{MASK, mask};
use serde_json::Value as Json;

use super::cells::text;
use super::columns::{NUMBERS, request_columns};
use super::error::Fault;
use super::sql::{Row, Value};

/// What a signature permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignaturePurpose {
    /// To run the job.
    Run,
    /// To submit it again when it has ended, and its credentials are masked.
    Again,
}

impl SignaturePurpose {
    fn label(self) -> &'static str {
        match self {
            Self::Run => "codex-mcp job 1: run",
            Self::Again => "codex-mcp job 1: submit again",
        }
    }
}

/// The message of a job. Each part follows its length, so that two different jobs never have
/// the same message.
pub(super) fn message(
    purpose: SignaturePurpose,
    id: &str,
    owner: &str,
    request: &[Value],
) -> Vec<u8> {
    let mut message = Vec::new();
    for part in [purpose.label(), id, owner] {
        append(&mut message, part);
    }
    for (column, value) in request_columns().zip(request) {
        let (kind, text) = match value {
            Value::Integer(None) | Value::Text(None) => continue,
            Value::Integer(Some(number)) => ("number", &number.to_string()),
            Value::Text(Some(text)) => ("text", text),
        };
        append(&mut message, column);
        append(&mut message, kind);
        append(&mut message, text);
    }
    message
}

/// The message of a question or an instruction, which holds for one attempt at one job.
pub(super) fn of_attempt(what: SignedKind, job: &str, attempt: u32, parts: &[&str]) -> Vec<u8> {
    let label = match what {
        SignedKind::Question => "codex-mcp question 1",
        SignedKind::Instruction => "codex-mcp instruction 1",
    };
    let mut message = Vec::new();
    for part in [label, job, &attempt.to_string()] {
        append(&mut message, part);
    }
    parts.iter().for_each(|part| append(&mut message, part));
    message
}

/// The message of the thread of a job.
pub(super) fn of_session(job: &str, session: &str) -> Vec<u8> {
    let mut message = Vec::new();
    for part in ["codex-mcp session 1", job, session] {
        append(&mut message, part);
    }
    message
}

/// The kinds of signed messages beside jobs and their threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignedKind {
    /// A question of Codex, signed by the worker.
    Question,
    /// An instruction, signed by its sender.
    Instruction,
}

fn append(message: &mut Vec<u8>, part: &str) {
    let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
    message.extend(length.to_be_bytes());
    message.extend(part.as_bytes());
}

/// The values of a row's request, byte by byte.
pub(super) fn fields(row: &Row) -> Result<Vec<Value>, Fault> {
    let field = |column| {
        Ok(match NUMBERS.contains(&column) {
            true => Value::Integer(row.number(column)?),
            false => Value::Text(row.text(column)?),
        })
    };
    request_columns().map(field).collect()
}

/// The values of a request after the end of the job, with credentials masked; `None` if they
/// are the same.
pub(super) fn masked(request: &[Value]) -> Option<Vec<Value>> {
    let of = |cancellation: &str| {
        let mut named = request_columns().zip(request);
        named.find_map(|(column, value)| match value {
            Value::Text(Some(text)) if column == cancellation => Some(text.as_str()),
            _ => None,
        })
    };
    let texts = Texts {
        prompt: of("prompt")?.to_owned(),
        run: of("run").map(str::to_owned),
        settings: of("settings").map(str::to_owned),
    };
    let masked = texts.masked()?;
    let replaced = request_columns().zip(request).map(|(column, value)| {
        let new = match column {
            "prompt" => Some(&masked.prompt),
            "run" => masked.run.as_ref(),
            "settings" => masked.settings.as_ref(),
            _ => None,
        };
        new.map_or_else(|| value.clone(), |text| Value::Text(Some(text.clone())))
    });
    Some(replaced.collect())
}

/// The texts of a job that may hold credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Texts {
    pub(super) prompt: String,
    pub(super) run: Option<String>,
    pub(super) settings: Option<String>,
}

impl Texts {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            prompt: text(row, "prompt")?,
            run: row.text("run")?,
            settings: row.text("settings")?,
        })
    }

    /// The texts with credentials masked; `None` if they hold none.
    pub(super) fn masked(&self) -> Option<Self> {
        let masked = Self {
            prompt: mask(&self.prompt).into_owned(),
            run: self
                .run
                .as_deref()
                .map(|run| without_credentials(run).unwrap_or_else(|| run.to_owned())),
            settings: self.settings.as_deref().map(masked_settings),
        };
        (masked != *self).then_some(masked)
    }
}

/// Settings, as JSON, with the credentials in their texts masked: those of known forms, and
/// those under names such as `API_KEY`.
fn masked_settings(settings: &str) -> String {
    let Ok(mut json) = serde_json::from_str::<Json>(settings) else {
        return mask(settings).into_owned();
    };
    let before = json.clone();
    mask_values(&mut json, "");
    match json == before {
        true => settings.to_owned(),
        false => json.to_string(),
    }
}

fn mask_values(json: &mut Json, name: &str) {
    match json {
        Json::String(text) => {
            let named = format!("{name}={text}");
            let masked = mask(&named);
            if masked != named {
                let value = masked.strip_prefix(name);
                let value = value.and_then(|rest| rest.strip_prefix('='));
                *text = value.unwrap_or(MASK).to_owned();
            }
        }
        Json::Array(list) => list.iter_mut().for_each(|value| mask_values(value, name)),
        Json::Object(members) => {
            for (name, value) in members {
                mask_values(value, name);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// A run with the credentials in its specification masked, such as those in its task, notifiers and
/// commands; `None` if there are none.
fn without_credentials(run: &str) -> Option<String> {
    let mut run: Json = serde_json::from_str(run).ok()?;
    let spec = run.get_mut("order")?;
    let before = spec.clone();
    mask_values(spec, "");
    (*spec != before).then(|| run.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Request;

    const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

    fn signed(request: &Request) -> Vec<u8> {
        message(
            SignaturePurpose::Run,
            "id",
            "me@here",
            &request.values().unwrap(),
        )
    }

    #[test]
    fn message_differs_for_any_change_of_the_job() {
        let request = Request::new("a", "/b");
        let whole = signed(&request);
        let values = request.values().unwrap();
        assert_ne!(
            whole,
            message(SignaturePurpose::Again, "id", "me@here", &values)
        );
        assert_ne!(
            whole,
            message(SignaturePurpose::Run, "other", "me@here", &values)
        );
        assert_ne!(
            whole,
            message(SignaturePurpose::Run, "id", "you@here", &values)
        );
        assert_ne!(
            whole,
            message(SignaturePurpose::Run, "idm", "e@here", &values)
        );
        assert_eq!(request_columns().count(), values.len());
        for (index, column) in request_columns().enumerate() {
            let mut changed = values.clone();
            changed[index] = match NUMBERS.contains(&column) {
                true => Value::Integer(Some(77)),
                false => Value::Text(Some("changed".to_owned())),
            };
            let changed = message(SignaturePurpose::Run, "id", "me@here", &changed);
            assert_ne!(changed, whole, "{column}");
        }
    }

    #[test]
    fn message_distinguishes_neighbouring_columns() {
        let with = |home: Option<&str>, bin: Option<&str>| {
            signed(&Request {
                codex_home: home.map(str::to_owned),
                codex_bin: bin.map(str::to_owned),
                ..Request::new("a", "/b")
            })
        };
        let all = [
            with(Some("/x"), None),
            with(None, Some("/x")),
            with(Some("/x"), Some("")),
            with(Some(""), Some("/x")),
            with(Some("/"), Some("x")),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }

    #[test]
    fn credentials_are_masked_in_the_prompt_and_in_a_run() {
        let text = format!("push with {TOKEN}");
        let run = serde_json::json!({"order": {
            "task": text, "n": 0.1, "notify": ["webhook:https://hooks.slack.com/services/T/B/x"],
            "exit_criteria": { "command": "API_KEY=hunter2hunter2 ./check" },
        }});
        let run = run.to_string();
        let texts = Texts {
            prompt: text,
            run: Some(run),
            settings: None,
        };
        let masked = texts.masked().unwrap();
        assert_eq!(masked.prompt, "push with [masked]");
        let kept: Json = serde_json::from_str(masked.run.as_deref().unwrap()).unwrap();
        let expected = serde_json::json!({"order": {
            "task": "push with [masked]", "n": 0.1,
            "notify": ["webhook:https://hooks.slack.com/services/[masked]"],
            "exit_criteria": { "command": "API_KEY=[masked] ./check" },
        }});
        assert_eq!(kept, expected);
        assert_eq!(masked.masked(), None);
    }

    #[test]
    fn credentials_in_settings_are_masked() {
        let env =
            serde_json::json!({ "API_KEY": "hunter2hunter2", "LANG": "C", "n": 1, "x": TOKEN });
        let settings =
            serde_json::json!({ "config": { "mcp_servers.x.env": env }, "network": true });
        let texts = Texts {
            prompt: "nothing".to_owned(),
            run: None,
            settings: Some(settings.to_string()),
        };
        let masked = texts.masked().unwrap();
        let kept: Json = serde_json::from_str(masked.settings.as_deref().unwrap()).unwrap();
        let env = serde_json::json!({ "API_KEY": MASK, "LANG": "C", "n": 1, "x": MASK });
        assert_eq!(kept["config"]["mcp_servers.x.env"], env);
        assert_eq!(masked.masked(), None);
    }
}
