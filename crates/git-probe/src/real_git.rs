//! Helpers of unit tests that run the real git.

use std::path::Path;
use std::time::Duration;

use supervise::spawn::set_guard_executable;
use tokio_util::sync::CancellationToken;

use crate::Bounds;

/// Bounds for git, which runs under the guard of the workspace's program.
pub(crate) fn guarded_bounds() -> Bounds {
    // The program lies in the directory above the executable of these tests.
    let tests = std::env::current_exe().unwrap();
    let directory = tests.parent().and_then(Path::parent).unwrap();
    set_guard_executable(&directory.join("codex-mcp"));
    Bounds {
        timeout: Duration::from_secs(30),
        limit: 1024 * 1024,
        halt: CancellationToken::new(),
    }
}
