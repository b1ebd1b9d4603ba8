//! Recorded threads, which can be resumed.

use std::time::SystemTime;

use maud::{Markup, html};
use work_board::ThreadRecord;

use super::layout::{self, clock, foreign_line};
use crate::logic::access::Scope;

/// The most threads on the page.
const MOST: usize = 200;

/// A thread, and the session that has it now.
pub(crate) struct ListedThread {
    pub(crate) record: ThreadRecord,
    pub(crate) session: Option<String>,
}

/// The page.
pub(crate) fn page(scope: Scope, threads: &[ListedThread], now: SystemTime) -> Markup {
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

fn thread(scope: Scope, one: &ListedThread, now: SystemTime) -> Markup {
    let ListedThread { record, session } = one;
    let prompt = record.prompt.as_deref().unwrap_or(&record.thread);
    html! {
        p.title { (foreign_line(prompt)) }
        p.facts {
            (foreign_line(&record.status)) " · used " (clock(record.last_active, now)) " ago · "
            @if let Some(directory) = &record.directory {
                span.directory { (foreign_line(directory)) } " · "
            }
            code { (foreign_line(&record.thread)) }
        }
        @if let Some(session) = session {
            p { a href={ "/sessions/" (session) } { "Open its session" } }
        } @else if scope == Scope::Decide {
            form.inline method="post" action="/threads" data-live {
                input type="hidden" name="thread" value=(record.thread);
                @if let Some(directory) = &record.directory {
                    input type="hidden" name="directory" value=(directory);
                }
                button { "Resume" }
            }
        }
    }
}
