//! `codex-mcp trust`: the directories that the user trusts.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use codex_mcp_core::text::visible_line;
use serde_json::json;

use super::stored::complain;
use crate::output;
use crate::trust::{TrustError, TrustedDirectories, resolved_top};

/// What trust is, for somebody who meets the question for the first time.
const MEANING: &str = "\
A repository can bring settings of its own. They are used only where you trust it, since
whoever wrote them can run programs as you, outside of Codex's sandbox. Trusted are:
  .codex/config.toml     Codex's settings: MCP servers and hooks that Codex starts, sandbox,
                         approvals
  .atm.toml              settings of codex-mcp: sandbox, approvals, model, prompt files, the
                         identity and the team; it never chooses the program that is run
                         (codex_bin) or where jobs are kept (store)
  .codex-mcp/prompts     the prompts of `codex-mcp run`
Read these files before you trust a repository. Without trust, Codex works there all the
same, and .atm.toml can only narrow what you allow.

A directory is trusted with all below it, but for other repositories in it; so are the linked
worktrees of a repository. Directories that you have trusted in Codex itself
(`trust_level = \"trusted\"` in its config.toml) count as well; this verb does not list or
change those. The list is a file of yours, ~/.config/codex-mcp/trust.toml.

Examples:
  codex-mcp trust             trust the repository around the current directory
  codex-mcp trust ~/src/app
  codex-mcp trust --list
  codex-mcp trust --revoke ~/src/app";

#[derive(Debug, clap::Args)]
#[command(after_help = MEANING)]
pub(super) struct Args {
    /// The directory. The top of the repository around it is trusted, if it is in one.
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    directory: PathBuf,

    /// Print the trusted directories instead, one a line.
    #[arg(long, conflicts_with_all = ["directory", "revoke"])]
    list: bool,

    /// With --list, print one JSON object: {"directories": [PATH]}.
    #[arg(long, requires = "list")]
    json: bool,

    /// Trust this directory no more. It need not exist.
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    revoke: Option<PathBuf>,
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{} is not trusted; `codex-mcp trust --list` shows what is", .0.display())]
    NotListed(PathBuf),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
}

pub(super) fn run(args: &Args) -> ExitCode {
    match act(args) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has read enough.
        Err(Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain("error", &error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn act(args: &Args) -> Result<(), Failure> {
    let list = TrustedDirectories::path().ok_or(TrustError::NoConfigHome)?;
    match &args.revoke {
        _ if args.list => print(&TrustedDirectories::read(&list)?, args.json),
        Some(directory) => revoke(&list, directory),
        None => add(&list, &args.directory),
    }
}

fn add(list: &Path, directory: &Path) -> Result<(), Failure> {
    let top = resolved_top(directory)?;
    let what = match TrustedDirectories::add(list, &top)? {
        true => "is trusted now, with all below it",
        false => "is trusted already",
    };
    say(&format!("{} {what}", top.display()))
}

/// The directory itself goes before the top of its repository: both may be listed, and
/// neither need exist any more.
fn revoke(list: &Path, directory: &Path) -> Result<(), Failure> {
    let here = std::env::current_dir().unwrap_or_default();
    let named = here.join(directory);
    let resolved = named.canonicalize().unwrap_or_else(|_| named.clone());
    let top = resolved_top(&resolved).unwrap_or_else(|_| resolved.clone());
    for candidate in [&resolved, &named, &top] {
        if TrustedDirectories::revoke(list, candidate)? {
            return say(&format!("{} is not trusted any more", candidate.display()));
        }
    }
    Err(Failure::NotListed(resolved))
}

fn print(list: &TrustedDirectories, json: bool) -> Result<(), Failure> {
    let paths: Vec<&Path> = list.iter().collect();
    if json {
        return Ok(output::json(&json!({ "directories": paths }))?);
    }
    let mut out = output::stdout();
    for path in paths {
        writeln!(out, "{}", visible_line(&path.to_string_lossy()))?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), Failure> {
    Ok(writeln!(output::stdout(), "{}", visible_line(line))?)
}
