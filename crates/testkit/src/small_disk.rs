//! A small file system, which can be filled.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// How much is written at once to fill the disk, in bytes: a page, so that no page stays free.
const PIECE: usize = 4096;

/// A small file system that is mounted on a directory until this is dropped. Only on Linux.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of this size, in KiB, on a directory, which is made if there is none.
    #[must_use]
    pub fn on(directory: &Path, size: u32) -> Self {
        fs::create_dir_all(directory).unwrap();
        mount(directory, size);
        Self(directory.to_owned())
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Fills the disk until the returned [`Ballast`] is dropped.
    #[must_use]
    pub fn fill(&self) -> Ballast {
        let ballast = Ballast(self.0.join("ballast"));
        let mut file = File::create(&ballast.0).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[0; PIECE]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

#[cfg(target_os = "linux")]
fn mount(directory: &Path, size: u32) {
    let size = format!("size={size}k");
    let mounted = nix::mount::mount(
        Some("codex-mcp-test"),
        directory,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        Some(size.as_str()),
    );
    mounted.unwrap_or_else(|error| {
        panic!("this test mounts a small tmpfs, which takes root and CAP_SYS_ADMIN: {error}")
    });
}

#[cfg(not(target_os = "linux"))]
fn mount(_: &Path, _: u32) {
    panic!("this test mounts a tmpfs, which only Linux has");
}

#[cfg(target_os = "linux")]
fn unmount(directory: &Path) {
    nix::mount::umount2(directory, nix::mount::MntFlags::MNT_DETACH).unwrap();
}

#[cfg(not(target_os = "linux"))]
fn unmount(_: &Path) {}

/// A file that takes the room of a [`SmallDisk`]. It is removed on drop.
#[derive(Debug)]
pub struct Ballast(PathBuf);

impl Drop for Ballast {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}
