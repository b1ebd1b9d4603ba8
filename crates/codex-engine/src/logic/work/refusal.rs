//! Refused steps: by a person, by Codex's policy, or by the sandbox.

use serde::{Deserialize, Serialize};

/// Parts of the output of commands that the sandbox stops, in lower case: those by which Codex
/// itself recognises such output (0.169.0), and those that indicate a missing network.
const BY_THE_SANDBOX: [&str; 8] = [
    "operation not permitted",
    "permission denied",
    "read-only file system",
    "could not resolve host",
    "temporary failure in name resolution",
    "network is unreachable",
    "seccomp",
    "landlock",
];

/// Whether steps were refused, and whether a later step succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No step was refused.
    #[default]
    None,
    /// A step was refused, and a later one has succeeded.
    Followed,
    /// A step was refused, and none has succeeded since.
    Last,
}

impl Refusal {
    /// The state after a step that has succeeded.
    #[must_use]
    pub fn after_success(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Followed | Self::Last => Self::Followed,
        }
    }
}

/// Whether the output of a failed command shows that the sandbox probably refused it. A
/// command may print the same for another reason.
#[must_use]
pub fn is_by_the_sandbox(output: &str) -> bool {
    let output = output.to_lowercase();
    BY_THE_SANDBOX.iter().any(|words| output.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_refusals_are_recognised_by_their_errors() {
        for output in [
            "touch: cannot touch 'x': Read-only file system\n",
            "curl: (7) Operation not permitted",
            "bash: x: Permission denied",
        ] {
            assert!(is_by_the_sandbox(output), "{output}");
        }
        assert!(!is_by_the_sandbox("make: *** no rule"));
    }
}
