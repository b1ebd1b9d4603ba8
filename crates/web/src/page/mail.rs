//! The mail of the team.

use std::sync::Arc;

use agent_team::logic::AgentName;
use agent_team::logic::inbox::Envelope;
use maud::{Markup, html};
use work_board::{MemberMail, TeamMail};

use super::layout::{self, foreign, foreign_line};
use crate::logic::access::Scope;

/// The page. Messages that are sent come from `sender`.
pub(crate) fn page(
    scope: Scope,
    mail: &Result<Arc<TeamMail>, String>,
    sender: &AgentName,
) -> Markup {
    let body = html! {
        h1 { "Mail" }
        @match mail {
            Ok(mail) => {
                p.hint { "The unread mail of team " (mail.team) ". It stays unread." }
                @for one in &mail.members { (member(one)) }
                @if scope == Scope::Decide { (send(mail, sender)) }
            }
            Err(why) => p.hint { (foreign(why)) },
        }
    };
    layout::page("Mail", None, &body)
}

fn member(mail: &MemberMail) -> Markup {
    html! {
        section aria-label={ "Mail of " (mail.member) } {
            h2 { (mail.member) }
            @for one in &mail.unread { (message(one)) }
            @if let Some(why) = &mail.error {
                p.error { (foreign(why)) }
            } @else if mail.unread.is_empty() {
                p.hint { "Nothing is unread." }
            }
            @if mail.remaining > 0 { p.hint { (mail.remaining) " more" } }
        }
    }
}

fn message(one: &Envelope) -> Markup {
    html! {
        article.mail {
            p.facts {
                "from " (foreign_line(&one.from))
                @if let Some(at) = &one.timestamp { " · " (foreign_line(at)) }
            }
            pre.words { (foreign(&one.message)) }
        }
    }
}

fn send(mail: &TeamMail, sender: &AgentName) -> Markup {
    html! {
        form.send method="post" action="/mail" data-live {
            label {
                "To"
                select name="to" {
                    @for one in &mail.members { option value=(one.member) { (one.member) } }
                }
            }
            label { "Message, from " (sender) textarea name="text" rows="3" required {} }
            button.primary { "Send" }
        }
    }
}
