//! The refs of a remote, as the remote itself reports them.
//!
//! The repository's configuration determines only the address of the remote. The remote is asked
//! outside of the repository, with the user's own settings: credentials, proxies, certificates,
//! headers and ssh. Such settings of the repository are never read, and the programs that they name
//! are never run. The address is the one from the beginning of the run, and includes the effect of
//! files that the user's configuration includes for this repository.
//!
//! Addresses of other kinds than git's own (`ext::` and remote helpers) are refused, unless the
//! user has set GIT_ALLOW_PROTOCOL. Nobody is prompted: OpenSSH, recognised by its name, runs in
//! batch mode. Rewriting of addresses (`url.*.insteadOf`) and ssh's own configuration stay in
//! force.
//!
//! Source: git-config(1), git(1), git-ls-remote(1), ssh_config(5).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::{Git, GitError};

/// The protocols that git implements itself, without a program.
const PROTOCOLS: &str = "file:git:http:https:ssh";

const LS_REMOTE: &[&str] = &["ls-remote", "--quiet"];

const ADDRESS: &[&str] = &["ls-remote", "--get-url", "--"];

/// The prefix of a branch's ref.
const BRANCHES: &str = "refs/heads/";

/// The most refs that are requested by their names. If more are needed, all refs are listed.
const NAMED_LIMIT: usize = 100;

/// The branches of a remote, which is given by name or address, with their commits.
pub async fn branches(git: &Git, remote: &str) -> Result<BTreeMap<String, String>, GitError> {
    let all = listed(git, remote, &["--heads"], &[]).await?;
    let branches = all.into_iter().filter_map(|(name, id)| {
        let name = name.strip_prefix(BRANCHES)?;
        Some((name.to_owned(), id))
    });
    Ok(branches.collect())
}

/// Refs of a remote by their whole names, with their targets. The result includes the refs of these
/// names, and perhaps others.
pub(super) async fn refs(
    git: &Git,
    remote: &str,
    names: &[&str],
) -> Result<BTreeMap<String, String>, GitError> {
    let names = match names.len() > NAMED_LIMIT {
        true => &[],
        false => names,
    };
    listed(git, remote, &["--refs"], names).await
}

async fn listed(
    git: &Git,
    remote: &str,
    options: &[&str],
    names: &[&str],
) -> Result<BTreeMap<String, String>, GitError> {
    let address = address(git, remote).await?;
    let git = in_the_users_ways(git);
    let before = LS_REMOTE.iter().chain(options).chain(&["--"]);
    let question: Vec<&OsStr> = before
        .map(OsStr::new)
        .chain([address.as_os_str()])
        .chain(names.iter().map(OsStr::new))
        .collect();
    let output = git.text(&question, &[]).await?;
    let pairs = output.lines().filter_map(|line| line.split_once('\t'));
    let pairs = pairs.map(|(id, name)| (name.to_owned(), id.to_owned()));
    Ok(pairs.collect())
}

/// The address of a remote. A path relative to the top directory is made absolute.
async fn address(git: &Git, remote: &str) -> Result<OsString, GitError> {
    let mut output = git.output(&[ADDRESS, &[remote]].concat(), &[]).await?;
    if output.last() == Some(&b'\n') {
        output.pop();
    }
    let is_path = match output.iter().position(|byte| matches!(byte, b':' | b'/')) {
        Some(first) => output.get(first) == Some(&b'/'),
        None => true,
    };
    let address = OsString::from_vec(output);
    Ok(match is_path && !address.as_bytes().starts_with(b"~") {
        true => git.root().join(address).into(),
        false => address,
    })
}

/// Git outside of the repository, with the user's settings and without prompts.
fn in_the_users_ways(git: &Git) -> Git {
    let mut git = git.outside();
    let ssh = ssh_command(&git);
    git.set("GIT_SSH_COMMAND", ssh);
    for (name, value) in [
        ("GIT_ALLOW_PROTOCOL", PROTOCOLS),
        ("GIT_ASKPASS", ""),
        ("GCM_INTERACTIVE", "never"),
    ] {
        if git.variable(name).is_none() {
            git.set(name, value);
        }
    }
    git
}

/// The ssh command that the user has configured, in batch mode if it is OpenSSH.
fn ssh_command(git: &Git) -> OsString {
    let quoted = |program: OsString| {
        let program = program.to_str()?;
        Some(shlex::try_quote(program).ok()?.into_owned())
    };
    let text = |command: OsString| command.into_string().ok();
    let set = git.setting("core.sshcommand").map(OsStr::to_owned);
    let command = git.variable("GIT_SSH_COMMAND").or(set).and_then(text);
    let command = command.or_else(|| git.variable("GIT_SSH").and_then(quoted));
    let command = command.unwrap_or_else(|| "ssh".to_owned());
    let words = shlex::split(&command).unwrap_or_default();
    let program = words.first().map(Path::new).and_then(Path::file_name);
    match program == Some(OsStr::new("ssh")) {
        true => format!("{command} -o BatchMode=yes").into(),
        false => command.into(),
    }
}
