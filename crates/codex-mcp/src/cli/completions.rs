//! `codex-mcp completions`: a script for a shell.

use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;
use common::output;
use common::text::shell_word;

use super::completion;
use super::stored::{self, Failure, complain};
use super::user_files::{self, UserFile, xdg_directory};

/// The place where each shell looks for the script.
const PLACES: &str = "\
With --install, the program writes a file that makes the shell load the script from this program:
  bash  ~/.local/share/bash-completion/completions/codex-mcp (XDG_DATA_HOME)
  zsh   ~/.local/share/zsh/site-functions/_codex-mcp (XDG_DATA_HOME)
  fish  ~/.config/fish/completions/codex-mcp.fish (XDG_CONFIG_HOME)

bash reads the file if the package bash-completion is installed; for zsh, the directory must be \
in $fpath before `compinit` runs. Otherwise, put a line into the shell's configuration:
  bash  source <(codex-mcp completions bash)
  zsh   source <(codex-mcp completions zsh)
  fish  codex-mcp completions fish | source

The script matches this version of the program: if you keep a copy in a file, write it again after \
an update.";

/// A line that each file written by --install contains.
const MARK: &str = "# Written by codex-mcp completions --install.";

#[derive(Debug, clap::Args)]
#[command(after_help = PLACES)]
pub(super) struct Args {
    /// The shell to complete for.
    shell: Shell,

    /// Write a file where the shell looks for completions, instead of printing the script: bash,
    /// zsh and fish.
    #[arg(long, conflicts_with = "remove")]
    install: bool,

    /// Remove the file that --install has written.
    #[arg(long)]
    remove: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let done = match (args.install, args.remove) {
        (true, _) => install(args.shell),
        (_, true) => file(args.shell).and_then(|file| user_files::remove(&[file], "file")),
        (false, false) => print(args.shell),
    };
    stored::exit(done)
}

fn install(shell: Shell) -> Result<ExitCode, Failure> {
    let file = file(shell)?;
    let directory = file.path.parent().unwrap_or(&file.path).to_owned();
    let code = user_files::install(&[file], "file")?;
    match shell {
        // By default, zsh reads no directory of the user.
        Shell::Zsh => complain(
            "hint",
            &format!(
                "if ~/.zshrc does not set it yet, add this line before `compinit`: fpath=({} $fpath)",
                shell_word(&directory)
            ),
        ),
        Shell::Bash => complain(
            "hint",
            "bash reads it only with the package bash-completion; without that, add this line to \
             ~/.bashrc: source <(codex-mcp completions bash)",
        ),
        _ => {}
    }
    Ok(code)
}

fn print(shell: Shell) -> Result<ExitCode, Failure> {
    let Some(script) = completion::registration(shell) else {
        return Err(Failure::Missing(format!("there is no script for {shell}")));
    };
    output::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// The file that a shell reads when it completes our command line for the first time. The file asks
/// the program for the script, so that both match after an update.
fn file(shell: Shell) -> Result<UserFile, Failure> {
    let data = || xdg_directory("XDG_DATA_HOME", ".local/share");
    let (path, text) = match shell {
        Shell::Bash => (
            data()?.join("bash-completion/completions/codex-mcp"),
            format!("{MARK}\nsource <(codex-mcp completions bash 2>/dev/null)\n"),
        ),
        // The script replaces this function with another, which has to complete this time already.
        Shell::Zsh => (
            data()?.join("zsh/site-functions/_codex-mcp"),
            // zsh looks for the name of the command only in the first line.
            format!(
                "#compdef codex-mcp\n\
                 {MARK}\n\
                 source <(codex-mcp completions zsh 2>/dev/null)\n\
                 (( $+functions[_clap_dynamic_completer_codex_mcp] )) && \
                 _clap_dynamic_completer_codex_mcp \"$@\"\n"
            ),
        ),
        Shell::Fish => (
            xdg_directory("XDG_CONFIG_HOME", ".config")?.join("fish/completions/codex-mcp.fish"),
            format!("{MARK}\ncodex-mcp completions fish 2>/dev/null | source\n"),
        ),
        _ => {
            let advice = format!(
                "{shell} reads no such files; have its configuration run the output of \
                 `codex-mcp completions {shell}`"
            );
            return Err(Failure::Missing(advice));
        }
    };
    Ok(UserFile {
        path,
        text: text.into_bytes(),
        mark: MARK,
    })
}
