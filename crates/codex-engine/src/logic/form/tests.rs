use codex_protocol::codex::{McpElicitation, UserInputRequest};
use serde_json::json;

use super::*;

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn questions(questions: Value) -> Ask {
    let asked: UserInputRequest =
        serde_json::from_value(json!({ "itemId": "i", "questions": questions })).unwrap();
    Ask::UserInput(asked)
}

fn form(required: Value, properties: Value) -> Ask {
    Ask::McpElicitation(McpElicitation {
        requested_schema: Some(
            json!({ "type": "object", "properties": properties, "required": required }),
        ),
        ..McpElicitation::default()
    })
}

fn server_form() -> Ask {
    form(
        json!(["count", "sure"]),
        json!({
            "count": { "type": "integer", "title": "How many?", "default": 3 },
            "ratio": { "type": "number" },
            "sure": { "type": "boolean", "description": "Really" },
            "colour": { "type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"] },
            "size": { "type": "string", "oneOf": [{ "const": "s", "title": "Small" }] },
            "tags": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] } },
            "note": { "type": "string" },
            "key": { "type": "string", "format": "password", "default": "hidden" },
        }),
    )
}

fn field(ask: &Ask, id: &str) -> Field {
    let all = fields(ask);
    let found = all.iter().find(|field| field.id == id);
    found.unwrap().clone()
}

#[test]
fn field_of_a_question_has_its_words_and_options() {
    let ask = questions(json!([
        { "id": "q", "header": "Colour", "question": "Which\n\u{202e}colour?", "isOther": true,
            "options": [{ "label": "red", "description": "warm" }, { "label": "blue" }] },
        { "id": "token", "header": "Token", "question": " ", "isSecret": true },
        { "id": "bare" },
    ]));
    let colour = field(&ask, "q");
    assert_eq!(colour.label, "Which \\u{202e}colour?");
    assert_eq!(colour.kind, FieldKind::Choice);
    let labels: Vec<&str> = colour.options.iter().map(|one| &*one.label).collect();
    assert_eq!(labels, ["red: warm", "blue"]);
    assert!(colour.takes_others && colour.required && !colour.secret);
    let token = field(&ask, "token");
    assert_eq!((&*token.label, token.kind), ("Token", FieldKind::Text));
    assert!(token.secret);
    assert_eq!(field(&ask, "bare").label, "bare");
}

#[test]
fn field_of_a_schema_has_its_type_and_choices() {
    let ask = server_form();
    let kinds = [
        ("count", FieldKind::Integer, true),
        ("ratio", FieldKind::Number, false),
        ("sure", FieldKind::Boolean, true),
        ("colour", FieldKind::Choice, false),
        ("size", FieldKind::Choice, false),
        ("tags", FieldKind::Choices, false),
        ("note", FieldKind::Text, false),
    ];
    for (id, kind, required) in kinds {
        let field = field(&ask, id);
        assert_eq!((field.kind, field.required), (kind, required), "{id}");
    }
    assert_eq!(field(&ask, "count").label, "How many?");
    assert_eq!(field(&ask, "count").preset.as_deref(), Some("3"));
    assert_eq!(field(&ask, "sure").label, "sure: Really");
    let green = FieldOption::new("g", "Green");
    assert!(field(&ask, "colour").options.contains(&green));
    assert_eq!(
        field(&ask, "size").options,
        [FieldOption::new("s", "Small")]
    );
    let key = field(&ask, "key");
    assert!(key.secret && key.preset.is_none());
}

#[test]
fn texts_become_the_types_of_the_fields() {
    let given = object(
        json!({ "count": " 12 ", "ratio": "1.5", "sure": "false", "colour": "g",
        "size": "", "tags": "a, b", "note": "", "key": "k" }),
    );
    let filled = filled(&fields(&server_form()), &given).unwrap();
    let expected = json!({ "count": 12, "ratio": 1.5, "sure": false, "colour": "g",
        "tags": ["a", "b"], "key": "k" });
    assert_eq!(Value::from(filled), expected);
    let already = object(json!({ "count": 12, "sure": true, "tags": ["a"] }));
    assert_eq!(
        super::filled(&fields(&server_form()), &already),
        Ok(already)
    );
}

#[test]
fn values_that_do_not_fit_are_refused_without_repeating_them() {
    let options = |values: &[&str]| {
        WrongValue::NotAnOption(values.iter().map(|&value| value.to_owned()).collect())
    };
    for (id, text, why) in [
        ("count", "", WrongValue::Missing),
        ("count", "1.5", WrongValue::NotAnInteger),
        ("ratio", "many", WrongValue::NotANumber),
        ("ratio", "NaN", WrongValue::NotANumber),
        ("sure", "perhaps", WrongValue::NotABoolean),
        ("colour", "Green", options(&["r", "g"])),
        ("tags", "a,c", options(&["a", "b"])),
        ("other", "x", WrongValue::NoField),
    ] {
        let mut given = object(json!({ "count": "1", "sure": "true" }));
        given.insert(id.to_owned(), text.into());
        let refused = filled(&fields(&server_form()), &given).unwrap_err();
        assert_eq!((&*refused.field, &refused.why), (id, &why), "{text}");
        let words = refused.to_string();
        assert!(
            !words.contains("many") && !words.contains("perhaps"),
            "{words}"
        );
    }
}

#[test]
fn question_takes_another_answer_only_if_codex_says_so() {
    for (is_other, is_taken) in [(true, true), (false, false)] {
        let ask = questions(
            json!([{ "id": "q", "question": "Which?", "isOther": is_other,
            "options": [{ "label": "red" }] }]),
        );
        let green = object(json!({ "q": "green" }));
        assert_eq!(filled(&fields(&ask), &green).is_ok(), is_taken);
    }
}

#[test]
fn texts_for_a_server_are_typed_and_the_rest_is_left_to_it() {
    let content = object(json!({ "count": "12", "sure": "perhaps", "other": "x" }));
    let expected = object(json!({ "count": 12, "sure": "perhaps", "other": "x" }));
    assert_eq!(typed(&server_form(), &content), expected);
}

#[test]
fn secret_values_are_not_in_logs() {
    let content = object(json!({ "key": { "answers": ["k"] }, "note": "n" }));
    let shown = for_logs(&server_form(), &content);
    assert_eq!(shown, object(json!({ "key": NOT_SHOWN, "note": "n" })));
}

#[test]
fn field_with_too_many_options_takes_any_text() {
    let values: Vec<String> = (0..=MOST_OPTIONS)
        .map(|number| number.to_string())
        .collect();
    let ask = form(
        json!([]),
        json!({ "x": { "type": "string", "enum": values } }),
    );
    let field = field(&ask, "x");
    assert_eq!((field.kind, field.options), (FieldKind::Text, Vec::new()));
}
