//! The packages for npm: one for each platform with its program, and one that users install, which
//! has those as optional dependencies and runs the program of this machine.
//!
//! npm installs of the optional dependencies only the one whose `os`, `cpu` and `libc` are this
//! machine's; nothing runs at the installation. A package is a `.tgz` whose files lie in `package/`.
//!
//! Source: <https://docs.npmjs.com/cli/v11/configuring-npm/package-json>.

use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::archive::{self, Archive};
use super::entries::{self, Entry};
use super::release::{NAME, Release, fill};
use super::target::{Arch, Os, Target};

/// The name of the package that users install. The platforms' names begin with it. A name with a
/// scope, such as `@codex-mcp/cli`, can be given here, too.
pub(crate) const PACKAGE: &str = "codex-mcp";

/// What the packages say of themselves.
pub(crate) const DESCRIPTION: &str =
    "Hand coding tasks to the OpenAI Codex CLI from any MCP client, watch them and get the results";

/// The oldest Node that the script for the program runs with.
const NODE: &str = ">=18";

/// Files of an archive that its platform's package has too.
const LICENCES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENSES.txt"];

/// Makes the packages of all platforms whose archives are there, and the one that users install.
///
/// # Errors
/// When there is no archive, or one cannot be read, or a package cannot be written.
pub(super) fn make(release: &Release) -> anyhow::Result<Vec<PathBuf>> {
    let archives = Archive::all(release)?;
    if archives.is_empty() {
        let out = release.out.display();
        bail!("there are no archives in {out}; `cargo xtask dist` makes that of this platform");
    }
    let mut made = Vec::new();
    let mut names = Vec::new();
    for archive in &archives {
        let name = platform_package(archive.target);
        if names.contains(&name) {
            bail!("{}: another archive is for {name}, too", archive.name());
        }
        made.push(of_platform(release, archive, &name)?);
        names.push(name);
    }
    made.push(for_users(release, &names)?);
    Ok(made)
}

/// The name of a platform's package. The script for the program makes it from the names that Node
/// has for the platform.
fn platform_package(target: Target) -> String {
    format!("{PACKAGE}-{}-{}", os(target), cpu(target))
}

/// Node's name of the system (`process.platform`).
pub(super) fn os(target: Target) -> &'static str {
    match target.os() {
        Os::Linux => "linux",
        Os::MacOs => "darwin",
    }
}

/// Node's name of the processor (`process.arch`).
pub(super) fn cpu(target: Target) -> &'static str {
    match target.arch() {
        Arch::X86_64 => "x64",
        Arch::Aarch64 => "arm64",
    }
}

/// The package with the program of one platform.
fn of_platform(release: &Release, archive: &Archive, name: &str) -> anyhow::Result<PathBuf> {
    let target = archive.target;
    let mut manifest = manifest(release, name)?;
    manifest.insert("os".to_owned(), json!([os(target)]));
    manifest.insert("cpu".to_owned(), json!([cpu(target)]));
    if target.os() == Os::Linux && !target.is_static() {
        manifest.insert("libc".to_owned(), json!(["glibc"]));
    }
    // Yarn would otherwise keep the program in a zip, where it cannot be run.
    manifest.insert("preferUnplugged".to_owned(), json!(true));
    let readme = release.packaging("npm/platform.md")?;
    let platform = format!("{}-{}", os(target), cpu(target));
    let readme = fill(&readme, &[("PACKAGE", PACKAGE), ("PLATFORM", &platform)])?;
    let program = archive.file(NAME)?;
    let mut files = vec![
        Entry::program(format!("bin/{NAME}"), program),
        Entry::file("README.md", readme),
    ];
    for licence in LICENCES {
        files.push(Entry::file(licence, archive.file(licence)?));
    }
    pack(release, name, manifest, files)
}

/// The package that users install. `platforms` are the names of the others.
fn for_users(release: &Release, platforms: &[String]) -> anyhow::Result<PathBuf> {
    let mut manifest = manifest(release, PACKAGE)?;
    let script = format!("bin/{NAME}.js");
    manifest.insert("bin".to_owned(), json!({ NAME: script }));
    manifest.insert("engines".to_owned(), json!({ "node": NODE }));
    let dependencies = platforms
        .iter()
        .map(|name| (name.clone(), json!(release.version)));
    let dependencies: Map<String, Value> = dependencies.collect();
    manifest.insert("optionalDependencies".to_owned(), dependencies.into());
    if let Some(server) = release.mcp_name() {
        // The MCP registry accepts a package that names the server.
        manifest.insert("mcpName".to_owned(), json!(server));
    }
    let readme = fill(
        &release.packaging("npm/README.md")?,
        &[("PACKAGE", PACKAGE)],
    )?;
    let mut files = vec![
        Entry::program(script, release.packaging("npm/codex-mcp.js")?),
        Entry::file("README.md", readme),
    ];
    files.extend(archive::licences(release)?);
    pack(release, PACKAGE, manifest, files)
}

/// The members of `package.json` that all packages have.
fn manifest(release: &Release, name: &str) -> anyhow::Result<Map<String, Value>> {
    let members = json!({
        "name": name,
        "version": release.version,
        "description": DESCRIPTION,
        "keywords": ["mcp", "codex", "openai", "agent"],
        "license": "MIT OR Apache-2.0",
        // A name with a scope is private otherwise.
        "publishConfig": { "access": "public" },
    });
    let Value::Object(mut manifest) = members else {
        bail!("{members} is no object");
    };
    if release.has_repository() {
        let url = release.repository()?.url();
        let mut insert = |name: &str, value| manifest.insert(name.to_owned(), value);
        insert("homepage", json!(format!("{url}#readme")));
        insert("bugs", json!({ "url": format!("{url}/issues") }));
        insert(
            "repository",
            json!({ "type": "git", "url": format!("git+{url}.git") }),
        );
    }
    Ok(manifest)
}

/// Writes a package. Its file has the name that `npm pack` would give it.
fn pack(
    release: &Release,
    name: &str,
    manifest: Map<String, Value>,
    files: Vec<Entry>,
) -> anyhow::Result<PathBuf> {
    let manifest = serde_json::to_string_pretty(&manifest)?;
    let manifest = Entry::file("package.json", format!("{manifest}\n"));
    let files = [manifest].into_iter().chain(files);
    let files: Vec<Entry> = files.map(|file| file.below("package/")).collect();
    let bytes = entries::tar_gz(&files, release.time, release.effort)?;
    let name = name.trim_start_matches('@').replace('/', "-");
    let file = format!("{name}-{}.tgz", release.version);
    release
        .write(&file, &bytes)
        .with_context(|| format!("cannot write {file}"))
}
