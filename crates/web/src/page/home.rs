//! All work: work that needs a person, running work, and ended work.

use std::time::SystemTime;

use job_queue::question::NamedQuestion;
use maud::{Markup, html};

use super::layout::{self, clock, foreign_line};
use super::question::{self, Extent};
use crate::logic::access::Scope;
use work_board::{AllWork, Group, Work};

/// The part that is sent again when the work has changed.
pub(crate) const WORK: &str = "work";

/// The page.
pub(crate) fn page(scope: Scope, work: &AllWork, now: SystemTime) -> Markup {
    let body = html! {
        h1.hidden { "Work" }
        (list(scope, work, now))
        (start(scope))
    };
    layout::page("Work", Some("/events"), &body)
}

/// The lists of the page.
pub(crate) fn list(scope: Scope, all: &AllWork, now: SystemTime) -> Markup {
    let of = |group: Group| all.work.iter().filter(move |one| one.group() == group);
    let asked: Vec<_> = of(Group::Asking).collect();
    html! {
        div id=(WORK) {
            @if let Some(failure) = &all.failure {
                p.error role="alert" { (layout::foreign(failure)) }
            }
            section aria-labelledby="asking" {
                h2 #asking { "Needs you" }
                // Oldest first, so that the buttons of earlier questions stay in place when another
                // one arrives.
                @for one in asked.iter().rev() { (asking(scope, one, now)) }
                @if asked.is_empty() { p.hint { "Nothing waits for an answer." } }
            }
            section aria-labelledby="running" {
                h2 #running { "Under way" }
                (rows(of(Group::Running), now))
                @if of(Group::Running).next().is_none() { p.hint { "Nothing runs." } }
            }
            section aria-labelledby="ended" {
                h2 #ended { "Idle and ended" }
                (rows(of(Group::Ended), now))
                @if of(Group::Ended).next().is_none() { p.hint { "Nothing yet." } }
            }
        }
    }
}

fn asking(scope: Scope, work: &Work, now: SystemTime) -> Markup {
    html! {
        article.asking {
            (heading(work, now))
            @for NamedQuestion { id, question } in &work.questions {
                (question::card(scope, &work.address(), (id, question), Extent::Text))
            }
        }
    }
}

fn rows<'a>(work: impl Iterator<Item = &'a Work>, now: SystemTime) -> Markup {
    html! {
        ul.work {
            @for one in work { li { (heading(one, now)) } }
        }
    }
}

fn heading(work: &Work, now: SystemTime) -> Markup {
    html! {
        a.title id={ "work-" (work.id) } href=(work.address()) {
            span.kind { (work.kind.as_ref()) }
            " "
            span.name { (foreign_line(work.title())) }
        }
        p.facts {
            span class={ "state " (work.state_class()) } { (foreign_line(&work.shown_state())) }
            @if let Some(step) = &work.step {
                " · " span.step { (foreign_line(&step.words)) } " "
                (clock(step.since, now))
            } @else if let Some(note) = &work.note {
                " · " span.step { (foreign_line(note)) }
            }
            " · begun " (clock(work.created, now)) " ago"
            @if let Some(tokens) = work.tokens { " · " (tokens) " tokens" }
            @if let Some(cost) = &work.cost { " · " (cost.to_string()) }
            " · " span.directory { (foreign_line(&work.directory)) }
        }
    }
}

fn start(scope: Scope) -> Markup {
    html! {
        @if scope == Scope::Decide {
            section aria-labelledby="start" {
                h2 #start { "Start" }
                form.start method="post" action="/sessions" data-live {
                    label { "Prompt" textarea name="prompt" rows="3" required {} }
                    label { "Directory on the machine" input name="directory" required; }
                    label {
                        "When Codex asks"
                        select name="approvals" {
                            option value="untrusted" { "before all but harmless commands" }
                            option value="on-request" selected { "when it needs to" }
                            option value="never" { "never: what it may not do fails" }
                        }
                    }
                    label {
                        "Sandbox"
                        select name="sandbox" {
                            option value="read-only" { "read only" }
                            option value="workspace-write" selected { "may write in the directory" }
                        }
                    }
                    button.primary { "Start a session" }
                }
                (start_run())
            }
        }
    }
}

/// The form that starts a run. It is folded, as it is long.
fn start_run() -> Markup {
    html! {
        details {
            summary { "Start a run: Codex works, turn after turn, until all criteria are met" }
            form.start method="post" action="/runs" data-live {
                label { "Task" textarea name="task" rows="3" required {} }
                label { "Directory of the repository on the machine" input name="directory" required; }
                label {
                    "New or changed files, a pattern on each line, such as src/**/*.rs"
                    textarea name="files" rows="2" {}
                }
                label {
                    "Only these files and directories may be changed, one on each line"
                    textarea name="diff_within" rows="2" {}
                }
                label { "Number of new commits, or with a branch, such as 2@main" input name="commits"; }
                label { "A branch that is new, or has new commits" input name="branch"; }
                label {
                    "An issue with a new comment of yours, such as OWNER/REPO#5"
                    input name="issue_comment";
                }
                label {
                    "A command that must exit with 0. It runs as you, outside of the sandbox."
                    input name="command";
                }
                label.check { input type="checkbox" name="clean"; " Nothing is left uncommitted" }
                label.check { input type="checkbox" name="pushed"; " All commits are pushed" }
                label.check { input type="checkbox" name="pr"; " There is a pull request" }
                label.check { input type="checkbox" name="review"; " A review by Codex finds nothing" }
                label {
                    "Sandbox"
                    select name="sandbox" {
                        option value="workspace-write" selected { "may write in the directory" }
                        option value="read-only" { "read only" }
                    }
                }
                button.primary { "Start a run" }
            }
        }
    }
}
