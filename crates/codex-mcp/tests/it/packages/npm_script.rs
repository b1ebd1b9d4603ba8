//! The script of the npm package, which runs the program of this machine's platform.
//!
//! In most tests the program is a shell script that says what it gets.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;
use testkit::wait::{wait_for, within};
use testkit::{Home, McpClient, node, process, write_program};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// How the script runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It becomes the program, in a newer Node.
    Become,
    /// It stays, as the parent of the program.
    Stay,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::Become, Self::Stay];

    /// Gives a command the Node of this way.
    pub(super) fn set(self, command: &mut Command) {
        for (name, value) in self.variables() {
            command.env(name, value);
        }
    }

    /// The variables that choose the Node of this way.
    pub(super) fn variables(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Become => {
                let path = std::env::var("PATH").unwrap();
                vec![("PATH", format!("{}:{path}", node::newer().display()))]
            }
            Self::Stay => vec![("NODE_OPTIONS", node::like_an_old_one())],
        }
    }
}

/// The variables by which the script knows that npx has started it.
const NPX: [(&str, &str); 2] = [
    ("npm_lifecycle_event", "npx"),
    ("npm_lifecycle_script", "'codex-mcp' serve"),
];

/// The packages as npm lays them out.
struct Installation {
    home: Home,
}

impl Installation {
    /// `program` is a shell script.
    fn new(program: &str) -> Self {
        let installation = Self::without_program();
        let path = installation.program();
        write_program(&path, &format!("#!/bin/sh\n{program}\n"));
        installation
    }

    /// With the real program.
    fn real() -> Self {
        let installation = Self::without_program();
        symlink(env!("CARGO_BIN_EXE_codex-mcp"), installation.program()).unwrap();
        installation
    }

    fn without_program() -> Self {
        let installation = Self {
            home: Home::new(""),
        };
        installation.write_main(&[&platform_package()]);
        let directory = installation.packages().join(platform_package());
        fs::create_dir_all(directory.join("bin")).unwrap();
        installation
    }

    fn program(&self) -> PathBuf {
        let directory = self.packages().join(platform_package());
        directory.join("bin/codex-mcp")
    }

    fn packages(&self) -> PathBuf {
        self.home.root().join("node_modules")
    }

    /// Writes the package that users install, with these optional dependencies.
    fn write_main(&self, platforms: &[&str]) {
        let directory = self.packages().join("codex-mcp");
        fs::create_dir_all(directory.join("bin")).unwrap();
        let dependencies = platforms
            .iter()
            .map(|name| ((*name).to_owned(), json!("1.0.0")));
        let dependencies: serde_json::Map<_, _> = dependencies.collect();
        let manifest = json!({ "name": "codex-mcp", "optionalDependencies": dependencies });
        fs::write(directory.join("package.json"), manifest.to_string()).unwrap();
        fs::copy(source(), self.script()).unwrap();
    }

    fn script(&self) -> PathBuf {
        self.packages().join("codex-mcp/bin/codex-mcp.js")
    }

    fn command(&self, way: Way, args: &[&str]) -> Command {
        let mut command = Command::new("node");
        command
            .arg(self.script())
            .args(args)
            .env_clear()
            .envs(self.home.env())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        way.set(&mut command);
        command
    }

    /// A client of `codex-mcp serve`, which a shell starts as npx has it.
    async fn client_below_shell(&self, way: Way) -> McpClient {
        // With a second command, no shell becomes the first one.
        let line = "node \"$0\" serve --no-host; exit 9";
        let launch = self
            .home
            .launch("/bin/sh")
            .args(["-c", line])
            .args([self.script()])
            .envs(way.variables())
            .envs(NPX);
        McpClient::connect(&launch, crate::VERSION, json!({})).await
    }

    /// Waits until no process is left.
    async fn until_all_have_ended(&self) {
        wait_for("the end of all processes", async || {
            self.home.processes().is_empty().then_some(())
        })
        .await;
    }

    async fn run(&self, way: Way, args: &[&str]) -> Output {
        let output = self.command(way, args).stdin(Stdio::null()).output();
        within("the end of the script", output).await.unwrap()
    }
}

/// The script in the repository.
fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/npm/codex-mcp.js")
}

/// The name of the package with the program for this machine.
pub(super) fn platform_package() -> String {
    let cpu = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    format!("codex-mcp-linux-{cpu}")
}

#[tokio::test]
async fn arguments_streams_and_exit_code_are_handed_over() {
    let program = "printf '%s|' \"$@\"; cat; echo problem >&2; exit 7";
    let installation = Installation::new(program);
    for way in Way::ALL {
        let mut child = installation
            .command(way, &["a b", "", "--x='$HOME'"])
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"input").await.unwrap();
        drop(stdin);
        let ended = within("the end of the program", child.wait_with_output()).await;
        let output = ended.unwrap();
        assert_eq!(output.status.code(), Some(7), "{way:?}: {output:?}");
        assert_eq!(output.stdout, b"a b||--x='$HOME'|input", "{way:?}");
        assert_eq!(output.stderr, b"problem\n", "{way:?}");
    }
}

/// The program says each signal that it gets, and ends at the fourth.
const SAYS_SIGNALS: &str = "\
for signal in INT HUP QUIT USR1 USR2; do trap \"echo $signal\" $signal; done
trap 'echo TERM; exit 3' TERM
echo ready
while :; do sleep 0.02; done";

