//! `codex-mcp_VERSION_ARCH.deb`: a package for Debian, Ubuntu and those that descend from them.
//!
//! Sources: deb-control(5), dpkg-deb(1), and for the places of files the Debian Policy Manual,
//! chapters 9 and 12: <https://www.debian.org/doc/debian-policy/>.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::archive::{aliases, licences};
use super::entries::{Entry, gzip};
use super::program::Contents;
use super::release::{Effort, NAME, Release, fill};
use super::target::{Arch, Target};
use crate::installs::remove;
use crate::tool::Tool;

/// Where the package puts what belongs to no program.
const DOC: &str = "usr/share/doc/codex-mcp";

/// Makes the package of a platform, which must be one of Linux.
///
/// # Errors
/// When dpkg-deb is missing or fails, or a file cannot be read or written.
pub(super) fn make(release: &Release, contents: &Contents) -> anyhow::Result<PathBuf> {
    let target = contents.target;
    let architecture = architecture(target);
    let tree = release.out.join(format!(".debian-{target}"));
    remove(&tree)?;
    let files = files(release, contents)?;
    for file in &files {
        write(&tree, file)?;
    }
    let control = control(release, target, installed_size(&files))?;
    write(&tree, &Entry::file("DEBIAN/control", control))?;
    let package = format!("{NAME}_{}_{architecture}.deb", release.version);
    let path = release.out.join(&package);
    let built = build(release, &tree, &path);
    remove(&tree)?;
    built.map(|()| path)
}

/// Debian's name of the processor.
fn architecture(target: Target) -> &'static str {
    match target.arch() {
        Arch::X86_64 => "amd64",
        Arch::Aarch64 => "arm64",
    }
}

/// What is installed, with paths from the root.
fn files(release: &Release, contents: &Contents) -> anyhow::Result<Vec<Entry>> {
    let pages = &contents.pages;
    let compressed = |path: String, bytes: &[u8]| -> anyhow::Result<Entry> {
        Ok(Entry::file(
            format!("{path}.gz"),
            gzip(bytes, Effort::Best)?,
        ))
    };
    let mut files = vec![Entry::program(
        "usr/bin/codex-mcp",
        contents.program.as_slice(),
    )];
    files.extend(aliases(release)?.iter().map(|file| file.below("usr/bin/")));
    for page in &pages.manual {
        let path = format!("usr/share/man/man1/{}", page.path);
        files.push(compressed(path, &page.bytes)?);
    }
    files.push(Entry {
        path: "usr/share/bash-completion/completions/codex-mcp".to_owned(),
        ..pages.bash.clone()
    });
    files.push(pages.zsh.below("usr/share/zsh/vendor-completions/"));
    files.push(pages.fish.below("usr/share/fish/vendor_completions.d/"));
    files.push(Entry::file(format!("{DOC}/copyright"), copyright(release)?));
    let third_party = compressed(
        format!("{DOC}/THIRD-PARTY-LICENSES.txt"),
        contents.third_party.as_bytes(),
    );
    files.push(third_party?);
    for (source, name) in [("CHANGELOG.md", "changelog"), ("README.md", "README.md")] {
        let text = fs::read(release.root.join(source));
        let text = text.with_context(|| format!("cannot read {source}"))?;
        files.push(compressed(format!("{DOC}/{name}"), &text)?);
    }
    Ok(files)
}

fn copyright(release: &Release) -> anyhow::Result<String> {
    let licences = licences(release)?;
    let mit = licences
        .iter()
        .find(|licence| licence.path == "LICENSE-MIT");
    let text = String::from_utf8(mit.context("no MIT licence")?.bytes.clone())?;
    // In a field of several lines, each is indented, and a dot stands for an empty one.
    let line = |line: &str| match line.trim_end() {
        "" => " .".to_owned(),
        line => format!(" {line}"),
    };
    let text: Vec<String> = text.trim_end().lines().map(line).collect();
    fill(
        &release.packaging("debian/copyright")?,
        &[("MIT", &text.join("\n"))],
    )
}

fn control(release: &Release, target: Target, installed_size: u64) -> anyhow::Result<String> {
    let depends = match target.is_static() {
        true => String::new(),
        false => format!("Depends: libc6 (>= {}), libgcc-s1\n", glibc_version()?),
    };
    let homepage = match release.has_repository() {
        true => format!("Homepage: {}\n", release.repository()?.url()),
        false => String::new(),
    };
    let values = [
        // A tilde sorts before the end, as a pre-release has to.
        ("VERSION", release.version.replace('-', "~")),
        ("ARCHITECTURE", architecture(target).to_owned()),
        ("INSTALLED_SIZE", installed_size.to_string()),
        ("DEPENDS", depends),
        ("HOMEPAGE", homepage),
    ];
    let values = values
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    fill(&release.packaging("debian/control")?, &values)
}

/// The version of the C library here. A program that is linked with it may need all of it.
fn glibc_version() -> anyhow::Result<String> {
    let text = Tool::new("getconf", ["GNU_LIBC_VERSION"]).capture(Path::new("/"))?;
    let version = text.trim().strip_prefix("glibc ");
    Ok(version
        .context("the C library here is not glibc")?
        .to_owned())
}

/// In KiB, as the field of that name wants it.
fn installed_size(files: &[Entry]) -> u64 {
    let size = |file: &Entry| (file.bytes.len() as u64).div_ceil(1024);
    files.iter().map(size).sum()
}

fn build(release: &Release, tree: &Path, package: &Path) -> anyhow::Result<()> {
    let [tree, package] = [tree, package].map(|path| path.to_str().context("not UTF-8"));
    let compression: &[&str] = match release.effort {
        Effort::Best => &["-Zxz"],
        Effort::Quick => &["-Zgzip", "-z1"],
    };
    // No file may be newer than SOURCE_DATE_EPOCH: dpkg-deb gives that time to those that are.
    Tool::new("dpkg-deb", ["--root-owner-group"])
        .args(compression.iter().copied())
        .args(["--build", tree?, package?])
        .env("SOURCE_DATE_EPOCH", release.time.to_string())
        .capture(&release.out)?;
    Ok(())
}

fn write(tree: &Path, file: &Entry) -> anyhow::Result<()> {
    let path = tree.join(&file.path);
    let directory = path.parent().context("the file has no directory")?;
    fs::create_dir_all(directory)?;
    // Whatever the umask here is.
    for above in directory
        .ancestors()
        .take_while(|above| above.starts_with(tree))
    {
        fs::set_permissions(above, Permissions::from_mode(0o755))?;
    }
    fs::write(&path, &file.bytes).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    Ok(())
}
