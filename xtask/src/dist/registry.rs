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
use super::release::{NAME, Release};
use super::repository::Repository;
use super::{mcpb, npm};

/// The version of the format.
const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";

/// The forge on which an account has a part of the registry's names.
const FORGE: &str = "https://github.com/";

/// The longest description that the registry takes, in bytes.
const LONGEST_DESCRIPTION: usize = 100;

/// Makes the description of the bundle in the directory of the release, and of the npm package.
///
/// # Errors
/// When the bundle is missing, or the repository is unknown or on a forge that the registry does not
/// know.
pub(super) fn make(release: &Release) -> anyhow::Result<Vec<PathBuf>> {
    let repository = release.repository()?;
    let server = server_name(repository).with_context(|| {
        format!(
            "{}: the MCP registry takes bundles from {FORGE} alone",
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

/// The name of the server in the registry, if the account on the forge entitles us to one.
pub(super) fn server_name(repository: &Repository) -> Option<String> {
    let is_known = repository.url().starts_with(FORGE);
    is_known.then(|| format!("io.github.{}/{NAME}", repository.owner()))
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn name_is_that_of_the_account() {
        let name = |url: &str| server_name(&url.parse().unwrap());
        assert_eq!(
            name("https://github.com/acme/tool").unwrap(),
            "io.github.acme/codex-mcp"
        );
        assert_eq!(name("https://forge.example/acme/tool"), None);
    }
}
