//! The content that the user's trust in a directory covers.
//!
//! Without a record, trust would extend to content that a model in a run, or a merge,
//! writes into the directory later. So `codex-mcp trust` records a hash of each file that
//! the trust covers. A file that is new, changed or removed suspends the trust until the
//! user accepts the files again.
//!
//! The record covers the files themselves, not the programs and further files that they
//! name for Codex.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::logic::prompt_kind::PromptKind;
use common::text::{hex, one_line};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toml::Table;

use super::covered_files::{CODEX_FILES, PROMPTS, SETTINGS};
use safe_files::untrusted_file;
use safe_files::untrusted_file::Links;
use safe_files::untrusted_file::ReadError;

/// The longest file that is hashed, in bytes.
const LIMIT: u64 = 1024 * 1024;

/// The most that is hashed for work in a directory, in bytes: a repository can be as deep as
/// paths can be long.
const TOTAL: u64 = 16 * LIMIT;

/// The most files of one directory that are hashed.
const FILES: usize = 256;

/// The depth to which directories with files for Codex are searched.
const DEPTH: usize = 8;

/// The most entries of these directories that are visited for work in a directory. Otherwise
/// a few directories with links to each other could make the search endless.
const ENTRIES: usize = 2000;

/// The most that is shown of a change, in bytes.
const SHOWN: usize = 200;

/// Keys of `.atm.toml` that name prompt files.
const PROMPT_FILES: [&str; 2] = ["base_prompt_file", "extra_instructions_file"];

/// The SHA-256 of each file, in hexadecimal digits, by its path in its directory.
type Hashes = BTreeMap<String, String>;

/// The hash of each file of a directory, or why it cannot be read.
type HashResults = BTreeMap<String, Result<String, ReadError>>;

/// The hashes by directory, each a path below the top of the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Record(BTreeMap<String, Hashes>);

impl Record {
    /// Records the files for work in a directory of the repository with this top.
    ///
    /// # Errors
    ///
    /// [`ReadError`] for a file that cannot be recorded, and so cannot be trusted.
    pub(super) fn update(&mut self, directory: &Path, top: &Path) -> Result<(), ReadError> {
        let mut left = ReadBudget::default();
        for above in up_to(directory, top) {
            let found = found_in(above, top, &mut left).into_iter();
            let hashes = found.map(|(name, hash)| Ok((name, hash?)));
            let hashes = hashes.collect::<Result<Hashes, ReadError>>()?;
            let name = name_below(above, top).ok_or_else(|| not_utf8(above))?;
            match hashes.is_empty() {
                true => self.0.remove(name),
                false => self.0.insert(name.to_owned(), hashes),
            };
        }
        Ok(())
    }

    /// The files for work in a directory that differ from the record, each with its kind
    /// of change.
    pub(super) fn changes(&self, directory: &Path, top: &Path) -> Vec<String> {
        let none = Hashes::new();
        let mut changes = Vec::new();
        let mut left = ReadBudget::default();
        for above in up_to(directory, top) {
            let name = name_below(above, top);
            let recorded = name.and_then(|name| self.0.get(name)).unwrap_or(&none);
            let found = found_in(above, top, &mut left);
            for (file, hash) in &found {
                let shown = shown(above, top, file);
                changes.extend(match (hash, recorded.get(file)) {
                    (Ok(now), Some(then)) if now == then => None,
                    (Ok(_), Some(_)) => Some(format!("{shown} (changed)")),
                    (Ok(_), None) => Some(format!("{shown} (new)")),
                    (Err(error), _) => Some(one_line(&error.to_string(), SHOWN)),
                });
            }
            let gone = recorded.keys().filter(|file| !found.contains_key(*file));
            changes.extend(gone.map(|file| format!("{} (removed)", shown(above, top, file))));
        }
        changes
    }
}

/// The directories whose files count for work in this one, the nearest first.
fn up_to<'a>(directory: &'a Path, top: &'a Path) -> impl Iterator<Item = &'a Path> {
    let within = move |above: &&Path| above.starts_with(top);
    directory.ancestors().take_while(within)
}

fn name_below<'a>(directory: &'a Path, top: &Path) -> Option<&'a str> {
    let name = directory.strip_prefix(top).ok()?.to_str()?;
    Some(if name.is_empty() { "." } else { name })
}

