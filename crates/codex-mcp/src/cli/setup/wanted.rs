//! The command that clients have to start, which depends on the options of `setup` and on how this
//! program was installed.

use std::io;
use std::path::{Path, PathBuf};

use client_setup::logic::entry::{ServeOption, WantedEntry};
use codex_config::logic::codex_servers::{OWN_NAME, OWN_PACKAGE};
use codex_engine::binary::{self, Source};

use super::super::serve_args;
use super::change::program;
use super::{Args, Failure};
use crate::installation::Installation;
use crate::installation::channel::{Channel, pnpm_link};

/// The verb that clients start.
const SERVE: &str = "serve";

/// The variables that decide which Codex is run, and where it and we have our directories.
const VARIABLES: [&str; 6] = [
    "ATM_HOME",
    "CODEX_HOME",
    "CODEX_MCP_CODEX_BIN",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];

/// The entry that the clients are to have.
pub(super) fn entry(args: &Args) -> Result<WantedEntry, Failure> {
    let (command, env) = match args.project {
        // The program is in a different place for each user of the repository.
        true => (vec![OWN_NAME.to_owned()], Vec::new()),
        false => (command().map_err(Failure::NoProgram)?, variables()),
    };
    Ok(WantedEntry {
        command,
        options: options(args)?,
        env,
        accepts: serve_accepts,
    })
}

/// Whether `serve` takes an option with this value.
fn serve_accepts(option: &str, value: &str) -> bool {
    serve_args(&[SERVE, option, value].map(str::to_owned)).is_ok()
}

/// The words that start this program. Clients that were not started from a shell need its path: the
/// path on PATH if it leads to this program, as that path stays when an update moves the target of
/// its link; or pnpm's link.
fn command() -> io::Result<Vec<String>> {
    let copy = Installation::of_this_process();
    if copy.channel == Channel::Npx {
        // The files in npx's cache may be gone tomorrow.
        return Ok(["npx", "-y", OWN_PACKAGE].map(str::to_owned).to_vec());
    }
    let own = copy.program.ok_or(io::ErrorKind::NotFound)?;
    let is_own = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == own);
    let mut links = program(OWN_NAME).into_iter().chain(pnpm_link(&own));
    let path = links.find(is_own).unwrap_or(own);
    let word = path.into_os_string().into_string();
    let word = word.map_err(|_| io::Error::other("its path is not UTF-8"))?;
    Ok(vec![word])
}

/// The options of `serve` that the user gives.
fn options(args: &Args) -> Result<Vec<ServeOption>, Failure> {
    let mut options = Vec::new();
    if let Some(api) = args.api {
        options.push(("--api", word_of(&api)));
    }
    if !args.tools.is_empty() {
        let groups: Vec<String> = args.tools.iter().map(word_of).collect();
        options.push(("--tools", groups.join(",")));
    }
    if let Some(team) = &args.team {
        options.push(("--team", team.to_string()));
    }
    if let Some(codex) = &args.codex_bin {
        options.push(("--codex-bin", codex_path(codex)?));
    }
    Ok(options)
}

/// The path of the Codex that the user names: clients start in other directories, and with another
/// PATH.
fn codex_path(named: &Path) -> Result<String, Failure> {
    let found = binary::find(Some((named.to_owned(), Source::FlagOrVariable)))?;
    let path = found.chosen.into_os_string().into_string();
    path.map_err(|path| Failure::CodexNotText(path.into()))
}

/// The variables that clients without an environment for servers have to be told, where they are
/// set.
fn variables() -> Vec<(String, String)> {
    let set = VARIABLES.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        let is_absolute = PathBuf::from(&value).is_absolute();
        is_absolute.then(|| ((*name).to_owned(), value))
    });
    set.collect()
}

/// The word of a value on the command line.
fn word_of(value: &impl clap::ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
