//! `codex-mcp trust`: the directories that the user trusts.

use std::env;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use codex_config::layers::UserConfig;
use codex_config::trust::covered_files::{covered_below, covered_files};
use codex_config::trust::{
    AddOutcome, Trust, TrustEntry, TrustError, TrustedDirectories, directory_trust,
    is_in_repository, resolved_top, trusting_entry,
};
use common::output;
use common::text::{shell_word, visible_line};
use serde_json::json;
use settings::Flags;

use super::exit::FAILED;
use super::stored::{complain, exit_code};
use crate::environment;

/// The explanation of trust in the help.
const MEANING: &str = "\
A repository can contain its own settings. They are used only if you trust it, because their \
author can run programs as you, outside of Codex's sandbox. Trust covers:
  .codex/config.toml  Codex's settings: MCP servers and hooks that Codex starts,
                      sandbox, approvals
  .atm.toml           settings of codex-mcp: sandbox, approvals, model, prompt
                      files, identity and team; never the program that is run
                      (codex_bin), nor where jobs are kept (store)
  .codex-mcp/prompts  the prompts of `codex-mcp run`
Read these files before you trust a repository. `codex-mcp trust --show` and `codex-mcp doctor` \
list them with the keys that they set, and `codex-mcp trust` lists them again. Without trust, \
Codex still works there, and .atm.toml can only narrow what you allow.

Trust covers these files as they are now. When one of them is changed, added or removed, the \
repository counts as untrusted, for Codex too, until you run `codex-mcp trust` again; a warning \
names the files. Files in directories below the top are not covered, and the output lists them: \
work there counts as untrusted until you run `codex-mcp trust` in it.

A repository is trusted with everything below it, except other repositories, and with its linked \
worktrees; a directory outside of any repository is trusted by itself. Directories that you have \
trusted in Codex itself (`trust_level = \"trusted\"` in its config.toml) count as well: --list \
shows them, and --revoke says what to remove from that file, which this verb does not change. Its \
own list is ~/.config/codex-mcp/trust.toml. `/`, your home directory and directories in which all \
users can write cannot be trusted: name a repository.

Examples:
  codex-mcp trust             trust the repository around the current directory
  codex-mcp trust ~/src/app
  codex-mcp trust --show      list what it would set, and change nothing
  codex-mcp trust --list
  codex-mcp trust --revoke ~/src/app";

#[derive(Debug, clap::Args)]
#[command(after_help = MEANING)]
pub(super) struct Args {
    /// The directory. If it is in a repository, the repository's top is trusted.
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    directory: PathBuf,

    /// Only print what the repository's files would set; change nothing.
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    show: bool,

    /// Only print the trusted directories: one per line, followed by a tab and the file
    /// that lists it.
    #[arg(long, conflicts_with_all = ["directory", "revoke"])]
    list: bool,

    /// With --list, print one JSON object: {"directories": [PATH], "codex_directories":
    /// [PATH]}. The latter are those in Codex's config.toml.
    #[arg(long, requires = "list")]
    json: bool,

    /// Stop trusting this directory. It need not exist. The exit code is 1 if it is still
    /// trusted because Codex's config.toml or another entry says so.
    #[arg(
        long,
        visible_alias = "remove",
        value_name = "DIR",
        conflicts_with = "directory"
    )]
    revoke: Option<PathBuf>,
}

/// The right to write that a file or directory gives to everybody. Source: inode(7).
const WRITABLE_BY_ALL: u32 = 0o002;

/// The most files that are named among those that trust does not cover.
const NAMED: usize = 10;

/// Why trust could not be shown or changed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{} is not trusted; `codex-mcp trust --list` shows what is", .0.display())]
    NotListed(PathBuf),
    #[error(
        "{} is still trusted, by Codex's own configuration: remove the table [projects.{:?}] \
         (trust_level = \"trusted\") from {}",
        directory.display(), entry, file.display()
    )]
    CodexTrusts {
        directory: PathBuf,
        entry: PathBuf,
        file: PathBuf,
    },
    #[error(
        "{} is still trusted because {entry} is: `codex-mcp trust --revoke {}` ends that",
        directory.display(), shell_word(entry), entry = entry.display()
    )]
    Inherited { directory: PathBuf, entry: PathBuf },
    #[error(
        "{} cannot be trusted, since whatever you clone can lie below it; name one repository: \
         codex-mcp trust DIR",
        .0.display()
    )]
    TooWide(PathBuf),
    #[error(
        "all users of this machine can write in {}: its settings could be theirs. Name a \
         repository in it, or take that right away with `chmod o-w {}`",
        .0.display(), shell_word(.0)
    )]
    WritableByAll(PathBuf),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
}

pub(super) fn run(args: &Args) -> ExitCode {
    let done = act(args).map(|()| ExitCode::SUCCESS);
    exit_code(
        done,
        FAILED,
        |error| matches!(error, Failure::Write(error) if error.kind() == io::ErrorKind::BrokenPipe),
    )
}

fn act(args: &Args) -> Result<(), Failure> {
    let path = TrustedDirectories::path().ok_or(TrustError::NoConfigHome)?;
    let codex = UserConfig::read(&settings::codex_home());
    match &args.revoke {
        _ if args.list => print(&path, &codex, args.json),
        _ if args.show => show(&codex, &args.directory),
        Some(directory) => revoke(&path, &codex, directory),
        None => add(&path, &args.directory),
    }
}

