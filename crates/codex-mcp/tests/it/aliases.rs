//! `codex-eyes` and `codex-eyes-mcp`: alias programs of verbs of `codex-mcp`.

use std::path::Path;
use std::process::Output;

use testkit::Home;

const PROGRAM: &str = env!("CARGO_BIN_EXE_codex-mcp");
const EYES: &str = env!("CARGO_BIN_EXE_codex-eyes");
const EYES_MCP: &str = env!("CARGO_BIN_EXE_codex-eyes-mcp");

fn run(program: impl AsRef<Path>, args: &[&str]) -> Output {
    let home = Home::new("");
    home.command(program.as_ref())
        .args(args)
        // An empty directory hides all installed programs.
        .env("PATH", home.tmp())
        .output()
        .unwrap()
}

#[test]
fn alias_runs_its_verb() {
    for (alias, verb, arg) in [
        (EYES, "eyes", "--print-contract"),
        (EYES, "eyes", "exec"),
        (EYES, "eyes", "--worktree"),
        (EYES_MCP, "eyes-mcp", "--help"),
        (EYES_MCP, "eyes-mcp", "--answer=nothing"),
    ] {
        let [alias, verb] = [run(alias, &[arg]), run(PROGRAM, &[verb, arg])];
        assert_eq!(alias, verb);
        assert!(!alias.stdout.is_empty() || !alias.stderr.is_empty());
    }
}

#[test]
fn alias_without_codex_mcp_names_the_missing_program() {
    let directory = tempfile::tempdir().unwrap();
    let alone = directory.path().join("codex-eyes");
    std::fs::copy(EYES, &alone).unwrap();
    let said = run(&alone, &["--print-contract"]);
    assert_eq!(said.status.code(), Some(1));
    let words = String::from_utf8(said.stderr).unwrap();
    assert!(
        words.contains("Install codex-mcp next to this program"),
        "{words}"
    );
}

/// clap would take the `--` as the end of our own options.
#[test]
fn one_word_prompt_needs_dashes() {
    let refused = |args: &[&str]| {
        let said = run(PROGRAM, &[&["eyes"], args].concat());
        let words = String::from_utf8(said.stderr).unwrap();
        words.contains("is not the interactive Codex")
    };
    assert!(refused(&["exec"]));
    assert!(refused(&["-m", "x", "exec"]));
    assert!(!refused(&["--", "exec"]));
    assert!(!refused(&["--max-image-bytes", "5", "--", "exec"]));
    assert!(!refused(&["-m", "x", "--", "exec"]));
}
