//! Codex's questions in jobs: how they are stored, and shown as JSON.

use codex_engine::command::OpenQuestion;
use codex_engine::logic::action::{self, ActionKind, Decision};
use codex_engine::logic::approval_text::{self, ShortenedValue};
use codex_engine::logic::form::{self, Field};
use codex_engine::logic::progress::without_shell;
use codex_protocol::codex::Ask;
use common::text::one_line;
use common::timestamp::{minute, timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use settings::bounds::Bound;

use super::store::{NewQuestion, Origin, Question};

/// The limit of a question's details, and of the values that its text shortens, in bytes of JSON.
/// The text of the question has the essentials in less than 4 KiB.
pub const MOST_DETAILS: usize = 256 * 1024;

/// The limit of the fields of a question, and of its decisions, in bytes of JSON. A question beyond
/// the limit is stored without fields, or without rules: only the client of the session can fill in
/// such a form.
const MOST_OFFERED: usize = 256 * 1024;

/// The limit of the details in a job's record, in bytes of JSON. Records are read by models.
const RECORDED_DETAILS: usize = 32 * 1024;

/// The longest summary, in bytes.
const SUMMARY: usize = 500;

/// The keys of a session's question that a job has under other names.
const RENAMED_KEYS: [&str; 9] = [
    "type",
    "params",
    "requestId",
    "kind",
    "question",
    "availableDecisions",
    "itemId",
    "createdAt",
    "expiresAt",
];

/// A question of Codex as the store has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredQuestion {
    /// The kind of the question.
    pub kind: ActionKind,
    /// The question for the person who answers.
    pub text: String,
    /// The decisions that the question offers.
    pub decisions: Vec<Decision>,
    /// The fields of its form; none if it wants a decision.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "fields_or_names"
    )]
    pub fields: Vec<Field>,
    /// When the question is declined unless somebody answers, in RFC 3339.
    pub expires_at: String,
    /// The details, as sessions show them; `None` if they are too long.
    #[serde(default)]
    pub details: Option<Map<String, Value>>,
    /// The values that the text shortens, except the command, which is in the details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<ShortenedValue>,
}

/// An open question with its ID, in the form in which hosts report questions of their sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedQuestion {
    /// Its ID.
    pub id: String,
    /// The question.
    pub question: StoredQuestion,
}

/// An open question for the store.
pub(super) fn new_question(open: &OpenQuestion, bound: Option<&Bound>) -> NewQuestion {
    NewQuestion {
        id: open.id.0.clone(),
        // All of its keys are texts.
        question: json!(StoredQuestion::new(open, bound.is_some())).to_string(),
    }
}

/// Reads fields, or the names that earlier programs have stored instead.
fn fields_or_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Field>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum FieldOrName {
        Field(Field),
        Name(String),
    }
    let read = Vec::<FieldOrName>::deserialize(deserializer)?;
    let fields = read.into_iter().map(|one| match one {
        FieldOrName::Field(field) => field,
        FieldOrName::Name(name) => Field::named(&name),
    });
    Ok(fields.collect())
}

fn details(open: &OpenQuestion) -> Option<Map<String, Value>> {
    let mut details = open.shown.as_object().cloned().unwrap_or_default();
    details.retain(|key, value| !value.is_null() && !RENAMED_KEYS.contains(&key.as_str()));
    if let Ask::McpElicitation(asked) = &open.ask
        && let Some(arguments) = asked.meta.as_ref().and_then(|meta| meta.get("tool_params"))
    {
        details.insert("arguments".to_owned(), arguments.clone());
    }
    (size(&details) <= MOST_DETAILS).then_some(details)
}

/// The details, and the values that the text shortens; `None` if there are too many to be shown
/// completely.
fn parts(open: &OpenQuestion) -> Option<(Map<String, Value>, Vec<ShortenedValue>)> {
    let details = details(open)?;
    let mut shortened = approval_text::shortened_values(&open.ask);
    let command = details.get("command");
    shortened.retain(|value| command.is_none_or(|command| *command != value.text));
    (size(&shortened) <= MOST_DETAILS).then_some((details, shortened))
}

fn size(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |json| json.len())
}

/// Whether a decision also adds a rule. Only such a decision can be long.
fn is_rule(decision: &Decision) -> bool {
    matches!(
        decision,
        Decision::AcceptWithExecpolicyAmendment(_) | Decision::ApplyNetworkPolicyAmendment(_)
    )
}

/// A part of what is asked, in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WholePart<'a> {
    /// A text of the request: the command, or another value that the text shortens.
    Text {
        /// What it is.
        label: &'a str,
        /// The text.
        text: &'a str,
    },
    /// A file that would be changed.
    Change(WholeChange<'a>),
}

