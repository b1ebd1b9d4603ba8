//! The prompts, by which a person has the model of a client use the tools.
//!
//! Each text is a Markdown file in this directory, a [`template`]. Parts that name a tool which
//! this server does not serve are left out, and a prompt without any remaining part is not listed.
//! The commands of the plugin for Claude Code have the same texts; `docs` writes them.

mod arguments;
mod completion;
#[cfg(test)]
mod docs;
mod template;
#[cfg(test)]
mod tests;

use common::text::one_line;
use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptMessage, Role};

use crate::tools::ToolName;
use crate::tools::jobs::JobTool;
use arguments::{Argument, Necessity, Shape};

pub(crate) use completion::complete;

/// The longest part of an unknown name that an error repeats, in bytes.
const SHOWN: usize = 100;

/// A prompt.
struct PromptRow {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    template: &'static str,
    arguments: &'static [Argument],
    /// The prompt is listed if one of these tools is served.
    tools: &'static [ToolName],
}

const TASK: &str = "task";

const DIRECTORY: Argument = Argument {
    name: "directory",
    description: "The directory, by its absolute path. Default: the top of the current repository.",
    necessity: Necessity::Optional,
    shape: Shape::Line,
};

/// The name of the argument that can be completed.
const ID: &str = "id";

const WORK: &[Argument] = &[Argument {
    name: ID,
    description: "The session, job, run or thread: its ID, or the beginning of it.",
    necessity: Necessity::Optional,
    shape: Shape::Line,
}];

/// In the order in which they are listed.
const PROMPTS: [PromptRow; 6] = [
    PromptRow {
        name: "delegate",
        title: "Delegate to Codex",
        description: "Have Codex do a task, and report the outcome",
        template: include_str!("delegate.md"),
        arguments: &[
            Argument {
                name: TASK,
                description: "What Codex is to do.",
                necessity: Necessity::Required,
                shape: Shape::Text,
            },
            DIRECTORY,
        ],
        tools: &[
            ToolName::Codex,
            ToolName::StartSession,
            ToolName::Job(JobTool::Codex),
            ToolName::Job(JobTool::Run),
        ],
    },
    PromptRow {
        name: "review",
        title: "Review by Codex",
        description: "Have Codex review changes, and report its comments",
        template: include_str!("review.md"),
        arguments: &[
            Argument {
                name: "scope",
                description: "A branch, a commit, or what to review in words. Default: \
                              the uncommitted changes.",
                necessity: Necessity::Optional,
                shape: Shape::Text,
            },
            DIRECTORY,
        ],
        tools: &[ToolName::Review],
    },
    PromptRow {
        name: "status",
        title: "Work of Codex",
        description: "Report what Codex is doing, and what it waits for",
        template: include_str!("status.md"),
        arguments: WORK,
        tools: &[ToolName::Status],
    },
    PromptRow {
        name: "result",
        title: "Result of Codex",
        description: "Fetch the result of work that Codex has done",
        template: include_str!("result.md"),
        arguments: WORK,
        tools: &[ToolName::Check, ToolName::Job(JobTool::Status)],
    },
    PromptRow {
        name: "cancel",
        title: "Cancel work of Codex",
        description: "Cancel work that Codex is doing",
        template: include_str!("cancel.md"),
        arguments: WORK,
        tools: &[ToolName::Session, ToolName::Job(JobTool::Cancel)],
    },
    PromptRow {
        name: "hand_over",
        title: "Hand over to Codex",
        description: "Give the current work with its context to Codex, to continue there",
        template: include_str!("hand_over.md"),
        arguments: &[
            Argument {
                name: TASK,
                description: "What Codex is to continue. Default: what is left of the \
                              current work.",
                necessity: Necessity::Optional,
                shape: Shape::Text,
            },
            DIRECTORY,
        ],
        tools: &[
            ToolName::Codex,
            ToolName::StartSession,
            ToolName::Job(JobTool::Codex),
        ],
    },
];

/// The prompts of a server that has these tools.
fn offered(tools: &[ToolName]) -> impl Iterator<Item = PromptRow> {
    PROMPTS
        .into_iter()
        .filter(|row| row.tools.iter().any(|tool| tools.contains(tool)))
}

/// The prompt of this name.
///
/// # Errors
///
/// Invalid parameters, as MCP requires.
fn named(tools: &[ToolName], name: &str) -> Result<PromptRow, ErrorData> {
    offered(tools).find(|row| row.name == name).ok_or_else(|| {
        let known: Vec<&str> = offered(tools).map(|row| row.name).collect();
        let name = one_line(name, SHOWN);
        let message = format!(
            "there is no prompt `{name}`; there are {}",
            known.join(", ")
        );
        ErrorData::invalid_params(message, None)
    })
}

/// The answer to `prompts/list`.
pub(crate) fn list(tools: &[ToolName]) -> Vec<Prompt> {
    offered(tools).map(|row| row.describe()).collect()
}

/// The answer to `prompts/get`.
///
/// # Errors
///
/// Invalid parameters, as MCP requires for an unknown prompt and for wrong arguments.
pub(crate) fn get(
    tools: &[ToolName],
    name: &str,
    given: JsonObject,
) -> Result<GetPromptResult, ErrorData> {
    let row = named(tools, name)?;
    let given = arguments::read(row.arguments, given)
        .map_err(|why| ErrorData::invalid_params(format!("prompt {}: {why}", row.name), None))?;
    let text = row.text(tools, &arguments::blocks(&given));
    let messages = vec![PromptMessage::new_text(Role::User, text)];
    Ok(GetPromptResult::new(messages).with_description(row.description))
}

impl PromptRow {
    fn describe(&self) -> Prompt {
        let arguments = self.arguments.iter().map(Argument::describe).collect();
        Prompt::new(self.name, Some(self.description), Some(arguments)).with_title(self.title)
    }

    fn text(&self, tools: &[ToolName], arguments: &str) -> String {
        let served: Vec<&str> = tools.iter().map(|tool| tool.as_str()).collect();
        template::render(self.template, &served, arguments)
    }
}
