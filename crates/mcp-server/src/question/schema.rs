//! The JSON Schemas of the forms in elicitations.

use codex_engine::logic::action::{self, Decision};
use codex_engine::logic::approval_text;
use codex_engine::logic::form::{Field, FieldKind};
use codex_protocol::codex::{Ask, Question, UserInputRequest};
use job_queue::question::StoredQuestion;
use serde_json::{Map, Value, json};

/// The format of the titles of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChoiceTitles {
    /// `enum` and `enumNames`, as in MCP 2025-06-18.
    EnumNames,
    /// `oneOf`, since MCP 2025-11-25.
    OneOf,
}

/// The field of an approval's form that holds the decision.
pub(super) const DECISION: &str = "decision";

/// The field of an approval's form that holds the reason.
pub(super) const REASON: &str = "reason";

/// The form of a question of a session.
pub(super) fn requested_schema(ask: &Ask, titles: ChoiceTitles) -> Value {
    match ask {
        Ask::UserInput(asked) => questions_schema(asked),
        ask => match (&*action::choices(ask), ask) {
            ([], Ask::McpElicitation(asked)) => {
                asked.requested_schema.clone().unwrap_or_else(no_fields)
            }
            (choices, _) => choices_schema(choices, titles),
        },
    }
}

/// The decisions in the form of a job's question. Empty for a question that expects content.
///
/// As in sessions, they have no rules for hosts: Codex proposes one that allows the host and one that
/// denies it, and in a form they would have the same name.
pub(super) fn stored_choices(question: &StoredQuestion) -> Vec<Decision> {
    if !question.fields.is_empty() {
        return Vec::new();
    }
    let mut choices = question.decisions.clone();
    choices.retain(|choice| !matches!(choice, Decision::ApplyNetworkPolicyAmendment(_)));
    choices
}

/// The form of a question of a job.
pub(crate) fn stored_schema(question: &StoredQuestion, titles: ChoiceTitles) -> Value {
    match question.fields.as_slice() {
        [] => choices_schema(&stored_choices(question), titles),
        fields => {
            let property = |field: &Field| (field.id.clone(), field_schema(field));
            let properties: Map<String, Value> = fields.iter().map(property).collect();
            let required = fields.iter().filter(|field| field.required);
            let required: Vec<&str> = required.map(|field| field.id.as_str()).collect();
            json!({ "type": "object", "properties": properties, "required": required })
        }
    }
}

/// A field in the schema of a form. A list of choices is asked for as a text with commas, which
/// clients of every version can show.
fn field_schema(field: &Field) -> Value {
    let kind = match field.kind {
        FieldKind::Text | FieldKind::Choice | FieldKind::Choices => "string",
        FieldKind::Number => "number",
        FieldKind::Integer => "integer",
        FieldKind::Boolean => "boolean",
    };
    let is_closed = field.kind == FieldKind::Choice && !field.takes_others;
    let values = field.options.iter().map(|option| option.value.as_str());
    let values: Vec<&str> = values.collect();
    let mut description = field.label.clone();
    if !is_closed && !values.is_empty() {
        description = format!("{description} ({})", values.join(", "));
    }
    let mut schema = json!({ "type": kind, "title": field.id, "description": description });
    if is_closed && let Some(schema) = schema.as_object_mut() {
        schema.insert("enum".to_owned(), json!(values));
    }
    schema
}

fn no_fields() -> Value {
    json!({ "type": "object", "properties": {} })
}

/// The form of an approval. A single approval is preset where it is possible, so that a user who
/// accepts need not open the list.
fn choices_schema(choices: &[Decision], titles: ChoiceTitles) -> Value {
    let names: Vec<&str> = choices.iter().map(Decision::name).collect();
    let words: Vec<String> = choices.iter().map(approval_text::choice).collect();
    let mut field = json!({ "type": "string", "title": "Decision" });
    if let Some(field) = field.as_object_mut() {
        match titles {
            ChoiceTitles::EnumNames => {
                field.insert("enum".to_owned(), json!(names));
                field.insert("enumNames".to_owned(), json!(words));
            }
            ChoiceTitles::OneOf => {
                let titled = names.iter().zip(&words);
                let titled = titled.map(|(name, words)| json!({ "const": name, "title": words }));
                field.insert("oneOf".to_owned(), titled.collect());
            }
        }
        if choices.contains(&Decision::Accept) {
            field.insert("default".to_owned(), Decision::Accept.name().into());
        }
    }
    json!({
        "type": "object",
        "properties": {
            DECISION: field,
            REASON: {
                "type": "string",
                "title": "Reason",
                "description": "Kept in the log.",
            },
        },
        "required": [DECISION],
    })
}

fn questions_schema(asked: &UserInputRequest) -> Value {
    let field = |question: &Question| {
        let mut field = json!({
            "type": "string",
            "title": question.header,
            "description": question.question,
        });
        if let (Some(options), Some(field)) = (&question.options, field.as_object_mut()) {
            let labels: Vec<&str> = options.iter().map(|option| option.label.as_str()).collect();
            field.insert("enum".to_owned(), json!(labels));
        }
        field
    };
    let properties: Map<String, Value> = asked
        .questions
        .iter()
        .map(|question| (question.id.clone(), field(question)))
        .collect();
    let required: Vec<&str> = asked
        .questions
        .iter()
        .map(|question| question.id.as_str())
        .collect();
    json!({ "type": "object", "properties": properties, "required": required })
}
