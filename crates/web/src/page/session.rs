//! One session: its conversation as it arrives, its plan, its diff, its tokens with their cost, and
//! its questions.

use std::borrow::Cow;
use std::time::SystemTime;

use common::text::visible;
use job_queue::question::NamedQuestion;
use maud::{Markup, html};

use super::diff;
use super::layout::{self, button, clock, foreign, foreign_line};
use super::question::{self, Extent};
use crate::logic::access::Scope;
use work_board::Work;
use work_board::logic::conversation::Conversation;
use work_board::logic::step::{
    ChangedFile, PlanStep, Step, StepKind, command_words, gap_words, status_words,
};

/// The part with the plan.
pub(crate) const PLAN: &str = "plan";

/// The part with the diff of the turn.
pub(crate) const DIFF: &str = "diff";

/// The part with the tokens.
pub(crate) const TOKENS: &str = "tokens";

/// The part with the cost of the tokens.
pub(crate) const COST: &str = "cost";

/// The part with the state and the questions.
pub(crate) const STATE: &str = "state";

/// The longest diff that is shown, in lines.
const DIFF_LINES: usize = 4000;

/// The ID of the element of a step.
pub(crate) fn step_id(number: u64) -> String {
    format!("step-{number}")
}

/// The ID of the element with the text of a step.
pub(crate) fn text_id(number: u64) -> String {
    format!("text-{number}")
}

/// A text in the form in which it is shown.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    visible(text)
}

/// The page. `latest` is the number of the latest message about the conversation.
pub(crate) fn page(
    scope: Scope,
    work: &Work,
    conversation: &Conversation,
    latest: u64,
    now: SystemTime,
) -> Markup {
    let address = work.address();
    let events = format!("{address}/events?after={latest}");
    let body = html! {
        h1 { (foreign_line(work.title())) }
        (state(scope, work, now))
        div.columns {
            section.conversation aria-labelledby="conversation" {
                h2 #conversation { "Conversation" }
                ol #steps.steps { @for one in conversation.steps() { (step(&address, one)) } }
            }
            div.side {
                (plan(conversation))
                (tokens(conversation))
                (cost(work))
                (diff(conversation))
            }
        }
        @if scope == Scope::Decide && !work.is_cancelled() {
            form.send method="post" action={ (address) "/prompt" } data-live {
                label {
                    "Message: it is added to the turn that runs, or begins the next one"
                    textarea name="text" rows="2" required {}
                }
                button.primary { "Send" }
            }
        }
    };
    layout::page(work.title(), Some(&events), &body)
}

/// The state of the session, what it asks, and how it is ended.
pub(crate) fn state(scope: Scope, work: &Work, now: SystemTime) -> Markup {
    let address = work.address();
    html! {
        div id=(STATE) {
            p.facts {
                span class={ "state " (work.state_class()) } { (foreign_line(&work.state)) }
                @if let Some(step) = &work.step {
                    " · " span.step { (foreign_line(&step.words)) } " " (clock(step.since, now))
                }
                " · " span.directory { (foreign_line(&work.directory)) }
                " · " code { (work.id) }
            }
            @for NamedQuestion { id, question } in &work.questions {
                (question::card(scope, &address, (id, question), Extent::Whole))
            }
            p.acts {
                @if work.step.is_some() {
                    (button(scope, &format!("{address}/interrupt"), "Interrupt the turn", ""))
                }
                @if let (true, Some(thread)) = (work.is_cancelled(), &work.thread) {
                    (layout::resume(scope, thread, Some(&work.directory)))
                } @else {
                    (button(scope, &format!("{address}/fork"), "Fork", ""))
                    (button(scope, &format!("{address}/cancel"), "End the session", "danger"))
                }
            }
        }
    }
}

/// A step of the conversation of the session at `address`.
pub(crate) fn step(address: &str, step: &Step) -> Markup {
    let text = text_id(step.number);
    html! {
        li id=(step_id(step.number)) class={ "step " (class(&step.kind)) } {
            @match &step.kind {
                StepKind::Prompt { text: words } => {
                    h3 { "Prompt" }
                    pre.words id=(text) { (foreign(words)) }
                }
                StepKind::Message { text: words } => {
                    h3 { "Codex" }
                    pre.words id=(text) { (foreign(words)) }
                }
                StepKind::Thought { text: words } => {
                    details {
                        summary { "Thought" }
                        pre.words id=(text) { (foreign(words)) }
                    }
                }
                StepKind::Command { command, text: output, status, exit_code } => {
                    h3 { code { (foreign(command)) } }
                    p.facts {
                        (foreign_line(&command_words(status, *exit_code)))
                    }
                    pre.output id=(text) tabindex="0" { (foreign(output)) }
                }
                StepKind::Files { files, status } => {
                    h3 { "Changes of files" }
                    p.facts { (foreign_line(status_words(status))) }
                    @for (at, file) in files.iter().enumerate() {
                        (changed(&format!("{text}-{at}"), file))
                    }
                }
                StepKind::Picture { path, is_shown } => {
                    h3 { "Picture " code { (foreign_line(path)) } }
                    @if *is_shown {
                        img src={ (address) "/pictures/" (step.number) } alt=(foreign_line(path)) loading="lazy";
                    }
                }
                StepKind::Other { title, text: words } => {
                    h3 { (foreign_line(title)) }
                    pre.output id=(text) tabindex="0" { (foreign(words)) }
                }
                StepKind::Question { title, closed, .. } => {
                    h3 { "Question: " (foreign_line(title)) }
                    p.facts { (foreign_line(closed.as_deref().unwrap_or("not answered yet"))) }
                }
                StepKind::End { words, .. } => p.facts { (foreign_line(words)) },
                StepKind::Gap { count } => p.facts { (gap_words(*count)) },
            }
        }
    }
}

