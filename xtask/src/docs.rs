//! Checks README.md and docs/: the length of README, the targets of links, and the tables that
//! are generated from the code. Tests make the tables (`testkit::docs`), as only the crates
//! themselves see the sources of their tables.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::tool::{Tool, has_nextest};
use crate::workspace::{Workspace, verdict};

/// With this variable, the tests write the tables instead of comparing them.
const WRITE: &str = "WRITE_DOCS";

/// The most lines that README.md may have: it is read by people who have never heard of us.
const README_LINES: usize = 200;

/// Runs all the checks.
///
/// # Errors
/// When README.md is too long, a link leads nowhere, or a table is stale.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let root = workspace.root();
    let readme = fs::read_to_string(root.join("README.md")).context("README.md")?;
    let lines = readme.lines().count();
    let too_long = format!("README.md has {lines} lines, more than {README_LINES}");
    let mut findings: Vec<String> = (lines > README_LINES)
        .then_some(too_long)
        .into_iter()
        .collect();
    findings.extend(broken_links(root)?);
    verdict("what readers see first", &findings)?;
    tables(workspace).run(root)
}

/// Brings the tables up to date.
///
/// # Errors
/// When a page has no place for its table.
pub(crate) fn write(workspace: &Workspace) -> anyhow::Result<()> {
    tables(workspace).env(WRITE, "1").run(workspace.root())
}

/// The tests that make the tables, in modules that are named `docs`.
fn tables(workspace: &Workspace) -> Tool {
    // The whole workspace: with fewer crates, cargo would build other features anew.
    match has_nextest(workspace.root()) {
        true => Tool::cargo(["nextest", "run", "--workspace", "--lib"])
            .args(["-E", "test(/(^|::)docs::/)"]),
        false => Tool::cargo(["test", "--workspace", "--lib", "docs::"]),
    }
}

fn broken_links(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for page in pages(root)? {
        let text = fs::read_to_string(&page)?;
        let shown = page.strip_prefix(root).unwrap_or(&page).display();
        for target in prose(&text).into_iter().flat_map(targets) {
            if let Some(why) = broken(&page, target) {
                findings.push(format!("{shown}: {target}: {why}"));
            }
        }
    }
    Ok(findings)
}

/// The pages of the documentation.
fn pages(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for directory in ["", "docs", "docs/decisions"] {
        for entry in fs::read_dir(root.join(directory)).context(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// A page without its blocks of code, in which nothing is a link or a heading.
fn prose(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    lines.collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let title: String = title.trim().to_lowercase().chars().filter(kept).collect();
        let anchor = title.replace(' ', "-");
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        let free = names.find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// The targets of links and pictures in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("](").skip(1);
    after.filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// The error of a link from a page, if there is one.
fn broken(page: &Path, target: &str) -> Option<&'static str> {
    if target.contains("://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.to_owned(),
        file => page.parent()?.join(file),
    };
    if !path.exists() {
        return Some("there is no such file");
    }
    let is_found = anchor.is_empty()
        || anchors(&fs::read_to_string(&path).unwrap_or_default()).contains(anchor);
    (!is_found).then_some("the page has no such heading")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_without_target_is_found() {
        let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
        assert_eq!(broken(&readme, "CHANGELOG.md"), None);
        assert_eq!(broken(&readme, "CHANGELOG.md#unreleased"), None);
        assert_eq!(broken(&readme, "https://example.org/none"), None);
        assert!(broken(&readme, "docs/none.md").is_some());
        assert!(broken(&readme, "CHANGELOG.md#none").is_some());
    }

    #[test]
    fn links_in_code_are_not_checked() {
        let text = "[a](b) and ![c](d.svg)\n```\n[e](f)\n```\n";
        let found: Vec<&str> = prose(text).into_iter().flat_map(targets).collect();
        assert_eq!(found, ["b", "d.svg"]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let found = anchors("# A `b`: c-d\n```\n# no\n```\n## Same\n## Same\n#no\n");
        let expected = ["a-b-c-d", "same", "same-1"].map(str::to_owned);
        assert_eq!(found, BTreeSet::from(expected));
    }
}
