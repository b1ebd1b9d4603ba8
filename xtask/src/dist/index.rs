//! The other files of a release: the installer, the formula, the container's description,
//! and the checksums of all.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};

use super::archive::{self, Archive, hex};
use super::formula;
use super::release::{NAME, Release, fill};
use super::target::RELEASED;
use crate::releases;

/// The name of the file with the checksums, in the format of sha256sum(1).
const SUMS: &str = "SHA256SUMS";

/// Checks that the directory has a whole release: that of the tag, for all platforms.
///
/// # Errors
/// When the tag names another version, or an archive is missing.
pub(super) fn check(release: &Release, tag: &str) -> anyhow::Result<()> {
    let version = &release.version;
    ensure!(
        tag == format!("v{version}"),
        "the tag {tag} is not v{version}, the version in Cargo.toml"
    );
    let archives = Archive::all(release)?;
    let there = |target| archives.iter().any(|archive| archive.target == target);
    let missing = RELEASED.into_iter().filter(|target| !there(*target));
    let missing: Vec<String> = missing.map(|target| target.to_string()).collect();
    if !missing.is_empty() {
        bail!("no archive for {}", missing.join(", "));
    }
    // One that was damaged on its way would otherwise be noticed by users.
    archives.iter().try_for_each(|archive| {
        let program = archive.file(NAME)?;
        ensure!(
            !program.is_empty(),
            "the program in {} is empty",
            archive.name()
        );
        Ok(())
    })
}

/// Writes the files.
///
/// # Errors
/// When the address of the repository is not known, or a file cannot be read or written.
pub(super) fn make(release: &Release) -> anyhow::Result<Vec<PathBuf>> {
    let archives = Archive::all(release)?;
    let mut made = vec![
        formula::make(release, &archives)?,
        installer(release)?,
        containerfile(release)?,
    ];
    made.push(sums(release)?);
    Ok(made)
}

fn installer(release: &Release) -> anyhow::Result<PathBuf> {
    let download = release.repository()?.download(&release.version, "");
    let values = [
        ("VERSION", release.version.as_str()),
        ("DOWNLOAD", download.trim_end_matches('/')),
    ];
    let script = fill(&release.packaging("install.sh")?, &values)?;
    release.write("install.sh", script.as_bytes())
}

fn containerfile(release: &Release) -> anyhow::Result<PathBuf> {
    let list = fs::read_to_string(release.root.join("crates/testkit/codex-releases.txt"))?;
    let newest = releases::parse(&list)?.pop();
    let values = [
        ("VERSION", release.version.as_str()),
        ("CODEX_VERSION", &newest.context("no release of Codex")?),
    ];
    let text = fill(&release.packaging("Containerfile")?, &values)?;
    release.write("Containerfile", text.as_bytes())
}

/// Writes the checksums of the files of this version, sorted by name.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn sums(release: &Release) -> anyhow::Result<PathBuf> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(&release.out)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_file() && belongs(&name, &release.version) {
            let bytes = fs::read(&path);
            let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
            lines.push((name.clone().into_owned(), hex(&Sha256::digest(bytes))));
        }
    }
    lines.sort();
    let line = |(name, sum): &(String, String)| format!("{sum}  {name}\n");
    let text: String = lines.iter().map(line).collect();
    release.write(SUMS, text.as_bytes())
}

/// Whether a file is part of the release: packages of other versions may lie beside it.
fn belongs(name: &str, version: &str) -> bool {
    let of_version = ["-", "_"].iter().any(|mark| {
        let rest = name.strip_prefix(&format!("{NAME}{mark}{version}"));
        rest.is_some_and(|rest| rest.starts_with(['_', '.']))
    });
    let is_archive = archive::platform(name, version).is_some();
    of_version || is_archive || ["install.sh", "codex-mcp.rb", "Containerfile"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_versions_are_left_out() {
        for name in [
            "codex-mcp-1.2.3-x86_64-apple-darwin.tar.gz",
            "codex-mcp_1.2.3_amd64.deb",
            "codex-mcp-1.2.3.mcpb",
            "install.sh",
        ] {
            assert!(belongs(name, "1.2.3"), "{name}");
        }
        for name in [
            "codex-mcp-1.2.30-x.tar.gz",
            "codex-mcp-1.2.3-rc.1-x86_64-apple-darwin.tar.gz",
            "codex-mcp_1.2.3-rc.1_amd64.deb",
            "codex-mcp-1.2.3-rc.1.mcpb",
            "SHA256SUMS",
            "server.json",
        ] {
            assert!(!belongs(name, "1.2.3"), "{name}");
        }
    }
}
