//! Configuration logic that needs neither files nor a clock.

pub mod codex_servers;
pub mod prompt_kind;
