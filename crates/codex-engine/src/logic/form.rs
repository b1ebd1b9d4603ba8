//! The forms in Codex's questions: their fields, and the values that people enter.
//!
//! The model's questions take texts as answers. An MCP server states the types of its fields in a
//! JSON Schema, so a typed text is converted to a number or a boolean where the schema says so.

mod schema;

use codex_protocol::codex::{Ask, Question};
use common::text::one_line;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// The longest label of a field, in bytes.
const LABEL: usize = 2000;

/// The longest label of an option, in bytes.
const OPTION: usize = 200;

/// The longest initial value of a field, in bytes. A longer one is left out.
const PRESET: usize = 16 * 1024;

/// The most options of a field. A field with more accepts any text, and the server validates it.
const MOST_OPTIONS: usize = 200;

/// The text that logs contain instead of a secret answer.
pub const NOT_SHOWN: &str = "[not shown]";

/// A field of a form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The key of its value.
    pub id: String,
    /// The question for the person who answers, as one line without hidden characters.
    pub label: String,
    /// The kind of its value.
    pub kind: FieldKind,
    /// The values to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<FieldOption>,
    /// Whether texts other than the options are accepted.
    #[serde(default)]
    pub takes_others: bool,
    /// Whether a value is required.
    #[serde(default)]
    pub required: bool,
    /// Whether the value is secret, and must not be displayed.
    #[serde(default)]
    pub secret: bool,
    /// The initial value of the field, as a person would type it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
}

/// The kind of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// A text.
    Text,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// One of the options.
    Choice,
    /// Some of the options; people separate them by commas.
    Choices,
}

/// A value to choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldOption {
    /// The value.
    pub value: String,
    /// The value with its meaning: one line without hidden characters.
    pub label: String,
}

/// Why a value does not fit its field. It never repeats the value, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongValue {
    /// It must have a value.
    #[error("an answer is required")]
    Missing,
    /// A number is wanted.
    #[error("must be a number")]
    NotANumber,
    /// A whole number is wanted.
    #[error("must be a whole number")]
    NotAnInteger,
    /// A boolean is wanted.
    #[error("must be true or false")]
    NotABoolean,
    /// One of the options is wanted.
    #[error("must be one of: {}", one_line(&.0.join(", "), LABEL))]
    NotAnOption(Vec<String>),
    /// The form has no such field.
    #[error("there is no such field")]
    NoField,
}

/// A value of a form that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer for {field:?} does not fit: {why}")]
pub struct WrongAnswer {
    /// The ID of the field.
    pub field: String,
    /// Why it does not fit.
    pub why: WrongValue,
}

