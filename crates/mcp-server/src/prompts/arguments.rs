//! The arguments of the prompts.

use common::nearest::nearest;
use common::text::one_line;
use rmcp::model::{JsonObject, PromptArgument};
use serde_json::Value;

use super::SHOWN;

/// An argument that a prompt takes.
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) necessity: Necessity,
    pub(super) shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Necessity {
    Required,
    Optional,
}

/// The shape that a value must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Some lines.
    Text,
    /// A name or a path.
    Line,
}

impl Shape {
    /// The longest value, in bytes. For a text, the limit is what Linux takes as a single argument
    /// of a command line; for a line, Linux's longest path (`PATH_MAX`).
    fn limit(self) -> usize {
        match self {
            Self::Text => 128 * 1024,
            Self::Line => 4096,
        }
    }
}

impl Argument {
    pub(super) fn describe(&self) -> PromptArgument {
        PromptArgument::new(self.name)
            .with_description(self.description)
            .with_required(self.necessity == Necessity::Required)
    }
}

/// Why arguments are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadArgument {
    #[error("unknown argument `{name}`; {advice}")]
    Unknown { name: String, advice: String },
    #[error("the argument `{name}` is missing: {description}")]
    Missing {
        name: &'static str,
        description: &'static str,
    },
    #[error("the argument `{0}` must be a string")]
    NoText(&'static str),
    #[error("the argument `{0}` must be a single line")]
    SeveralLines(&'static str),
    #[error("the argument `{name}` has {length} bytes, more than {limit}")]
    TooLong {
        name: &'static str,
        length: usize,
        limit: usize,
    },
}

/// Checks arguments. A blank or null one counts as left out: clients ask for all of them in a form.
///
/// # Errors
///
/// [`BadArgument`].
pub(super) fn read(
    known: &'static [Argument],
    mut given: JsonObject,
) -> Result<Vec<(&'static str, String)>, BadArgument> {
    let mut values = Vec::new();
    for argument in known {
        let value = given.remove(argument.name).unwrap_or_default();
        match (argument.value(value)?, argument.necessity) {
            (Some(value), _) => values.push((argument.name, value)),
            (None, Necessity::Optional) => {}
            (None, Necessity::Required) => {
                return Err(BadArgument::Missing {
                    name: argument.name,
                    description: argument.description,
                });
            }
        }
    }
    match given.keys().next() {
        None => Ok(values),
        Some(name) => Err(unknown(known, name)),
    }
}

pub(super) fn unknown(known: &[Argument], name: &str) -> BadArgument {
    let known: Vec<&str> = known.iter().map(|argument| argument.name).collect();
    let advice = match nearest(name, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", known.join(", ")),
    };
    let name = one_line(name, SHOWN);
    BadArgument::Unknown { name, advice }
}

impl Argument {
    fn value(&self, value: Value) -> Result<Option<String>, BadArgument> {
        let value = match value {
            Value::Null => return Ok(None),
            Value::String(value) => value,
            _ => return Err(BadArgument::NoText(self.name)),
        };
        let (length, limit) = (value.len(), self.shape.limit());
        if length > limit {
            return Err(BadArgument::TooLong {
                name: self.name,
                length,
                limit,
            });
        }
        let value = value.trim();
        if self.shape == Shape::Line && value.contains(char::is_control) {
            return Err(BadArgument::SeveralLines(self.name));
        }
        Ok((!value.is_empty()).then(|| value.to_owned()))
    }
}

/// The arguments in the form in which prompts contain them, each between tags of its name.
pub(super) fn blocks(given: &[(&'static str, String)]) -> String {
    let blocks: Vec<String> = given
        .iter()
        .map(|(name, value)| format!("<{name}>\n{value}\n</{name}>"))
        .collect();
    blocks.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KNOWN: &[Argument] = &[
        Argument {
            name: "task",
            description: "What to do.",
            necessity: Necessity::Required,
            shape: Shape::Text,
        },
        Argument {
            name: "directory",
            description: "Where.",
            necessity: Necessity::Optional,
            shape: Shape::Line,
        },
    ];

    fn read_json(given: Value) -> Result<Vec<(&'static str, String)>, String> {
        let given = given.as_object().unwrap().clone();
        read(KNOWN, given).map_err(|error| error.to_string())
    }

    #[test]
    fn blank_argument_counts_as_left_out() {
        for directory in [json!(null), json!(""), json!(" \n")] {
            let given = json!({ "task": " a\nb\n", "directory": directory });
            assert_eq!(read_json(given).unwrap(), [("task", "a\nb".to_owned())]);
        }
        for task in [json!(null), json!(" \n")] {
            let error = read_json(json!({ "task": task })).unwrap_err();
            assert_eq!(error, "the argument `task` is missing: What to do.");
        }
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (given, expected) in [
            (
                json!({ "task": "a", "dir": "/" }),
                "unknown argument `dir`; did you mean `directory`?",
            ),
            (
                json!({ "task": "a", "zzz": "/" }),
                "unknown argument `zzz`; there are task, directory",
            ),
            (
                json!({ "task": ["a"] }),
                "the argument `task` must be a string",
            ),
            (
                json!({ "task": "a", "directory": "/a\n/b" }),
                "the argument `directory` must be a single line",
            ),
            (
                json!({ "task": "a".repeat(131_073) }),
                "the argument `task` has 131073 bytes, more than 131072",
            ),
            (
                json!({ "task": "a", "directory": "a".repeat(4097) }),
                "the argument `directory` has 4097 bytes, more than 4096",
            ),
        ] {
            assert_eq!(read_json(given).unwrap_err(), expected);
        }
    }

    #[test]
    fn arguments_are_shown_between_their_names() {
        let given = [("task", "a\nb".to_owned()), ("directory", "/c".to_owned())];
        assert_eq!(
            blocks(&given),
            "<task>\na\nb\n</task>\n<directory>\n/c\n</directory>"
        );
    }
}
