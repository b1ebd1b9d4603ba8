//! The demo on a machine without a Codex.

use std::fs;
use std::io::BufReader;

use testkit::{Home, codex, write_program};

use super::{
    assert_nothing_is_left, entries, read_until, stderr_of_failed, terminate, text, with_programs,
};

/// A fake npm that links an existing Codex as its install.
fn npm(home: &Home, first: &str) {
    let text = format!(
        "#!/bin/sh
PATH=/usr/bin:/bin
{first}
for prefix; do
  if [ \"$last\" = --prefix ]; then break; fi
  last=$prefix
done
mkdir -p \"$prefix/node_modules/.bin\"
ln -s '{}' \"$prefix/node_modules/.bin/codex\"
",
        codex::npm_shim(codex::newest()).display()
    );
    write_program(&home.root().join("programs/npm"), &text);
}

#[tokio::test]
async fn missing_codex_is_installed_once() {
    let home = Home::new("");
    npm(&home, "");
    let first = with_programs(&home, &["git"]).output().unwrap();
    assert!(first.status.success(), "{first:?}");
    assert!(text(&first.stdout).contains("Installing release"));
    let place = home.cache_home().join("codex-mcp/codex");
    assert_eq!(entries(&place), [codex::newest()]);

    npm(&home, "exit 1");
    let second = with_programs(&home, &["git"]).output().unwrap();
    assert!(second.status.success(), "{second:?}");
    assert!(!text(&second.stdout).contains("Installing release"));
    assert!(text(&second.stdout).contains("--codex-bin"));

    fs::remove_dir_all(home.cache_home().join("codex-mcp")).unwrap();
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn failed_installation_leaves_nothing() {
    let home = Home::new("");
    npm(&home, "echo no such registry >&2; exit 1");

    let error = stderr_of_failed(&with_programs(&home, &["git"]).output().unwrap());

    assert!(error.contains("npm could not install"), "{error}");
    assert!(error.contains("no such registry"), "{error}");
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn interrupted_installation_leaves_nothing() {
    let home = Home::new("");
    npm(&home, "sleep 600");
    let mut child = with_programs(&home, &["git"]).spawn().unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    read_until(&mut told, "Installing release");

    terminate(&child);

    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert_nothing_is_left(&home).await;
}
