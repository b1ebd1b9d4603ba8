//! Signing in, and the pages of errors.

use maud::{Markup, html};

use super::layout;

/// The page for a browser that is not signed in. With the code of a link, it offers a button to use
/// the link, so that programs that only fetch the link do not use it up. The page is the same for
/// each code: otherwise, somebody could try codes without the pause after wrong ones.
pub(crate) fn sign_in(code: Option<&str>, refused: Option<&str>) -> Markup {
    let body = html! {
        h1 { "Sign in" }
        @if let Some(why) = refused {
            p.error role="alert" { (why) }
        }
        @if let Some(code) = code {
            form #sign-in method="post" action="/login" {
                input type="hidden" name="code" value=(code);
                p { "This link can be used once. It keeps this browser signed in for 30 days at most, and only until the server of the page ends." }
                p {
                    "It may have been used already, or be too old. Then type " code { "codex-mcp web link" }
                    " on the machine where codex-mcp runs, and open the link that it prints."
                }
                button.primary { "Sign in" }
            }
        } @else {
            p { "This browser is not signed in. On the machine where codex-mcp runs, type" }
            pre { "codex-mcp web link" }
            p { "and open the link that it prints." }
        }
    };
    layout::open_page("Sign in", &body)
}

/// A page with the reason why an action was refused.
pub(crate) fn refused(title: &str, why: &str) -> Markup {
    let body = html! {
        h1 { (title) }
        p.error role="alert" { (layout::foreign(why)) }
        p { a href="/" { "Back to the work" } }
    };
    layout::open_page(title, &body)
}
