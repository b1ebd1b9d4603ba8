//! The parser of a file with settings, for the fuzz targets.

use std::path::Path;

use crate::error::ConfigError;
use crate::file::{File, Scope};
use crate::source::Warning;

/// Parses the text of a file twice: as the file of a repository, and as the user's own. Returns the
/// warnings.
///
/// # Errors
///
/// [`ConfigError`] if the text is malformed.
pub fn file(path: &Path, text: &str) -> Result<Vec<Warning>, ConfigError> {
    let mut warnings = Vec::new();
    for scope in [Scope::Repository, Scope::User] {
        File::parse(path, text, scope, &[], &mut warnings)?;
    }
    Ok(warnings)
}
