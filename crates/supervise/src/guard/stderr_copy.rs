//! Copies the program's stderr to that of the guard, also when nobody reads it any more: the
//! program neither waits for a reader nor fails for want of one.

use std::io::{self, Read, Write};
use std::process::ChildStderr;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use common::output;

/// How long the rest may take to be copied once the program has ended.
const REST_TIMEOUT: Duration = Duration::from_millis(200);

/// A copy that lasts until the program, and all that it has started, has closed its stderr.
pub(super) struct StderrCopy {
    finished: Receiver<()>,
}

/// Starts to copy.
///
/// # Errors
///
/// If there can be no further thread.
pub(super) fn start(stderr: ChildStderr) -> io::Result<StderrCopy> {
    let (finish, finished) = sync_channel(1);
    thread::Builder::new()
        .name("stderr".to_owned())
        .spawn(move || {
            copy(stderr);
            // Nobody waits if the guard has not.
            let _ = finish.send(());
        })?;
    Ok(StderrCopy { finished })
}

fn copy(mut stderr: ChildStderr) {
    let mut buffer = [0; 8192];
    loop {
        match stderr.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                // Fails while there is no owner.
                let _ = output::stderr().write_all(buffer.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl StderrCopy {
    /// Waits for the rest, for a moment.
    pub(super) fn finish(self) {
        // An owner that does not read cannot be waited for.
        let _ = self.finished.recv_timeout(REST_TIMEOUT);
    }
}