fn shown(directory: &Path, top: &Path, file: &str) -> String {
    let path = directory.join(file);
    let below = path.strip_prefix(top).unwrap_or(&path);
    one_line(&below.to_string_lossy(), SHOWN)
}

/// The bytes and directory entries that may still be read for work in a directory.
struct ReadBudget {
    bytes: u64,
    entries: usize,
}

impl Default for ReadBudget {
    fn default() -> Self {
        Self {
            bytes: TOTAL,
            entries: ENTRIES,
        }
    }
}

fn found_in(directory: &Path, top: &Path, left: &mut ReadBudget) -> HashResults {
    let mut hashing = Hashing {
        directory,
        left,
        found: HashResults::new(),
    };
    if let Some(settings) = hashing.add(SETTINGS) {
        for named in prompt_files(&settings) {
            hashing.add(&named);
        }
    }
    for name in CODEX_FILES {
        hashing.add_tree(name, 0);
    }
    if directory == top {
        for kind in PromptKind::ALL {
            hashing.add(&format!("{PROMPTS}/{kind}.md"));
        }
    }
    hashing.found
}

/// The prompt files that an `.atm.toml` names, for all roles.
fn prompt_files(settings: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(settings).unwrap_or_default();
    let whole: Table = toml::from_str(text).unwrap_or_default();
    let section = whole
        .get("plugins")
        .and_then(|plugins| plugins.get("codex-mcp"));
    let section = section.and_then(toml::Value::as_table);
    let roles = section.and_then(|section| section.get("roles")?.as_table());
    let roles = roles.into_iter().flat_map(Table::values);
    let presets = section
        .into_iter()
        .chain(roles.filter_map(toml::Value::as_table));
    let named = presets.flat_map(|preset| PROMPT_FILES.map(|key| preset.get(key)?.as_str()));
    named.flatten().map(str::to_owned).collect()
}

/// The hashing of a directory's files. Links are followed, as Codex does.
struct Hashing<'a> {
    directory: &'a Path,
    left: &'a mut ReadBudget,
    found: HashResults,
}

impl Hashing<'_> {
    /// Hashes a file, if it exists, and returns its content.
    fn add(&mut self, name: &str) -> Option<Vec<u8>> {
        let path = self.directory.join(name);
        match untrusted_file::read(&path, LIMIT.min(self.left.bytes), Links::Followed) {
            Ok(_) if self.found.len() >= FILES => {
                self.refuse(name, too_many(&path));
                None
            }
            Ok(bytes) => {
                self.left.bytes = self.left.bytes.saturating_sub(bytes.len() as u64);
                let digest = hex(&Sha256::digest(&bytes));
                self.found.insert(name.to_owned(), Ok(digest));
                Some(bytes)
            }
            Err(error) if is_absent(&error) => None,
            Err(error) => {
                self.refuse(name, error);
                None
            }
        }
    }

    /// Hashes a file, or all files below a directory.
    fn add_tree(&mut self, name: &str, depth: usize) {
        let path = self.directory.join(name);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                self.add(name);
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.refuse(name, ReadError::Io { path, error }),
        };
        for entry in entries {
            let too_far = depth >= DEPTH || self.left.entries == 0;
            if too_far || self.found.len() >= FILES {
                return self.refuse(name, too_many(&path));
            }
            self.left.entries -= 1;
            match entry.map(|entry| entry.file_name().into_string()) {
                Ok(Ok(file)) => self.add_tree(&format!("{name}/{file}"), depth + 1),
                Ok(Err(file)) => self.refuse(name, not_utf8(&path.join(file))),
                Err(error) => self.refuse(
                    name,
                    ReadError::Io {
                        path: path.clone(),
                        error,
                    },
                ),
            }
        }
    }

    fn refuse(&mut self, name: &str, error: ReadError) {
        self.found.insert(name.to_owned(), Err(error));
    }
}

fn is_absent(error: &ReadError) -> bool {
    let kind = match error {
        ReadError::Io { error, .. } => error.kind(),
        _ => return false,
    };
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn not_utf8(path: &Path) -> ReadError {
    ReadError::Io {
        path: path.to_owned(),
        error: io::Error::other("its name is not UTF-8"),
    }
}

fn too_many(path: &Path) -> ReadError {
    let why = format!(
        "there are more than {FILES} files or {ENTRIES} entries, or directories deeper than {DEPTH}"
    );
    ReadError::Io {
        path: path.to_owned(),
        error: io::Error::other(why),
    }
}
