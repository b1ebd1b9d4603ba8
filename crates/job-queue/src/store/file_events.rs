//! Notices writes to a store's files at once, where the system reports them.
//!
//! The events only shorten the time until the next check of the file: an event may be lost,
//! and a network file system does not report writes of other machines.
//!
//! Source: inotify(7).

use std::path::Path;

#[cfg(not(all(target_os = "linux", not(portable))))]
pub(super) use elsewhere::FileEvents;
#[cfg(all(target_os = "linux", not(portable)))]
pub(super) use linux::FileEvents;

#[cfg(all(target_os = "linux", not(portable)))]
mod linux {
    use std::ffi::OsStr;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;

    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::Path;

    /// The size of the read buffer, in bytes: enough for some tens of events.
    const BUFFER: usize = 2048;

    /// The writes to the files of a store.
    pub(in super::super) struct FileEvents {
        /// `None` if the user's limit of watches is reached.
        events: Option<AsyncFd<OwnedFd>>,
        /// The common prefix of the files' names: the log and others lie beside the store.
        name: Vec<u8>,
    }

    impl FileEvents {
        /// Watches the files from now on. Must be called on the runtime.
        pub(in super::super) fn of(path: &Path) -> Self {
            let events = watch_directory_of(path)
                .inspect_err(|error| tracing::debug!("{}: {error}", path.display()));
            let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
            Self {
                events: events.ok(),
                name: name.to_owned(),
            }
        }

        /// Waits until one of the files is written to.
        pub(in super::super) async fn written(&mut self) {
            if let Some(events) = &self.events {
                loop {
                    match events
                        .async_io(Interest::READABLE, |fd| self.read(fd))
                        .await
                    {
                        Ok(true) => return,
                        Ok(false) => {}
                        Err(error) => {
                            tracing::debug!("no more events of files: {error}");
                            break;
                        }
                    }
                }
                self.events = None;
            }
            std::future::pending::<()>().await;
        }

        /// Reads all pending events. Returns whether any is about the files.
        fn read(&self, events: &OwnedFd) -> io::Result<bool> {
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = Reader::new(events, &mut buffer);
            // Without an event the read would block, and the runtime waits for the next one.
            let mut is_one = self.is_about_files(&reader.next()?);
            while !reader.is_buffer_empty() {
                is_one |= self.is_about_files(&reader.next()?);
            }
            Ok(is_one)
        }

        fn is_about_files(&self, event: &rustix::fs::inotify::Event<'_>) -> bool {
            let name = event.file_name();
            // An overflow of the queue names no file.
            name.is_none_or(|name| name.to_bytes().starts_with(&self.name))
        }
    }

    fn watch_directory_of(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
        let directory = path
            .parent()
            .filter(|directory| !directory.as_os_str().is_empty());
        let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        add_watch(
            &events,
            directory.unwrap_or(Path::new(".")),
            WatchFlags::MODIFY,
        )?;
        // SAFETY: the descriptor is open, and stays the same one until it is closed together
        // with its registration: nothing replaces it in between.
        let events = unsafe { AsyncFd::register_with_interest(events, Interest::READABLE) };
        events.map_err(Into::into)
    }
}

#[cfg(not(all(target_os = "linux", not(portable))))]
mod elsewhere {
    use super::Path;

    /// Reports no writes.
    pub(in super::super) struct FileEvents;

    impl FileEvents {
        pub(in super::super) fn of(_: &Path) -> Self {
            Self
        }

        pub(in super::super) async fn written(&mut self) {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(all(test, target_os = "linux", not(portable)))]
#[expect(
    clippy::disallowed_methods,
    reason = "the test writes files of its own"
)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn write_to_the_log_of_the_store_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("jobs.db");
        let mut events = FileEvents::of(&store);
        fs::write(directory.path().join("jobs.db-wal"), "x").unwrap();
        timeout(LIMIT, events.written()).await.unwrap();
    }

    #[tokio::test]
    async fn write_to_another_file_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let mut events = FileEvents::of(&directory.path().join("jobs.db"));
        fs::write(directory.path().join("worker.log"), "x").unwrap();
        let told = timeout(Duration::from_millis(50), events.written());
        assert!(told.await.is_err());
        fs::write(directory.path().join("jobs.db"), "x").unwrap();
        timeout(LIMIT, events.written()).await.unwrap();
    }
}
