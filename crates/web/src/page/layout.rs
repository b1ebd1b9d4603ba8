//! The common parts of all pages.

use std::time::{Duration, SystemTime};

use common::text::{visible, visible_line};
use common::timestamp::timestamp;
use maud::{DOCTYPE, Markup, html};

use crate::logic::access::Scope;
use crate::start;

/// The scripts of the page, in the order in which they run: the second one uses the first.
const SCRIPTS: [&str; 2] = ["page.js", "connection.js"];

/// The address of a script or the style sheet. It is new at each start: while no endpoint ran,
/// another user may have had the port, and a browser may keep what it was sent there for an address
/// of ours.
pub(crate) fn asset(name: &str) -> String {
    format!("/assets/{}/{name}", start::mark("assets"))
}

/// The mark by which the script recognises the endpoint that has sent its page. Only pages for
/// signed-in viewers contain it.
pub(crate) fn endpoint_mark() -> String {
    start::mark("endpoint")
}

/// A page for a signed-in viewer. It receives its changes from the address `events`.
pub(crate) fn page(title: &str, events: Option<&str>, body: &Markup) -> Markup {
    let links = html! {
        " " a href="/threads" { "Threads" }
        " " a href="/mail" { "Mail" }
        form.inline method="post" action="/logout" { button.plain { "Sign out" } }
    };
    whole(title, events, &links, body)
}

/// A page that does not require signing in.
pub(crate) fn open_page(title: &str, body: &Markup) -> Markup {
    whole(title, None, &html! {}, body)
}

fn whole(title: &str, events: Option<&str>, links: &Markup, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (visible_line(title)) " · codex-mcp" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href=(asset("page.css"));
                @for name in SCRIPTS { script src=(asset(name)) defer {} }
            }
            body data-events=[events] data-endpoint=[events.map(|_| endpoint_mark())] {
                a.skip href="#main" { "Skip to the contents" }
                header {
                    nav aria-label="Main" {
                        a.home href="/" { "codex-mcp" }
                        (links)
                    }
                    // The scripts report lost connections and failures here.
                    p #status role="status" {}
                }
                main #main tabindex="-1" { (body) }
            }
        }
    }
}

/// A text of somebody else, on several lines; hidden characters are made visible.
pub(crate) fn foreign(text: &str) -> Markup {
    html! { (visible(text)) }
}

/// The same on one line.
pub(crate) fn foreign_line(text: &str) -> Markup {
    html! { (visible_line(text)) }
}

/// A clock that the script updates: the time since an event.
pub(crate) fn clock(since: SystemTime, now: SystemTime) -> Markup {
    let millis = since.duration_since(SystemTime::UNIX_EPOCH);
    let millis = millis.unwrap_or_default().as_millis();
    let took = now.duration_since(since).unwrap_or_default();
    html! {
        time datetime=(timestamp(since)) data-since=(millis) { (short(took)) }
    }
}

/// A duration, as the script writes it too.
fn short(took: Duration) -> String {
    let seconds = took.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Resumes a thread, for those who may decide.
pub(crate) fn resume(scope: Scope, thread: &str, directory: Option<&str>) -> Markup {
    html! {
        @if scope == Scope::Decide {
            form.inline method="post" action="/threads" data-live {
                input type="hidden" name="thread" value=(thread);
                @if let Some(directory) = directory {
                    input type="hidden" name="directory" value=(directory);
                }
                button { "Resume the thread" }
            }
        }
    }
}

/// A form with one button, for those who may decide.
pub(crate) fn button(scope: Scope, action: &str, label: &str, class: &str) -> Markup {
    html! {
        @if scope == Scope::Decide {
            form.inline method="post" action=(action) data-live {
                button id=(action) class=(class) { (label) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another user of the machine can load the page for signing in, and could then pretend to be the
    /// endpoint.
    #[test]
    fn endpoint_mark_is_only_on_pages_for_viewers() {
        let body = html! {};
        let viewed = page("Work", Some("/events"), &body).into_string();
        assert!(viewed.contains(&endpoint_mark()), "{viewed}");
        let open = open_page("Sign in", &body).into_string();
        assert!(!open.contains(&endpoint_mark()), "{open}");
        for name in SCRIPTS.into_iter().chain(["page.css"]) {
            assert!(open.contains(&asset(name)), "{open}");
        }
    }
}
