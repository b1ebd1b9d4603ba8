//! The identity of a directory, to distinguish it from a later one at the same path.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;
use std::{fs, io};

use serde::{Deserialize, Serialize};

/// The identity of a directory at the time of recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DirectoryIdentity {
    pub(super) path: OsString,
    device: u64,
    inode: u64,
    /// The creation time, in ns since 1970; `None` if the file system does not record it.
    made: Option<u128>,
}

impl DirectoryIdentity {
    /// Records the directory at `path`.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let about = fs::metadata(path)?;
        let made = about.created().ok();
        let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            path: path.as_os_str().to_owned(),
            device: about.dev(),
            inode: about.ino(),
            made: made.map(|made| made.as_nanos()),
        })
    }

    /// Whether the directory now at `path` is the recorded one. The device number may change when
    /// the system restarts, so the creation time is compared instead if it is known.
    pub(super) fn is(&self, path: &Path) -> bool {
        let Ok(now) = Self::of(path) else {
            return false;
        };
        let is_same = match (self.made, now.made) {
            (Some(before), Some(now)) => before == now,
            _ => self.device == now.device,
        };
        self.path == now.path && self.inode == now.inode && is_same
    }

    /// Whether the directory is still there.
    pub(super) fn is_there(&self) -> bool {
        self.is(Path::new(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_that_was_replaced_is_another_one() {
        let all = tempfile::tempdir().unwrap();
        let (path, aside) = (all.path().join("x"), all.path().join("y"));
        fs::create_dir(&path).unwrap();
        let directory_identity = DirectoryIdentity::of(&path).unwrap();
        assert!(directory_identity.is_there());
        fs::rename(&path, &aside).unwrap();
        assert!(!directory_identity.is_there());
        assert!(!directory_identity.is(&aside), "its path counts, too");
        fs::create_dir(&path).unwrap();
        assert!(!directory_identity.is_there());
        let reused = DirectoryIdentity {
            inode: DirectoryIdentity::of(&path).unwrap().inode,
            ..directory_identity
        };
        assert_eq!(reused.is_there(), reused.made.is_none());
    }
}
