//! Installs packages from npm.

use std::path::Path;

use anyhow::{Context, bail};

use crate::debian::on_path;
use crate::installs::Package;
use crate::tool::Tool;

/// Installs a package of npm's into an empty directory.
///
/// # Errors
/// When node or npm is missing, or npm fails.
pub(crate) fn install(package: &impl Package, directory: &Path) -> anyhow::Result<()> {
    require_npm()?;
    let prefix = directory.to_str().context("the path is not UTF-8")?;
    let wanted = format!("{}@{}", package.name(), package.version());
    println!("{wanted}: installing");
    Tool::new("npm", ["install", "--prefix", prefix])
        .args(["--no-audit", "--no-fund", "--no-progress"])
        .args(["--ignore-scripts", "--save-exact", "--include=optional"])
        .args([&wanted])
        .env("npm_config_update_notifier", "false")
        .capture(directory)
        .with_context(|| format!("cannot install {wanted}"))?;
    Ok(())
}

/// The versions of a package that npm has.
///
/// # Errors
/// When node or npm is missing, or npm fails.
pub(crate) fn versions(name: &str, directory: &Path) -> anyhow::Result<Vec<String>> {
    require_npm()?;
    let answer = Tool::new("npm", ["view", name, "versions", "--json"])
        .env("npm_config_update_notifier", "false")
        .capture(directory)?;
    serde_json::from_str(&answer).context("npm answers with no list of versions")
}

fn require_npm() -> anyhow::Result<()> {
    for program in ["node", "npm"] {
        if !on_path(program) {
            bail!(
                "`{program}` is missing, and the tests need programs from npm. Install Node.js 18 or newer, which brings npm."
            );
        }
    }
    Ok(())
}
