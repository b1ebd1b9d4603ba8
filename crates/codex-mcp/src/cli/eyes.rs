//! `codex-mcp eyes`: runs the interactive Codex and attaches the pictures that it requests.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use codex_engine::binary::{self, NoCodex};
use codex_engine::injected_server::ExecutablePathError;
use common::output;
use common::text::shell_word;
use image_request::codex::CodexLauncher;
use image_request::logic::arguments::{AddedArguments, Arguments, BadArguments};
use image_request::logic::contract;
use image_request::logic::machine::MOST_RESTARTS;
use image_request::logic::picture::SizeLimit;
use image_request::logic::queue::WrapperId;
use image_request::queue::{QueueError, QueueReader};
use image_request::user_terminal::UserTerminal;
use image_request::wrapper::{self, WrapperConfig, WrapperResult};
use image_request::{ImageRoot, codex_settings};
use job_queue::thread_ids::{ThreadPrefix, ThreadPrefixError};
use settings::{ConfigError, Flags};
use uuid::Uuid;

use super::eyes_mcp::AnswerKind;
use super::stored::complain;
use super::values::{number_within, size_limit};
use super::{exit, injected_servers, runtime};

/// Examples and explanations at the end of the help.
const MORE: &str = "\
Examples:
  codex-mcp eyes                          begin a conversation
  codex-mcp eyes \"what is wrong in ./screens/login.png?\"
  codex-mcp eyes -m gpt-5-codex resume --last
                                          Codex's own arguments are passed on

Three things are added to Codex for this run: the tool `request_image`, the rules for it \
(--print-contract), and `-a never` if neither you nor Codex's configuration sets an approval \
policy. None of Codex's files is changed. When Codex has asked for pictures, it is ended and \
resumed with them, up to 8 at once; text that was typed but not sent is then lost. After \
--max-restarts, Codex is resumed once without a picture, gets the reason, and is left to you. \
With `--answer picture`, the tool answers with the picture, and Codex is not restarted. Exits \
with Codex's code; with 1 if it could not continue, or with 128 plus the number of a signal that \
has ended it.

Pictures are searched for in the directory where this is started, or in that of Codex's -C, even \
when a conversation of another directory is resumed.

In threads of `codex-mcp serve`, in jobs and in runs, Codex gets pictures without being resumed. \
`request_image = false` in the configuration applies to these, but not to `eyes`.";

#[derive(Debug, clap::Args)]
#[command(after_help = MORE, override_usage = "codex-mcp eyes [OPTIONS] [CODEX'S ARGUMENTS]...")]
pub(super) struct Args {
    /// Print the instructions about pictures that Codex gets, and exit.
    #[arg(long)]
    print_contract: bool,

    /// How Codex gets the pictures that it asks for.
    #[arg(long, value_enum, default_value = "later")]
    answer: AnswerKind,

    /// How often Codex is restarted with pictures in 5 minutes, from 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = MOST_RESTARTS, value_parser = number_within(1..=1000_usize))]
    max_restarts: usize,

    /// The Codex to run: a path, or a name on PATH. Default: the variable
    /// CODEX_MCP_CODEX_BIN, `codex_bin` in the configuration, else `codex` on PATH.
    #[arg(long, value_name = "PATH")]
    codex_bin: Option<PathBuf>,

    /// The largest picture, in bytes, up to 100 MB. Default: `max_image_bytes` in the
    /// configuration, else 20000000. As an answer, it has at most 12500000, and 150000
    /// before Codex 0.105.
    #[arg(long, value_name = "BYTES", value_parser = size_limit)]
    max_image_bytes: Option<SizeLimit>,

    /// Arguments for Codex, after our own options.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CODEX'S ARGUMENTS"
    )]
    codex: Vec<OsString>,
}

