//! A warning about the settings, for the user.

use std::fmt;

/// A setting that was ignored, or that the user should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What happened.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.message, self.hint)
    }
}
