//! The tools, one module each, grouped by the program that they come from.

mod annotations;
mod calls;
pub(crate) mod classic;
pub mod codex_status;
#[cfg(test)]
mod docs;
pub mod jobs;
mod output_schema;
mod parameter_names;
mod parameters;
pub mod schema;
mod sessions;
pub mod team;

use std::time::Duration;

use agent_team::MailClient;
use common::nearest::folded;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, JsonObject, Tool};

use crate::code::Code;
use crate::error::ToolError;
use crate::repeated_call;
use crate::tool_sets::{Api, Group, Groups};
use annotations::Effect;
use jobs::JobTool;
use team::TeamTool;

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolName {
    /// `codex` of the classic tools.
    Codex,
    /// `codex-reply`.
    CodexReply,
    /// `codex` of the tools for sessions.
    StartSession,
    /// `codex_reply`.
    ReplyToSession,
    /// `codex_session`.
    Session,
    /// `codex_check`.
    Check,
    /// `codex_review`.
    Review,
    /// `codex_status`.
    Status,
    /// A tool for jobs.
    Job(JobTool),
    /// A tool of a member of a team.
    Team(TeamTool),
}

/// What a tool has to do with turns of Codex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UseOfTurns {
    /// A call prompts Codex, and may return the turn's questions.
    Asks,
    /// A call prompts Codex.
    Prompts,
    /// A result may show the questions of a turn.
    ShowsQuestions,
    /// None of these.
    Other,
}

/// The tools whose calls are [repeated](crate::repeated_call): those that wait for a turn.
pub const REPEATED: [&str; 3] = [
    classic::codex::NAME,
    classic::codex_reply::NAME,
    classic::codex_review::NAME,
];

/// The error of a call whose host ended before it answered. `is_lasting` is that of a tool in
/// [`jobs::LASTING`].
pub fn lost_call(is_lasting: bool) -> ToolError {
    let (code, message) = match is_lasting {
        true => (Code::JobHostLost, jobs::LOST),
        false => (Code::HostLost, repeated_call::LOST),
    };
    ToolError::new(code, message)
}

/// The tools of `--api classic`. A tool that is in neither list is not served.
const CLASSIC: &[ToolName] = &[
    ToolName::Codex,
    ToolName::CodexReply,
    ToolName::Session,
    ToolName::Check,
    ToolName::Review,
    ToolName::Status,
];
/// The tools of `--api sessions`.
const SESSIONS: &[ToolName] = &[
    ToolName::StartSession,
    ToolName::ReplyToSession,
    ToolName::Session,
    ToolName::Check,
    ToolName::Review,
    ToolName::Status,
];

/// The tools of a set that are in these groups, with mail or without.
pub(super) fn names(api: Api, groups: &Groups, mail_client: Option<&MailClient>) -> Vec<ToolName> {
    let of_api = match api {
        Api::Classic => CLASSIC,
        Api::Sessions => SESSIONS,
    };
    let of_jobs = JobTool::ALL.map(ToolName::Job);
    let of_team = TeamTool::all(mail_client).into_iter().map(ToolName::Team);
    let of_both = of_jobs.into_iter().chain(of_team);
    let all = of_api.iter().copied().chain(of_both);
    all.filter(|name| name.is_in(groups)).collect()
}

/// The tools of a set that every server has.
pub(super) fn list(api: Api) -> Vec<Tool> {
    let all = names(api, &Groups::default(), None);
    all.into_iter().map(ToolName::describe).collect()
}

/// The tool that a client calls.
///
/// # Errors
///
/// Invalid parameters, as MCP requires for an unknown tool.
pub(super) fn named(all: &[ToolName], text: &str) -> Result<ToolName, ErrorData> {
    all.iter()
        .copied()
        .find(|name| name.as_str() == text)
        .ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|name| name.as_str()).collect();
            let message = format!("there is no tool {text:?}; there are {}", known.join(", "));
            ErrorData::invalid_params(message, None)
        })
}

