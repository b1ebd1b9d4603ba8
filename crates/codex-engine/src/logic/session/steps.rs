//! The steps that Codex executed in a turn, regardless of its messages.

use std::collections::BTreeSet;

use codex_protocol::codex::{Item, RawItem, StepStatus, raw_item};
use serde::{Deserialize, Serialize};

use crate::logic::describe::line;
use crate::logic::work::{Evidence, Refusal, is_by_the_sandbox};

/// The most descriptions of a kind that are kept; all steps are counted.
const NOTED: usize = 20;

/// The most running steps that are tracked. Codex has a handful at a time.
const OPEN_LIMIT: usize = 256;

/// The steps of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// The numbers of steps, by kind.
    pub evidence: Evidence,
    /// How many succeeded: commands that exited with 0, for example.
    pub succeeded: u64,
    /// Whether steps were refused, and whether one has succeeded since.
    pub refusal: Refusal,
    /// How many failed: commands that exited with another code than 0, calls and changes
    /// that failed.
    pub failed: u64,
    /// The first failures, one line each.
    pub errors: Vec<String>,
    /// The first denied steps, one line each.
    pub denied: Vec<String>,
    /// How many calls were refused before they became steps. Codex reports them only among the raw
    /// items that it exchanges with the model.
    pub refused: u64,
}

/// The running steps, and the model's calls that have not become steps.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingSteps {
    steps: BTreeSet<String>,
    calls: BTreeSet<String>,
}

impl PendingSteps {
    pub(super) fn has(&self, step: &str) -> bool {
        self.steps.contains(step)
    }
}

impl Steps {
    pub(super) fn item_started(&mut self, item: &Item, open: &mut PendingSteps) {
        if let Some((id, count)) = self.counted(item) {
            *count += 1;
            open.calls.remove(id);
            add(&mut open.steps, id);
        }
    }

    /// Handles an item exchanged with the model. A call with an output that did not
    /// become a step was refused, or stopped by the sandbox.
    pub(super) fn raw_item(&mut self, item: &RawItem, open: &mut PendingSteps) {
        match item {
            RawItem::FunctionCall { call_id, name } if RawItem::is_acting_tool(name) => {
                add(&mut open.calls, call_id);
            }
            RawItem::FunctionCallOutput { call_id, output } if open.calls.remove(call_id) => {
                let words = line(raw_item::output_text(output));
                self.refusal = Refusal::Last;
                let notes = match raw_item::was_run(output) {
                    // The sandbox stopped the command: Codex reports no step then.
                    true => {
                        self.evidence.commands += 1;
                        self.failed += 1;
                        &mut self.errors
                    }
                    false => {
                        self.refused += 1;
                        &mut self.denied
                    }
                };
                if notes.len() < NOTED {
                    notes.push(words);
                }
            }
            _ => {}
        }
    }

    pub(super) fn item_completed(&mut self, item: &Item, open: &mut PendingSteps) {
        let Some((id, count)) = self.counted(item) else {
            return;
        };
        // Codex reports some steps only at their end.
        if !open.steps.remove(id) {
            *count += 1;
        }
        match ended(item) {
            StepOutcome::Succeeded => {
                self.succeeded += 1;
                self.refusal = self.refusal.after_success();
            }
            StepOutcome::Unknown => {}
            StepOutcome::Denied => {
                self.evidence.declined += 1;
                self.refusal = Refusal::Last;
                note(&mut self.denied, item, None);
            }
            StepOutcome::Failed(why) => {
                self.failed += 1;
                if is_refused_by_the_sandbox(item) {
                    self.refusal = Refusal::Last;
                }
                if matches!(
                    item,
                    Item::McpToolCall { .. } | Item::DynamicToolCall { .. }
                ) {
                    self.evidence.failed_calls += 1;
                }
                note(&mut self.errors, item, Some(&why));
            }
        }
    }

    /// The ID of a step, and the counter of its kind.
    fn counted<'a>(&mut self, item: &'a Item) -> Option<(&'a str, &mut u64)> {
        let evidence = &mut self.evidence;
        Some(match item {
            Item::CommandExecution { id, .. } => (id, &mut evidence.commands),
            Item::FileChange { id, .. } => (id, &mut evidence.file_changes),
            Item::McpToolCall { id, .. } | Item::DynamicToolCall { id, .. } => {
                (id, &mut evidence.tool_calls)
            }
            Item::WebSearch { id, .. } => (id, &mut evidence.searches),
            _ => return None,
        })
    }
}

