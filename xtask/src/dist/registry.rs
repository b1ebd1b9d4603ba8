//! `server.json`, which describes us to the MCP registry.
//!
//! Sources: the schema of 2025-12-11, and the page "Package types" of
//! <https://modelcontextprotocol.io/registry>.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::archive::hex;
use super::release::Release;
use super::repository::{GITHUB, Repository};
use super::{mcpb, npm};

/// The version of the format.
const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";

/// The longest description that the registry takes, in bytes.
const LONGEST_DESCRIPTION: usize = 100;

/// Makes the description of the bundle in the directory of the release, and of the npm package.
///
/// # Errors
/// When the bundle is missing, or the repository is unknown or on a forge that the registry does not
/// know.
pub(super) fn make(release: &Release) -> anyhow::Result<Vec<PathBuf>> {
    let repository = release.repository()?;
    let server = release.mcp_name().with_context(|| {
        format!(
            "{}: the MCP registry takes bundles from {GITHUB} alone",
            repository.url()
        )
    })?;
    let bundle = mcpb::file_name(release);
    let bytes = fs::read(release.out.join(&bundle));
    let bytes = bytes.with_context(|| format!("no {bundle}; `cargo xtask dist mcpb` makes it"))?;
    let digest = hex(&Sha256::digest(bytes));
    let described = describe(release, repository, &server, &digest)?;
    let text = serde_json::to_string_pretty(&described)?;
    Ok(vec![
        release.write("server.json", format!("{text}\n").as_bytes())?,
    ])
}

fn describe(
    release: &Release,
    repository: &Repository,
    server: &str,
    digest: &str,
) -> anyhow::Result<Value> {
    ensure!(
        npm::DESCRIPTION.len() <= LONGEST_DESCRIPTION,
        "the description is longer than the registry takes it"
    );
    let version = &release.version;
    let codex = json!({
        "name": "CODEX_MCP_CODEX_BIN",
        "description": "The Codex to use: a path, or a name on PATH",
        "format": "filepath",
    });
    let package = json!({
        "registryType": "npm",
        "identifier": npm::PACKAGE,
        "version": version,
        "runtimeHint": "npx",
        "transport": { "type": "stdio" },
        "packageArguments": [{ "type": "positional", "value": "serve" }],
        "environmentVariables": [codex],
    });
    let bundle = json!({
        "registryType": "mcpb",
        "identifier": repository.download(version, &mcpb::file_name(release)),
        "version": version,
        "fileSha256": digest,
        "transport": { "type": "stdio" },
    });
    Ok(json!({
        "$schema": SCHEMA,
        "name": server,
        "title": "Codex",
        "description": npm::DESCRIPTION,
        "version": version,
        "websiteUrl": repository.url(),
        "repository": { "url": repository.url(), "source": "github" },
        "packages": [package, bundle],
    }))
}
