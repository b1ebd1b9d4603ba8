//! `cargo xtask dist`: the packages of a release. docs/releasing.md describes them.
//!
//! A machine builds the packages of its own platform. The files that name the packages of all
//! platforms are made where all of these lie.

mod archive;
mod debian;
mod entries;
mod formula;
mod index;
mod licences;
mod mcpb;
mod npm;
mod pages;
mod program;
mod registry;
mod release;
mod repository;
mod target;
mod trial;

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::debian::on_path;
use crate::workspace::Workspace;

use program::Contents;
use release::{Effort, Release};
use target::{Os, Target};

/// What `cargo xtask dist` takes.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    build: Build,
    /// Where the packages are put. Default: dist/ of the target directory
    #[arg(long, value_name = "DIR", global = true)]
    out: Option<PathBuf>,
    /// The address of the repository, instead of the one in Cargo.toml
    #[arg(long, value_name = "URL", global = true)]
    repository: Option<String>,
    /// Compress less: for trials
    #[arg(long, global = true)]
    quick: bool,
}

/// What is built.
#[derive(Args)]
struct Build {
    /// The platform, as a target triple. Default: this machine's
    #[arg(long, value_name = "TRIPLE")]
    target: Option<Target>,
    /// Package this program instead of building one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// Parts that need no build: they take the packages that have been built.
#[derive(Subcommand)]
enum Part {
    /// Write the installer, the formula, the container's description and the checksums
    Index {
        /// Check first that all packages of the release with this tag are there
        #[arg(long)]
        tag: Option<String>,
    },
    /// Make the packages for npm: one for each platform, and the one that users install
    Npm,
    /// Make the MCP bundle, which desktop clients install with a click
    Mcpb,
    /// Describe the npm package and the bundle to the MCP registry
    Registry,
    /// Run the static program for this machine in an empty root directory
    Try,
}

/// Makes the packages, and prints their names and sizes.
///
/// # Errors
/// When a step fails.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| workspace.target().join("dist"));
    let effort = if options.quick {
        Effort::Quick
    } else {
        Effort::Best
    };
    let release = Release::open(workspace, out, options.repository.as_deref(), effort)?;
    let made = match &options.part {
        None => build(workspace, &release, &options.build)?,
        Some(Part::Index { tag }) => {
            tag.iter().try_for_each(|tag| index::check(&release, tag))?;
            index::make(&release)?
        }
        Some(Part::Npm) => npm::make(&release)?,
        Some(Part::Mcpb) => mcpb::make(&release)?,
        Some(Part::Registry) => registry::make(&release)?,
        Some(Part::Try) => return trial::run(&release),
    };
    report(&release, &made)
}

/// Makes everything for one platform.
fn build(workspace: &Workspace, release: &Release, build: &Build) -> anyhow::Result<Vec<PathBuf>> {
    let target = build.target.map_or_else(Target::this_machine, Ok)?;
    let contents = Contents::collect(workspace, release, target, build.binary.as_deref())?;
    let mut made = vec![archive::make(release, &contents)?];
    match target.os() {
        Os::Linux if on_path("dpkg-deb") => {
            made.push(debian::make(release, &contents)?);
        }
        Os::Linux => println!("No Debian package: `dpkg-deb` is missing."),
        Os::MacOs => {}
    }
    if release.has_repository() {
        made.extend(index::make(release)?);
    } else {
        println!("No formula and no installer: `repository` in Cargo.toml is empty.");
        made.push(index::sums(release)?);
    }
    Ok(made)
}

/// Prints what was made, within 80 columns as far as the directory's name allows it.
fn report(release: &Release, made: &[PathBuf]) -> anyhow::Result<()> {
    println!(
        "{} {} in {}:",
        release::NAME,
        release.version,
        release.out.display()
    );
    for path in made {
        let size = fs::metadata(path)?.len();
        let name = path.strip_prefix(&release.out).unwrap_or(path).display();
        println!("{:>10}  {name}", shown_size(size));
    }
    Ok(())
}

fn shown_size(bytes: u64) -> String {
    // Tenths of a megabyte, rounded.
    let tenths = (bytes + 50_000) / 100_000;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{}.{} MB", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded() {
        for (bytes, text) in [
            (999, "999 B"),
            (1_001, "2 kB"),
            (1_049_999, "1.0 MB"),
            (25_960_000, "26.0 MB"),
        ] {
            assert_eq!(shown_size(bytes), text);
        }
    }
}
