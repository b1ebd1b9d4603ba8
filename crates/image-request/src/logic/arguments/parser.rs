//! Parses arguments into groups by their meaning.

use std::ffi::{OsStr, OsString};

use super::BadArguments;

/// Arguments that belong together: an option and its value, or a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArgumentGroup {
    pub(super) kind: ArgumentKind,
    pub(super) args: Vec<OsString>,
}

/// The meaning of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ArgumentKind {
    /// An option for Codex's work.
    Option,
    /// The approval policy.
    Approval,
    /// Developer instructions.
    Instructions,
    /// Pictures for the first prompt.
    Pictures,
    /// The directory and the conversation of the beginning.
    Beginning,
    /// `resume` or `fork`.
    Subcommand,
    /// The prompt, the name of a conversation, or `--` and the words after it.
    Word,
}

/// Options with a value, by both of their names.
const VALUED: [(&str, &str); 13] = [
    ("-c", "--config"),
    ("-i", "--image"),
    ("-m", "--model"),
    ("-p", "--profile"),
    ("-s", "--sandbox"),
    ("-C", "--cd"),
    ("-a", "--ask-for-approval"),
    ("", "--add-dir"),
    ("", "--enable"),
    ("", "--disable"),
    ("", "--local-provider"),
    ("", "--remote"),
    ("", "--remote-auth-token-env"),
];

/// Options of the approval policy, which exclude `-a`.
const APPROVALS: [&str; 5] = [
    "--ask-for-approval",
    "--full-auto",
    "--yolo",
    "--dangerously-bypass-approvals-and-sandbox",
    "--approve-for-me",
];

/// Options that do not apply to a resumed conversation.
const BEGINNINGS: [&str; 4] = ["--last", "--all", "--include-non-interactive", WORKTREE];

/// Makes Codex 0.169.0 work in a new directory.
const WORKTREE: &str = "--worktree";

/// Subcommands that are the interactive program too.
const INTERACTIVE: [&str; 2] = ["resume", "fork"];

/// The other ones, of all releases, with their short names.
const OTHERS: [&str; 32] = [
    "a",
    "agents",
    "app",
    "app-server",
    "apply",
    "archive",
    "cloud",
    "completion",
    "debug",
    "delete",
    "doctor",
    "e",
    "exec",
    "exec-server",
    "execpolicy",
    "features",
    "login",
    "logout",
    "mcp",
    "mcp-server",
    "migrate-nfs-db",
    "migrate-rollouts",
    "plugin",
    "proto",
    "queue",
    "remote-control",
    "responses-api-proxy",
    "review",
    "sandbox",
    "stdio-to-uds",
    "unarchive",
    "update",
];

impl ArgumentGroup {
    fn of(kind: ArgumentKind, args: Vec<OsString>) -> Self {
        Self { kind, args }
    }

    /// The setting after `-c`, if the group is one.
    pub(super) fn setting(&self) -> Option<&str> {
        self.value("-c", "--config")
    }

    /// The value of an option, if the group is that option.
    pub(super) fn value(&self, short: &str, long: &str) -> Option<&str> {
        let first = self.args.first()?.to_str()?;
        match self.args.get(1) {
            Some(value) if first == short || first == long => value.to_str(),
            _ => joined(first, short, long),
        }
    }

    pub(super) fn is_worktree(&self) -> bool {
        self.kind == ArgumentKind::Beginning && self.args.first().is_some_and(|arg| arg == WORKTREE)
    }

    /// The directory after `-C`, which need not be Unicode.
    pub(super) fn directory(&self) -> Option<&OsStr> {
        let first = self.args.first()?;
        match self.args.get(1) {
            Some(directory) if first == "-C" || first == "--cd" => Some(directory),
            _ => joined(first.to_str()?, "-C", "--cd").map(OsStr::new),
        }
    }
}

/// The value of an option that is joined to it.
fn joined<'a>(arg: &'a str, short: &str, long: &str) -> Option<&'a str> {
    if let Some(value) = arg.strip_prefix(long) {
        return value.strip_prefix('=');
    }
    let value = arg.strip_prefix(short).filter(|_| !short.is_empty())?;
    Some(value.strip_prefix('=').unwrap_or(value))
}

/// Groups arguments that belong together.
pub(super) fn groups(args: Vec<OsString>) -> Result<Vec<ArgumentGroup>, BadArguments> {
    let mut groups = Vec::new();
    let mut args = args.into_iter().peekable();
    let mut words = 0_usize;
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        if text == "--" {
            let rest = std::iter::once(arg).chain(args).collect();
            groups.push(ArgumentGroup::of(ArgumentKind::Word, rest));
            break;
        }
        if !text.starts_with('-') || text == "-" {
            words += 1;
            let kind = match words {
                1 => word(&text)?,
                _ => ArgumentKind::Word,
            };
            groups.push(ArgumentGroup::of(kind, vec![arg]));
            continue;
        }
        let (name, value) = option(&text);
        let mut group = vec![arg];
        if value == ValuePosition::Next {
            group.extend(args.next());
            let is_picture = |next: &OsString| name == "--image" && !is_option(next);
            group.extend(std::iter::from_fn(|| args.next_if(is_picture)));
        }
        groups.push(about(&name, group));
    }
    Ok(groups)
}

/// Whether an argument is an option. All arguments after `-i` up to the next option are
/// pictures.
fn is_option(arg: &OsString) -> bool {
    arg.as_encoded_bytes().starts_with(b"-")
}

/// The position of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValuePosition {
    Next,
    /// Joined to the option, or absent.
    Here,
}

/// The long name of an option.
fn option(text: &str) -> (String, ValuePosition) {
    for (short, long) in VALUED {
        if text == short || text == long {
            return (long.to_owned(), ValuePosition::Next);
        }
        if joined(text, short, long).is_some() {
            return (long.to_owned(), ValuePosition::Here);
        }
    }
    let (name, _) = text.split_once('=').unwrap_or((text, ""));
    (name.to_owned(), ValuePosition::Here)
}

fn about(name: &str, args: Vec<OsString>) -> ArgumentGroup {
    let kind = match name {
        "--image" => ArgumentKind::Pictures,
        _ if APPROVALS.contains(&name) => ArgumentKind::Approval,
        _ if BEGINNINGS.contains(&name) => ArgumentKind::Beginning,
        _ => ArgumentKind::Option,
    };
    let mut group = ArgumentGroup::of(kind, args);
    if name == "--config" {
        let key = group.setting().and_then(|setting| setting.split_once('='));
        group.kind = match key.map(|(key, _)| key.trim()) {
            Some("approval_policy") => ArgumentKind::Approval,
            Some("developer_instructions") => ArgumentKind::Instructions,
            _ => ArgumentKind::Option,
        };
    }
    group
}

fn word(text: &str) -> Result<ArgumentKind, BadArguments> {
    if INTERACTIVE.contains(&text) {
        return Ok(ArgumentKind::Subcommand);
    }
    match text {
        "help" => Err(BadArguments::Help),
        other if OTHERS.contains(&other) => Err(BadArguments::Subcommand(other.to_owned())),
        _ => Ok(ArgumentKind::Word),
    }
}
