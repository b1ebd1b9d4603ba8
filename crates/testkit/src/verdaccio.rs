//! A registry of npm packages for one test, on loopback, which asks no other registry.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{Home, target_dir};

/// The version that `cargo xtask provision` installs.
const VERSION: &str = include_str!("../verdaccio-version.txt");

/// Source: <https://verdaccio.org/docs/configuration>.
const CONFIGURATION: &str = "\
storage: ./storage
web:
  enable: false
uplinks: {}
packages:
  '**':
    access: $all
    publish: $all
max_body_size: 1gb
log: { type: file, path: ./log, level: warn }
";

/// Starts the registry on a free port, prints it, and ends at the end of stdin.
const SCRIPT: &str = "\
const [library, configuration] = process.argv.slice(1);
const { runServer } = require(library);
runServer(configuration).then((registry) => {
  const server = registry.listen(0, '127.0.0.1', () => console.log(server.address().port));
  process.stdin.on('end', () => process.exit()).resume();
});
";

/// A registry in which everybody may publish. It ends when this is dropped, or the test ends.
#[derive(Debug)]
pub struct Verdaccio {
    directory: TempDir,
    port: u16,
    child: Child,
}

impl Verdaccio {
    /// Starts one with its files in the directory of the test.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    #[must_use]
    pub fn start(home: &Home) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("registry-")
            .tempdir_in(home.root())
            .unwrap();
        let configuration = directory.path().join("config.yaml");
        fs::write(&configuration, CONFIGURATION).unwrap();
        let mut child = Command::new("node")
            .args(["--eval", SCRIPT])
            .args([&library(), &configuration])
            .current_dir(directory.path())
            .env_clear()
            .envs(home.env())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port = line.trim().parse();
        let port = port.unwrap_or_else(|_| panic!("verdaccio does not start: {line:?}"));
        let registry = Self {
            directory,
            port,
            child,
        };
        fs::write(registry.npmrc(), registry.settings()).unwrap();
        registry
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// The ID of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Publishes a `.tgz`.
    ///
    /// # Panics
    /// If npm or the registry refuses it.
    pub fn publish(&self, home: &Home, package: &Path) {
        let output = Command::new("npm")
            .arg("publish")
            .arg(package)
            .arg("--userconfig")
            .arg(self.npmrc())
            .current_dir(self.directory.path())
            .env_clear()
            .envs(home.env())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn npmrc(&self) -> PathBuf {
        self.directory.path().join("npmrc")
    }

    /// npm publishes only with a token, whatever it is.
    fn settings(&self) -> String {
        let (url, port) = (self.url(), self.port);
        format!("registry={url}\n//127.0.0.1:{port}/:_authToken=anybody\n")
    }
}

impl Drop for Verdaccio {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn library() -> PathBuf {
    let version = VERSION.trim();
    let installed = target_dir().join("verdaccio").join(version);
    let library = installed.join("node_modules/verdaccio");
    assert!(
        library.is_dir(),
        "verdaccio {version} is not installed. Run `cargo xtask provision`."
    );
    library
}
