//! The licence, ban and source rules of `deny.toml`, applied to the dependency graph
//! as cargo-deny would. cargo-deny itself takes minutes to compile and wants an
//! advisory database from the network; this needs neither.

mod config;
mod licenses;

use std::collections::BTreeMap;

use crate::metadata::{Kind, Metadata, Package, Requirement};
use crate::workspace::{Workspace, verdict};
pub(crate) use config::Config;
use config::{Bans, Level, Sources};

/// The findings of the rules in one graph.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    fn add(&mut self, level: Level, finding: String) {
        match level {
            Level::Deny => self.errors.push(finding),
            Level::Warn => self.warnings.push(finding),
            Level::Allow => {}
        }
    }
}

/// Checks the workspace's dependencies. Warnings are printed and change nothing.
///
/// # Errors
/// When `deny.toml` cannot be read or a dependency breaks one of its rules.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let config = Config::load(workspace)?;
    let metadata = Metadata::load(workspace, &config.graph.targets)?;
    let mut report = Report::default();
    licenses::check(&config.licenses, &metadata, &mut report)?;
    bans(&config.bans, &metadata, &mut report);
    sources(&config.sources, &metadata, &mut report);
    for warning in &report.warnings {
        println!("warning: {warning}");
    }
    verdict(
        "deny.toml does not allow these dependencies",
        &report.errors,
    )?;
    println!("{} crates checked", metadata.packages.len());
    Ok(())
}

fn bans(rules: &Bans, metadata: &Metadata, report: &mut Report) {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &metadata.packages {
        let Package { name, version, .. } = package;
        versions.entry(name).or_default().push(version);
        for banned in rules.deny.iter().filter(|banned| banned.name == *name) {
            let why = &banned.reason;
            report.add(Level::Deny, format!("{name} {version} is banned: {why}"));
        }
        let wildcards = package.dependencies.iter().filter(|dep| dep.req == "*");
        for dep in wildcards.filter(|dep| !is_allowed_path(rules, package, dep)) {
            let finding = format!("{name} {version} takes any version of {}", dep.name);
            report.add(rules.wildcards, finding);
        }
    }
    for (name, found) in versions.iter().filter(|(_, found)| found.len() > 1) {
        let finding = format!("several versions of {name}: {}", found.join(", "));
        report.add(rules.multiple_versions.into(), finding);
    }
}

/// A published crate cannot have path dependencies, so only private crates, and tests,
/// may leave out the version.
fn is_allowed_path(rules: &Bans, package: &Package, dep: &Requirement) -> bool {
    let from_registry = dep.source.as_deref().is_some_and(|source| {
        matches!(Source::parse(source), Source::Registry(_) | Source::Unknown)
    });
    let unpublished = package.is_private() || dep.kind == Kind::Dev;
    rules.allow_wildcard_paths && !from_registry && unpublished
}

fn sources(rules: &Sources, metadata: &Metadata, report: &mut Report) {
    for package in &metadata.packages {
        let Some(source) = package.source.as_deref() else {
            continue;
        };
        let (level, allowed) = match Source::parse(source) {
            Source::Registry(url) => (rules.unknown_registry, contains(&rules.allow_registry, url)),
            Source::Git(url) => (rules.unknown_git, contains(&rules.allow_git, url)),
            Source::Unknown => (Level::Deny, false),
        };
        if !allowed {
            let Package { name, version, .. } = package;
            report.add(level, format!("{name} {version} comes from {source}"));
        }
    }
}

fn contains(urls: &[String], url: &str) -> bool {
    let plain = |url: &str| {
        let url = url.trim_end_matches('/');
        url.strip_suffix(".git").unwrap_or(url).to_owned()
    };
    urls.iter().any(|allowed| plain(allowed) == plain(url))
}

/// Where a crate comes from, by the prefix that cargo gives it.
enum Source<'a> {
    Registry(&'a str),
    Git(&'a str),
    Unknown,
}

impl<'a> Source<'a> {
    fn parse(source: &'a str) -> Self {
        match source.split_once('+') {
            Some(("registry" | "sparse", url)) => Self::Registry(url),
            // After `?` the branch or tag, after `#` the commit.
            Some(("git", url)) => Self::Git(url.split(['?', '#']).next().unwrap_or(url)),
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
