//! Requests of the app-server that wait for a decision of the user.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{FileChange, Release};
use crate::json_values;

/// A question of Codex's that its turn waits for. An unanswered question blocks its turn
/// for ever.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ask {
    /// May this command run?
    Command(CommandApproval),
    /// May these files be changed?
    FileChange(FileChangeApproval),
    /// May Codex have these permissions?
    Permissions(PermissionsApproval),
    /// May this tool of an MCP server be called? Or a form of an MCP server.
    McpElicitation(McpElicitation),
    /// Questions of the model to the user.
    UserInput(UserInputRequest),
    /// May this command run? In the form of the first protocol.
    LegacyCommand(LegacyCommandApproval),
    /// May these files be changed? In the form of the first protocol.
    LegacyPatch(LegacyPatchApproval),
}

/// `item/commandExecution/requestApproval`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandApproval {
    /// The step that waits.
    #[serde(default)]
    pub item_id: String,
    /// The command line, quoted for a shell.
    #[serde(default)]
    pub command: Option<String>,
    /// The directory in which it would run.
    #[serde(default)]
    pub cwd: Option<String>,
    /// The reason that Codex gives.
    #[serde(default)]
    pub reason: Option<String>,
    /// The actions that Codex recognises in the command.
    #[serde(default)]
    pub command_actions: Option<Vec<Map<String, Value>>>,
    /// The rule that `acceptWithExecpolicyAmendment` would add.
    #[serde(default)]
    pub proposed_execpolicy_amendment: Option<Vec<String>>,
    /// The decisions that Codex offers. It honours `decline` besides.
    #[serde(default)]
    pub available_decisions: Option<Vec<Value>>,
    /// Distinguishes several questions about one step.
    #[serde(default)]
    pub approval_id: Option<String>,
    /// The rules that `applyNetworkPolicyAmendment` could add.
    #[serde(default)]
    pub proposed_network_policy_amendments: Option<Vec<Value>>,
    /// Further permissions that the command would get.
    #[serde(default)]
    pub additional_permissions: Option<Value>,
    /// The host to which the command wants to connect.
    #[serde(default)]
    pub network_approval_context: Option<Value>,
    /// `command`, `writeStdin` (input for a command that runs already) or `humanCommand`.
    /// Releases before 0.153 send none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The environment where it would run, if it is not this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_id: Option<String>,
}

/// `item/fileChange/requestApproval`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileChangeApproval {
    /// The step that waits.
    #[serde(default)]
    pub item_id: String,
    /// The reason that Codex gives.
    #[serde(default)]
    pub reason: Option<String>,
    /// A directory that would become writable for the rest of the thread.
    #[serde(default)]
    pub grant_root: Option<String>,
    /// The changes. Codex sends them with the step, not with the question.
    #[serde(default)]
    pub changes: Vec<FileChange>,
}

/// `item/permissions/requestApproval`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionsApproval {
    /// The step that waits.
    #[serde(default)]
    pub item_id: String,
    /// The reason that Codex gives.
    #[serde(default)]
    pub reason: Option<String>,
    /// The permissions requested: file system and network.
    #[serde(default)]
    pub permissions: Value,
    /// The working directory of the turn, from which relative paths are resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The environment that the permissions are for, if it is not this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_id: Option<String>,
}

/// `mcpServer/elicitation/request`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpElicitation {
    /// The MCP server that asks, or whose tool is to be called.
    #[serde(default)]
    pub server_name: String,
    /// The question's text.
    #[serde(default)]
    pub message: String,
    /// The form to fill in, if any.
    #[serde(default)]
    pub requested_schema: Option<Value>,
    /// The page that the user is to open instead, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `codex_approval_kind` is in here when Codex asks about a tool call.
    #[serde(default, rename = "_meta")]
    pub meta: Option<Value>,
}

impl McpElicitation {
    /// Whether Codex asks if a tool may be called, rather than a server asking
    /// for something of its own.
    #[must_use]
    pub fn is_tool_approval(&self) -> bool {
        self.meta
            .as_ref()
            .and_then(|meta| meta.get("codex_approval_kind"))
            .is_some_and(|kind| kind == "mcp_tool_call")
    }

    /// Whether Codex offers not to ask about the tool again in this thread.
    #[must_use]
    pub fn may_be_kept_for_session(&self) -> bool {
        self.meta
            .as_ref()
            .and_then(|meta| meta.get("persist")?.as_array())
            .is_some_and(|scopes| scopes.iter().any(|scope| scope == "session"))
    }
}

/// `item/tool/requestUserInput`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserInputRequest {
    /// The step that waits.
    #[serde(default)]
    pub item_id: String,
    /// The questions.
    #[serde(default)]
    pub questions: Vec<Question>,
}

/// A question of the model to the user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// The key of the answer.
    pub id: String,
    /// A heading of a word or two.
    #[serde(default)]
    pub header: String,
    /// The question's text.
    #[serde(default)]
    pub question: String,
    /// Answers to choose from.
    #[serde(default)]
    pub options: Option<Vec<QuestionOption>>,
    /// Whether a free-form answer is possible too.
    #[serde(default, rename = "isOther")]
    pub is_other: bool,
    /// Whether the answer must not be displayed.
    #[serde(default, rename = "isSecret")]
    pub is_secret: bool,
}