/// The fields of a question; none if it wants a decision.
#[must_use]
pub fn fields(ask: &Ask) -> Vec<Field> {
    match ask {
        Ask::UserInput(asked) => asked.questions.iter().map(Field::of_question).collect(),
        Ask::McpElicitation(asked) => match &asked.requested_schema {
            Some(schema) => schema::fields(schema),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Converts the values of a form to the types of its fields. Empty values are left out.
///
/// # Errors
///
/// [`WrongAnswer`] for the first field whose value does not fit, or is required and missing.
pub fn filled(
    fields: &[Field],
    given: &Map<String, Value>,
) -> Result<Map<String, Value>, WrongAnswer> {
    let wrong = |field: &str, why| WrongAnswer {
        field: field.to_owned(),
        why,
    };
    let is_known = |id: &&String| fields.iter().any(|field| field.id == **id);
    if let Some(id) = given.keys().find(|id| !is_known(id)) {
        return Err(wrong(id, WrongValue::NoField));
    }
    let mut filled = Map::new();
    for field in fields {
        let value = given.get(&field.id).unwrap_or(&Value::Null);
        let value = field.value(value).map_err(|why| wrong(&field.id, why))?;
        if let Some(value) = value {
            filled.insert(field.id.clone(), value);
        }
    }
    Ok(filled)
}

/// Converts the texts in the content of an MCP server's form to the types of its schema, where they
/// can be parsed. Other values are unchanged: the server validates them.
#[must_use]
pub fn typed(ask: &Ask, content: &Map<String, Value>) -> Map<String, Value> {
    let fields = fields(ask);
    let typed = content.iter().map(|(id, value)| {
        let field = fields.iter().find(|field| field.id == *id);
        let typed = field.and_then(|field| field.typed(value).ok());
        (id.clone(), typed.unwrap_or_else(|| value.clone()))
    });
    typed.collect()
}

/// The content of a form for logs: secret values are replaced.
#[must_use]
pub fn for_logs(ask: &Ask, content: &Map<String, Value>) -> Map<String, Value> {
    let fields = fields(ask);
    let is_secret = |id: &str| fields.iter().any(|field| field.secret && field.id == id);
    let shown = content.iter().map(|(id, value)| {
        let value = match is_secret(id) {
            true => NOT_SHOWN.into(),
            false => value.clone(),
        };
        (id.clone(), value)
    });
    shown.collect()
}

impl Field {
    /// A field of which only the name is known. Whether a value is required is decided elsewhere.
    #[must_use]
    pub fn named(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            label: one_line(id, LABEL),
            kind: FieldKind::Text,
            options: Vec::new(),
            takes_others: true,
            required: false,
            secret: false,
            preset: None,
        }
    }

    fn of_question(question: &Question) -> Self {
        let options = question.options.iter().flatten();
        let options = options.map(|option| {
            let meaning = option.description.trim();
            let label = match meaning.is_empty() {
                true => option.label.clone(),
                false => format!("{}: {meaning}", option.label),
            };
            FieldOption::new(&option.label, &label)
        });
        let texts = [&question.question, &question.header];
        let mut texts = texts.into_iter().filter(|text| !text.trim().is_empty());
        let label = texts.next().unwrap_or(&question.id);
        Self {
            label: one_line(label, LABEL),
            required: true,
            secret: question.is_secret,
            ..Self::named(&question.id)
        }
        .with_options(options.collect(), FieldKind::Choice, question.is_other)
    }

    fn with_options(self, options: Vec<FieldOption>, kind: FieldKind, takes_others: bool) -> Self {
        match options.is_empty() || options.len() > MOST_OPTIONS {
            true => self,
            false => Self {
                kind,
                options,
                takes_others,
                ..self
            },
        }
    }

    /// Converts a given value to this field's type; `None` if the value is empty.
    ///
    /// # Errors
    ///
    /// [`WrongValue`].
    pub fn value(&self, given: &Value) -> Result<Option<Value>, WrongValue> {
        let is_empty = match given {
            Value::Null => true,
            Value::String(text) => text.trim().is_empty(),
            _ => false,
        };
        match (is_empty, self.required) {
            (true, true) => Err(WrongValue::Missing),
            (true, false) => Ok(None),
            (false, _) => self.typed(given).map(Some),
        }
    }

    /// Converts a text to the field's type. Other values come from clients that know the types, and
    /// are returned unchanged.
    fn typed(&self, given: &Value) -> Result<Value, WrongValue> {
        let Value::String(text) = given else {
            return Ok(given.clone());
        };
        match self.kind {
            FieldKind::Text => Ok(given.clone()),
            FieldKind::Number => {
                let number = integer(text).or_else(|| decimal(text));
                number.map(Value::from).ok_or(WrongValue::NotANumber)
            }
            FieldKind::Integer => {
                let number = integer(text);
                number.map(Value::from).ok_or(WrongValue::NotAnInteger)
            }
            FieldKind::Boolean => boolean(text)
                .map(Value::from)
                .ok_or(WrongValue::NotABoolean),
            FieldKind::Choice => self.option(text).map(Value::from),
            FieldKind::Choices => {
                let chosen = text.split(',').map(str::trim);
                let chosen = chosen.filter(|text| !text.is_empty());
                chosen.map(|text| self.option(text)).collect()
            }
        }
    }

    fn option(&self, text: &str) -> Result<String, WrongValue> {
        let is_offered = self.options.iter().any(|option| option.value == text);
        match is_offered || self.takes_others {
            true => Ok(text.to_owned()),
            false => {
                let values = self.options.iter().map(|option| option.value.clone());
                Err(WrongValue::NotAnOption(values.collect()))
            }
        }
    }

    /// A hint for the person who types the answer: the values that are accepted, and whether the
    /// field may be left empty.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match (self.kind, self.required) {
            (FieldKind::Text | FieldKind::Choice, true) => return None,
            (FieldKind::Text | FieldKind::Choice, false) => "may be left empty",
            (FieldKind::Number, true) => "a number",
            (FieldKind::Number, false) => "a number, or nothing",
            (FieldKind::Integer, true) => "a whole number",
            (FieldKind::Integer, false) => "a whole number, or nothing",
            (FieldKind::Boolean, true) => "true or false",
            (FieldKind::Boolean, false) => "true or false, or nothing",
            (FieldKind::Choices, true) => "one or more, separated by commas",
            (FieldKind::Choices, false) => "any number, separated by commas",
        })
    }
}

impl FieldOption {
    fn new(value: &str, label: &str) -> Self {
        Self {
            value: value.to_owned(),
            label: one_line(label, OPTION),
        }
    }
}

fn integer(text: &str) -> Option<Number> {
    let text = text.trim();
    let signed = text.parse::<i64>().ok().map(Number::from);
    signed.or_else(|| text.parse::<u64>().ok().map(Number::from))
}

fn decimal(text: &str) -> Option<Number> {
    Number::from_f64(text.trim().parse().ok()?)
}

fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "y" | "on" => Some(true),
        "false" | "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
