//! Codex's JSON of an item, a plan or an answer, as a step of a conversation.

use codex_engine::logic::progress::without_shell;
use image_request::logic::contract::TOOL as REQUEST_IMAGE;
use serde_json::Value;

use super::step::{ChangedFile, PlanStep, StepKind};

/// The most that is shown of one text, in bytes (256 KiB).
pub(super) const LONGEST_TEXT: usize = 256 * 1024;

/// The step of an item of Codex.
pub(super) fn kind_of(item: &Value, title: &str) -> Option<StepKind> {
    Some(match text(item, "type") {
        "userMessage" => StepKind::Prompt {
            text: bounded(&joined(&item["content"])),
        },
        "agentMessage" => StepKind::Message {
            text: bounded(text(item, "text")),
        },
        "reasoning" => {
            let thought = [&item["summary"], &item["content"]].map(joined);
            let thought = thought.into_iter().find(|text| !text.is_empty());
            StepKind::Thought {
                text: bounded(&thought.unwrap_or_default()),
            }
        }
        "commandExecution" => StepKind::Command {
            command: bounded(text(item, "command")),
            text: bounded(text(item, "aggregatedOutput")),
            status: text(item, "status").to_owned(),
            exit_code: item["exitCode"].as_i64(),
        },
        "fileChange" => StepKind::Files {
            files: files(&item["changes"]),
            status: text(item, "status").to_owned(),
        },
        _ if let Some(picture) = picture(item) => picture,
        _ if title.is_empty() => return None,
        _ => StepKind::Other {
            title: bounded(title),
            text: bounded(text(item, "text")),
        },
    })
}

/// The picture of an item: one that Codex has asked for by our tool, or reads itself.
fn picture(item: &Value) -> Option<StepKind> {
    let (path, is_shown) = match text(item, "type") {
        "imageView" => (item["path"].as_str()?, true),
        "dynamicToolCall" | "mcpToolCall" if text(item, "tool") == REQUEST_IMAGE => {
            let path = item.pointer("/arguments/path")?.as_str()?;
            let is_error = item.pointer("/result/isError");
            let has_failed =
                item["success"] == false || is_error.is_some_and(|is_error| *is_error == true);
            (path, text(item, "status") == "completed" && !has_failed)
        }
        _ => return None,
    };
    Some(StepKind::Picture {
        path: bounded(path),
        is_shown,
    })
}

fn files(changes: &Value) -> Vec<ChangedFile> {
    let all = changes.as_array().into_iter().flatten();
    let one = |change: &Value| {
        // Older releases have the kind as a text.
        let kind = &change["kind"];
        let kind = kind["type"].as_str().or(kind.as_str());
        ChangedFile {
            path: bounded(text(change, "path")),
            kind: kind.unwrap_or("update").to_owned(),
            diff: bounded(text(change, "diff")),
        }
    };
    all.map(one).collect()
}

pub(super) fn plan(data: &Value) -> Vec<PlanStep> {
    let all = data["plan"].as_array().into_iter().flatten();
    let one = |step: &Value| PlanStep {
        step: bounded(text(step, "step")),
        status: text(step, "status").to_owned(),
    };
    all.map(one).collect()
}

/// How a question was closed.
pub(super) fn closing(data: &Value) -> String {
    let decision = text(data, "decision");
    let why = data["message"].as_str().or(data["denyMessage"].as_str());
    match (data["decidedBy"].as_str(), why) {
        (Some(by), Some(why)) => format!("{decision}, {}: {why}", door(by)),
        (Some(by), None) => format!("{decision}, {}", door(by)),
        (None, Some(why)) => why.to_owned(),
        (None, None) => decision.to_owned(),
    }
}

/// Where a question was answered.
fn door(by: &str) -> &str {
    match by {
        "client" => "by the client",
        "elicitation" => "in the client's dialog",
        "terminal" => "at a terminal",
        "page" => "on the page",
        "mail" => "by mail",
        "settings" => "by the settings",
        other => other,
    }
}

/// The subject of a question, and the command if it is about one.
pub(super) fn question_title(data: &Value) -> String {
    let subject = match text(data, "kind") {
        "fileChange" => "change of files",
        "mcp_tool" => "MCP server",
        "user_input" => "input",
        other => other,
    };
    match data["command"].as_str() {
        Some(command) => format!("{subject}: {}", without_shell(command)),
        None => subject.to_owned(),
    }
}

/// The texts of a list of texts, or of objects with a text.
fn joined(parts: &Value) -> String {
    let all = parts.as_array().into_iter().flatten();
    let texts = all.filter_map(|part| part.as_str().or_else(|| part["text"].as_str()));
    texts.collect::<Vec<_>>().join("\n")
}

pub(super) fn text<'a>(data: &'a Value, key: &str) -> &'a str {
    data[key].as_str().unwrap_or_default()
}

pub(super) fn bounded(text: &str) -> String {
    beginning(text, LONGEST_TEXT).to_owned()
}

pub(super) fn beginning(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text)
}
