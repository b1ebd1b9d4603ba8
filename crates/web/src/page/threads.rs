//! Recorded threads, which can be resumed.

use std::time::SystemTime;

use maud::{Markup, html};
use work_board::ThreadRecord;

use super::layout::{self, clock, foreign_line};
use crate::logic::access::Scope;

/// The most threads on the page.
const MOST: usize = 200;

/// The page.
pub(crate) fn page(scope: Scope, threads: &[ThreadRecord], now: SystemTime) -> Markup {
    let left_out = threads.len().saturating_sub(MOST);
    let body = html! {
        h1 { "Threads" }
        p.hint { "A thread that no host has any longer can be resumed: Codex remembers it." }
        ul.work { @for one in threads.iter().take(MOST) { li { (thread(scope, one, now)) } } }
        @if threads.is_empty() { p.hint { "There are no threads yet." } }
        @if left_out > 0 {
            p.hint { (left_out) " more; " code { "codex-mcp threads" } " lists all" }
        }
    };
    layout::page("Threads", None, &body)
}

fn thread(scope: Scope, record: &ThreadRecord, now: SystemTime) -> Markup {
    let prompt = record.prompt.as_deref().unwrap_or(&record.thread);
    html! {
        p.title { (foreign_line(prompt)) }
        p.facts {
            (foreign_line(&record.status))
            @if let (None, Some(turn)) = (&record.session, &record.last_turn) {
                ", last turn " (foreign_line(turn))
            }
            " · used " (clock(record.last_active, now)) " ago · "
            @if let Some(directory) = &record.directory {
                span.directory { (foreign_line(directory)) } " · "
            }
            code { (foreign_line(&record.thread)) }
        }
        @if let Some(session) = &record.session {
            p { a href={ "/sessions/" (session) } { "Open its session" } }
        } @else {
            (layout::resume(scope, &record.thread, record.directory.as_deref()))
        }
    }
}
