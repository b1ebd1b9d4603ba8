//! What Codex asks.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::FileChange;

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
    /// A folder that would become writable for the rest of the thread.
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfThread<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
}

impl Ask {
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
            _ => return Ok(None),
        };
        let OfThread { thread_id } = serde_json::from_str(json)?;
        Ok(Some((thread_id, ask)))
    }
}