fn add(open: &mut BTreeSet<String>, id: &str) {
    if open.len() < OPEN_LIMIT {
        open.insert(id.to_owned());
    }
}

enum StepOutcome {
    Succeeded,
    /// A command without an exit code.
    Unknown,
    Denied,
    Failed(String),
}

fn ended(item: &Item) -> StepOutcome {
    match item {
        Item::CommandExecution {
            status: StepStatus::Declined,
            ..
        }
        | Item::FileChange {
            status: StepStatus::Declined,
            ..
        }
        | Item::McpToolCall {
            status: StepStatus::Declined,
            ..
        } => StepOutcome::Denied,
        Item::CommandExecution {
            exit_code,
            aggregated_output,
            ..
        } => match exit_code {
            None => StepOutcome::Unknown,
            Some(0) => StepOutcome::Succeeded,
            Some(code) => StepOutcome::Failed(exited(*code, aggregated_output.as_deref())),
        },
        Item::FileChange {
            status: StepStatus::Failed,
            ..
        } => StepOutcome::Failed("could not be made".to_owned()),
        Item::McpToolCall {
            status: StepStatus::Failed,
            error,
            ..
        } => {
            let why = error.as_ref().map(|error| error.message.as_str());
            StepOutcome::Failed(failed(why))
        }
        Item::DynamicToolCall {
            status: StepStatus::Failed,
            content_items,
            ..
        } => {
            let mut parts = content_items.iter().flatten();
            StepOutcome::Failed(failed(parts.find_map(|part| part.text.as_deref())))
        }
        _ => StepOutcome::Succeeded,
    }
}

fn is_refused_by_the_sandbox(item: &Item) -> bool {
    match item {
        Item::CommandExecution {
            aggregated_output: Some(output),
            ..
        } => is_by_the_sandbox(output),
        _ => false,
    }
}

/// The description of a failed command. Tools report the error last.
fn exited(code: i32, output: Option<&str>) -> String {
    let lines = output.unwrap_or_default().lines();
    let last = lines.rev().find(|line| !line.trim().is_empty());
    match last {
        Some(last) => format!("exited with {code}: {last}"),
        None => format!("exited with {code}"),
    }
}

fn failed(why: Option<&str>) -> String {
    match why {
        Some(why) => format!("failed: {why}"),
        None => "failed".to_owned(),
    }
}

fn note(notes: &mut Vec<String>, item: &Item, why: Option<&str>) {
    if notes.len() < NOTED {
        let what = name(item);
        notes.push(match why {
            Some(why) => line(&format!("{what} {why}")),
            None => what,
        });
    }
}