fn add(list: &Path, directory: &Path) -> Result<(), Failure> {
    let top = resolved_top(directory)?;
    let home = environment::home().and_then(|home| home.canonicalize().ok());
    if top.parent().is_none() || home.is_some_and(|home| home.starts_with(&top)) {
        return Err(Failure::TooWide(top));
    }
    if top
        .metadata()
        .is_ok_and(|about| about.mode() & WRITABLE_BY_ALL != 0)
    {
        return Err(Failure::WritableByAll(top));
    }
    // The path was resolved before, so this does not fail.
    let directory = directory.canonicalize().unwrap_or_else(|_| top.clone());
    let what = match TrustedDirectories::add(list, &directory, &top)? {
        AddOutcome::New if is_in_repository(&top) => {
            "is trusted now, and all below it but other repositories"
        }
        AddOutcome::New => "is trusted now, and nothing below it, as it is not a git repository",
        AddOutcome::Accepted => "is trusted with what has changed",
        AddOutcome::Unchanged => "is trusted already",
    };
    say(&format!("{} {what}", top.display()))?;
    say_what_it_brings("It brings:", &directory, &top)?;
    if let Err(error) = settings::load_in(&directory, Flags::default()) {
        let refused = "No work starts here until this is corrected. After a change of the \
                       repository's file, run `codex-mcp trust` again.";
        complain("warning", &format!("{error}. {refused}"));
    }
    Ok(())
}

fn show(codex: &UserConfig, directory: &Path) -> Result<(), Failure> {
    let found = directory_trust(directory, codex)?;
    let (state, heading) = match found.trust {
        Trust::Trusted => ("trusted", "It brings:"),
        Trust::Untrusted => ("not trusted", "If it were, it would bring:"),
    };
    say(&format!("{} is {state}.", found.top.display()))?;
    say_what_it_brings(heading, &found.directory, &found.top)?;
    match found.changes {
        Some(changes) => say(&changes.message()),
        None => Ok(()),
    }
}

fn say_what_it_brings(heading: &str, directory: &Path, top: &Path) -> Result<(), Failure> {
    let files = covered_files(directory, top, settings::key_without_effect);
    if files.is_empty() {
        let directory = directory.display();
        say(&format!(
            "There are no settings, hooks or prompts for work in {directory}."
        ))?;
    } else {
        say(heading)?;
        files
            .iter()
            .try_for_each(|file| say(&format!("  {file}")))?;
    }
    say_what_is_not_covered(directory, top)
}

fn say_what_is_not_covered(directory: &Path, top: &Path) -> Result<(), Failure> {
    let below = covered_below(directory, top);
    if !below.files.is_empty() {
        say(
            "Not covered are files in other directories of it. Work in one of these counts as \
             untrusted until you run `codex-mcp trust` there:",
        )?;
        let files = below.files.iter().take(NAMED);
        files
            .map(|file| file.display())
            .try_for_each(|file| say(&format!("  {file}")))?;
        if below.files.len() > NAMED {
            say(&format!("  and {} more", below.files.len() - NAMED))?;
        }
    }
    match below.is_cut {
        true => say("Not all directories below were searched for files that are not covered."),
        false => Ok(()),
    }
}

/// The directory itself is looked for before the top of its repository: both may be listed, and
/// neither has to exist any more.
fn revoke(list: &Path, codex: &UserConfig, directory: &Path) -> Result<(), Failure> {
    let here = env::current_dir().unwrap_or_default();
    let named = here.join(directory);
    let resolved = named.canonicalize().unwrap_or_else(|_| named.clone());
    let top = resolved_top(&resolved).unwrap_or_else(|_| resolved.clone());
    let candidates = [&resolved, &named, &top];
    let mut revoked = None;
    for candidate in candidates {
        if TrustedDirectories::revoke(list, candidate)? {
            revoked = Some(candidate.clone());
            break;
        }
    }
    let directory = revoked.clone().unwrap_or_else(|| resolved.clone());
    let in_codex = |path: &&PathBuf| codex.trust_in(path) == Some(Trust::Trusted);
    let left = match trusting_entry(&directory, &TrustedDirectories::read(list)?, codex) {
        Ok(entry) => entry,
        // It does not exist.
        Err(_) => candidates
            .into_iter()
            .find(in_codex)
            .map(|path| TrustEntry::InCodexConfig(path.clone())),
    };
    if let (Some(path), Some(_)) = (&revoked, &left) {
        say(&format!(
            "{} is removed from {}",
            path.display(),
            list.display()
        ))?;
    }
    match left {
        Some(TrustEntry::InCodexConfig(entry)) => Err(Failure::CodexTrusts {
            directory,
            entry,
            file: codex.file(),
        }),
        Some(TrustEntry::Listed(entry)) => Err(Failure::Inherited { directory, entry }),
        None if revoked.is_none() => Err(Failure::NotListed(directory)),
        None => say(&format!("{} is not trusted any more", directory.display())),
    }
}

fn print(path: &Path, codex: &UserConfig, json: bool) -> Result<(), Failure> {
    let list = TrustedDirectories::read(path)?;
    if json {
        let ours: Vec<&Path> = list.iter().collect();
        let codexs: Vec<&Path> = codex.trusted().collect();
        let both = json!({ "directories": ours, "codex_directories": codexs });
        return Ok(output::json(&both)?);
    }
    if list.iter().next().is_none() && codex.trusted().next().is_none() {
        // Not on stdout, where each line is a directory.
        complain(
            "note",
            "no directory is trusted; `codex-mcp trust DIR` trusts one",
        );
        return Ok(());
    }
    let file = codex.file();
    let ours = list.iter().map(|directory| (directory, path));
    let codexs = codex.trusted().map(|directory| (directory, file.as_path()));
    let mut out = output::stdout();
    for (directory, source) in ours.chain(codexs) {
        let [directory, source] = [directory, source].map(Path::to_string_lossy);
        let (directory, source) = (visible_line(&directory), visible_line(&source));
        writeln!(out, "{directory}\t{source}")?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), Failure> {
    Ok(output::stdout_message(&visible_line(line))?)
}
