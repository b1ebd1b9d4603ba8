//! The texts of the prompts, and of the plugin's skill, beside the tools.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use testkit::docs::root;

use super::*;
use crate::tool_sets::{Api, Group, Groups};
use crate::tools::names;

const GROUPS: [Group; 4] = [Group::Sessions, Group::Jobs, Group::Runs, Group::Team];

const APIS: [Api; 2] = [Api::Classic, Api::Sessions];

/// Words that are code and stand in no schema: members and values of answers.
const WORDS: [&str; 13] = [
    "actions",
    "error",
    "message",
    "output",
    "problems",
    "questions",
    "response",
    "result",
    "retryable",
    "running",
    "sess_",
    "user_input",
    "waiting_approval",
];

/// The tools of each kind of server, by `--api` and `--tools`.
fn servers() -> Vec<Vec<ToolName>> {
    let chosen = (1..1 << GROUPS.len()).map(|chosen: usize| {
        let groups = GROUPS.iter().enumerate();
        let groups = groups.filter(|(index, _)| (chosen >> index) & 1 == 1);
        Groups::of(groups.map(|(_, group)| *group).collect())
    });
    let each = chosen.flat_map(|groups| APIS.map(|api| names(api, &groups, None)));
    each.collect()
}

fn of(api: Api, groups: &[Group]) -> Vec<ToolName> {
    names(api, &Groups::of(groups.to_vec()), None)
}

fn every_tool() -> BTreeSet<&'static str> {
    let all = APIS.map(|api| names(api, &Groups::default(), None));
    all.iter().flatten().map(|tool| tool.as_str()).collect()
}

/// The text of a prompt without arguments.
fn text_of(row: &PromptRow, tools: &[ToolName]) -> String {
    row.text(tools, "")
}

/// The single words that a text marks as code.
fn code_words(text: &str) -> Vec<&str> {
    let spans = text.split('`').skip(1).step_by(2);
    let is_word = |span: &&str| {
        let mut characters = span.chars();
        characters.all(|c| c.is_ascii_alphabetic() || "_-".contains(c))
    };
    spans.filter(is_word).collect()
}

/// The names and fixed values in a schema.
fn add_words(schema: &Map<String, Value>, words: &mut BTreeSet<String>) {
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                words.extend(properties.keys().cloned());
                let within = properties.values().filter_map(Value::as_object);
                within.for_each(|schema| add_words(schema, words));
            }
            ("enum", Value::Array(values)) => {
                words.extend(values.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            _ => {}
        }
    }
}

/// Checks that a text names no tool, parameter or value that a server with these tools lacks.
fn check_words(text: &str, tools: &[ToolName]) {
    let mut known: BTreeSet<String> = WORDS.map(str::to_owned).into();
    for tool in tools {
        let tool = tool.describe();
        known.insert(tool.name.to_string());
        add_words(&tool.input_schema, &mut known);
        tool.output_schema
            .iter()
            .for_each(|schema| add_words(schema, &mut known));
    }
    for word in code_words(text) {
        assert!(known.contains(word), "`{word}` in: {text}");
    }
}

#[test]
fn prompts_name_only_what_the_server_has() {
    for tools in servers() {
        for row in offered(&tools) {
            let text = text_of(&row, &tools);
            check_words(&text, &tools);
            let every = every_tool();
            let names_one = code_words(&text).iter().any(|word| every.contains(word));
            assert!(names_one, "{tools:?}: {text}");
        }
    }
}

#[test]
fn prompts_have_no_leftover_directives_or_gaps() {
    for tools in servers() {
        for row in offered(&tools) {
            for arguments in ["", "<task>\nx\n</task>"] {
                let text = row.text(&tools, arguments);
                for mark in ["<!--", "{{", "\n\n\n"] {
                    assert!(!text.contains(mark), "{mark:?} in: {text}");
                }
                assert_eq!(text.contains("\nx\n"), !arguments.is_empty(), "{text}");
            }
        }
    }
}

/// Claude Code runs such parts of a command, or replaces them.
#[test]
fn prompts_are_plain_text_to_claude_code() {
    for tools in servers() {
        for row in offered(&tools) {
            let text = text_of(&row, &tools);
            for mark in ["$", "!`", "```!", "@"] {
                assert!(!text.contains(mark), "{mark:?} in: {text}");
            }
        }
    }
}

#[test]
fn prompts_are_listed_with_their_tools() {
    let listed = |api, groups: &[Group]| -> Vec<String> {
        let prompts = list(&of(api, groups));
        prompts.into_iter().map(|prompt| prompt.name).collect()
    };
    let all = PROMPTS.map(|row| row.name);
    for api in APIS {
        assert_eq!(listed(api, &GROUPS), all);
        assert_eq!(
            listed(api, &[Group::Sessions]),
            ["delegate", "status", "result", "cancel", "hand_over"]
        );
        assert_eq!(
            listed(api, &[Group::Jobs]),
            ["delegate", "status", "result", "cancel", "hand_over"]
        );
        assert_eq!(
            listed(api, &[Group::Runs]),
            ["delegate", "review", "status", "result", "cancel"]
        );
        assert_eq!(listed(api, &[Group::Team]), ["status"]);
    }
}

#[test]
fn unknown_prompt_is_named_beside_the_offered_ones() {
    let error = get(&of(Api::Classic, &[Group::Team]), "review", Map::new()).unwrap_err();
    assert_eq!(error.code.0, -32602);
    assert_eq!(
        error.message,
        "there is no prompt `review`; there are status"
    );
}

#[test]
fn prompt_has_its_arguments_in_its_text() {
    let given = json!({ "task": "Fix it", "directory": "/home/me/project" });
    let given = given.as_object().unwrap().clone();
    let got = get(&of(Api::Classic, &GROUPS), "delegate", given).unwrap();
    let got = serde_json::to_value(got).unwrap();
    assert_eq!(got["messages"][0]["role"], "user");
    let text = got["messages"][0]["content"]["text"].as_str().unwrap();
    let block = "\n\n<task>\nFix it\n</task>\n<directory>\n/home/me/project\n</directory>\n\n";
    assert!(text.contains(block), "{text}");
}

#[test]
fn skill_of_the_plugin_describes_the_tools() {
    let skill = root().join("plugins/codex-mcp/skills/codex/SKILL.md");
    let skill = std::fs::read_to_string(skill).unwrap();
    let tools = of(Api::Classic, &GROUPS);
    check_words(&skill, &tools);
    let named = code_words(&skill);
    for tool in tools {
        assert!(named.contains(&tool.as_str()), "{}", tool.as_str());
    }
}
