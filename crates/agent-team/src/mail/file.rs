//! Files of teams: read whole, up to a bound, and never through a link.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use safe_files::untrusted_file::{self, Links, ReadError};

use super::MailError;

/// The content and the mode of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    /// The permission bits, which a replacement keeps.
    pub(super) mode: u32,
}

/// Reads a file; `None` if there is none.
pub(super) fn read(path: &Path, limit: u64) -> Result<Option<Contents>, MailError> {
    let mut file = match untrusted_file::open(path, Links::Refused) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(ReadError::Io { error, .. }) => return Err(MailError::of(path)(error)),
        Err(_) => {
            let path = path.to_owned();
            return Err(match is_link(&path) {
                true => MailError::Outside { path },
                false => MailError::NoFile { path },
            });
        }
    };
    let about = file.metadata().map_err(MailError::of(path))?;
    let bytes = read_limited(&mut file, about.len(), limit).map_err(MailError::of(path))?;
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

/// Reads at most one byte more than the limit, even if the file grows.
fn read_limited(file: &mut File, expected: u64, limit: u64) -> io::Result<Vec<u8>> {
    let expected = usize::try_from(expected.min(limit)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(expected.saturating_add(1));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink())
}