/// An answer to choose from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuestionOption {
    /// The answer.
    pub label: String,
    /// The meaning of the answer.
    #[serde(default)]
    pub description: String,
}

/// `execCommandApproval`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyCommandApproval {
    /// The step that waits.
    #[serde(default)]
    pub call_id: String,
    /// The program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// The directory in which it would run.
    #[serde(default)]
    pub cwd: Option<String>,
    /// The reason that Codex gives.
    #[serde(default)]
    pub reason: Option<String>,
    /// The form of a refusal.
    #[serde(skip)]
    pub refusal: LegacyRefusal,
}

/// `applyPatchApproval`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyPatchApproval {
    /// The step that waits.
    #[serde(default)]
    pub call_id: String,
    /// The changes, by path.
    #[serde(default)]
    pub file_changes: Map<String, Value>,
    /// The reason that Codex gives.
    #[serde(default)]
    pub reason: Option<String>,
    /// A directory that would become writable for the rest of the thread.
    #[serde(default)]
    pub grant_root: Option<String>,
    /// The form of a refusal.
    #[serde(skip)]
    pub refusal: LegacyRefusal,
}

/// The form of the refusal of a question of the first protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LegacyRefusal {
    /// `"denied"`: up to 0.144.
    #[default]
    Word,
    /// `{"denied":{"rejection":…}}`: from 0.145.0 on.
    Object,
}

impl LegacyRefusal {
    /// The form for a version of Codex. An unknown version counts as new.
    #[must_use]
    pub fn of(version: Option<&str>) -> Self {
        match version.and_then(Release::parse) {
            Some(release) if release < Release::FIRST_REASONED_REFUSAL => Self::Word,
            _ => Self::Object,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfThread<'a> {
    #[serde(borrow, alias = "conversationId")]
    thread_id: Cow<'a, str>,
}

impl Ask {
    /// The most JSON values of the parameters. A person could not read a question with more.
    const MAX_VALUES: usize = 10_000;

    /// Sets the form of the refusal for the release of Codex that asks.
    pub fn set_legacy_refusal(&mut self, wanted: LegacyRefusal) {
        match self {
            Self::LegacyCommand(asked) => asked.refusal = wanted,
            Self::LegacyPatch(asked) => asked.refusal = wanted,
            _ => {}
        }
    }

    /// Reads a request of the app-server, and the thread that it is about. `Ok(None)` for
    /// a method that codex-mcp cannot answer.
    ///
    /// # Errors
    ///
    /// If the parameters of a known method do not have its shape, or hold too many values.
    pub fn read<'a>(
        method: &str,
        params: &'a RawValue,
    ) -> Result<Option<(Cow<'a, str>, Self)>, serde_json::Error> {
        let json = params.get();
        if json_values::exceed(json.as_bytes(), Self::MAX_VALUES) {
            let why = format!("it holds more than {} JSON values", Self::MAX_VALUES);
            return Err(serde_json::Error::custom(why));
        }
        let ask = match method {
            "item/commandExecution/requestApproval" => Self::Command(serde_json::from_str(json)?),
            "item/fileChange/requestApproval" => Self::FileChange(serde_json::from_str(json)?),
            "item/permissions/requestApproval" => Self::Permissions(serde_json::from_str(json)?),
            "mcpServer/elicitation/request" => Self::McpElicitation(serde_json::from_str(json)?),
            "item/tool/requestUserInput" => Self::UserInput(serde_json::from_str(json)?),
            "execCommandApproval" => Self::LegacyCommand(serde_json::from_str(json)?),
            "applyPatchApproval" => Self::LegacyPatch(serde_json::from_str(json)?),
            _ => return Ok(None),
        };
        let OfThread { thread_id } = serde_json::from_str(json)?;
        Ok(Some((thread_id, ask)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legacy_refusal_is_an_object_from_0_145_on() {
        for (version, refusal) in [
            (Some("0.104.0"), LegacyRefusal::Word),
            (Some("0.144.9"), LegacyRefusal::Word),
            (Some("0.145.0"), LegacyRefusal::Object),
            (Some("0.169.0"), LegacyRefusal::Object),
            (Some("1.2.0"), LegacyRefusal::Object),
            (None, LegacyRefusal::Object),
        ] {
            assert_eq!(LegacyRefusal::of(version), refusal, "{version:?}");
        }
    }

    #[test]
    fn question_with_too_many_values_is_refused() {
        for (count, is_read) in [(9_000, true), (11_000, false)] {
            let values = "0,".repeat(count);
            let params = format!(r#"{{"threadId":"t","requestedSchema":[{values}0]}}"#);
            let params = RawValue::from_string(params).unwrap();
            let read = Ask::read("mcpServer/elicitation/request", &params);
            assert_eq!(read.is_ok(), is_read, "{count}");
        }
    }

    #[test]
    fn legacy_request_names_its_thread_by_conversation_id() {
        let params = RawValue::from_string(
            r#"{"conversationId":"t","callId":"c","command":["ls"],"cwd":"/","parsedCmd":[]}"#
                .into(),
        )
        .unwrap();
        let (thread, ask) = Ask::read("execCommandApproval", &params).unwrap().unwrap();
        assert_eq!(thread, "t");
        assert!(matches!(ask, Ask::LegacyCommand(asked) if asked.command == ["ls"]));
    }
}
