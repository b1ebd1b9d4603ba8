//! Performs the effects that a session machine returns.

use codex_protocol::codex::{Method, ThreadParams, TurnInterruptParams};

use super::entry::Entry;
use crate::logic::session::Effect;

/// Performs the effects that a machine returned.
pub(super) fn perform(entry: &Entry, effects: Vec<Effect>) {
    if effects.is_empty() {
        return;
    }
    let (server, _) = entry.server();
    let connection = server.connection();
    let of_thread = ThreadParams {
        thread_id: &entry.thread,
    };
    for effect in effects {
        match effect {
            Effect::Answer { request, result } => match entry.decision(&request) {
                Some(decision) => drop(decision.send(result)),
                None => connection.answer(&request, &result),
            },
            Effect::Interrupt(turn) => {
                let params = TurnInterruptParams {
                    thread_id: &entry.thread,
                    turn_id: &turn,
                };
                connection.cast(Method::TurnInterrupt, &params);
            }
            Effect::StopCommands => connection.cast(Method::BackgroundTerminalsClean, &of_thread),
            Effect::Unsubscribe => connection.cast(Method::ThreadUnsubscribe, &of_thread),
        }
    }
}