impl ToolName {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Codex => classic::codex::NAME,
            Self::CodexReply => classic::codex_reply::NAME,
            Self::StartSession => sessions::codex::NAME,
            Self::ReplyToSession => sessions::codex_reply::NAME,
            Self::Session => sessions::codex_session::NAME,
            Self::Check => sessions::codex_check::NAME,
            Self::Review => classic::codex_review::NAME,
            Self::Status => codex_status::NAME,
            Self::Job(tool) => tool.as_str(),
            Self::Team(tool) => tool.as_str(),
        }
    }

    /// The tool as clients list it.
    pub fn describe(self) -> Tool {
        self.described().annotate(self.effect().annotations())
    }

    fn effect(self) -> Effect {
        match self {
            Self::Codex
            | Self::CodexReply
            | Self::StartSession
            | Self::ReplyToSession
            | Self::Session
            | Self::Check => Effect::Works,
            Self::Review => Effect::Reviews,
            Self::Status => Effect::Looks,
            Self::Job(tool) => tool.effect(),
            Self::Team(tool) => tool.effect(),
        }
    }

    fn described(self) -> Tool {
        match self {
            Self::Codex => classic::codex::describe(),
            Self::CodexReply => classic::codex_reply::describe(),
            Self::StartSession => sessions::codex::describe(),
            Self::ReplyToSession => sessions::codex_reply::describe(),
            Self::Session => sessions::codex_session::describe(),
            Self::Check => sessions::codex_check::describe(),
            Self::Review => classic::codex_review::describe(),
            Self::Status => codex_status::describe(),
            Self::Job(tool) => tool.describe(),
            Self::Team(tool) => tool.describe(),
        }
    }

    /// Whether the tool is in one of these groups.
    pub fn is_in(self, groups: &Groups) -> bool {
        let of_tool: &[Group] = match self {
            Self::Status => return true,
            Self::Codex
            | Self::CodexReply
            | Self::StartSession
            | Self::ReplyToSession
            | Self::Session
            | Self::Check => &[Group::Sessions],
            Self::Job(JobTool::Codex | JobTool::Jobs | JobTool::Respond) => &[Group::Jobs],
            Self::Job(JobTool::Status | JobTool::Cancel) => &[Group::Jobs, Group::Runs],
            Self::Review | Self::Job(JobTool::Run) => &[Group::Runs],
            Self::Team(_) => &[Group::Team],
        };
        of_tool.iter().any(|group| groups.has(*group))
    }

    fn use_of_turns(self) -> UseOfTurns {
        match self {
            Self::Codex | Self::CodexReply => UseOfTurns::Asks,
            Self::StartSession | Self::ReplyToSession | Self::Review => UseOfTurns::Prompts,
            Self::Check => UseOfTurns::ShowsQuestions,
            Self::Session | Self::Status | Self::Job(_) | Self::Team(_) => UseOfTurns::Other,
        }
    }

    /// Whether a call may return questions of Codex, and is then repeated with the answers.
    pub(super) fn returns_questions(self) -> bool {
        self.use_of_turns() == UseOfTurns::Asks
    }

    /// Whether results of the tool may hold questions that the card of an MCP App can answer.
    pub(super) fn has_card(self) -> bool {
        let uses = self.use_of_turns();
        matches!(uses, UseOfTurns::Asks | UseOfTurns::ShowsQuestions)
    }

    /// Whether the tool prompts Codex.
    pub(super) fn prompts(self) -> bool {
        let uses = self.use_of_turns();
        matches!(uses, UseOfTurns::Asks | UseOfTurns::Prompts)
    }

    /// Whether a call of the tool may be answered by a task.
    pub(super) fn has_tasks(self, turns_have: bool) -> bool {
        match self {
            Self::Codex | Self::CodexReply | Self::Review => turns_have,
            Self::Job(tool) => tool.has_tasks(),
            Self::StartSession
            | Self::ReplyToSession
            | Self::Session
            | Self::Check
            | Self::Status
            | Self::Team(_) => false,
        }
    }

    /// Whether the results of the tool carry warnings: `codex_status` lists all of them anyway, and
    /// mail has a format of its own.
    pub(super) fn carries_warnings(self) -> bool {
        match self {
            Self::Status | Self::Team(_) => false,
            Self::Codex
            | Self::CodexReply
            | Self::StartSession
            | Self::ReplyToSession
            | Self::Session
            | Self::Check
            | Self::Review
            | Self::Job(_) => true,
        }
    }

    /// An error in the form that the tool's clients know.
    pub(super) fn refusal(self, error: ToolError) -> CallToolResult {
        match self {
            Self::Status | Self::Job(_) | Self::Team(_) => error.into_plain_result(),
            Self::StartSession | Self::ReplyToSession | Self::Session | Self::Check => {
                error.into_sessions_result()
            }
            Self::Codex | Self::CodexReply | Self::Review => error.into_result(),
        }
    }
}

