//! Which machine this is, for a store that several share.

/// The machine's name, as `hostname` tells it. Two machines of one store have to have
/// different ones.
#[must_use]
pub fn name() -> String {
    match nix::unistd::gethostname() {
        Ok(name) if !name.is_empty() => name.to_string_lossy().into_owned(),
        _ => "localhost".to_owned(),
    }
}
