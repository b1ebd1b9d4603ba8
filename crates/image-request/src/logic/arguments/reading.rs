//! Which arguments belong together, and what they are about.

use std::ffi::{OsStr, OsString};

use super::BadArguments;

/// Arguments that belong together: an option and its value, or a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) part: Part,
    pub(super) args: Vec<OsString>,
}

/// What a group is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// How Codex works.
    Option,
    /// When it asks.
    Approval,
    /// What it is told beside the prompt.
    Instructions,
    /// With which pictures it begins.
    Pictures,
    /// Where and with which conversation it begins.
    Beginning,
    /// `resume` or `fork`.
    Subcommand,
    /// The prompt, or the name of a conversation, or what stands before them.
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

/// Options that say when Codex asks, and that don't go with `-a`.
const APPROVALS: [&str; 5] = [
    "--ask-for-approval",
    "--full-auto",
    "--yolo",
    "--dangerously-bypass-approvals-and-sandbox",
    "--approve-for-me",
];

/// Options that make no sense for a conversation that goes on.
const BEGINNINGS: [&str; 4] = ["--last", "--all", "--include-non-interactive", WORKTREE];

/// Has Codex 0.169.0 work in a directory that it makes.
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

impl Group {
    fn of(part: Part, args: Vec<OsString>) -> Self {
        Self { part, args }
    }

    /// What stands after `-c`, if the group is one.
    pub(super) fn setting(&self) -> Option<&str> {
        self.value("-c", "--config")
    }

    /// The value of an option, if the group is that.
    pub(super) fn value(&self, short: &str, long: &str) -> Option<&str> {
        let first = self.args.first()?.to_str()?;
        match self.args.get(1) {
            Some(value) if first == short || first == long => value.to_str(),
            _ => joined(first, short, long),
        }
    }

    pub(super) fn is_worktree(&self) -> bool {
        self.part == Part::Beginning && self.args.first().is_some_and(|arg| arg == WORKTREE)
    }

    /// What stands after `-C`, which needn't be Unicode.
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

/// Puts together what belongs together.
pub(super) fn groups(args: Vec<OsString>) -> Result<Vec<Group>, BadArguments> {
    let mut groups = Vec::new();
    let mut args = args.into_iter().peekable();
    let mut words = 0_usize;
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        if text == "--" {
            let rest = std::iter::once(arg).chain(args).collect();
            groups.push(Group::of(Part::Word, rest));
            break;
        }
        if !text.starts_with('-') || text == "-" {
            words += 1;
            let part = match words {
                1 => word(&text)?,
                _ => Part::Word,
            };
            groups.push(Group::of(part, vec![arg]));
            continue;
        }
        let (name, value) = option(&text);
        let mut group = vec![arg];
        if value == Value::Next {
            group.extend(args.next());
            let is_picture = |next: &OsString| name == "--image" && !is_option(next);
            group.extend(std::iter::from_fn(|| args.next_if(is_picture)));
        }
        groups.push(about(&name, group));
    }
    Ok(groups)
}

/// All that follows `-i` are pictures, up to the next one.
fn is_option(arg: &OsString) -> bool {
    arg.as_encoded_bytes().starts_with(b"-")
}

/// Where the value of an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Next,
    /// Joined to it, or it has none.
    Here,
}

/// The long name of an option.
fn option(text: &str) -> (String, Value) {
    for (short, long) in VALUED {
        if text == short || text == long {
            return (long.to_owned(), Value::Next);
        }
        if joined(text, short, long).is_some() {
            return (long.to_owned(), Value::Here);
        }
    }
    let (name, _) = text.split_once('=').unwrap_or((text, ""));
    (name.to_owned(), Value::Here)
}

fn about(name: &str, args: Vec<OsString>) -> Group {
    let part = match name {
        "--image" => Part::Pictures,
        _ if APPROVALS.contains(&name) => Part::Approval,
        _ if BEGINNINGS.contains(&name) => Part::Beginning,
        _ => Part::Option,
    };
    let mut group = Group::of(part, args);
    if name == "--config" {
        let key = group.setting().and_then(|setting| setting.split_once('='));
        group.part = match key.map(|(key, _)| key.trim()) {
            Some("approval_policy") => Part::Approval,
            Some("developer_instructions") => Part::Instructions,
            _ => Part::Option,
        };
    }
    group
}

fn word(text: &str) -> Result<Part, BadArguments> {
    if INTERACTIVE.contains(&text) {
        return Ok(Part::Subcommand);
    }
    match text {
        "help" => Err(BadArguments::Help),
        other if OTHERS.contains(&other) => Err(BadArguments::Subcommand(other.to_owned())),
        _ => Ok(Part::Word),
    }
}
