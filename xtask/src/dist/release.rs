//! The common parts of all packages of a release.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::repository::Repository;
use crate::metadata::Metadata;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// The name of the program, and of its packages.
pub(crate) const NAME: &str = "codex-mcp";

/// How hard packages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// As small as possible.
    Best,
    /// As fast as possible, for trials.
    Quick,
}

/// A release, apart from the platforms.
#[derive(Debug)]
pub(crate) struct Release {
    /// Without a `v` before it.
    pub(crate) version: String,
    /// The directory of the workspace, with the licences and `packaging/`.
    pub(crate) root: PathBuf,
    /// The directory that packages are written into. It exists.
    pub(crate) out: PathBuf,
    /// The modification time of every file in a package, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) effort: Effort,
    repository: Option<Repository>,
}

impl Release {
    /// Describes the release of the working tree: its version and repository are those of the crate,
    /// its time is that of the commit, and `repository` replaces the address.
    ///
    /// # Errors
    /// When cargo or git fail, the address is malformed, or `out` cannot be created.
    pub(crate) fn open(
        workspace: &Workspace,
        out: PathBuf,
        repository: Option<&str>,
        effort: Effort,
    ) -> anyhow::Result<Self> {
        let metadata = Metadata::load(workspace, &[])?;
        let mut members = metadata.members();
        let package = members.find(|member| member.name == NAME);
        let package = package.with_context(|| format!("no crate {NAME}"))?;
        let address = repository.or(package.repository.as_deref());
        let address = address.filter(|address| !address.is_empty());
        let repository = address.map(str::parse).transpose()?;
        fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
        Ok(Self {
            version: package.version.clone(),
            root: workspace.root().to_owned(),
            out: std::path::absolute(&out)?,
            time: commit_time(workspace.root())?,
            effort,
            repository,
        })
    }

    /// Where the project lies on its forge.
    ///
    /// # Errors
    /// When nobody has filled it in.
    pub(crate) fn repository(&self) -> anyhow::Result<&Repository> {
        self.repository.as_ref().context(
            "the address of the repository is not known. Fill in `repository` in Cargo.toml, or give --repository https://HOST/OWNER/NAME",
        )
    }

    /// Whether [`Self::repository`] has one.
    pub(crate) fn has_repository(&self) -> bool {
        self.repository.is_some()
    }

    /// The name of the server in the MCP registry, if the repository's account may have one.
    pub(crate) fn mcp_name(&self) -> Option<String> {
        let namespace = self.repository.as_ref()?.mcp_namespace()?;
        Some(format!("{namespace}/{NAME}"))
    }

    /// The template `packaging/FILE`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn packaging(&self, file: &str) -> anyhow::Result<String> {
        let path = self.root.join("packaging").join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Writes a file of the release.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let path = self.out.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// The time of the commit, or `SOURCE_DATE_EPOCH`, which programs agree on for reproducible builds:
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
fn commit_time(root: &Path) -> anyhow::Result<u64> {
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(time) => time,
        Err(_) => Tool::new("git", ["log", "-1", "--format=%ct"]).capture(root)?,
    };
    let time = time.trim();
    time.parse()
        .with_context(|| format!("{time:?} is no number of seconds since 1970"))
}

/// Fills a template: each `@NAME@` is replaced by the value of that name.
///
/// # Errors
/// When a name has no value, or a value has no place.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut text = template.to_owned();
    for (name, value) in values {
        let place = format!("@{name}@");
        if !text.contains(&place) {
            bail!("the template has no {place}");
        }
        text = text.replace(&place, value);
    }
    match text.split('@').find(|word| is_name(word)) {
        Some(name) if text.contains(&format!("@{name}@")) => bail!("nothing fills in @{name}@"),
        _ => Ok(text),
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn template_is_filled_completely() {
        let filled = fill("@A@ and @A@, mail@B.c", &[("A", "1")]).unwrap();
        assert_eq!(filled, "1 and 1, mail@B.c");
        assert!(fill("@A@ @B_C@", &[("A", "1")]).is_err());
        assert!(fill("@A@", &[("A", "1"), ("B", "2")]).is_err());
    }
}
