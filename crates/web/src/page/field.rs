//! A field of a question's form.
//!
//! A value is sent as `answer.ID`. A choice that also accepts other texts has an additional text
//! field `other.ID`, which takes precedence if it is not empty.

use codex_engine::logic::form::{Field, FieldKind};
use common::text::visible_line;
use maud::{Markup, html};

/// The field, with this ID of its element.
pub(crate) fn input(id: &str, field: &Field) -> Markup {
    let name = format!("answer.{}", field.id);
    if field.secret {
        return secret(id, &name, field);
    }
    match field.kind {
        FieldKind::Boolean => check_box(id, &name, field),
        FieldKind::Choice => choice(id, &name, field),
        FieldKind::Number | FieldKind::Integer => number(id, &name, field),
        FieldKind::Text | FieldKind::Choices => text(id, &name, field),
    }
}

fn label(field: &Field) -> Markup {
    html! {
        (visible_line(&field.label))
        @if let Some(hint) = field.hint() { span.hint { " (" (hint) ")" } }
    }
}

fn options(field: &Field) -> Markup {
    html! {
        @if !field.options.is_empty() {
            span.hint {
                @for option in &field.options { " · " (visible_line(&option.label)) }
            }
        }
    }
}

fn secret(id: &str, name: &str, field: &Field) -> Markup {
    html! {
        label {
            (label(field)) (options(field))
            input id=(id) name=(name) type="password" autocomplete="off" required[field.required];
        }
    }
}

fn text(id: &str, name: &str, field: &Field) -> Markup {
    html! {
        label {
            (label(field)) (options(field))
            input id=(id) name=(name) autocomplete="off" required[field.required]
                value=[field.preset.as_deref()];
        }
    }
}

fn number(id: &str, name: &str, field: &Field) -> Markup {
    let step = match field.kind {
        FieldKind::Integer => "1",
        _ => "any",
    };
    html! {
        label {
            (label(field))
            input id=(id) name=(name) type="number" step=(step) autocomplete="off"
                required[field.required] value=[field.preset.as_deref()];
        }
    }
}

/// A box that is not ticked is not sent, so a hidden field sends `false` before it.
fn check_box(id: &str, name: &str, field: &Field) -> Markup {
    let is_ticked = field.preset.as_deref() == Some("true");
    html! {
        input type="hidden" name=(name) value="false";
        label.check {
            input id=(id) name=(name) type="checkbox" value="true" checked[is_ticked];
            " " (visible_line(&field.label))
        }
    }
}

fn choice(id: &str, name: &str, field: &Field) -> Markup {
    let is_preset = |value: &str| field.preset.as_deref() == Some(value);
    html! {
        label {
            (label(field))
            select id=(id) name=(name) required[field.required && !field.takes_others] {
                option value="" { "Choose" }
                @for option in &field.options {
                    option value=(option.value) selected[is_preset(&option.value)] {
                        (visible_line(&option.label))
                    }
                }
            }
        }
        @if field.takes_others {
            label {
                "Or another answer: " (visible_line(&field.label))
                input id={ (id) "-other" } name={ "other." (field.id) } autocomplete="off";
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use codex_engine::logic::form::FieldOption;

    use super::*;

    fn field(kind: FieldKind) -> Field {
        Field {
            label: "Which?".to_owned(),
            kind,
            required: true,
            options: vec![FieldOption {
                value: "\"r".to_owned(),
                label: "Red <b>".to_owned(),
            }],
            takes_others: false,
            ..Field::named("id")
        }
    }

    fn shown(field: &Field) -> String {
        input("q-field-0", field).into_string()
    }

    #[test]
    fn each_kind_has_its_input() {
        for (kind, parts) in [
            (FieldKind::Text, ["<input", " required"]),
            (FieldKind::Number, ["type=\"number\"", "step=\"any\""]),
            (FieldKind::Integer, ["type=\"number\"", "step=\"1\""]),
            (
                FieldKind::Boolean,
                [
                    "type=\"hidden\" name=\"answer.id\" value=\"false\"",
                    "type=\"checkbox\"",
                ],
            ),
            (
                FieldKind::Choice,
                ["<select", "<option value=\"&quot;r\">Red &lt;b&gt;"],
            ),
            (FieldKind::Choices, ["separated by commas", "Red &lt;b&gt;"]),
        ] {
            let html = shown(&field(kind));
            for part in parts.into_iter().chain(["name=\"answer.id\"", "Which?"]) {
                assert!(html.contains(part), "{part}: {html}");
            }
        }
    }

    #[test]
    fn secret_is_not_echoed_and_has_no_value() {
        let mut field = field(FieldKind::Text);
        field.secret = true;
        field.preset = Some("p".to_owned());
        let html = shown(&field);
        assert!(
            html.contains("type=\"password\" autocomplete=\"off\""),
            "{html}"
        );
        assert!(!html.contains("value="), "{html}");
    }

    #[test]
    fn choice_that_takes_other_texts_has_a_place_for_them() {
        let mut field = field(FieldKind::Choice);
        assert!(!shown(&field).contains("other."));
        field.takes_others = true;
        let html = shown(&field);
        assert!(html.contains("name=\"other.id\""), "{html}");
        assert!(!html.contains(" required"), "{html}");
    }
}
