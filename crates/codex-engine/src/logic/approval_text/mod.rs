//! The text of one of Codex's questions, for the person who answers it.
//!
//! Elicitations, tasks, terminals and the actions of the session tools show this text. The first
//! line states the request. Each further part starts on a new line with one of our labels. The
//! values after the labels are chosen by Codex or a server: `field` makes hidden characters
//! visible, shortens the value, and starts each of its further lines with `CONTINUED`, so that no
//! value can look like a label. The whole text fits a screen: at most [`MAX_LINES`] lines of
//! [`MAX_COLUMNS`] columns, less than 4 KiB.

mod field;
mod permissions;

use std::borrow::Cow;

use codex_protocol::codex::{
    Ask, CommandApproval, FileChange, FileChangeApproval, FileChangeKind, LegacyCommandApproval,
    LegacyPatchApproval, McpElicitation, PermissionsApproval, Question, UserInputRequest,
};
use common::secrets::mask;
use common::text::{one_line, visible_line};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::logic::action::Decision;
use field::{CONTINUED, Field, Quoting};

/// The most lines of a text. A question in a shell has one more line, and has to fit a terminal of
/// 20 lines.
pub const MAX_LINES: usize = 18;

/// The most columns that a line has, so that a terminal of 80 does not wrap it.
pub const MAX_COLUMNS: usize = 78;

/// The most questions of the model that are shown.
const MAX_QUESTIONS: usize = 4;

/// The longest choice, in bytes.
const CHOICE_LIMIT: usize = 160;

/// The end of each mark that stands for omitted text.
const LEFT_OUT: &str = " left out …";

/// The label of the number of questions beyond [`MAX_QUESTIONS`].
const NOT_SHOWN: &str = "Not shown";

/// The label of a reason. Codex tells the model to give one; nobody verifies it.
const REASON: &str = "Reason (Codex's words)";

/// The label of a rule that Codex would store and keep to in all threads.
const RULE: &str = "Permanent rule proposed";

/// The possible effect of approving a plain command. Codex does not report whether the
/// command has requested to leave the sandbox, in which case it runs outside. Any other
/// approved command runs outside after it has failed inside, without a further question
/// (tested with 0.104.0 and 0.169.0; not so in 0.153.4).
const OUTSIDE: &str = "a yes can let the command run outside of it, with your rights";

/// The question, see [the module](self).
#[must_use]
pub fn question(ask: &Ask) -> String {
    text(ask).finish(|value| value.into())
}

/// The question with credentials masked, for recipients outside of this machine.
#[must_use]
pub fn masked_question(ask: &Ask) -> String {
    text(ask).finish(mask)
}

/// A value that the text of a question does not show completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortenedValue {
    /// Its label in the text.
    pub label: String,
    /// The whole value. A list has a line for each of its entries.
    pub text: String,
}

/// The values that the [`question`] does not show completely.
#[must_use]
pub fn shortened_values(ask: &Ask) -> Vec<ShortenedValue> {
    let text = match ask {
        Ask::UserInput(asked) => user_input(asked, asked.questions.len()),
        _ => text(ask),
    };
    text.shortened()
}

fn text(ask: &Ask) -> Text {
    match ask {
        Ask::Command(asked) => command(asked),
        Ask::LegacyCommand(asked) => legacy_command(asked),
        Ask::FileChange(asked) => file_change(asked),
        Ask::LegacyPatch(asked) => legacy_patch(asked),
        Ask::Permissions(asked) => permissions(asked),
        Ask::McpElicitation(asked) if asked.is_tool_approval() => tool_call(asked),
        Ask::McpElicitation(asked) => elicitation(asked),
        Ask::UserInput(asked) => user_input(asked, MAX_QUESTIONS),
    }
}

/// Whether the text of a [`question`] was shortened. Only our own marks contain an ellipsis: those in
/// Codex's words are escaped.
#[must_use]
pub fn is_shortened(question: &str) -> bool {
    // A mark is broken into lines as the rest is.
    let unbroken = question.replace(&format!("\n{CONTINUED}"), "");
    let has_more = |line: &str| line.starts_with(&format!("{NOT_SHOWN}: "));
    unbroken.contains(LEFT_OUT) || unbroken.lines().any(has_more)
}

