//! `codex-mcp.rb`: a formula for Homebrew, which installs the archives.
//!
//! Source: <https://docs.brew.sh/Formula-Cookbook>.

use std::path::PathBuf;

use super::archive::Archive;
use super::release::{Release, fill};
use super::target::{Arch, Os};

/// Writes the formula for the platforms whose archives there are.
///
/// # Errors
/// When the address of the repository is not known, or a file cannot be read or written.
pub(super) fn make(release: &Release, archives: &[Archive]) -> anyhow::Result<PathBuf> {
    let mut systems = String::new();
    for (os, name) in [(Os::MacOs, "macos"), (Os::Linux, "linux")] {
        systems.push_str(&system(release, archives, os, name)?);
    }
    let homepage = release.repository()?.url();
    let formula = fill(
        &release.packaging("codex-mcp.rb")?,
        &[
            ("HOMEPAGE", homepage),
            ("VERSION", &release.version),
            ("SYSTEMS", &systems),
        ],
    )?;
    release.write("codex-mcp.rb", formula.as_bytes())
}

/// The block of a system; nothing if there is no archive for it.
fn system(release: &Release, archives: &[Archive], os: Os, name: &str) -> anyhow::Result<String> {
    let mut blocks = String::new();
    for (arch, on) in [(Arch::Aarch64, "on_arm"), (Arch::X86_64, "on_intel")] {
        let fits = |archive: &&Archive| {
            let target = archive.target;
            (target.os(), target.arch()) == (os, arch)
        };
        // Of two for the same machine, the one that needs no library.
        let found = archives.iter().filter(fits);
        let Some(archive) = found.max_by_key(|archive| archive.target.is_static()) else {
            continue;
        };
        let url = release
            .repository()?
            .download(&release.version, &archive.name());
        let sha256 = archive.sha256()?;
        blocks.push_str(&format!(
            "    {on} do\n      url \"{url}\"\n      sha256 \"{sha256}\"\n    end\n"
        ));
    }
    Ok(match blocks.is_empty() {
        true => blocks,
        false => format!("\n  on_{name} do\n{blocks}  end\n"),
    })
}
