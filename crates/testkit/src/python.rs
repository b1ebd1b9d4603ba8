//! The official Python library of MCP, installed from PyPI.

use std::path::PathBuf;

use crate::target_dir;

/// The packages that `cargo xtask peers` installs.
const REQUIREMENTS: &str = include_str!("../python-requirements.txt");

/// The Python that has the library.
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn with_library() -> PathBuf {
    let mut lines = REQUIREMENTS.lines();
    let version = lines.find_map(|line| line.strip_prefix("mcp==")).unwrap();
    let python = target_dir().join("python").join(version).join("bin/python");
    assert!(
        python.is_file(),
        "the Python library of MCP {version} is not installed. Run `cargo xtask peers`."
    );
    python
}