/// A change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeChange<'a> {
    /// The path of the file.
    pub path: &'a str,
    /// `add`, `delete` or `update`.
    pub kind: &'a str,
    /// The path to which it would be moved.
    pub moved_to: Option<&'a str>,
    /// The unified diff, or the contents of a file that is added or deleted.
    pub diff: &'a str,
}

impl<'a> WholeChange<'a> {
    /// Reads a change in the current form, or in the form of the first protocol, which has the path
    /// as a key.
    fn of(path: Option<&'a str>, change: &'a Value) -> Self {
        let text = |value: &'a Value, key: &str| value.get(key).and_then(Value::as_str);
        let kind = change.get("kind").unwrap_or(change);
        let diffs = ["diff", "unified_diff", "content"];
        let diff = diffs.into_iter().find_map(|key| text(change, key));
        Self {
            path: path.or_else(|| text(change, "path")).unwrap_or_default(),
            kind: text(kind, "type").unwrap_or("update"),
            moved_to: text(kind, "move_path"),
            diff: diff.unwrap_or_default(),
        }
    }
}

impl StoredQuestion {
    /// An open question in its stored form. If the sandbox is bounded, it lacks the decisions by
    /// which a command would leave the sandbox.
    #[must_use]
    pub fn new(open: &OpenQuestion, is_bounded: bool) -> Self {
        let mut decisions = action::offered(&open.ask);
        decisions.retain(|one| !is_bounded || !action::leaves_the_sandbox(&open.ask, one));
        let mut fields = form::fields(&open.ask);
        if size(&decisions) > MOST_OFFERED {
            decisions.retain(|one| !is_rule(one));
        }
        if size(&fields) > MOST_OFFERED {
            fields.clear();
        }
        let (details, shortened) = parts(open).unzip();
        Self {
            kind: ActionKind::from(&open.ask),
            text: approval_text::question(&open.ask),
            decisions,
            fields,
            expires_at: timestamp(open.expires),
            details,
            shortened: shortened.unwrap_or_default(),
        }
    }

    /// The question without its details, fields and rules. The rest takes less than 16 KiB of JSON.
    #[must_use]
    pub fn shortest(mut self) -> Self {
        self.decisions.retain(|one| !is_rule(one));
        self.fields.clear();
        self.details = None;
        self.shortened.clear();
        self
    }

    /// The full content of the request where the text may leave a part out: the command, the file
    /// changes, and the values that the text shortens.
    #[must_use]
    pub fn whole(&self) -> Vec<WholePart<'_>> {
        let Some(details) = &self.details else {
            return Vec::new();
        };
        let command = details.get("command").and_then(Value::as_str);
        let command = command.map(|command| WholePart::Text {
            label: "Command",
            text: command,
        });
        let shortened = self.shortened.iter().map(|value| WholePart::Text {
            label: &value.label,
            text: &value.text,
        });
        let changes = self.changes().into_iter().map(WholePart::Change);
        command
            .into_iter()
            .chain(changes)
            .chain(shortened)
            .collect()
    }

    /// The changes of files that it asks about.
    #[must_use]
    pub fn changes(&self) -> Vec<WholeChange<'_>> {
        let changes = self.details.as_ref().and_then(|all| all.get("changes"));
        match changes {
            Some(Value::Array(changes)) => changes
                .iter()
                .map(|change| WholeChange::of(None, change))
                .collect(),
            Some(Value::Object(changes)) => changes
                .iter()
                .map(|(path, change)| WholeChange::of(Some(path), change))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The parts of [`whole`](Self::whole) that the text does not show as they are, on one line.
    #[must_use]
    pub fn beside_text(&self) -> Vec<WholePart<'_>> {
        let is_in_text = |part: &WholePart<'_>| match part {
            WholePart::Text { label, text } => {
                let shown = format!("{label}: {text}");
                self.text.lines().any(|line| line == shown)
            }
            WholePart::Change(_) => false,
        };
        let mut parts = self.whole();
        parts.retain(|part| !is_in_text(part));
        parts
    }

    /// What is asked, in one line: the command, or else the text.
    #[must_use]
    pub fn summary(&self) -> String {
        let command = self.details.as_ref().and_then(|all| all.get("command"));
        match command.and_then(Value::as_str) {
            Some(command) => one_line(&without_shell(command), SUMMARY),
            None => one_line(&self.text, SUMMARY),
        }
    }

    /// Whether its text leaves out part of what is asked.
    #[must_use]
    pub fn is_shortened(&self) -> bool {
        approval_text::is_shortened(&self.text)
    }

    /// When it is declined unless somebody answers, for people: `2026-11-23 17:28 UTC`.
    #[must_use]
    pub fn declined_at(&self) -> Option<String> {
        let at = humantime::parse_rfc3339(&self.expires_at).ok()?;
        Some(minute(at))
    }

    /// Reads a question of the store; `None` if it cannot be parsed, as a newer program may
    /// have written it.
    #[must_use]
    pub fn of(question: &Question) -> Option<Self> {
        serde_json::from_value(question.question.clone()).ok()
    }
}

