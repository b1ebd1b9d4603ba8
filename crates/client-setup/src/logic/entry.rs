//! The entry of this program in a client's configuration, and its options in place of those of a server
//! that it replaces.

use std::path::Path;
use std::time::Duration;

use codex_config::logic::codex_servers::{OWN_NAME, without_version};

/// The name of the entry, unless the user chooses another one.
pub const NAME: &str = "codex";

/// How long a call of a tool may take: twice the default of `serve`, so that a client never gives up
/// before the server answers.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// How long the server may take to start. It takes some 50 ms; a host that is ending, ten seconds.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The program that a client starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The program, as a path or a name on PATH.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that it needs and that some clients do not pass on, with their values.
    pub env: Vec<(String, String)>,
}

/// The command that clients start.
#[derive(Debug, Clone)]
pub struct WantedEntry {
    /// The program, as a path or a name on PATH, and the words before its arguments: with npx, the
    /// package.
    pub command: Vec<String>,
    /// The options of `serve` that the user gives. They are set in the arguments of the existing
    /// entry, or in those that keep the tools of the server that is replaced.
    pub options: Vec<ServeOption>,
    /// As in [`Entry`].
    pub env: Vec<(String, String)>,
    /// Which options of a replaced server can be taken over.
    pub accepts: Accepts,
}

/// An option of `serve`, such as `--api`, and its value.
pub type ServeOption = (&'static str, String);

/// Whether `serve` takes an option, given first, with this value.
pub type Accepts = fn(&str, &str) -> bool;

/// The options of `serve` for those of a `codex mcp-server`, and the words for which there are none.
/// `accepts` says whether `serve` takes an option with a value; of several values for one option, the
/// last counts, as it does for Codex.
#[must_use]
pub fn options_of_mcp_server(
    command_line: &[String],
    accepts: Accepts,
) -> (Vec<String>, Vec<String>) {
    let mut options: Vec<(&str, String)> = Vec::new();
    let mut left_out = Vec::new();
    for setting in settings_of_codex(command_line) {
        let option = match setting.key.as_str() {
            "model" => Some("--model"),
            "model_reasoning_effort" => Some("--effort"),
            "sandbox_mode" => Some("--sandbox"),
            "approval_policy" => Some("--approval-policy"),
            _ => None,
        };
        let value = match setting.value.trim().trim_matches(['"', '\'']) {
            // The policy of older releases that newer ones do not have.
            "on-failure" => "on-request",
            value => value,
        };
        match option.filter(|option| accepts(option, value)) {
            Some(option) => {
                options.retain(|(known, _)| *known != option);
                options.push((option, value.to_owned()));
            }
            None => left_out.push(setting.words),
        }
    }
    let options = options.into_iter();
    let options = options.flat_map(|(option, value)| [option.to_owned(), value]);
    (options.collect(), left_out)
}

/// The options on a command line that starts the npm package @leo000001/codex-mcp. `serve` has no
/// option for any of them.
pub(super) fn options_of_npm_package(command_line: &[String]) -> Vec<String> {
    // The package itself, a file in it, or the link to its program.
    let names_package = |word: &&String| word.contains(OWN_NAME);
    let words = command_line
        .iter()
        .skip_while(|word| !names_package(word))
        .skip_while(names_package);
    let options = settings(words).into_iter();
    options.map(|option| option.words).collect()
}

/// Sets options in the arguments of this program: an option that the arguments have gets the new value,
/// another one is added at the end. All other arguments stay, because bounds can be among them.
pub(super) fn with_options(mut args: Vec<String>, options: &[ServeOption]) -> Vec<String> {
    // Without the verb, this program serves too, but takes no options of `serve`.
    if !options.is_empty() && args.iter().all(|arg| arg != "serve") {
        args.push("serve".to_owned());
    }
    for (name, value) in options {
        args = with_option(args, name, value);
    }
    args
}

/// Sets one option, in the spelling that the arguments have: `--x value` or `--x=value`.
fn with_option(args: Vec<String>, name: &str, value: &str) -> Vec<String> {
    let attached = format!("{name}=");
    let mut is_set = false;
    let mut merged = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let words = if arg == name {
            // The earlier value.
            args.next();
            vec![name.to_owned(), value.to_owned()]
        } else if arg.starts_with(&attached) {
            vec![format!("{attached}{value}")]
        } else {
            merged.push(arg);
            continue;
        };
        // `--tools` can be given several times; the new value replaces them all.
        if !is_set {
            merged.extend(words);
            is_set = true;
        }
    }
    if !is_set {
        merged.extend([name.to_owned(), value.to_owned()]);
    }
    merged
}

