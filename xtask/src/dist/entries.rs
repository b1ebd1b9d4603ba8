//! Reproducible `.tar.gz` files: the same entries make the same bytes.

use std::io::{Read, Write};

use anyhow::Context;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::release::Effort;

/// The most bytes that are read from an archive: programs have some 20 MB.
const LARGEST: u64 = 512 << 20;

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// With `/` between directories, and none in front.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    /// The permissions, such as 0o755.
    pub(crate) mode: u32,
}

impl Entry {
    /// A file that everybody may read.
    pub(crate) fn file(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            bytes: bytes.into(),
            mode: 0o644,
        }
    }

    /// A program that everybody may run.
    pub(crate) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            mode: 0o755,
            ..Self::file(path, bytes)
        }
    }
}

/// Packs the entries in the given order. All belong to root and have the given modification time,
/// in seconds since 1970.
///
/// # Errors
/// When a path is too long or not relative.
pub(crate) fn tar_gz(entries: &[Entry], time: u64, effort: Effort) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(entry.bytes.len() as u64);
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(time);
        archive
            .append_data(&mut header, &entry.path, entry.bytes.as_slice())
            .with_context(|| format!("cannot pack {}", entry.path))?;
    }
    gzip(&archive.into_inner()?, effort)
}

/// Compresses without a name and a time in the result.
///
/// # Errors
/// None in practice: it writes into memory.
pub(crate) fn gzip(bytes: &[u8], effort: Effort) -> anyhow::Result<Vec<u8>> {
    let level = match effort {
        Effort::Best => Compression::best(),
        Effort::Quick => Compression::fast(),
    };
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// The contents of the file `path` in a `.tar.gz`.
///
/// # Errors
/// When the archive is broken or has no such file.
pub(crate) fn read(archive: impl Read, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive).take(LARGEST));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path_bytes() == path.as_bytes() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
    }
    anyhow::bail!("the archive has no {path}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn same_entries_make_the_same_bytes() {
        let entries = [
            Entry::program("x/run", *b"#!/bin/sh\n"),
            Entry::file("x/README", *b"text"),
        ];
        let archive = tar_gz(&entries, 1_700_000_000, Effort::Quick).unwrap();
        let again = tar_gz(&entries, 1_700_000_000, Effort::Quick).unwrap();
        assert!(archive == again);
        assert_eq!(read(archive.as_slice(), "x/README").unwrap(), b"text");
        assert!(read(archive.as_slice(), "README").is_err());
    }

    #[test]
    fn path_out_of_the_archive_is_refused() {
        for path in ["../x", "/x"] {
            assert!(
                tar_gz(&[Entry::file(path, "")], 0, Effort::Quick).is_err(),
                "{path}"
            );
        }
    }
}
