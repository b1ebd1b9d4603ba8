//! The name of this host, for a store that several hosts share.

/// The host name, as `hostname` prints it. The hosts of one store must have different names.
#[must_use]
pub fn name() -> String {
    match nix::unistd::gethostname() {
        Ok(name) if !name.is_empty() => name.to_string_lossy().into_owned(),
        _ => "localhost".to_owned(),
    }
}
