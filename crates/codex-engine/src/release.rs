//! Determines the release of a Codex, and which commands it has.

use std::path::Path;
use std::time::Duration;

use codex_protocol::codex::Release;
use safe_files::untrusted_file::{self, Links};
use serde::Deserialize;
use supervise::exit::Exit;
use supervise::short_lived::run;
use supervise::spawn::Program;

use super::binary::CodexBinary;

/// How long a Codex may take to answer. It takes about 10 ms, more from a cold disk.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest `package.json`, in bytes.
const NOTES_LIMIT: u64 = 1024 * 1024;

/// The fields that are read of a `package.json`.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
}

/// The release of a Codex: from npm's `package.json` if it was installed with npm, or
/// else from the program, which takes up to 5 s. `None` if it is not known.
pub async fn release_of(codex: &CodexBinary) -> Option<Release> {
    if let Some(release) = noted_release(codex) {
        return Some(release);
    }
    let mut program = Program::new(&codex.native, ["--version"]);
    program.env = codex.env();
    match run(&program, TIMEOUT).await {
        Ok(finished) => Release::announced(&finished.stdout)?.1,
        Err(error) => {
            tracing::warn!("`{} --version`: {error}", codex.native.display());
            None
        }
    }
}

/// The release of a Codex that was installed with npm, read from `package.json` without running
/// Codex.
pub fn noted_release(codex: &CodexBinary) -> Option<Release> {
    as_noted_by_npm(&codex.native)
}

/// Whether a Codex has a command; `None` if that is not known. Takes up to 5 s.
pub(super) async fn has_command(codex: &CodexBinary, name: &str) -> Option<bool> {
    match run(&help(codex, name), TIMEOUT).await {
        Ok(finished) => is_known(finished.exit),
        Err(error) => {
            tracing::warn!("`{} help {name}`: {error}", codex.native.display());
            None
        }
    }
}

/// The program that asks a Codex whether it has a command; [`is_known`] reads its exit.
///
/// `codex COMMAND --help` does not work: a release without the command treats it as a
/// prompt and prints the general help.
pub fn help(codex: &CodexBinary, name: &str) -> Program {
    let mut program = Program::new(&codex.native, ["help", name]);
    program.env = codex.env();
    program
}

/// Whether the command that [`help`] asked about exists; `None` if the exit does not
/// tell.
///
/// Source: Codex 0.104.0, 0.153.4 and 0.169.0.
pub fn is_known(help: Exit) -> Option<bool> {
    match help {
        Exit::Code(0) => Some(true),
        Exit::Code(2) => Some(false),
        _ => None,
    }
}

/// The native program lies in `node_modules/@openai/PACKAGE/vendor`. Its package
/// is `@openai/codex` under another name, `0.153.4-linux-x64` for example, and in
/// older releases (0.74.0) `@openai/codex` itself.
fn as_noted_by_npm(native: &Path) -> Option<Release> {
    let vendor = native
        .ancestors()
        .find(|directory| directory.ends_with("vendor"))?;
    let notes = vendor.parent()?.join("package.json");
    let notes = untrusted_file::read(&notes, NOTES_LIMIT, Links::Followed).ok()?;
    let package: Package = serde_json::from_slice(&notes).ok()?;
    match package.name.as_str() {
        "@openai/codex" => Release::parse(&package.version),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_read_from_the_npm_package() {
        let root = tempfile::tempdir().unwrap();
        let package = root.path().join("@openai/codex-linux-x64");
        let native = package.join("vendor/x86_64-unknown-linux-musl/bin/codex");
        assert_eq!(as_noted_by_npm(&native), None);
        std::fs::create_dir_all(&package).unwrap();
        for (notes, release) in [
            (
                r#"{"name": "@openai/codex", "version": "0.153.4-linux-x64"}"#,
                Some(Release::new(0, 153, 4)),
            ),
            (r#"{"name": "another", "version": "1.2.3"}"#, None),
            ("{", None),
        ] {
            std::fs::write(package.join("package.json"), notes).unwrap();
            assert_eq!(as_noted_by_npm(&native), release, "{notes}");
        }
        assert_eq!(as_noted_by_npm(Path::new("/usr/local/bin/codex")), None);
    }
}