/// Why Codex cannot be run.
#[derive(Debug, thiserror::Error)]
enum EyesError {
    #[error(transparent)]
    Arguments(#[from] BadArguments),
    #[error(transparent)]
    Thread(#[from] ThreadPrefixError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{error}. {}", install(error))]
    NoCodex {
        #[from]
        error: NoCodex,
    },
    #[error("Codex cannot work in {}: {error}; name a directory that is there with -C", directory.display())]
    Directory {
        directory: PathBuf,
        error: io::Error,
    },
    #[error("{0}; put it elsewhere")]
    ExecutablePathError(#[from] ExecutablePathError),
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(
        "{0}, and the interactive Codex needs one. Without a terminal there are `codex-mcp run` \
         and `codex-mcp jobs`, where Codex gets its pictures too."
    )]
    NoTerminal(io::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
}

pub(super) fn run(args: &Args) -> ExitCode {
    if args.print_contract {
        let printed = output::stdout().write_all(rules(args.answer).as_bytes());
        return printed.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    match wrap(args) {
        Ok(ended) => tell(&ended),
        Err(error) => {
            complain("error", &error.to_string());
            match error {
                EyesError::Arguments(_) => ExitCode::from(exit::usage_code(None)),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// The instructions for Codex about pictures.
fn rules(answer: AnswerKind) -> String {
    match answer {
        AnswerKind::Picture => contract::instructions_for_answers(),
        AnswerKind::Later => contract::instructions(),
    }
}

/// Reports the end of Codex. Following Codex's own advice, the user would continue the conversation
/// without pictures.
fn tell(ended: &WrapperResult) -> ExitCode {
    let WrapperResult {
        shutdown,
        conversation,
        trouble,
    } = ended;
    if let Some(trouble) = trouble {
        let text = format!("requests of pictures were not read: {trouble}");
        complain("warning", &text);
    }
    match (&shutdown.error, conversation) {
        (Some(error), _) => complain("error", &error.to_string()),
        (None, Some(id)) => {
            let text = format!(
                "to continue with pictures, run `codex-mcp eyes resume {}`",
                shell_word(id.to_string())
            );
            complain("note", &text);
        }
        (None, None) => {}
    }
    ExitCode::from(shutdown.code)
}

fn wrap(args: &Args) -> Result<WrapperResult, EyesError> {
    let mut arguments = Arguments::read(codex_args(args))?;
    let config = settings::load(Flags {
        codex_bin: args.codex_bin.clone(),
        max_image_bytes: args.max_image_bytes,
        ..Flags::default()
    })?;
    name_conversation(&mut arguments, &config.codex_home, &config.atm_home)?;
    let binary = binary::find(config.chosen_codex())?;
    let limit = config.eyes.max_image_bytes.value;
    let directory = env::current_dir()?.join(arguments.directory().unwrap_or_default());
    let place = ImageRoot::around(&directory, limit)
        .map_err(|error| EyesError::Directory { directory, error })?;
    let wrapper: WrapperId = Uuid::new_v4()
        .to_string()
        .parse()
        .map_err(io::Error::other)?;
    let codex = codex_settings::config_for(&arguments, &config.codex_home, &place);
    let name = wrapper.to_string();
    let answers = match args.answer {
        AnswerKind::Picture => ["--answer", "picture"],
        AnswerKind::Later => ["--wrapper", &name],
    };
    let tool = injected_servers::pictures(limit, &answers)?;
    let added = AddedArguments::new(
        &tool.entry(Some(place.directory())),
        &codex_settings::instructions(&codex, &arguments, &rules(args.answer)),
        codex_settings::approval(&codex),
        place.directory().as_os_str(),
    );
    let most_restarts = args.max_restarts;
    runtime::block_on(async {
        // Before a terminal is found, nothing is written.
        let terminal = UserTerminal::find().map_err(EyesError::NoTerminal)?;
        let requests = match args.answer {
            AnswerKind::Picture => None,
            AnswerKind::Later => Some(QueueReader::from_now_on(place.directory(), wrapper)?),
        };
        let parts = WrapperConfig {
            terminal,
            codex: CodexLauncher {
                binary,
                arguments,
                added,
            },
            image_root: place,
            requests,
            most_restarts,
        };
        Ok(wrapper::run(parts).await?)
    })?
}

/// Replaces the prefix of an ID with the whole ID. Any other text is kept, as it may be a name that
/// Codex knows.
fn name_conversation(
    arguments: &mut Arguments,
    codex_home: &Path,
    atm_home: &Path,
) -> Result<(), ThreadPrefixError> {
    let Some(word) = arguments.conversation_mut() else {
        return Ok(());
    };
    let Some(prefix) = word
        .to_str()
        .and_then(|text| text.parse::<ThreadPrefix>().ok())
    else {
        return Ok(());
    };
    match prefix.resolve(codex_home, atm_home) {
        Ok(thread) => *word = thread.to_string().into(),
        Err(ThreadPrefixError::Unknown { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn install(error: &NoCodex) -> &'static str {
    match error {
        NoCodex::NotOnPath => {
            "Install it with `npm install -g @openai/codex`, or name one with --codex-bin."
        }
        NoCodex::NotExecutable { .. } | NoCodex::NoSuchName { .. } => "Name another one.",
    }
}

/// The arguments for Codex. clap takes a leading `--` as the end of our own options, but it must
/// end Codex's options too.
fn codex_args(args: &Args) -> Vec<OsString> {
    let all: Vec<OsString> = env::args_os().collect();
    let before = all.len().checked_sub(args.codex.len() + 1);
    let ends = before.and_then(|before| all.get(before));
    let end = ends.filter(|last| *last == "--").cloned();
    end.into_iter().chain(args.codex.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn conversation_is_resumed_by_id_prefix() {
        const ID: &str = "0199a213-81c0-7800-8aa1-bbab2a035a53";
        let home = tempfile::tempdir().unwrap();
        let sessions = home.path().join("sessions/2026/11/22");
        fs::create_dir_all(&sessions).unwrap();
        fs::write(
            sessions.join(format!("rollout-2026-11-22T10-00-00-{ID}.jsonl")),
            "",
        )
        .unwrap();
        let named = |word: &str| {
            let mut arguments = Arguments::read(vec!["resume".into(), word.into()]).unwrap();
            let named = name_conversation(&mut arguments, home.path(), home.path());
            named.map(|()| arguments.conversation_mut().unwrap().clone())
        };
        assert_eq!(named("0199a213").unwrap(), ID);
        for left in ["deadbeef", "my-thread", ID] {
            assert_eq!(named(left).unwrap(), left);
        }
        let other = "rollout-2026-11-22T10-00-01-0199a213-81c0-7800-8aa1-bbab2a035a54.jsonl";
        fs::write(sessions.join(other), "").unwrap();
        let error = named("0199a213").unwrap_err().to_string();
        assert!(
            error.contains("several threads begin with 0199a213"),
            "{error}"
        );
        assert!(error.contains(ID), "{error}");
    }
}
