//! Installed packages, one directory for each version.
//!
//! A directory named after a version is complete: it is installed under another name,
//! checked, and only then it gets its own name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// A package in one version.
pub(crate) trait Package {
    /// Its name in its registry.
    fn name(&self) -> &'static str;

    /// The version that is wanted.
    fn version(&self) -> &str;

    /// Installs it into an empty directory.
    ///
    /// # Errors
    /// When the registry's own program is missing or fails.
    fn install(&self, directory: &Path) -> anyhow::Result<()>;

    /// Checks that an install works. `home` is an empty directory for it.
    ///
    /// # Errors
    /// When the install does not work.
    fn check(&self, install: &Path, home: &Path) -> anyhow::Result<()>;

    /// Checks that the version `found` in a program's answer is the wanted one.
    ///
    /// # Errors
    /// When it is another one.
    fn check_version(
        &self,
        program: &str,
        answer: &str,
        found: Option<&str>,
    ) -> anyhow::Result<()> {
        let version = self.version();
        let answer = answer.trim();
        ensure!(
            found == Some(version),
            "{program} --version answers `{answer}`, not {version}"
        );
        Ok(())
    }
}

/// The result of [`Installs::provide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProvideOutcome {
    /// It was there already, and answers.
    Present,
    /// It was downloaded now.
    Installed,
}

/// The directory with one install for each version, locked against other runs.
pub(crate) struct Installs {
    directory: PathBuf,
    _lock: fs::File,
}

impl Installs {
    /// Creates the directory where needed and waits until no other run works on it.
    ///
    /// # Errors
    /// When the directory cannot be created or locked.
    pub(crate) fn open(directory: PathBuf) -> anyhow::Result<Self> {
        let name = directory.display().to_string();
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {name}"))?;
        let lock = fs::File::create(directory.join(".lock"))?;
        lock.lock().with_context(|| format!("cannot lock {name}"))?;
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    /// Makes sure that the package is installed and works.
    ///
    /// # Errors
    /// When the package can't be installed, or does not work.
    pub(crate) fn provide(&self, package: &impl Package) -> anyhow::Result<ProvideOutcome> {
        let version = package.version();
        let install_in = self.directory.join(version);
        if install_in.is_dir() {
            match self.check(package, &install_in) {
                Ok(()) => return Ok(ProvideOutcome::Present),
                Err(error) => println!("{} {version}: installing again: {error:#}", package.name()),
            }
        }
        let draft = self.empty_directory(&format!(".installing-{version}"))?;
        package.install(&draft)?;
        self.check(package, &draft)?;
        remove(&install_in)?;
        fs::rename(&draft, &install_in)
            .with_context(|| format!("cannot name {}", install_in.display()))?;
        Ok(ProvideOutcome::Installed)
    }

    fn check(&self, package: &impl Package, install: &Path) -> anyhow::Result<()> {
        let home = self.empty_directory(".home")?;
        let checked = package.check(install, &home);
        remove(&home)?;
        checked
    }

    fn empty_directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let directory = self.directory.join(name);
        remove(&directory)?;
        fs::create_dir(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(directory)
    }
}

/// Removes a directory, if it is there.
///
/// # Errors
/// When it can't be removed.
pub(crate) fn remove(directory: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
