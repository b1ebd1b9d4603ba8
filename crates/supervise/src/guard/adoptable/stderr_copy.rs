//! Copies the program's stderr to that of the guard, even after the reader has gone: the program
//! must neither wait for a reader nor fail for lack of one. Also searches the copied text for the
//! port on which the program listens.

use std::io::{self, Read, Write};
use std::process::ChildStderr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use common::output;

use super::program_port::PortFinder;

/// How long copying the rest may take once the program has ended.
const REST_TIMEOUT: Duration = Duration::from_millis(200);

/// A copy that lasts until the program, and all processes that it has started, have closed its
/// stderr.
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
            // Fails if the guard does not wait for the copy.
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
    /// Waits for the rest, at most for [`REST_TIMEOUT`].
    pub(super) fn finish(self) {
        // An owner that does not read cannot be waited for.
        let _ = self.finished.recv_timeout(REST_TIMEOUT);
    }
}