/// The text of a decision, for the person who chooses one.
#[must_use]
pub fn choice(decision: &Decision) -> String {
    match decision {
        Decision::Accept | Decision::Submit(_) => "Yes, once".to_owned(),
        Decision::AcceptForSession => "Yes, for the rest of this session".to_owned(),
        Decision::AcceptWithExecpolicyAmendment(prefix) => {
            let begin = "Yes, and allow for good, in all threads, commands that begin with";
            one_line(&format!("{begin}: {}", command_line(prefix)), CHOICE_LIMIT)
        }
        Decision::ApplyNetworkPolicyAmendment(_) => "Apply the rule proposed".to_owned(),
        Decision::Decline => "No".to_owned(),
        Decision::Cancel => "No, and end the turn".to_owned(),
    }
}

/// A text: its first line, and its values.
struct Text {
    head: String,
    values: Vec<LabelledValue>,
}

struct LabelledValue {
    label: &'static str,
    value: String,
    /// The value in the form in which it is shown completely, if that is another one.
    whole: Option<String>,
    /// The most lines that it takes.
    lines: usize,
    quoting: Quoting,
}

impl LabelledValue {
    fn shown(&self, value: &str) -> Vec<String> {
        let field = Field {
            label: self.label,
            lines: self.lines,
            quoting: self.quoting,
        };
        field.lines(value)
    }
}

impl Text {
    fn asking(head: &str) -> Self {
        Self {
            head: head.to_owned(),
            values: Vec::new(),
        }
    }

    /// Adds a value in at most this many lines.
    fn field(self, label: &'static str, value: &str, lines: usize) -> Self {
        self.with(label, value, lines, Quoting::Plain)
    }

    /// Adds a value, if there is one.
    fn maybe(self, label: &'static str, value: Option<&str>, lines: usize) -> Self {
        match value {
            Some(value) => self.field(label, value, lines),
            None => self,
        }
    }

    /// Adds a list, if it has entries.
    fn list(self, label: &'static str, entries: &[String], separator: &str, lines: usize) -> Self {
        if entries.is_empty() {
            return self;
        }
        let whole: Vec<Cow<'_, str>> = entries.iter().map(|entry| visible_line(entry)).collect();
        self.field(label, &entries.join(separator), lines)
            .last_in_full(whole.join("\n"))
    }

    /// Adds JSON, if there is some.
    fn json(self, label: &'static str, value: Option<&Value>, lines: usize) -> Self {
        match value {
            Some(value) => self
                .field(label, &value.to_string(), lines)
                .last_in_full(format!("{value:#}")),
            None => self,
        }
    }

    /// Gives the last value the form in which it is shown completely.
    fn last_in_full(mut self, whole: String) -> Self {
        if let Some(last) = self.values.last_mut() {
            last.whole = Some(whole);
        }
        self
    }

    /// Adds a statement by Codex or a server, in quotes.
    fn words(self, label: &'static str, words: Option<&str>, lines: usize) -> Self {
        match words {
            Some(words) => self.with(label, words, lines, Quoting::Quoted),
            None => self,
        }
    }

    fn with(mut self, label: &'static str, value: &str, lines: usize, quoting: Quoting) -> Self {
        self.values.push(LabelledValue {
            label,
            value: value.to_owned(),
            whole: None,
            lines,
            quoting,
        });
        self
    }

    /// The lines of the text, with `shown` applied to each whole value: before the value is
    /// shortened and broken into lines, so that no part of a credential escapes the mask.
    fn finish(self, shown: impl Fn(&str) -> Cow<'_, str>) -> String {
        let mut all = vec![self.head];
        for value in &self.values {
            all.extend(value.shown(&shown(&value.value)));
        }
        if all.len() > MAX_LINES {
            let more = all.len() - MAX_LINES + 1;
            all.truncate(MAX_LINES - 1);
            all.push(format!("… {more} more lines{LEFT_OUT}"));
        }
        all.join("\n")
    }

