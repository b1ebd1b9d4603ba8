//! Installs of real Codex releases from npm, one folder each.
//!
//! A folder named after a version is complete: it is installed under another name,
//! its binary is asked for its version, and only then it gets its own name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::debian::on_path;
use crate::tool::Tool;

/// The npm package of the Codex CLI. The native binary comes as an optional
/// dependency, a package for each platform.
const PACKAGE: &str = "@openai/codex";

/// Where the native binary lies below `vendor/TRIPLE` of the platform's package:
/// `codex/` up to 0.104, `bin/` from 0.153 on at the latest.
const BINARIES: [&str; 2] = ["bin/codex", "codex/codex"];

/// What [`Installs::provide`] had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provided {
    /// It was there already, and answers.
    Present,
    /// It was downloaded now.
    Installed,
}

/// The folder with one install for each release, locked against other runs.
pub(crate) struct Installs {
    folder: PathBuf,
    _lock: fs::File,
}

impl Installs {
    /// Creates the folder where needed and waits until no other run works on it.
    ///
    /// # Errors
    /// When the folder cannot be created or locked.
    pub(crate) fn open(folder: PathBuf) -> anyhow::Result<Self> {
        let name = folder.display().to_string();
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {name}"))?;
        let lock = fs::File::create(folder.join(".lock"))?;
        lock.lock().with_context(|| format!("cannot lock {name}"))?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// Sees to it that `version` is installed and answers with that version.
    ///
    /// # Errors
    /// When node or npm is missing, npm fails, or the binary does not answer.
    pub(crate) fn provide(&self, version: &str) -> anyhow::Result<Provided> {
        let home = self.folder.join(version);
        if home.is_dir() {
            match self.check(&home, version) {
                Ok(()) => return Ok(Provided::Present),
                Err(error) => println!("codex {version}: installing again: {error:#}"),
            }
        }
        require_npm()?;
        let draft = self.empty_folder(&format!(".installing-{version}"))?;
        install(&draft, version)?;
        self.check(&draft, version)?;
        remove(&home)?;
        fs::rename(&draft, &home).with_context(|| format!("cannot name {}", home.display()))?;
        Ok(Provided::Installed)
    }

    /// Asks the native binary for its version, with a HOME of its own so that it
    /// neither reads nor writes the user's.
    fn check(&self, install: &Path, version: &str) -> anyhow::Result<()> {
        let binary = native_binary(install)?;
        let home = self.empty_folder(".home")?;
        let program = binary.to_str().context("the path is not UTF-8")?;
        let isolated = home.to_str().context("the path is not UTF-8")?;
        let answer = Tool::new(program, ["--version"])
            .env("HOME", isolated)
            .env("CODEX_HOME", isolated)
            .capture(&home);
        remove(&home)?;
        let answer = answer?;
        ensure!(
            answer.split_whitespace().last() == Some(version),
            "{program} --version answers `{}`, not {version}",
            answer.trim()
        );
        Ok(())
    }

    fn empty_folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join(name);
        remove(&folder)?;
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }
}

fn install(folder: &Path, version: &str) -> anyhow::Result<()> {
    let prefix = folder.to_str().context("the path is not UTF-8")?;
    println!("codex {version}: installing");
    Tool::new("npm", ["install", "--prefix", prefix])
        .args(["--no-audit", "--no-fund", "--no-progress"])
        .args(["--ignore-scripts", "--save-exact", "--include=optional"])
        .args([format!("{PACKAGE}@{version}")])
        .env("npm_config_update_notifier", "false")
        .capture(folder)
        .with_context(|| format!("cannot install Codex {version}"))?;
    Ok(())
}

fn require_npm() -> anyhow::Result<()> {
    for program in ["node", "npm"] {
        if !on_path(program) {
            bail!(
                "`{program}` is missing, and the tests need Codex from npm. Install Node.js 18 or newer, which brings npm."
            );
        }
    }
    Ok(())
}

/// The binary for this machine's processor. npm reports success also when it left
/// out the optional package that has it, so its absence is an error of its own.
fn native_binary(install: &Path) -> anyhow::Result<PathBuf> {
    let scope = install.join("node_modules/@openai");
    for package in subfolders(&scope)? {
        let vendor = package.join("vendor");
        if !vendor.is_dir() {
            continue;
        }
        for triple in subfolders(&vendor)? {
            let ours = triple
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(std::env::consts::ARCH));
            let found = BINARIES.map(|path| triple.join(path));
            if let Some(binary) = found.into_iter().find(|path| ours && path.is_file()) {
                return Ok(binary);
            }
        }
    }
    bail!(
        "no native binary for {} below {}; npm may be set to leave out optional dependencies",
        std::env::consts::ARCH,
        scope.display()
    )
}

fn subfolders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
