//! Marks in the index that hide changes: `assume-unchanged` and `skip-worktree`.
//!
//! The user may have set such marks before the run, and a sparse checkout consists of them. Files
//! that were marked after the run began are inspected all the same.
//!
//! Source: git-ls-files(1) for `-v`, git-update-index(1).

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use safe_files::untrusted_file::{Links, open};
use serde::{Deserialize, Serialize};

use super::bytes::Bytes;
use super::{Git, GitError};

const LIST: &[&str] = &["ls-files", "-z", "-v"];

/// The options that clear the marks. Git accepts only one of them at a time.
const CLEARING: [&str; 2] = ["--no-assume-unchanged", "--no-skip-worktree"];

/// The files that were marked, and the index that they were marked in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flags {
    marked: BTreeSet<Bytes>,
    index: Option<IndexStamp>,
}

/// A fingerprint that changes when an index is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct IndexStamp(u64, u64, i64, i64);

impl IndexStamp {
    fn of(about: &Metadata) -> Self {
        Self(about.ino(), about.len(), about.ctime(), about.ctime_nsec())
    }
}

impl Git {
    /// The files that are marked now.
    pub async fn flags(&self) -> Result<Flags, GitError> {
        let index = self.index_stamp();
        Ok(Flags {
            marked: self.marked().await?,
            index,
        })
    }

    /// Git with an index in which only those files are marked that were marked `before`.
    pub async fn seeing_through(&self, before: &Flags) -> Result<Self, GitError> {
        if self.index_stamp() == before.index {
            return Ok(self.clone());
        }
        let marked = self.marked().await?;
        let new: Vec<&[u8]> = marked
            .difference(&before.marked)
            .map(|path| path.0.as_slice())
            .collect();
        if new.is_empty() {
            return Ok(self.clone());
        }
        let index = self.view().join("index");
        let mut marks = open(&self.index(), Links::Refused).map_err(io::Error::other)?;
        io::copy(&mut marks, &mut File::create(&index)?)?;
        let mut git = self.clone();
        git.set("GIT_INDEX_FILE", &index);
        let mut names = new.join(&0);
        names.push(0);
        for clear in CLEARING {
            git.output(&["update-index", "-z", clear, "--stdin"], &names)
                .await?;
        }
        Ok(git)
    }

    fn index(&self) -> PathBuf {
        self.layout().git_dir.join("index")
    }

    fn index_stamp(&self) -> Option<IndexStamp> {
        let about = fs::symlink_metadata(self.index()).ok()?;
        Some(IndexStamp::of(&about))
    }

    /// The tag of a marked file is a small letter, or `S`.
    async fn marked(&self) -> Result<BTreeSet<Bytes>, GitError> {
        let output = self.output(LIST, &[]).await?;
        let records = output.split(|byte| *byte == 0);
        let marked = records.filter_map(|record| match record {
            [tag, b' ', path @ ..] if tag.is_ascii_lowercase() || *tag == b'S' => {
                Some(Bytes(path.to_owned()))
            }
            _ => None,
        });
        Ok(marked.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_survive_json() {
        let flags = Flags {
            marked: [Bytes(b"a\xff".to_vec())].into(),
            index: Some(IndexStamp(u64::MAX, 2, -3, 4)),
        };
        let text = serde_json::to_string(&flags).unwrap();
        let read: Flags = serde_json::from_str(&text).unwrap();
        assert_eq!((read.marked, read.index), (flags.marked, flags.index));
    }
}
