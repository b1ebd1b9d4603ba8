//! `codex-mcp man`: the manual.

use std::io::Write;
use std::process::ExitCode;

use clap_mangen::Man;
use common::output;

use super::stored::{self, Failure};

/// How to read the manual.
const READING: &str = "\
To read it:     codex-mcp man | man -l - \
To install it:  codex-mcp man > ~/.local/share/man/man1/codex-mcp.1";

/// The source that each page names.
const PROGRAM: &str = concat!("codex-mcp ", env!("CARGO_PKG_VERSION"));

#[derive(Debug, clap::Args)]
#[command(after_help = READING)]
pub(super) struct Args {
    /// A verb, such as `serve` or `jobs submit`. Default: the program as a whole.
    verb: Vec<String>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    stored::exit(print(&args.verb))
}

fn print(verbs: &[String]) -> Result<ExitCode, Failure> {
    let mut page = super::shown().disable_help_subcommand(true);
    // Names the verbs' pages after the program.
    page.build();
    for verb in verbs {
        let Some(found) = page.find_subcommand(verb) else {
            let all = verbs.join(" ");
            let words = format!("there is no verb {all:?}; `codex-mcp --help` lists them");
            return Err(Failure::Missing(words));
        };
        page = found.clone();
    }
    let mut text = Vec::new();
    // The page of a verb must not claim a program with a version.
    Man::new(page).source(PROGRAM).render(&mut text)?;
    output::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}