/// The open questions of a job as JSON. A question that no worker of this machine has signed
/// cannot be answered here.
#[must_use]
pub fn shown(questions: &[Question]) -> Value {
    let one = |question: &Question| {
        let stored = StoredQuestion::of(question)?;
        let details = stored.details.as_ref();
        let details = details.filter(|details| size(details) <= RECORDED_DETAILS);
        Some(json!({
            "request_id": question.id,
            "kind": stored.kind,
            "question": stored.text,
            "decisions": stored.decisions,
            "fields": stored.fields,
            "asked_at": timestamp(question.asked_at),
            "expires_at": stored.expires_at,
            "answerable": question.origin == Origin::ThisMachine,
            "details": details,
        }))
    };
    questions.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use codex_engine::logic::action::ActionId;
    use codex_protocol::codex::{CommandApproval, McpElicitation};

    use super::*;
    use settings::Source;

    fn open(command: &str) -> OpenQuestion {
        OpenQuestion {
            id: ActionId("req_1".to_owned()),
            ask: Ask::Command(CommandApproval {
                command: Some(command.to_owned()),
                ..CommandApproval::default()
            }),
            shown: json!({ "command": command, "params": { "long": 1 }, "reason": null }),
            expires: UNIX_EPOCH,
        }
    }

    fn read(new: &NewQuestion) -> StoredQuestion {
        serde_json::from_str(&new.question).unwrap()
    }

    #[test]
    fn bounded_question_offers_no_approval() {
        let free = read(&new_question(&open("ls"), None));
        assert!(free.decisions.contains(&Decision::Accept));
        let bound = Bound {
            key: "max_sandbox",
            source: Source::Default,
        };
        let bounded = read(&new_question(&open("ls"), Some(&bound)));
        assert_eq!(bounded.decisions, [Decision::Decline, Decision::Cancel]);
    }

    #[test]
    fn summary_is_the_command_or_else_the_text() {
        let asked = StoredQuestion::new(&open("/bin/bash -lc 'touch y5'"), false);
        assert_eq!(asked.summary(), "touch y5");
        let without_details = StoredQuestion {
            details: None,
            ..asked
        };
        let summary = without_details.summary();
        assert!(
            summary.starts_with("Codex wants to run a command. "),
            "{summary}"
        );
    }

    #[test]
    fn question_details_are_bounded() {
        let short = read(&new_question(&open("ls"), None));
        assert_eq!(json!(short.details), json!({ "command": "ls" }));
        let long = new_question(&open(&"x".repeat(1 << 20)), None);
        assert_eq!(read(&long).details, None);
        assert!(long.question.len() < 32 * 1024, "{}", long.question.len());
    }

    /// A question with the form of this schema.
    fn form_question(properties: &Value) -> OpenQuestion {
        OpenQuestion {
            ask: Ask::McpElicitation(McpElicitation {
                requested_schema: Some(json!({ "type": "object", "properties": properties })),
                ..McpElicitation::default()
            }),
            shown: json!({}),
            ..open("")
        }
    }

    #[test]
    fn question_fields_and_rules_are_bounded() {
        let long = "x".repeat(1 << 20);
        let preset = form_question(&json!({ "name": { "type": "string", "default": long } }));
        let stored = StoredQuestion::new(&preset, false);
        assert_eq!(stored.fields, [Field::named("name")]);

        let named = |count: usize| -> Value {
            let fields = (0..count).map(|number| {
                let id = format!("{number}{}", "x".repeat(1000));
                (id, json!({ "type": "string" }))
            });
            fields.collect::<Map<String, Value>>().into()
        };
        assert_eq!(
            StoredQuestion::new(&form_question(&named(100)), false)
                .fields
                .len(),
            100
        );
        let stored = StoredQuestion::new(&form_question(&named(300)), false);
        assert_eq!(stored.fields, []);
        assert_eq!(stored.decisions, [Decision::Decline, Decision::Cancel]);

        let mut command = open("ls");
        command.ask = Ask::Command(CommandApproval {
            command: Some("ls".to_owned()),
            proposed_execpolicy_amendment: Some(vec![long]),
            ..CommandApproval::default()
        });
        let stored = StoredQuestion::new(&command, false);
        assert!(stored.decisions.contains(&Decision::Accept));
        assert!(!stored.decisions.iter().any(is_rule));
        for open in [preset, form_question(&named(300)), command] {
            let stored = StoredQuestion::new(&open, false);
            assert!(size(&stored) < 2 * MOST_OFFERED + 2 * MOST_DETAILS);
            assert!(size(&stored.shortest()) < 16 * 1024);
        }
    }

    #[test]
    fn fields_of_earlier_programs_are_names() {
        let stored = |fields: Value| -> StoredQuestion {
            serde_json::from_value(json!({ "kind": "user_input", "text": "Which?",
                "decisions": [], "fields": fields, "expires_at": "2026-11-23T17:28:59.000Z" }))
            .unwrap()
        };
        let earlier = stored(json!(["colour", "size"]));
        let names = ["colour", "size"].map(Field::named);
        assert_eq!(earlier.fields, names);
        assert_eq!(earlier.declined_at().unwrap(), "2026-11-23 17:28 UTC");
        assert_eq!(stored(json!(earlier.fields)), earlier);
        let field = Field {
            kind: form::FieldKind::Integer,
            required: true,
            secret: true,
            ..Field::named("count")
        };
        assert_eq!(stored(json!([field])).fields, [field]);
        assert!(stored(json!([])).declined_at().is_some());
    }

    #[test]
    fn whole_question_has_what_the_text_leaves_out() {
        let command = "x\n".repeat(1000);
        let asked = StoredQuestion::new(&open(&command), false);
        assert!(asked.is_shortened());
        let (label, text) = ("Command", command.as_str());
        assert_eq!(asked.whole(), [WholePart::Text { label, text }]);
    }

    #[test]
    fn command_that_the_text_shows_is_not_repeated() {
        let asked = StoredQuestion::new(&open("git push origin main"), false);
        assert!(asked.beside_text().is_empty());
        for other in ["echo a\nls", "echo \u{202e}"] {
            let asked = StoredQuestion::new(&open(other), false);
            assert_eq!(asked.beside_text().len(), 1, "{other}");
        }
    }

    #[test]
    fn changes_of_both_protocols_are_read() {
        let expected = WholeChange {
            path: "a",
            kind: "update",
            moved_to: Some("b"),
            diff: "-x",
        };
        for changes in [
            json!([{ "path": "a", "kind": { "type": "update", "move_path": "b" }, "diff": "-x" }]),
            json!({ "a": { "type": "update", "move_path": "b", "unified_diff": "-x" } }),
        ] {
            let mut open = open("");
            open.shown = json!({ "changes": changes });
            let asked = StoredQuestion::new(&open, false);
            assert_eq!(asked.changes(), [expected]);
            assert_eq!(asked.whole(), [WholePart::Change(expected)]);
        }
    }

    #[test]
    fn permissions_of_a_command_are_whole_where_the_text_is_shortened() {
        let mut directories: Vec<String> =
            (0..24).map(|number| format!("/build/{number}")).collect();
        directories.insert(12, "/home/me/.ssh".to_owned());
        let permissions = json!({ "fileSystem": { "write": directories } });
        let mut open = open("make");
        open.ask = Ask::Command(CommandApproval {
            command: Some("make".to_owned()),
            additional_permissions: Some(permissions),
            ..CommandApproval::default()
        });
        let asked = StoredQuestion::new(&open, false);
        assert!(asked.is_shortened() && !asked.text.contains(".ssh"));
        let whole = asked.whole();
        let [_, WholePart::Text { label, text }] = whole.as_slice() else {
            panic!("{whole:?}");
        };
        assert_eq!(*label, "Permissions");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 25);
        assert_eq!(lines[12], "write /home/me/.ssh");
        assert_eq!(read(&new_question(&open, None)), asked);
    }

    #[test]
    fn details_that_are_too_long_are_all_left_out() {
        let mut open = open("ls");
        open.ask = Ask::Command(CommandApproval {
            command: Some("ls".to_owned()),
            cwd: Some("x".repeat(MOST_DETAILS)),
            ..CommandApproval::default()
        });
        let asked = StoredQuestion::new(&open, false);
        assert_eq!((asked.details.as_ref(), asked.shortened.len()), (None, 0));
        assert_eq!(asked.whole(), []);
    }

    #[test]
    fn arguments_of_a_tool_are_whole_where_the_text_is_shortened() {
        let arguments = json!({ "text": "word ".repeat(500) });
        let meta = json!({ "codex_approval_kind": "mcp_tool_call", "tool_params": arguments });
        let asked = StoredQuestion::new(
            &OpenQuestion {
                ask: Ask::McpElicitation(McpElicitation {
                    meta: Some(meta),
                    ..Default::default()
                }),
                shown: json!({}),
                ..open("")
            },
            false,
        );
        let whole = asked.whole();
        let [WholePart::Text { label, text }] = whole.as_slice() else {
            panic!("{whole:?}");
        };
        assert_eq!(*label, "Arguments");
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), arguments);
    }
}
