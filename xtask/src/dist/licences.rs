//! `THIRD-PARTY-LICENSES.txt`: the licences of what is linked into the program. Most of them have to
//! go with every copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::release::{NAME, Release};
use super::target::Target;
use crate::metadata::{Metadata, Package};
use crate::workspace::Workspace;

/// How the names of files with licences begin, in lower case.
const BEGINNINGS: [&str; 5] = ["licen", "copying", "copyright", "notice", "unlicense"];

/// The line between two texts.
const LINE: &str =
    "--------------------------------------------------------------------------------";

/// The texts, each with the crates that have it.
///
/// # Errors
/// When cargo fails or a file cannot be read.
pub(super) fn collect(
    workspace: &Workspace,
    release: &Release,
    target: Target,
) -> anyhow::Result<String> {
    let metadata = Metadata::load(workspace, &[target.to_string()])?;
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut without = BTreeSet::new();
    for package in linked(&metadata) {
        let texts = texts(package)?;
        let name = format!("{} {}", package.name, package.version);
        if texts.is_empty() {
            let licence = package.license.as_deref().unwrap_or("unknown licence");
            without.insert(format!("{name}: {licence}"));
        }
        for text in texts {
            crates.entry(text).or_default().insert(name.clone());
        }
    }
    let mut all: Vec<(String, String)> = crates
        .into_iter()
        .map(|(text, names)| (names.into_iter().collect::<Vec<_>>().join("\n"), text))
        .collect();
    all.sort();
    let mut file = release.packaging("third-party.txt")?;
    for (names, text) in all {
        write!(file, "\n{LINE}\n{names}\n\n{text}\n")?;
    }
    if !without.is_empty() {
        let names: Vec<String> = without.into_iter().collect();
        write!(
            file,
            "\n{LINE}\nWithout a file of their own:\n{}\n",
            names.join("\n")
        )?;
    }
    Ok(file)
}

/// The crates of others that the program is built from.
fn linked(metadata: &Metadata) -> Vec<&Package> {
    let (packages, edges) = (metadata.by_id(), metadata.edges());
    let program = metadata.members().find(|member| member.name == NAME);
    let mut waiting: Vec<&str> = program
        .map(|program| program.id.as_str())
        .into_iter()
        .collect();
    let mut seen: BTreeSet<&str> = waiting.iter().copied().collect();
    while let Some(id) = waiting.pop() {
        let edges = edges.get(id).copied().unwrap_or_default();
        for edge in edges.iter().filter(|edge| edge.is_shipped()) {
            if seen.insert(&edge.pkg) {
                waiting.push(&edge.pkg);
            }
        }
    }
    let found = seen.iter().filter_map(|id| packages.get(id).copied());
    found.filter(|package| package.source.is_some()).collect()
}

/// The texts in a crate's directory.
fn texts(package: &Package) -> anyhow::Result<Vec<String>> {
    let directory = package.manifest_path.parent();
    let directory = directory.with_context(|| format!("{} lies nowhere", package.name))?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_ascii_lowercase();
        if path.is_file() && BEGINNINGS.iter().any(|start| name.starts_with(start)) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: PathBuf| -> anyhow::Result<String> {
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
        Ok(lines.join("\n"))
    };
    paths.into_iter().map(read).collect()
}
