//! Writes the commands of the plugin for Claude Code, and the table of prompts in docs/.
//!
//! The format of commands, plugins and marketplaces is that of
//! <https://code.claude.com/docs/en/plugins-reference> and
//! <https://code.claude.com/docs/en/skills>.

use serde_json::Value;
use testkit::docs::{check, check_file, code_list, root, table};

use super::arguments::{Argument, Necessity};
use super::{PROMPTS, PromptRow};
use crate::server::VERSION;
use crate::tool_sets::{Api, Groups};
use crate::tools::{ToolName, names};

/// The directory of the plugin, relative to the root of the repository.
const PLUGIN: &str = "plugins/codex-mcp";

/// The prefix of the names under which Claude Code knows the tools of the plugin's server.
const PREFIX: &str = "mcp__plugin_codex-mcp_codex__";

/// The placeholder for everything that the user types after the command in Claude Code.
const TYPED: &str = "$ARGUMENTS";

/// The tools of the server that the plugin starts: `codex-mcp serve` has all of the classic set.
fn served() -> Vec<ToolName> {
    names(Api::Classic, &Groups::default(), None)
}

#[test]
fn commands_of_the_plugin_are_the_prompts() {
    for row in PROMPTS {
        let name = row.name.replace('_', "-");
        let file = format!("{PLUGIN}/commands/{name}.md");
        check_file(&file, &command(&row));
    }
    let directory = std::fs::read_dir(root().join(PLUGIN).join("commands")).unwrap();
    assert_eq!(directory.count(), PROMPTS.len());
}

/// A command file. What the user types is the first argument of the prompt.
fn command(row: &PromptRow) -> String {
    let first = row.arguments.first().unwrap();
    let text = row.text(
        &served(),
        &super::arguments::blocks(&[(first.name, TYPED.to_owned())]),
    );
    let reading: Vec<String> = served()
        .into_iter()
        .filter(|tool| text.contains(&format!("`{}`", tool.as_str())) && reads(*tool))
        .map(|tool| format!("{PREFIX}{}", tool.as_str()))
        .collect();
    let allowed = match reading.is_empty() {
        true => String::new(),
        false => format!("allowed-tools: {}\n", reading.join(", ")),
    };
    // JSON's strings are YAML's too.
    let description = Value::from(row.description);
    let hint = Value::from(hint(first));
    format!(
        "---\n\
         # Made by `cargo xtask docs` from the prompt {} in crates/mcp-server/src/prompts.\n\
         description: {description}\n\
         argument-hint: {hint}\n\
         disable-model-invocation: true\n\
         {allowed}\
         ---\n\
         {text}",
        row.name
    )
}

/// Whether a tool only reads. Claude Code need not ask the user about such a call of a command.
fn reads(tool: ToolName) -> bool {
    let annotations = tool.describe().annotations.unwrap();
    annotations.read_only_hint == Some(true)
}

fn hint(argument: &Argument) -> String {
    match argument.necessity {
        Necessity::Required => format!("<{}>", argument.name),
        Necessity::Optional => format!("[{}]", argument.name),
    }
}

#[test]
fn plugin_has_the_version_of_the_program() {
    let manifest = format!("{PLUGIN}/.claude-plugin/plugin.json");
    let manifest = std::fs::read_to_string(root().join(manifest)).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["version"], VERSION);
}

#[test]
fn prompts_in_docs_match_the_code() {
    let rows = PROMPTS.map(|row| {
        let hints: Vec<String> = row.arguments.iter().map(hint).collect();
        let command = format!("/codex-mcp:{}", row.name.replace('_', "-"));
        let mut tools: Vec<&str> = row.tools.iter().map(|tool| tool.as_str()).collect();
        tools.dedup();
        [
            code_list([row.name]),
            code_list(hints.iter().map(String::as_str)),
            row.description.to_owned(),
            code_list(tools),
            code_list([command.as_str()]),
        ]
    });
    let head = ["prompt", "arguments", "purpose", "offered with", "command"];
    check("prompts.md", [("prompts", table(head, rows))]);
}
