//! Temporary directories that are gone afterwards.

use std::io;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::sleep;

/// How often and how long removing is tried while a process that is being ended
/// may still write.
const ATTEMPTS: u32 = 60;
const PAUSE: Duration = Duration::from_millis(50);

/// Removes a directory and all that is in it. That it is gone already is no error.
///
/// # Errors
///
/// When it can't be removed, also not by trying again for three seconds.
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