fn class(kind: &StepKind) -> &'static str {
    match kind {
        StepKind::Prompt { .. } => "prompt",
        StepKind::Message { .. } => "message",
        StepKind::Thought { .. } => "thought",
        StepKind::Command { .. } => "command",
        StepKind::Files { .. } => "files",
        StepKind::Picture { .. } => "picture",
        StepKind::Other { .. } => "other",
        StepKind::Question { .. } => "asked",
        StepKind::End { failed: true, .. } => "end failed",
        StepKind::End { .. } => "end",
        StepKind::Gap { .. } => "gap",
    }
}

/// A changed file, whose diff has this ID.
fn changed(id: &str, file: &ChangedFile) -> Markup {
    html! {
        details {
            summary { (foreign_line(&file.kind)) " " code { (foreign_line(&file.path)) } }
            (diff::lines(id, &file.diff, file.kind == "add", DIFF_LINES))
        }
    }
}

/// Codex's plan.
pub(crate) fn plan(conversation: &Conversation) -> Markup {
    let steps = conversation.plan();
    html! {
        section id=(PLAN) aria-label="Plan" {
            @if !steps.is_empty() {
                h2 { "Plan" }
                ol { @for one in steps { (plan_step(one)) } }
            }
        }
    }
}

fn plan_step(step: &PlanStep) -> Markup {
    let sign = match step.status.as_str() {
        "completed" => "done",
        "inProgress" => "now",
        _ => "to do",
    };
    html! { li { span.sign { (sign) } " " (foreign_line(&step.step)) } }
}

/// The tokens of the thread, and how much of the model's context they take.
pub(crate) fn tokens(conversation: &Conversation) -> Markup {
    let usage = conversation.tokens();
    let count = |of: &str, key: &str| usage?.get(of)?.get(key)?.as_u64();
    let window = usage.and_then(|usage| usage["modelContextWindow"].as_u64());
    html! {
        section id=(TOKENS) aria-label="Tokens" {
            @if let Some(total) = count("total", "totalTokens") {
                h2 { "Tokens" }
                dl {
                    dt { "All" } dd { (total) }
                    @for (key, name) in COUNTS {
                        @if let Some(count) = count("total", key) { dt { (name) } dd { (count) } }
                    }
                    @if let (Some(last), Some(window)) = (count("last", "totalTokens"), window) {
                        dt { "Context" } dd { (last) " of " (window) }
                    }
                }
            }
        }
    }
}

/// The cost of the tokens.
pub(crate) fn cost(work: &Work) -> Markup {
    html! {
        section id=(COST) aria-label="Cost" {
            @if let Some(cost) = &work.cost {
                h2 { "Cost" }
                p { (cost.to_string()) }
            }
        }
    }
}

/// The parts of the tokens, as Codex names them and as the page does.
const COUNTS: [(&str, &str); 4] = [
    ("inputTokens", "Read"),
    ("cachedInputTokens", "of it cached"),
    ("outputTokens", "Written"),
    ("reasoningOutputTokens", "of it reasoning"),
];

/// All changes of files by the patches of the turn.
pub(crate) fn diff(conversation: &Conversation) -> Markup {
    let diff = conversation.diff();
    html! {
        section id=(DIFF) aria-label="Changes of the turn" {
            @if !diff.is_empty() {
                h2 { "Changes of the turn" }
                (diff::lines("diff-text", diff, false, DIFF_LINES))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use host_process::logic::handshake::{SessionEvent, SessionNews};
    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{1b}[2J\u{202e}";

    #[test]
    fn texts_of_others_stay_text() {
        let mut conversation = Conversation::default();
        let items = [
            json!({ "type": "agentMessage", "id": HOSTILE, "text": HOSTILE }),
            json!({ "type": "userMessage", "id": "1", "content": [{ "text": HOSTILE }] }),
            json!({ "type": "commandExecution", "id": "2", "command": HOSTILE, "status": HOSTILE,
                "aggregatedOutput": HOSTILE }),
            json!({ "type": "fileChange", "id": "3", "status": HOSTILE,
                "changes": [{ "path": HOSTILE, "kind": { "type": HOSTILE }, "diff": HOSTILE }] }),
            json!({ "type": "webSearch", "id": "4", "text": HOSTILE }),
            json!({ "type": "reasoning", "id": "5", "summary": [HOSTILE] }),
        ];
        for (id, item) in items.into_iter().enumerate() {
            let data = json!({ "method": "item/completed", "item": item, "title": HOSTILE });
            let data = json!({ "id": id, "type": "progress", "data": data });
            let (at, words) = (SystemTime::UNIX_EPOCH, None);
            conversation.take(SessionNews::Event(SessionEvent { at, words, data }));
        }
        assert_eq!(conversation.steps().count(), 6);
        for one in conversation.steps() {
            let html = step("/sessions/s", one).into_string();
            for forbidden in ["<img", "\u{1b}", "\u{202e}"] {
                assert!(!html.contains(forbidden), "{html}");
            }
        }
    }
}
