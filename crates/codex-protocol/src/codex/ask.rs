//! What Codex asks.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{FileChange, Release};

/// Something that Codex asks and waits for. A question left unanswered hangs
/// its turn for ever.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ask {
    /// May this command run?
    Command(CommandApproval),
    /// May these files be changed?
    FileChange(FileChangeApproval),
    /// May Codex have these permissions?
    Permissions(PermissionsApproval),
    /// A tool of an MCP server: may it be called, or a form that it shows.
    McpElicitation(McpElicitation),
    /// Questions of the model to the user.
    UserInput(UserInputRequest),
    /// May this command run? As clients of the first protocol are asked.
    LegacyCommand(LegacyCommandApproval),
    /// May these files be changed? As clients of the first protocol are asked.
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
    /// Where it would run.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Why Codex wants it.
    #[serde(default)]
    pub reason: Option<String>,
    /// What Codex takes the command to do.
    #[serde(default)]
    pub command_actions: Option<Vec<Map<String, Value>>>,
    /// The rule that `acceptWithExecpolicyAmendment` would add.
    #[serde(default)]
    pub proposed_execpolicy_amendment: Option<Vec<String>>,
    /// The decisions that Codex offers. It honours `decline` besides.
    #[serde(default)]
    pub available_decisions: Option<Vec<Value>>,
    /// Tells several questions about one step apart.
    #[serde(default)]
    pub approval_id: Option<String>,
    /// The rules that `applyNetworkPolicyAmendment` could add.
    #[serde(default)]
    pub proposed_network_policy_amendments: Option<Vec<Value>>,
    /// What the command would be allowed besides.
    #[serde(default)]
    pub additional_permissions: Option<Value>,
    /// The host that the command wants to talk to.
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
    /// Why Codex wants it.
    #[serde(default)]
    pub reason: Option<String>,
    /// A directory that would become writable for the rest of the thread.
    #[serde(default)]
    pub grant_root: Option<String>,
    /// What would be changed. Codex tells it with the step, not with the
    /// question.
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
    /// Why Codex wants it.
    #[serde(default)]
    pub reason: Option<String>,
    /// What it wants: file system and network.
    #[serde(default)]
    pub permissions: Value,
    /// Where the turn works: relative paths count from there.
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
    /// The question.
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
    /// The key of its answer.
    pub id: String,
    /// A word or two.
    #[serde(default)]
    pub header: String,
    /// The question.
    #[serde(default)]
    pub question: String,
    /// Answers to choose from.
    #[serde(default)]
    pub options: Option<Vec<QuestionOption>>,
    /// Whether an answer of one's own will do as well.
    #[serde(default, rename = "isOther")]
    pub is_other: bool,
    /// Whether the answer is not to be shown.
    #[serde(default, rename = "isSecret")]
    pub is_secret: bool,
}

/// An answer to choose.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuestionOption {
    /// The answer.
    pub label: String,
    /// What it means.
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
    /// Where it would run.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Why Codex wants it.
    #[serde(default)]
    pub reason: Option<String>,
    /// How to say no.
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
    /// What would be changed, by path.
    #[serde(default)]
    pub file_changes: Map<String, Value>,
    /// Why Codex wants it.
    #[serde(default)]
    pub reason: Option<String>,
    /// A directory that would become writable for the rest of the thread.
    #[serde(default)]
    pub grant_root: Option<String>,
    /// How to say no.
    #[serde(skip)]
    pub refusal: LegacyRefusal,
}

/// How Codex wants to read the no to a question of the first protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LegacyRefusal {
    /// `"denied"`: up to 0.144.
    #[default]
    Word,
    /// `{"denied":{"rejection":…}}`: from 0.145.0 on.
    Object,
}

impl LegacyRefusal {
    /// What a release wants; one whose version isn't known counts as new.
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
    /// Sets how the release of Codex that asks wants to read a no.
    pub fn set_legacy_refusal(&mut self, wanted: LegacyRefusal) {
        match self {
            Self::LegacyCommand(asked) => asked.refusal = wanted,
            Self::LegacyPatch(asked) => asked.refusal = wanted,
            _ => {}
        }
    }

    /// Reads a request of the app-server and the thread that it is about.
    /// `Ok(None)` for a method that codex-mcp can't answer.
    ///
    /// # Errors
    ///
    /// When the parameters of a known method don't have its shape.
    pub fn read<'a>(
        method: &str,
        params: &'a RawValue,
    ) -> Result<Option<(Cow<'a, str>, Self)>, serde_json::Error> {
        let json = params.get();
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
    fn the_no_of_the_first_protocol_changed_with_0_145() {
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
    fn the_first_protocol_names_the_thread_a_conversation() {
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
