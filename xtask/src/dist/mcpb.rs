//! The MCP bundle (`.mcpb`), which desktop clients install with a click: a zip with a manifest and
//! the programs of all platforms.
//!
//! A manifest can name another program for each system, but not for each kind of processor. So the
//! entry point is a script, which becomes the program of this machine.
//!
//! Source: MANIFEST.md of <https://github.com/modelcontextprotocol/mcpb>, version 0.3.

use std::io::{Cursor, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::archive::{self, Archive};
use super::entries::Entry;
use super::npm::{self, cpu, os};
use super::release::{Effort, NAME, Release};

/// The entry point, from the top of the bundle.
const ENTRY_POINT: &str = "server/codex-mcp";

/// The licences of what is linked into the programs, in an archive.
const THIRD_PARTY: &str = "THIRD-PARTY-LICENSES.txt";

/// The level of the smallest result that deflate has, and of the quickest.
const BEST: i64 = 9;
const QUICK: i64 = 1;

/// The file name of the bundle of a release.
pub(super) fn file_name(release: &Release) -> String {
    format!("{NAME}-{}.mcpb", release.version)
}

/// Makes the bundle with the programs of all platforms whose archives are there.
///
/// # Errors
/// When there is no archive, or one cannot be read, or the bundle cannot be written.
pub(super) fn make(release: &Release) -> anyhow::Result<Vec<PathBuf>> {
    let archives = Archive::all(release)?;
    let Some(first) = archives.first() else {
        let out = release.out.display();
        bail!("there are no archives in {out}; `cargo xtask dist` makes that of this platform");
    };
    let manifest = serde_json::to_string_pretty(&manifest(release, &archives)?)?;
    let mut files = vec![
        Entry::file("manifest.json", format!("{manifest}\n")),
        Entry::program(ENTRY_POINT, release.packaging("mcpb/codex-mcp.sh")?),
    ];
    for archive in &archives {
        let platform = format!("{}-{}", os(archive.target), cpu(archive.target));
        let path = format!("server/{platform}/{NAME}");
        if files.iter().any(|file| file.path == path) {
            bail!("{}: another archive is for {platform}, too", archive.name());
        }
        files.push(Entry::program(path, archive.file(NAME)?));
    }
    files.extend(archive::licences(release)?);
    files.push(Entry::file(THIRD_PARTY, first.file(THIRD_PARTY)?));
    let bytes = zip(&files, release.effort)?;
    Ok(vec![release.write(&file_name(release), &bytes)?])
}

fn manifest(release: &Release, archives: &[Archive]) -> anyhow::Result<Map<String, Value>> {
    let mut platforms: Vec<&str> = archives.iter().map(|archive| os(archive.target)).collect();
    platforms.dedup();
    let members = json!({
        "manifest_version": "0.3",
        "name": NAME,
        "display_name": "Codex",
        "version": release.version,
        "description": npm::DESCRIPTION,
        "author": { "name": "The maintainers of codex-mcp" },
        "license": "MIT OR Apache-2.0",
        "keywords": ["codex", "openai", "agent"],
        "server": {
            "type": "binary",
            "entry_point": ENTRY_POINT,
            "mcp_config": {
                "command": format!("${{__dirname}}/{ENTRY_POINT}"),
                "args": ["-C", "${user_config.directory}", "serve"],
                "env": { "CODEX_MCP_CODEX_BIN": "${user_config.codex}" },
            },
        },
        "tools_generated": true,
        "compatibility": { "platforms": platforms },
        "user_config": {
            "directory": {
                "type": "directory",
                "title": "Working directory",
                "description": "Where Codex works when a task names no other directory",
                "default": "${HOME}",
            },
            // A value that is not given must have a default: without one, the client would put
            // the name of the variable into the environment.
            "codex": {
                "type": "string",
                "title": "Codex",
                "description": "The path of the program `codex`, as `which codex` prints it; \
                                empty if it is on the PATH that desktop programs have",
                "default": "",
            },
        },
    });
    let Value::Object(mut manifest) = members else {
        bail!("{members} is no object");
    };
    if release.has_repository() {
        let url = release.repository()?.url();
        let mut insert = |name: &str, value| manifest.insert(name.to_owned(), value);
        insert("homepage", json!(url));
        insert("documentation", json!(format!("{url}#readme")));
        insert("support", json!(format!("{url}/issues")));
        insert(
            "repository",
            json!({ "type": "git", "url": format!("{url}.git") }),
        );
    }
    Ok(manifest)
}

/// Packs a zip with the permissions of the files. Their time is the first that a zip can have, so that
/// the same files make the same bytes.
fn zip(files: &[Entry], effort: Effort) -> anyhow::Result<Vec<u8>> {
    let level = match effort {
        Effort::Best => BEST,
        Effort::Quick => QUICK,
    };
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(level))
        .last_modified_time(DateTime::default());
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for file in files {
        zip.start_file(&file.path, options.unix_permissions(file.mode))
            .and_then(|()| Ok(zip.write_all(&file.bytes)?))
            .with_context(|| format!("cannot pack {}", file.path))?;
    }
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use std::io::Read;

    use zip::ZipArchive;

    use super::*;

    #[test]
    fn zip_keeps_permissions_and_is_reproducible() {
        let files = [
            Entry::file("manifest.json", "{}"),
            Entry::program(ENTRY_POINT, "#!/bin/sh\n"),
        ];
        let bytes = zip(&files, Effort::Quick).unwrap();
        assert!(zip(&files, Effort::Quick).unwrap() == bytes);
        let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
        for file in files {
            let mut found = archive.by_name(&file.path).unwrap();
            assert_eq!(
                found.unix_mode().unwrap() & 0o777,
                file.mode,
                "{}",
                file.path
            );
            let mut text = Vec::new();
            found.read_to_end(&mut text).unwrap();
            assert_eq!(text, file.bytes);
        }
    }
}