    /// The values of which [`finish`](Self::finish) leaves out a part.
    fn shortened(self) -> Vec<ShortenedValue> {
        let lines = |value: &LabelledValue| value.shown(&value.value);
        let all = 1 + self
            .values
            .iter()
            .map(|one| lines(one).len())
            .sum::<usize>();
        let kept = match all > MAX_LINES {
            true => MAX_LINES - 1,
            false => MAX_LINES,
        };
        let mut used = 1;
        let is_cut = |value: &LabelledValue| {
            let lines = lines(value);
            used += lines.len();
            used > kept || is_shortened(&lines.join("\n"))
        };
        let shortened = self.values.into_iter().filter(is_cut);
        shortened
            .map(|value| ShortenedValue {
                label: value.label.to_owned(),
                text: value.whole.unwrap_or(value.value),
            })
            .collect()
    }
}

fn command(asked: &CommandApproval) -> Text {
    let (head, label) = match asked.kind.as_deref() {
        Some("writeStdin") => (
            "Codex wants to send input to a command that runs already.",
            "Input",
        ),
        _ if asked.command.is_none() && asked.network_approval_context.is_some() => {
            ("Codex wants to use the network.", "Command")
        }
        _ => ("Codex wants to run a command.", "Command"),
    };
    let is_plain = asked.command.is_some()
        && label == "Command"
        && asked.additional_permissions.is_none()
        && asked.network_approval_context.is_none();
    let rule = asked.proposed_execpolicy_amendment.as_deref();
    let hosts = asked.proposed_network_policy_amendments.as_deref();
    let permissions = asked.additional_permissions.as_ref();
    let permissions = permissions.map(permissions::in_words).unwrap_or_default();
    Text::asking(head)
        .maybe(label, asked.command.as_deref(), 5)
        .maybe("Sandbox", is_plain.then_some(OUTSIDE), 1)
        .maybe("Directory", asked.cwd.as_deref(), 2)
        .maybe("Environment", asked.environment_id.as_deref(), 1)
        .list("Permissions", &permissions, "; ", 3)
        .maybe(
            "Network",
            asked
                .network_approval_context
                .as_ref()
                .map(network)
                .as_deref(),
            1,
        )
        .maybe(RULE, rule.map(command_rule).as_deref(), 2)
        .maybe(RULE, hosts.and_then(network_rules).as_deref(), 1)
        .words(REASON, asked.reason.as_deref(), 2)
}

fn legacy_command(asked: &LegacyCommandApproval) -> Text {
    Text::asking("Codex wants to run a command.")
        .field("Command", &command_line(&asked.command), 6)
        .field("Sandbox", OUTSIDE, 1)
        .maybe("Directory", asked.cwd.as_deref(), 2)
        .words(REASON, asked.reason.as_deref(), 3)
}

/// Words as the command line of a shell: each is quoted where it could be taken for several, or for
/// syntax of the shell.
#[must_use]
pub fn command_line(words: &[String]) -> String {
    let words_of = words.iter().map(String::as_str);
    // Only a word with a NUL in it has no quotes.
    shlex::try_join(words_of).unwrap_or_else(|_| words.join(" "))
}

fn command_rule(prefix: &[String]) -> String {
    format!(
        "allow all commands that begin with: {}",
        command_line(prefix)
    )
}

/// `{"host", "protocol"}` (`NetworkApprovalContext`, 0.153.4 and 0.169.0).
fn network(context: &Value) -> String {
    match (text_at(context, "host"), text_at(context, "protocol")) {
        (Some(host), Some(protocol)) => format!("{host} ({protocol})"),
        _ => context.to_string(),
    }
}

