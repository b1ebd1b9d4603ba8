//! Files of teams: read whole, up to a bound, and never through a link.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

use super::MailError;

/// What a file holds, and what it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    /// Who may read it; kept when it is replaced.
    pub(super) mode: u32,
}

/// Reads a file; `None` if there is none.
pub(super) fn read(path: &Path, limit: u64) -> Result<Option<Contents>, MailError> {
    // A pipe of that name would make us wait for its writer.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if is_link(path) => {
            drop(error);
            let path = path.to_owned();
            return Err(MailError::Outside { path });
        }
        Err(error) => return Err(MailError::of(path)(error)),
    };
    let about = file.metadata().map_err(MailError::of(path))?;
    if !about.is_file() {
        let path = path.to_owned();
        return Err(MailError::NoFile { path });
    }
    let bytes = whole(&mut file, about.len(), limit).map_err(MailError::of(path))?;
    match u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        length if length > limit => Err(MailError::TooLarge {
            path: path.to_owned(),
            bytes: length.max(about.len()),
            limit,
        }),
        _ => Ok(Some(Contents {
            bytes,
            mode: about.mode() & 0o7777,
        })),
    }
}

/// At most one byte more than the limit, however the file grows.
fn whole(file: &mut File, expected: u64, limit: u64) -> io::Result<Vec<u8>> {
    let expected = usize::try_from(expected.min(limit)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(expected.saturating_add(1));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink())
}
