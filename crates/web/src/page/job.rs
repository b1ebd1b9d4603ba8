//! One job or run.

use std::time::SystemTime;

use job_queue::job_json;
use job_queue::question::NamedQuestion;
use maud::{Markup, html};
use serde_json::Value;

use super::layout::{self, button, clock, foreign, foreign_line};
use super::question::{self, Extent};
use work_board::{Kind, LogLine, ShownJob};

use crate::logic::access::Scope;

/// The part that is sent again when the job has changed.
pub(crate) const JOB: &str = "job";

/// The page.
pub(crate) fn page(scope: Scope, shown: &ShownJob, now: SystemTime) -> Markup {
    let work = &shown.work;
    // It is also there while the job waits: this part of the page stays as it is when the job starts.
    let is_steered = work.kind == Kind::Job && !shown.view.job.summary.state.has_ended();
    let body = html! {
        h1 { (foreign_line(work.title())) }
        (part(scope, shown, now))
        @if scope == Scope::Decide && is_steered {
            form.send method="post" action={ (work.address()) "/steer" } data-live {
                label {
                    "Message: it is added to the turn that runs"
                    textarea name="text" rows="2" required {}
                }
                button.primary { "Send" }
            }
        }
    };
    let events = format!("{}/events", work.address());
    layout::page(work.title(), Some(&events), &body)
}

/// The part that changes while the job runs.
pub(crate) fn part(scope: Scope, shown: &ShownJob, now: SystemTime) -> Markup {
    let ShownJob { view, work, .. } = shown;
    let record = &job_json::record(&view.job, &view.questions);
    let address = work.address();
    html! {
        div id=(JOB) {
            p.facts {
                span class={ "state " (work.state_class()) } { (work.shown_state()) }
                @if let Some(step) = &work.step {
                    " · " span.step { (foreign_line(&step.words)) } " " (clock(step.since, now))
                } @else if let Some(note) = &work.note {
                    " · " (foreign_line(note))
                }
                " · " span.directory { (foreign_line(&work.directory)) }
                " · " code { (work.id) }
            }
            @for NamedQuestion { id, question } in &work.questions {
                (question::card(scope, &address, (id, question), Extent::Whole))
            }
            p.acts {
                @if view.job.summary.state.has_ended() {
                    (button(scope, &format!("{address}/retry"), "Submit it again", ""))
                } @else {
                    (button(scope, &format!("{address}/cancel"), "Cancel the job", "danger"))
                }
            }
            @for (key, title) in TEXTS {
                @if let Some(text) = record[key].as_str() {
                    h2 { (title) }
                    pre.words { (foreign(begin(text))) }
                    @if begin(text).len() < text.len() {
                        p.hint { "Cut after 256 KiB: " code { "codex-mcp jobs show --full" } " has all." }
                    }
                }
            }
            (criteria(&shown.criteria))
            (log(&shown.log))
            (list("Problems", &record["problems"]))
            (list("Warnings", &record["warnings"]))
        }
    }
}

/// The most of a text that is shown, in bytes.
const SHOWN: usize = 256 * 1024;

fn begin(text: &str) -> &str {
    text.get(..text.floor_char_boundary(SHOWN)).unwrap_or(text)
}

/// The texts of a job, as its record has them.
const TEXTS: [(&str, &str); 3] = [
    ("prompt", "Prompt"),
    ("error", "Error"),
    ("response", "Answer"),
];

/// The criteria of a run as a check list, each with what was found.
fn criteria(verdict: &Value) -> Markup {
    let all = verdict.as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @if !all.is_empty() {
            h2 { "Criteria" }
            ul.criteria { @for one in all { (criterion(one)) } }
        }
    }
}

fn criterion(one: &Value) -> Markup {
    let text = |key: &str| one[key].as_str().unwrap_or_default();
    let (sign, class) = match text("state") {
        "satisfied" => ("met", "met"),
        "not_yet" => ("not met", "missing"),
        "not_run" => ("not run", "missing"),
        _ => ("unknown", "unknown"),
    };
    let found = ["found", "missing", "why"].map(text);
    let found = found.into_iter().find(|text| !text.is_empty());
    html! {
        li class=(class) {
            span.sign { (sign) } " " code { (foreign_line(text("criterion"))) }
            @if let Some(found) = found { p.facts { (foreign_line(found)) } }
        }
    }
}

/// The latest events.
fn log(lines: &[LogLine]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h2 { "What happened" }
            ol #log.log { @for line in lines { li { (foreign_line(&line.words)) } } }
        }
    }
}

fn list(title: &str, lines: &Value) -> Markup {
    let lines = lines.as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @if !lines.is_empty() {
            h2 { (title) }
            ul { @for line in lines { li { (foreign_line(line.as_str().unwrap_or_default())) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn criterion_has_the_sign_of_its_state() {
        for (state, sign) in [
            ("satisfied", "met"),
            ("not_yet", "not met"),
            ("not_run", "not run"),
            ("unknown", "unknown"),
        ] {
            let html = criterion(&json!({ "criterion": "clean", "state": state })).into_string();
            assert!(html.contains(&format!(">{sign}</span>")), "{html}");
        }
    }
}
