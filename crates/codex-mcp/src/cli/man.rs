//! `codex-mcp man`: the manual.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use common::output;

use super::stored::{self, Failure};
use super::user_files::{self, UserFile, xdg_directory};

/// How to read the manual.
const READING: &str = "\
Examples:
  codex-mcp man | man -l -     read a page without installing it
  codex-mcp man --install      install all, for `man codex-mcp` and the like

--install writes the pages to ~/.local/share/man/man1 (XDG_DATA_HOME). If `man` does not find \
them, put ~/.local/bin on PATH, or set MANPATH=~/.local/share/man: (with the colon).";

/// The source that each page names.
const PROGRAM: &str = concat!("codex-mcp ", env!("CARGO_PKG_VERSION"));

/// The comment in the first line of each installed page.
const MARK: &str = ".\\\" Written by codex-mcp man --install.";

#[derive(Debug, clap::Args)]
#[command(after_help = READING)]
pub(super) struct Args {
    /// A verb, such as `serve` or `jobs submit`. Default: the program as a whole.
    verb: Vec<String>,

    /// Write the pages of all verbs into the user's directory of manual pages.
    #[arg(long, conflicts_with_all = ["verb", "remove"])]
    install: bool,

    /// Remove the pages that --install has written.
    #[arg(long, conflicts_with = "verb")]
    remove: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let done = match (args.install, args.remove) {
        (true, _) => install(),
        (_, true) => remove(),
        (false, false) => print(&args.verb),
    };
    stored::exit(done)
}

fn install() -> Result<ExitCode, Failure> {
    let pages = all_pages()?;
    let code = user_files::install(&pages, "pages")?;
    let old = old_pages(&pages)?;
    match old.is_empty() {
        true => Ok(code),
        false => user_files::remove(&old, "pages"),
    }
}

fn remove() -> Result<ExitCode, Failure> {
    let mut pages = all_pages()?;
    let old = old_pages(&pages)?;
    pages.extend(old);
    user_files::remove(&pages, "pages")
}

/// The command line, as pages describe it.
fn described() -> Command {
    let mut program = super::shown().disable_help_subcommand(true);
    // Names the verbs' pages after the program.
    program.build();
    program
}

fn print(verbs: &[String]) -> Result<ExitCode, Failure> {
    let mut page = described();
    for verb in verbs {
        let Some(found) = page.find_subcommand(verb) else {
            let all = verbs.join(" ");
            let words = format!("there is no verb {all:?}; `codex-mcp --help` lists them");
            return Err(Failure::Missing(words));
        };
        page = found.clone();
    }
    output::stdout().write_all(&text(page)?)?;
    Ok(ExitCode::SUCCESS)
}

fn text(mut page: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // This line has the names of values, which the page's own line leaves out.
    let usage = page.render_usage().to_string();
    let page = page.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    // The page of a verb must not claim a program with a version.
    Man::new(page).source(PROGRAM).render(&mut text)?;
    Ok(text)
}

/// Where `man` looks for the pages of a user.
fn directory() -> Result<PathBuf, Failure> {
    Ok(xdg_directory("XDG_DATA_HOME", ".local/share")?.join("man/man1"))
}

/// The pages of the program and of all verbs.
fn all_pages() -> Result<Vec<UserFile>, Failure> {
    let mut pages = Vec::new();
    add(described(), "", &directory()?, &mut pages)?;
    Ok(pages)
}

/// The pages in the same directory that another version has installed, for verbs that this version
/// does not have.
fn old_pages(pages: &[UserFile]) -> Result<Vec<UserFile>, Failure> {
    let Ok(entries) = fs::read_dir(directory()?) else {
        return Ok(Vec::new());
    };
    let is_page = |path: &PathBuf| {
        let name = path.file_stem().and_then(|stem| stem.to_str());
        name.is_some_and(|name| name.starts_with("codex-mcp"))
            && path.extension().is_some_and(|end| end == "1")
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let others = paths.filter(|path| is_page(path) && pages.iter().all(|page| page.path != *path));
    let others = others.map(|path| UserFile {
        path,
        text: Vec::new(),
        mark: MARK,
    });
    Ok(others.filter(UserFile::is_installed).collect())
}

fn add(page: Command, above: &str, directory: &Path, pages: &mut Vec<UserFile>) -> io::Result<()> {
    let name = format!("{above}{}", page.get_name());
    for verb in page.get_subcommands() {
        add(verb.clone(), &format!("{name}-"), directory, pages)?;
    }
    let mut marked = format!("{MARK}\n").into_bytes();
    marked.extend(text(page)?);
    pages.push(UserFile {
        path: directory.join(format!("{name}.1")),
        text: marked,
        mark: MARK,
    });
    Ok(())
}
