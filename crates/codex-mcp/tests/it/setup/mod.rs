//! `codex-mcp setup`: the files of clients, with comments and an order of their own.

mod configurations;
mod disturbed;
mod in_terminal;
mod refused;
mod round_trip;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::{Home, codex};

use crate::output::CommandOutput;

use configurations::{CLIENTS, Client};

/// `codex-mcp setup` in a home. Only the programs of the system and those that a test installs are on
/// PATH.
pub(crate) struct Setup<'a> {
    home: &'a Home,
    env: Vec<(OsString, OsString)>,
}

impl<'a> Setup<'a> {
    /// The checks of `doctor` look at this release of Codex.
    pub(crate) fn new(home: &'a Home, release: &str) -> Self {
        let env = vec![
            (
                "CODEX_MCP_CODEX_BIN".into(),
                codex::native_binary(release).into(),
            ),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ];
        Self { home, env }
    }

    fn on_the_newest(home: &'a Home) -> Self {
        Self::new(home, codex::newest())
    }

    /// Puts a program on PATH, under this name.
    pub(crate) fn install(&mut self, name: &str, program: &Path) {
        let programs = self.home.root().join("programs");
        fs::create_dir_all(&programs).unwrap();
        symlink(program, programs.join(name)).unwrap();
        let path = format!("{}:/usr/bin:/bin", programs.display());
        self.env.push(("PATH".into(), path.into()));
    }

    /// Runs `setup` with these arguments. Its stdin is empty.
    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        self.command(args).output().unwrap().into()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_codex-mcp"));
        command.arg("setup").args(args);
        command
    }

    /// A program in the home, in the working directory, without input.
    fn program(&self, path: &str) -> Command {
        let mut command = self.home.command(path);
        command.envs(self.env.iter().cloned()).stdin(Stdio::null());
        command
    }

    /// The object of `setup --json`, which must have succeeded.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let said = self.run(&[args, &["--json"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
        serde_json::from_str(&said.stdout).unwrap()
    }

    fn path(&self, client: &Client) -> PathBuf {
        self.home.root().join(client.file)
    }

    fn read(&self, client: &Client) -> String {
        fs::read_to_string(self.path(client)).unwrap()
    }

    /// Writes a configuration for each client, which are their owner's.
    fn write_all(&self) {
        for client in &CLIENTS {
            let path = self.path(client);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, client.before).unwrap();
        }
    }
}
