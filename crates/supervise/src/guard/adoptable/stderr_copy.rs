//! Copies the program's stderr to that of the guard, also when nobody reads it any more: the
//! program neither waits for a reader nor fails for want of one. Meanwhile it looks for the port
//! on which the program says that it listens.

use std::io::{self, Read, Write};
use std::process::ChildStderr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use common::output;

use super::program_port::PortFinder;

/// How long the rest may take to be copied once the program has ended.
const REST_TIMEOUT: Duration = Duration::from_millis(200);

/// A copy that lasts until the program, and all that it has started, has closed its stderr.
pub(super) struct StderrCopy {
    finished: Receiver<()>,
}

/// Starts to copy. The receiver gets the port on which the program listens, and is closed if the
/// program ends without one.
///
/// # Errors
///
/// If there can be no further thread.
pub(super) fn start(stderr: ChildStderr) -> io::Result<(StderrCopy, Receiver<u16>)> {
    let (finish, finished) = sync_channel(1);
    let (tell, port) = sync_channel(1);
    thread::Builder::new()
        .name("stderr".to_owned())
        .spawn(move || {
            copy(stderr, tell);
            // Nobody waits if the guard has not.
            let _ = finish.send(());
        })?;
    Ok((StderrCopy { finished }, port))
}

fn copy(mut stderr: ChildStderr, port: SyncSender<u16>) {
    let mut buffer = [0; 8192];
    let mut search = Some((PortFinder::default(), port));
    loop {
        match stderr.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let read = buffer.get(..count).unwrap_or_default();
                if let Some((finder, tell)) = &mut search
                    && let Some(port) = finder.push(read)
                {
                    // Nobody waits for it if the first owner has died.
                    let _ = tell.send(port);
                    search = None;
                }
                // Fails while there is no owner.
                let _ = output::stderr().write_all(read);
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
