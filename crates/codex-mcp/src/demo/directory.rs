//! Removal of temporary directories.

use std::io;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::sleep;

/// How often removal is tried, and the pause between attempts, while a dying process may still
/// write.
const ATTEMPTS: u32 = 60;
const PAUSE: Duration = Duration::from_millis(50);

/// Removes a directory with its content. A missing directory is no error.
///
/// # Errors
///
/// When the directory cannot be removed within three seconds of retries.
pub(super) async fn remove(directory: TempDir) -> io::Result<()> {
    let mut attempt = 1;
    loop {
        match std::fs::remove_dir_all(directory.path()) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if attempt == ATTEMPTS => return Err(error),
            Err(_) => {}
        }
        attempt += 1;
        sleep(PAUSE).await;
    }
}
