//! Where the next owner finds the programs of one that was killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// How many hexadecimal digits tell the programs of a user apart.
const ID_DIGITS: usize = 12;

/// The adoption sockets of one owner after the other: the files `OWNER.ID.guard` in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptionSockets {
    directory: PathBuf,
    owner: String,
}

impl AdoptionSockets {
    /// The end of the name of a socket.
    pub const END: &str = "guard";

    /// Those of the owners of this name, which has no dot. Only the user may access the directory.
    #[must_use]
    pub fn new(directory: impl AsRef<Path>, owner: impl Into<String>) -> Self {
        Self {
            directory: directory.as_ref().to_owned(),
            owner: owner.into(),
        }
    }

    /// The path of the socket of one more program.
    #[must_use]
    pub fn new_socket(&self) -> PathBuf {
        let id = Uuid::new_v4().simple().to_string();
        let short = id.get(..ID_DIGITS).unwrap_or(&id);
        self.directory
            .join(format!("{}.{short}.{}", self.owner, Self::END))
    }

    /// The sockets of the programs that the last owner has left.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn left(&self) -> io::Result<Vec<PathBuf>> {
        let mut left = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let is_ours = name.is_some_and(|name| name.starts_with(&format!("{}.", self.owner)));
            if is_ours && path.extension().is_some_and(|end| end == Self::END) {
                left.push(path);
            }
        }
        Ok(left)
    }
}