#[tokio::test]
async fn each_signal_reaches_the_program_once() {
    let installation = Installation::new(SAYS_SIGNALS);
    for way in Way::ALL {
        let mut child = installation.command(way, &[]).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within("the start of the program", said.next_line()).await;
        assert_eq!(line.unwrap().unwrap(), "ready");
        for signal in ["INT", "HUP", "QUIT", "USR1", "USR2", "TERM"] {
            let number: Signal = format!("SIG{signal}").parse().unwrap();
            process::signal(child.id().unwrap(), number);
            let line = within("the signal", said.next_line()).await;
            assert_eq!(line.unwrap().as_deref(), Some(signal), "{way:?}");
        }
        let line = within("the end of the output", said.next_line()).await;
        assert_eq!(line.unwrap(), None, "{way:?}");
        let status = within("the end of the script", child.wait()).await;
        assert_eq!(status.unwrap().code(), Some(3), "{way:?}");
    }
}

#[tokio::test]
async fn signal_that_ends_the_program_ends_the_script() {
    let installation = Installation::new("kill -s \"$1\" $$; sleep 600");
    for way in Way::ALL {
        for signal in ["TERM", "KILL", "HUP", "USR1", "ABRT"] {
            let number: Signal = format!("SIG{signal}").parse().unwrap();
            let output = installation.run(way, &[signal]).await;
            let ended_by = output.status.signal();
            assert_eq!(
                ended_by,
                Some(number as i32),
                "{way:?} {signal}: {output:?}"
            );
        }
    }
}

/// The client holds the pipes open all the time.
#[tokio::test]
async fn killed_script_leaves_no_process() {
    let installation = Installation::real();
    for way in Way::ALL {
        let client = installation.client_below_shell(way).await;
        let below = process::descendants(client.pid());
        process::signal(below[0], Signal::SIGKILL);
        installation.until_all_have_ended().await;
    }
}

/// npx tells its shell alone to end, and the shell does not tell the script.
#[tokio::test]
async fn program_ends_with_the_shell_of_npx() {
    let installation = Installation::real();
    for way in Way::ALL {
        let mut client = installation.client_below_shell(way).await;
        client.signal(Signal::SIGTERM);
        installation.until_all_have_ended().await;
    }
}

/// Without npx, the environment is the user's.
#[tokio::test]
async fn environment_of_npx_is_removed_only_under_npx() {
    let installation = Installation::new("env");
    let of_call = [
        ("npm_config_yes", "true"),
        ("npm_config_registry", "https://registry.example"),
        ("INIT_CWD", "/somewhere"),
    ];
    for way in Way::ALL {
        for is_npx in [true, false] {
            let mut command = installation.command(way, &[]);
            command.envs(NPX).envs(of_call);
            if !is_npx {
                command.env("npm_lifecycle_event", "start");
            }
            let path = std::env::var("PATH").unwrap();
            // `Way` has put the directory of Node in front.
            let node = way
                .variables()
                .into_iter()
                .find(|(name, _)| *name == "PATH");
            let path = node.map_or(path, |(_, path)| path);
            let bin = "/repository/node_modules/.bin:/npm/node-gyp-bin";
            command.env("PATH", format!("{bin}:{path}"));
            let output = within(
                "the end of the script",
                command.stdin(Stdio::null()).output(),
            );
            let output = String::from_utf8(output.await.unwrap().stdout).unwrap();
            let has = |line: &str| output.lines().any(|found| found == line);
            assert!(
                has("npm_config_registry=https://registry.example"),
                "{output}"
            );
            for line in [
                "INIT_CWD=/somewhere",
                "npm_config_yes=true",
                "npm_lifecycle_script='codex-mcp' serve",
                &format!("PATH={bin}:{path}"),
            ] {
                assert_eq!(has(line), !is_npx, "{way:?} {line}: {output}");
            }
            assert_eq!(has(&format!("PATH={path}")), is_npx, "{way:?}: {output}");
        }
    }
}

#[tokio::test]
async fn missing_platform_is_explained() {
    let installation = Installation::new("exit 0");
    let package = platform_package();
    fs::remove_dir_all(installation.packages().join(&package)).unwrap();
    for way in Way::ALL {
        let output = installation.run(way, &[]).await;
        let expected = format!(
            "error: the package {package}, which has the program for this platform, is not \
             installed. npm leaves it out with `--omit=optional`, or with a lock file from another \
             platform. Install it with `npm install --include=optional codex-mcp`.\n"
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
        assert_eq!(output.status.code(), Some(1), "{way:?}");
    }

    installation.write_main(&["codex-mcp-darwin-x64", "codex-mcp-plan9-arm64"]);
    let output = installation.run(Way::Stay, &[]).await;
    let platform = package.trim_start_matches("codex-mcp-");
    let expected =
        format!("error: codex-mcp does not support {platform}, only darwin-x64, plan9-arm64.\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn program_that_cannot_be_run_is_named() {
    let installation = Installation::new("exit 0");
    let program = installation
        .packages()
        .join(platform_package())
        .join("bin/codex-mcp");
    fs::set_permissions(&program, Permissions::from_mode(0o644)).unwrap();
    for way in Way::ALL {
        let output = installation.run(way, &[]).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.starts_with("error: cannot run "), "{text}");
        assert!(text.contains("EACCES"), "{text}");
        assert_eq!(output.status.code(), Some(1), "{way:?}");
    }
}