/// `{"host", "action": "allow" | "deny"}` (`NetworkPolicyAmendment`).
fn network_rules(rules: &[Value]) -> Option<String> {
    let rule = |rule: &Value| match (text_at(rule, "action"), text_at(rule, "host")) {
        (Some(action), Some(host)) => format!("{action} the host {host}"),
        _ => rule.to_string(),
    };
    let rules: Vec<String> = rules.iter().map(rule).collect();
    (!rules.is_empty()).then(|| rules.join("; or "))
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

fn file_change(asked: &FileChangeApproval) -> Text {
    let files: Vec<String> = asked.changes.iter().map(changed).collect();
    change(&files, asked.grant_root.as_deref(), asked.reason.as_deref())
}

fn changed(change: &FileChange) -> String {
    let path = &change.path;
    match &change.kind {
        FileChangeKind::Add => format!("add {path}"),
        FileChangeKind::Delete => format!("delete {path}"),
        FileChangeKind::Update {
            move_path: Some(to),
        } => format!("move {path} to {to}"),
        FileChangeKind::Update { move_path: None } | FileChangeKind::Unknown => {
            format!("edit {path}")
        }
    }
}

fn legacy_patch(asked: &LegacyPatchApproval) -> Text {
    let kind = |change: &Value| match text_at(change, "type") {
        Some(kind @ ("add" | "delete")) => kind.to_owned(),
        _ => "edit".to_owned(),
    };
    let files = asked.file_changes.iter();
    let files: Vec<String> = files
        .map(|(path, change)| format!("{} {path}", kind(change)))
        .collect();
    change(&files, asked.grant_root.as_deref(), asked.reason.as_deref())
}

fn change(files: &[String], root: Option<&str>, reason: Option<&str>) -> Text {
    let count = match files.len() {
        0 => "Codex wants to change files, and does not say which.".to_owned(),
        1 => "Codex wants to change a file.".to_owned(),
        count => format!("Codex wants to change {count} files."),
    };
    Text::asking(&count)
        .list("Files", files, ", ", 8)
        .maybe("Writable from now on", root, 3)
        .words(REASON, reason, 3)
}

fn permissions(asked: &PermissionsApproval) -> Text {
    Text::asking("Codex wants more permissions.")
        .list(
            "Permissions",
            &permissions::in_words(&asked.permissions),
            "; ",
            8,
        )
        .maybe("Directory", asked.cwd.as_deref(), 2)
        .maybe("Environment", asked.environment_id.as_deref(), 1)
        .words(REASON, asked.reason.as_deref(), 3)
}

/// The members of `_meta` are those of 0.153.4 and 0.169.0.
fn tool_call(asked: &McpElicitation) -> Text {
    let meta = |key| asked.meta.as_ref().and_then(|meta| meta.get(key));
    let tool = meta("tool_name").or_else(|| meta("tool_title"));
    Text::asking("Codex wants to call a tool of an MCP server.")
        .field("Server", &asked.server_name, 1)
        .maybe("Tool", tool.and_then(Value::as_str), 1)
        .json("Arguments", meta("tool_params"), 6)
        .words("Question (Codex's words)", Some(&asked.message), 3)
}

fn elicitation(asked: &McpElicitation) -> Text {
    let message = Some(asked.message.as_str()).filter(|message| !message.is_empty());
    Text::asking("An MCP server asks something.")
        .field("Server", &asked.server_name, 1)
        .maybe("Page to open", asked.url.as_deref(), 3)
        .words("Question (the server's words)", message, 8)
}

/// The text about at most this many questions.
fn user_input(asked: &UserInputRequest, most: usize) -> Text {
    let count = asked.questions.len();
    let head = match count {
        1 => "Codex asks the user.".to_owned(),
        count => format!("Codex asks the user {count} things."),
    };
    let shown = asked.questions.iter().take(most);
    let text = shown.fold(Text::asking(&head), |text, question| {
        let answers = offered(question);
        text.words("Question (Codex's words)", Some(&question.question), 3)
            .words("Answers offered", answers.as_deref(), 1)
    });
    match count.saturating_sub(most) {
        0 => text,
        more => text.field(NOT_SHOWN, &format!("{more} more questions"), 1),
    }
}

fn offered(question: &Question) -> Option<String> {
    let options = question.options.as_deref()?;
    let labels: Vec<&str> = options.iter().map(|option| option.label.as_str()).collect();
    (!labels.is_empty()).then(|| labels.join(" / "))
}

#[cfg(test)]
mod tests;