/// A setting on the command line of Codex.
struct CodexSetting {
    key: String,
    value: String,
    /// As it stands there.
    words: String,
}

/// The settings on a command line that starts Codex. Source: `codex mcp-server --help` of 0.153.
fn settings_of_codex(command_line: &[String]) -> Vec<CodexSetting> {
    let is_program = |word: &&String| is_codex(word) || without_version(word) == "@openai/codex";
    let words = command_line.iter().skip_while(|word| !is_program(word));
    settings(words.skip(1))
}

/// The settings in words after the program.
fn settings<'a>(words: impl Iterator<Item = &'a String>) -> Vec<CodexSetting> {
    let mut words = words.map(String::as_str).peekable();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        if word == "mcp-server" || word == "mcp" {
            continue;
        }
        let (flag, attached) = flag_and_value(word);
        let is_value = |next: &&str| !next.starts_with('-') && *next != "mcp-server";
        let value = match attached {
            Some(value) => value,
            None => words.next_if(|next| is_value(next)).unwrap_or_default(),
        };
        let words = match (attached, value) {
            (Some(_), _) | (None, "") => word.to_owned(),
            (None, value) => format!("{word} {value}"),
        };
        let (key, value) = match flag {
            "-c" | "--config" => value.split_once('=').unwrap_or((value, "")),
            "-m" | "--model" => ("model", value),
            "-s" | "--sandbox" => ("sandbox_mode", value),
            "-a" | "--ask-for-approval" => ("approval_policy", value),
            other => (other, value),
        };
        settings.push(CodexSetting {
            key: key.trim().to_owned(),
            value: value.to_owned(),
            words,
        });
    }
    settings
}

/// A flag, and the value in the same word: `--config=a=b`, `-ca=b`.
fn flag_and_value(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word, None),
        };
    }
    match word.split_at_checked(2) {
        Some((flag, value)) if flag.starts_with('-') && !value.is_empty() => (flag, Some(value)),
        _ => (word, None),
    }
}

fn is_codex(word: &str) -> bool {
    Path::new(word).file_stem() == Some("codex".as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_codex_become_those_of_serve_if_it_takes_them() {
        let converted = |line: &str| {
            let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (options, left_out) =
                options_of_mcp_server(&line, |_, value| !value.starts_with('{') && value != "x");
            (options.join(" "), left_out.join(", "))
        };
        let both = |options: &str, left_out: &str| (options.to_owned(), left_out.to_owned());
        for (line, options, left_out) in [
            ("codex mcp-server", "", ""),
            ("codex -c model=a mcp-server -m b", "--model b", ""),
            ("codex -cmodel=a mcp-server", "--model a", ""),
            (
                "codex mcp-server --config=sandbox_mode='read-only'",
                "--sandbox read-only",
                "",
            ),
            ("codex -s read-only mcp-server", "--sandbox read-only", ""),
            (
                "codex -c approval_policy=on-failure mcp-server",
                "--approval-policy on-request",
                "",
            ),
            (
                "codex -c approval_policy={granular} mcp-server",
                "",
                "-c approval_policy={granular}",
            ),
            (
                "codex -c model=a -c model=x mcp-server",
                "--model a",
                "-c model=x",
            ),
            ("codex --enable web mcp-server", "", "--enable web"),
            ("codex -p work mcp-server", "", "-p work"),
            (
                "npx -y @openai/codex@0.150 mcp-server --search",
                "",
                "--search",
            ),
        ] {
            assert_eq!(converted(line), both(options, left_out), "{line}");
        }
    }
}
