//! The command lines that xtask runs, which it can also print.

use std::fmt;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

use anyhow::{Context, bail};

/// The variable that names what cargo runs in the place of rustc for the crates of the workspace.
///
/// Source: The Cargo Book 1.95, "Configuration" (`build.rustc-workspace-wrapper`).
pub(crate) const CRATE_COMPILER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// A command line: shown to the user exactly as it is run.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    program: String,
    args: Vec<String>,
    envs: Vec<(String, String)>,
}

/// Whether `cargo run` describes xtask by this variable. The build script of ring asks for some of
/// them: with them, it and every crate that depends on it would be built again after each
/// `cargo build` at a shell.
fn is_of_cargo_run(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Whether `cargo nextest` is installed, for the workspace at `root`.
pub(crate) fn has_nextest(root: &Path) -> bool {
    Tool::cargo(["nextest", "--version"]).succeeds(root)
}

impl Tool {
    /// `program` with `args`, looked up on `PATH`.
    pub(crate) fn new<A: Into<String>>(program: &str, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            program: program.to_owned(),
            args: args.into_iter().map(Into::into).collect(),
            envs: Vec::new(),
        }
    }

    /// Cargo, of the toolchain that runs xtask.
    pub(crate) fn cargo<A: Into<String>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::new("cargo", args)
    }

    /// Adds arguments at the end.
    pub(crate) fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable for this command only.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.envs.push((name.to_owned(), value.into()));
        self
    }

    /// Runs in `directory` with the output going to our stdout, errors included: what a
    /// test runner reports, it reports on stderr, and CI keeps stdout.
    ///
    /// # Errors
    /// When the program is missing or ends with anything but success.
    pub(crate) fn run(&self, directory: &Path) -> anyhow::Result<()> {
        stdout().flush()?;
        let status = self
            .command(directory)
            .stdout(stdout())
            .stderr(stdout())
            .status()
            .with_context(|| self.cannot_start())?;
        if !status.success() {
            bail!("the command ended with {}: {self}", describe(status));
        }
        Ok(())
    }

    /// Runs in `directory` quietly and gives back stdout.
    ///
    /// # Errors
    /// When the program is missing, or ends with anything but success; then all that
    /// it printed is part of the error.
    pub(crate) fn capture(&self, directory: &Path) -> anyhow::Result<String> {
        let output = self
            .command(directory)
            .output()
            .with_context(|| self.cannot_start())?;
        if !output.status.success() {
            bail!(
                "the command ended with {}: {self}\n{}",
                describe(output.status),
                everything(&output)
            );
        }
        String::from_utf8(output.stdout).with_context(|| format!("not UTF-8 text from {self}"))
    }

    /// Runs in `directory` quietly and gives back stdout and stderr, however it ends.
    ///
    /// # Errors
    /// When the program is missing.
    pub(crate) fn outputs(&self, directory: &Path) -> anyhow::Result<(String, String)> {
        let output = self.command(directory).output();
        let output = output.with_context(|| self.cannot_start())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(&output.stdout), text(&output.stderr)))
    }

    /// Whether the program is there and ends with success. Prints nothing.
    pub(crate) fn succeeds(&self, directory: &Path) -> bool {
        self.command(directory)
            .output()
            .is_ok_and(|output| output.status.success())
    }

    /// The process that this starts in `directory`, for what the methods above do not do.
    pub(crate) fn command(&self, directory: &Path) -> Command {
        let program = match self.program.as_str() {
            "cargo" => std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            other => other.into(),
        };
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if is_of_cargo_run(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        command
            .args(&self.args)
            .envs(self.envs.iter().map(|(name, value)| (name, value)))
            .current_dir(directory)
            .stdin(Stdio::null());
        command
    }

    fn cannot_start(&self) -> String {
        format!("cannot start `{}`; is it installed?", self.program)
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.envs {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.program)?;
        self.args
            .iter()
            .try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:@,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn describe(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

fn everything(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|part| String::from_utf8_lossy(part));
    text.concat().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn command_is_shown_as_shell_input() {
        let tool = Tool::cargo(["doc", "--no-deps", "it's"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            tool.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s'"
        );
    }

    #[test]
    fn failure_contains_the_output() {
        let tool = Tool::new("sh", ["-c", "echo out; echo err >&2; exit 3"]);
        let error = tool.capture(Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("exit code 3"), "{error}");
        assert!(error.ends_with("out\nerr"), "{error}");
    }
}
