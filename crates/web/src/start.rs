//! Marks by which one start of the endpoint differs from every other.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// The random keys of this process, which serves one endpoint.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A text for this purpose that is the same as long as the endpoint runs, and that nobody can
/// predict for a later start.
pub(crate) fn mark(purpose: &str) -> String {
    format!("{:016x}", KEYS.hash_one(purpose))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ_by_purpose_and_stay() {
        assert_eq!(mark("one"), mark("one"));
        assert_ne!(mark("one"), mark("other"));
    }
}
