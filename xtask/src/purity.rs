//! The source of the pure parts, `src/logic` of each crate and the wire types: state machines and
//! types that get all their data from the caller and never read the machine that they run on.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::source::collect;
use crate::workspace::Workspace;

/// Directories in which nothing may read a file, an environment variable or a clock, beside
/// `src/logic` of each crate.
const DIRECTORIES: [&str; 1] = ["crates/codex-protocol/src"];

/// Crates that do I/O or wait.
const OUTSIDE: [&str; 12] = [
    "hyper",
    "hyper_util",
    "nix",
    "rmcp",
    "rustix",
    "rustls_native_certs",
    "safe_files",
    "sqlx",
    "supervise",
    "tempfile",
    "tokio",
    "tokio_rustls",
];

/// Crates of ours of which the pure parts are used alone, and these parts.
const PARTLY: [(&str, &str); 7] = [
    ("agent_team", "logic"),
    ("codex_config", "logic"),
    ("codex_engine", "logic"),
    ("git_probe", "logic"),
    ("goal_run", "logic"),
    ("image_request", "logic"),
    ("job_queue", "logic"),
];

/// Modules of `std` that reach outside.
const MODULES: [&str; 5] = ["fs", "env", "net", "process", "thread"];

/// Ways to read a clock. Tests may: simulated time starts from an `Instant`, and there
/// is no other way to get a first one.
const CLOCKS: [&str; 2] = ["Instant::now", "SystemTime::now"];

/// The forbidden uses in the pure parts, one line each.
///
/// # Errors
/// When a source file cannot be read.
pub(crate) fn violations(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    let root = workspace.root();
    for directory in pure_directories(root)? {
        collect(&directory, &mut files)?;
    }
    files.sort();
    let mut findings = Vec::new();
    for file in files {
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file);
        for word in impure(&text, FileKind::of(name)) {
            findings.push(format!("{} uses {word}", name.display()));
        }
    }
    Ok(findings)
}

fn pure_directories(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let crates = root.join("crates");
    let entries =
        fs::read_dir(&crates).with_context(|| format!("cannot read {}", crates.display()))?;
    let mut directories = DIRECTORIES.map(|directory| root.join(directory)).to_vec();
    for entry in entries {
        let logic = entry?.path().join("src/logic");
        directories.extend(logic.is_dir().then_some(logic));
    }
    directories.retain(|directory| directory.is_dir());
    Ok(directories)
}

/// The kind of a source file.
#[derive(Clone, Copy)]
enum FileKind {
    /// Source of the crate, perhaps with a module of tests at the end.
    Crate,
    /// Nothing but tests.
    Tests,
}

impl FileKind {
    fn of(file: &Path) -> Self {
        let is_tests = |name: &std::ffi::OsStr| name == "tests.rs" || name == "tests";
        if file.iter().any(is_tests) {
            Self::Tests
        } else {
            Self::Crate
        }
    }
}

/// The forbidden names in a source text, comments not counted.
fn impure(text: &str, kind: FileKind) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .collect();
    let timeless = match kind {
        FileKind::Crate => before_tests(&code),
        FileKind::Tests => "",
    };
    let clocks = CLOCKS.iter().filter(|clock| timeless.contains(*clock));
    let modules = MODULES.iter().filter(|module| uses_module(&code, module));
    let crates = OUTSIDE.iter().filter(|name| uses_crate(timeless, name, ""));
    let parts = PARTLY
        .iter()
        .filter(|(name, kind)| uses_crate(timeless, name, kind));
    clocks
        .map(ToString::to_string)
        .chain(modules.map(|module| format!("std::{module}")))
        .chain(crates.map(ToString::to_string))
        .chain(parts.map(|(name, kind)| format!("more of {name} than {kind}")))
        .collect()
}

