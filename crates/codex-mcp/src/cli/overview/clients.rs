//! The clients that have an entry for codex-mcp.

/// The names of the clients that are set up; `None` if that is not known.
// This is the place for the readers of the clients' configurations. Until they exist, the overview
// leaves the line out.
pub(super) fn clients_set_up() -> Option<Vec<String>> {
    None
}