/// A short description of a step.
fn name(item: &Item) -> String {
    match item {
        Item::CommandExecution { command, .. } => line(command),
        Item::FileChange { changes, .. } => {
            let paths: Vec<&str> = changes.iter().map(|change| &*change.path).collect();
            line(&format!("the change of {}", paths.join(", ")))
        }
        Item::McpToolCall { server, tool, .. } => line(&format!("{server}.{tool}")),
        Item::DynamicToolCall { tool, .. } => line(tool),
        _ => "a step".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn item(value: Value) -> Item {
        serde_json::from_value(value).unwrap()
    }

    fn command(id: &str, more: Value) -> Item {
        let plain = json!({ "type": "commandExecution", "id": id, "command": "make all" });
        item(common::json::merged(plain, more))
    }

    #[test]
    fn step_is_counted_once_by_its_outcome() {
        let (mut steps, mut open) = (Steps::default(), PendingSteps::default());
        let change = json!({ "type": "fileChange", "id": "f", "changes": [{ "path": "a" }] });
        for begun in [command("1", json!({})), item(change.clone())] {
            steps.item_started(&begun, &mut open);
        }
        let output = "warning\nmake: no rule\n\n";
        for done in [
            command(
                "1",
                json!({ "status": "failed", "exitCode": 2, "aggregatedOutput": output }),
            ),
            command("2", json!({ "status": "completed", "exitCode": 0 })),
            command("3", json!({ "status": "declined" })),
            item(common::json::merged(change, json!({ "status": "failed" }))),
            item(json!({
                "type": "mcpToolCall", "id": "t", "server": "s", "tool": "x",
                "status": "failed", "error": { "message": "no" },
            })),
            item(json!({
                "type": "dynamicToolCall", "id": "d", "tool": "y", "status": "failed",
                "contentItems": [{ "type": "inputImage", "imageUrl": "data:," },
                    { "type": "inputText", "text": "not there" }],
            })),
            item(json!({ "type": "dynamicToolCall", "id": "e", "tool": "y",
                "status": "completed", "contentItems": null })),
            item(json!({ "type": "webSearch", "id": "w", "query": "q" })),
            item(json!({ "type": "agentMessage", "id": "m", "text": "I did it" })),
        ] {
            steps.item_completed(&done, &mut open);
        }
        let expected = Steps {
            evidence: Evidence {
                commands: 3,
                declined: 1,
                file_changes: 1,
                tool_calls: 3,
                failed_calls: 2,
                searches: 1,
            },
            // The command that exited with 0, a call, and the search.
            succeeded: 3,
            refusal: Refusal::Followed,
            failed: 4,
            errors: vec![
                "make all exited with 2: make: no rule".to_owned(),
                "the change of a could not be made".to_owned(),
                "s.x failed: no".to_owned(),
                "y failed: not there".to_owned(),
            ],
            denied: vec!["make all".to_owned()],
            refused: 0,
        };
        assert_eq!(steps, expected);
        assert_eq!(steps.evidence.executed(), 5);
    }

    #[test]
    fn call_that_becomes_no_step_counts_as_refused() {
        let (mut steps, mut open) = (Steps::default(), PendingSteps::default());
        let call = |id: &str, name: &str| RawItem::FunctionCall {
            call_id: id.to_owned(),
            name: name.to_owned(),
        };
        let output = |id: &str, text: &str| RawItem::FunctionCallOutput {
            call_id: id.to_owned(),
            output: text.into(),
        };
        steps.raw_item(&call("1", "exec_command"), &mut open);
        steps.raw_item(&call("2", "shell"), &mut open);
        steps.item_started(&command("2", json!({})), &mut open);
        steps.raw_item(&call("3", "update_plan"), &mut open);
        for (id, text) in [("1", "rejected by\nthe policy"), ("2", "done"), ("3", "ok")] {
            steps.raw_item(&output(id, text), &mut open);
        }
        assert_eq!((steps.refused, steps.evidence.commands), (1, 1));
        assert_eq!(steps.denied, ["rejected by the policy"]);
        assert_eq!(steps.refusal, Refusal::Last);
    }

    #[test]
    fn refusal_is_last_until_another_step_succeeds() {
        let (mut steps, mut open) = (Steps::default(), PendingSteps::default());
        let mut ends = |more: Value| {
            steps.item_completed(&command("1", more), &mut open);
            (steps.refusal, steps.succeeded)
        };
        let failed =
            |output: &str| json!({ "status": "failed", "exitCode": 1, "aggregatedOutput": output });
        let well = || json!({ "status": "completed", "exitCode": 0 });
        assert_eq!(ends(failed("no rule")), (Refusal::None, 0));
        assert_eq!(ends(json!({ "status": "failed" })), (Refusal::None, 0));
        assert_eq!(ends(well()), (Refusal::None, 1));
        let refused = failed("touch: x: Read-only file system\n");
        assert_eq!(ends(refused), (Refusal::Last, 1));
        assert_eq!(ends(failed("no rule")), (Refusal::Last, 1));
        assert_eq!(ends(well()), (Refusal::Followed, 2));
        let declined = json!({ "status": "declined" });
        assert_eq!(ends(declined), (Refusal::Last, 2));
    }

    #[test]
    fn kept_steps_are_bounded_and_all_are_counted() {
        let (mut steps, mut open) = (Steps::default(), PendingSteps::default());
        for number in 0..1000 {
            let id = number.to_string();
            steps.item_started(&command(&id, json!({})), &mut open);
        }
        assert_eq!(open.steps.len(), OPEN_LIMIT);
        for number in 0..100 {
            let id = number.to_string();
            let done = command(&id, json!({ "status": "failed", "exitCode": 1 }));
            steps.item_completed(&done, &mut open);
        }
        assert_eq!((steps.evidence.commands, steps.failed), (1000, 100));
        assert_eq!(steps.errors.len(), NOTED);
    }
}