/// Whether code without white space names something in a crate, other than in the module
/// `except`.
fn uses_crate(code: &str, name: &str, except: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code.get(..at).unwrap_or_default();
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        // White space is gone: `use` stands right before.
        let begins = before.ends_with("use") || !before.ends_with(is_path);
        let rest = code.get(at + name.len()..).unwrap_or_default();
        let inside = rest.strip_prefix("::");
        let is_excepted =
            |inside: &str| !except.is_empty() && inside.starts_with(&format!("{except}::"));
        begins && inside.is_some_and(|inside| !is_excepted(inside))
    })
}

/// Code without white space up to a module of tests that is written out in the file;
/// clippy's `items_after_test_module` sees to it that nothing comes after that.
fn before_tests(code: &str) -> &str {
    let end = code.find("#[cfg(test)]modtests{");
    code.get(..end.unwrap_or(code.len())).unwrap_or(code)
}

/// Whether code without white space names `std::MODULE`, by itself or as one of
/// `std::{…}`.
fn uses_module(code: &str, module: &str) -> bool {
    code.match_indices("std::").any(|(at, path)| {
        let rest = code.get(at + path.len()..).unwrap_or_default();
        match rest.strip_prefix('{') {
            Some(group) => top_level(group)
                .into_iter()
                .any(|item| starts_with_name(item, module)),
            None => starts_with_name(rest, module),
        }
    })
}

/// The items of a `use` group whose opening brace is cut off, up to its closing one.
fn top_level(group: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut start = 0;
    let mut depth = 0_u32;
    for (at, c) in group.char_indices() {
        let ends = depth == 0 && matches!(c, ',' | '}');
        if ends {
            items.extend(group.get(start..at));
            start = at + 1;
        }
        match c {
            '}' if ends => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    items
}

fn starts_with_name(code: &str, name: &str) -> bool {
    code.strip_prefix(name)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impure_code_is_found_in_every_form() {
        for (code, word) in [
            ("use std::fs;", "std::fs"),
            ("use std::{fmt, net::{Ipv4Addr, TcpStream}};", "std::net"),
            (
                "use std::{\n    collections::{BTreeMap, btree_map},\n    env,\n};",
                "std::env",
            ),
            ("let x = ::std::process::id();", "std::process"),
            ("std :: thread :: sleep(d)", "std::thread"),
            ("let now = Instant::now();", "Instant::now"),
            ("time::SystemTime::now()", "SystemTime::now"),
            ("use tokio::time;", "tokio"),
            ("let x = safe_files::directory::resolved(y);", "safe_files"),
            (
                "use codex_engine::{logic, spawn};",
                "more of codex_engine than logic",
            ),
        ] {
            assert_eq!(impure(code, FileKind::Crate), [word], "{code}");
        }
    }

    #[test]
    fn pure_lookalikes_are_accepted() {
        for code in [
            "//! Never uses std::fs.",
            "    // std::thread::sleep would",
            "use std::{fmt, io::{self, net}, time::Duration};",
            "use std::environment;",
            "fn step(now: Instant) {}",
            "mod process { struct X; }",
            "use std::fmt; struct A { env: String }",
            "use codex_engine::logic::work::Digest;",
            "use crate::tokio::x;",
        ] {
            assert_eq!(
                impure(code, FileKind::Crate),
                Vec::<String>::new(),
                "{code}"
            );
        }
    }

    #[test]
    fn only_tests_may_ask_for_the_time() {
        let code = "fn f() {}\n#[cfg(test)]\nmod tests {\n Instant::now(); }";
        assert_eq!(impure(code, FileKind::Crate), Vec::<String>::new());
        let early = format!("fn f() {{ Instant::now(); }}\n{code}");
        assert_eq!(impure(&early, FileKind::Crate), ["Instant::now"]);
        let declared = "#[cfg(test)] mod tests; fn f() { Instant::now(); }";
        assert_eq!(impure(declared, FileKind::Crate), ["Instant::now"]);

        let file = FileKind::of(Path::new("crates/codex-engine/src/logic/session/tests.rs"));
        assert_eq!(impure("Instant::now()", file), Vec::<String>::new());
        assert_eq!(impure("std::fs::read(x)", file), ["std::fs"]);
    }
}