/// The time to wait of a call that is repeated with the answers to its questions.
pub(super) fn wait_of(arguments: &JsonObject) -> Option<Duration> {
    let parameter = folded(classic::WAIT);
    let (_, wait) = arguments
        .iter()
        .find(|(name, _)| folded(name) == parameter)?;
    let parameters::Wait(wait) = serde_json::from_value(wait.clone()).ok()?;
    Some(wait)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use serde_json::Value;

    use super::*;

    /// The most bytes that `tools/list` may take of a client's context, with one group.
    const GROUP_LIMIT: usize = 6144;

    /// The same with all groups.
    const LIMIT: usize = 14_336;

    /// All tools of both sets.
    fn every() -> Vec<ToolName> {
        let jobs = JobTool::ALL.map(ToolName::Job);
        let mail = team::MailTool::ALL.map(|mail| ToolName::Team(TeamTool::Mail(mail)));
        let threads = [ToolName::Team(TeamTool::Threads)];
        let of_apis = CLASSIC.iter().chain(SESSIONS).copied();
        let all = of_apis.chain(jobs);
        all.chain(threads).chain(mail).collect()
    }

    /// The size of `tools/list` with these tools, as JSON.
    fn length(tools: impl IntoIterator<Item = ToolName>) -> usize {
        let tools: Vec<Tool> = tools.into_iter().map(ToolName::describe).collect();
        serde_json::json!({ "tools": tools }).to_string().len()
    }

    /// A schema and those within it.
    fn with_all_within(schema: &Value) -> Vec<&Value> {
        let properties = schema["properties"].as_object();
        let members = properties.into_iter().flat_map(serde_json::Map::values);
        let within = members.chain(schema.get("items"));
        let within = within.flat_map(with_all_within);
        std::iter::once(schema).chain(within).collect()
    }

    #[test]
    fn every_tool_has_a_title_a_purpose_and_typed_schemas() {
        for name in every() {
            let tool = name.describe();
            let about = tool.description.as_deref().unwrap_or_default();
            assert!(about.starts_with("Use "), "{name:?}: {about}");
            assert!(tool.title.is_some(), "{name:?}");
            let output = tool.output_schema.as_deref().cloned();
            let output = Value::Object(output.unwrap_or_else(|| panic!("{name:?}")));
            let input = Value::Object(tool.input_schema.as_ref().clone());
            for schema in [&input, &output].into_iter().flat_map(with_all_within) {
                assert!(schema.get("type").is_some(), "{name:?}: {schema}");
            }
        }
    }

    #[test]
    fn every_tool_declares_its_effects() {
        let mut looking = Vec::new();
        for name in every() {
            let hints = name.describe().annotations.unwrap();
            let reads = hints.read_only_hint.unwrap();
            assert!(!reads || hints.destructive_hint.is_none());
            assert!(!reads || !name.prompts() || name == ToolName::Review);
            if reads {
                looking.push(name.as_str());
            }
        }
        looking.sort_unstable();
        looking.dedup();
        assert_eq!(
            looking,
            [
                "atm_pending_count",
                "call_jobs",
                "call_status",
                "codex_review",
                "codex_status",
                "codex_threads"
            ]
        );
    }

    #[test]
    fn list_of_tools_is_short() {
        for (api, of_api) in [(Api::Classic, CLASSIC), (Api::Sessions, SESSIONS)] {
            let others = every().into_iter();
            let others = others.filter(|name| matches!(name, ToolName::Job(_) | ToolName::Team(_)));
            let all: Vec<ToolName> = of_api.iter().copied().chain(others).collect();
            let whole = length(all.clone());
            assert!(whole <= LIMIT, "{api:?}: {whole} bytes");
            for group in Group::value_variants() {
                let groups = Groups::of(vec![*group]);
                let size = length(all.iter().copied().filter(|name| name.is_in(&groups)));
                assert!(size <= GROUP_LIMIT, "{api:?} {group:?}: {size} bytes");
            }
        }
    }
}
