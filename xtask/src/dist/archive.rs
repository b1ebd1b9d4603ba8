//! `codex-mcp-VERSION-TRIPLE.tar.gz`: the program with its manual, completions and licences.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::entries::{self, Entry};
use super::program::Contents;
use super::release::{NAME, Release, fill};
use super::target::Target;

/// What the archive's name ends with.
const SUFFIX: &str = ".tar.gz";

/// The archive of a platform.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) target: Target,
    pub(crate) path: PathBuf,
    /// The one directory in it.
    top: String,
}

impl Archive {
    /// The archives of this version that lie in the directory of the release, by platform.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(crate) fn all(release: &Release) -> anyhow::Result<Vec<Self>> {
        let mut archives = Vec::new();
        for entry in fs::read_dir(&release.out)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(target) = platform(&name, &release.version) {
                archives.push(Self {
                    target,
                    top: name.trim_end_matches(SUFFIX).to_owned(),
                    path,
                });
            }
        }
        archives.sort_by_key(|archive| archive.target);
        Ok(archives)
    }

    /// The name of the file.
    pub(crate) fn name(&self) -> String {
        format!("{}{SUFFIX}", self.top)
    }

    /// A file of the archive, such as `codex-mcp`.
    ///
    /// # Errors
    /// When the archive cannot be read or has no such file.
    pub(crate) fn file(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let read = |file| entries::read(file, &format!("{}/{name}", self.top));
        let opened = File::open(&self.path).map_err(anyhow::Error::from);
        opened
            .and_then(read)
            .with_context(|| format!("cannot read {}", self.path.display()))
    }

    /// The digest of the archive, in hexadecimal digits.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub(crate) fn sha256(&self) -> anyhow::Result<String> {
        let bytes = fs::read(&self.path);
        let bytes = bytes.with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(hex(&Sha256::digest(bytes)))
    }
}

/// The platform of an archive of this version. `None` for all other files: archives of the release
/// candidates of the version begin with it too.
pub(super) fn platform(name: &str, version: &str) -> Option<Target> {
    let rest = name.strip_prefix(&format!("{NAME}-{version}-"))?;
    rest.strip_suffix(SUFFIX)?.parse().ok()
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the archive of a platform.
///
/// # Errors
/// When a file of it cannot be read or the archive cannot be written.
pub(super) fn make(release: &Release, contents: &Contents) -> anyhow::Result<PathBuf> {
    let Contents { target, pages, .. } = contents;
    let top = format!("{NAME}-{}-{target}", release.version);
    let mut files = vec![Entry::program(NAME, contents.program.as_slice())];
    files.extend(aliases(release)?);
    files.extend(licences(release)?);
    files.push(Entry::file(
        "THIRD-PARTY-LICENSES.txt",
        contents.third_party.as_str(),
    ));
    files.push(Entry::file("README.md", read(release, "README.md")?));
    files.extend(pages.manual.iter().map(|page| page.below("man/man1/")));
    files.extend(pages.completions().map(|page| page.below("completions/")));
    for file in &mut files {
        file.path = format!("{top}/{}", file.path);
    }
    let bytes = entries::tar_gz(&files, release.time, release.effort)?;
    release.write(&format!("{top}{SUFFIX}"), &bytes)
}

/// The short programs that each run one verb.
///
/// # Errors
/// When their template cannot be read.
pub(super) fn aliases(release: &Release) -> anyhow::Result<Vec<Entry>> {
    let template = release.packaging("alias.sh")?;
    let aliases = [("codex-eyes", "eyes"), ("codex-eyes-mcp", "eyes-mcp")];
    let alias = |(name, verb): (&str, &str)| {
        let text = fill(&template, &[("VERB", verb)])?;
        Ok(Entry::program(name, text))
    };
    aliases.into_iter().map(alias).collect()
}

/// Our own licences. Both travel with every copy.
///
/// # Errors
/// When they cannot be read.
pub(super) fn licences(release: &Release) -> anyhow::Result<Vec<Entry>> {
    let names = ["LICENSE-APACHE", "LICENSE-MIT"];
    let licence = |name: &str| Ok(Entry::file(name, read(release, name)?));
    names.into_iter().map(licence).collect()
}

fn read(release: &Release, name: &str) -> anyhow::Result<Vec<u8>> {
    fs::read(release.root.join(name)).with_context(|| format!("cannot read {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_release_candidates_are_of_another_version() {
        for (name, version, triple) in [
            (
                "codex-mcp-1.0.0-x86_64-unknown-linux-musl.tar.gz",
                "1.0.0",
                Some("x86_64-unknown-linux-musl"),
            ),
            (
                "codex-mcp-1.0.0-rc.1-aarch64-apple-darwin.tar.gz",
                "1.0.0-rc.1",
                Some("aarch64-apple-darwin"),
            ),
            (
                "codex-mcp-1.0.0-rc.1-aarch64-apple-darwin.tar.gz",
                "1.0.0",
                None,
            ),
            ("codex-mcp-1.0.0.mcpb", "1.0.0", None),
        ] {
            let found = platform(name, version).map(|target| target.to_string());
            assert_eq!(found.as_deref(), triple, "{name}");
        }
    }
}
