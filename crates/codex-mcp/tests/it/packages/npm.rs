//! The npm packages, published in a registry of the test and run by npx in an empty home.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use scripted_model::{Reply, Script, ScriptedModel};
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::verdaccio::Verdaccio;
use testkit::wait::wait_for;
use testkit::{Home, Launch, McpClient, process};

use super::npm_script::{Way, platform_package};

/// The version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long it may take from an empty home to the first answer of Codex.
const FIRST_ANSWER: Duration = Duration::from_secs(60);

/// The repository of the packages, which is only named.
const REPOSITORY: &str = "https://github.com/acme/codex-mcp";

/// The files that `cargo xtask dist` makes of an archive with the program of the tests.
pub(super) struct Packages {
    out: PathBuf,
}

impl Packages {
    pub(super) fn make(home: &Home, program: &Path) -> Self {
        let packages = Self {
            out: home.root().join("dist"),
        };
        packages.archive(program);
        packages.dist("npm");
        packages
    }

    /// Packs the archive of this platform with the files that packages are made of.
    fn archive(&self, program: &Path) {
        let top = format!("codex-mcp-{VERSION}-{}", target());
        let directory = self.out.join(&top);
        fs::create_dir_all(&directory).unwrap();
        // It is mostly debug information.
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(directory.join("codex-mcp"));
        succeeds(strip.arg(program));
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(workspace().join(licence), directory.join(licence)).unwrap();
        }
        fs::write(directory.join("THIRD-PARTY-LICENSES.txt"), "None.\n").unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--create", "--use-compress-program", "gzip -1", "--file"]);
        tar.arg(self.out.join(format!("{top}.tar.gz")));
        succeeds(tar.arg("--directory").arg(&self.out).arg(&top));
    }

    /// Runs a part of `cargo xtask dist`.
    pub(super) fn dist(&self, part: &str) {
        succeeds(&mut self.command(part));
    }

    fn command(&self, part: &str) -> Command {
        let xtask = Path::new(env!("CARGO_BIN_EXE_codex-mcp")).with_file_name("xtask");
        assert!(
            xtask.is_file(),
            "no {}; run `cargo build --workspace`",
            xtask.display()
        );
        let mut dist = Command::new(xtask);
        dist.args(["dist", part, "--quick", "--repository", REPOSITORY, "--out"]);
        dist.arg(&self.out);
        dist.env("CARGO_MANIFEST_DIR", workspace().join("xtask"));
        dist
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    fn package(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}-{VERSION}.tgz"))
    }

    fn manifest(&self, name: &str) -> Value {
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--to-stdout", "--file"])
            .arg(self.package(name));
        serde_json::from_str(&succeeds(tar.arg("package/package.json"))).unwrap()
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The platform of a static program, which the packages of Linux have.
fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Runs a command, and returns what it prints.
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A home in which nothing is installed, a registry with the packages, and a model for Codex.
struct Fixture {
    home: Home,
    registry: Verdaccio,
    model: ScriptedModel,
}

impl Fixture {
    async fn new() -> Self {
        let script = Script::new().otherwise([Reply::say("hello")]);
        let model = ScriptedModel::start(script).await.unwrap();
        let home = Home::new(&format!(
            "{}\nfeatures.plugins = false\n",
            model.codex_config()
        ));
        let registry = Verdaccio::start(&home);
        Self {
            home,
            registry,
            model,
        }
    }

    fn publish(&self) {
        let program = Path::new(env!("CARGO_BIN_EXE_codex-mcp"));
        let packages = Packages::make(&self.home, program);
        for name in [&platform_package(), "codex-mcp"] {
            self.registry.publish(&self.home, &packages.package(name));
        }
    }

    /// The environment of a user with this Node.
    fn env(&self, way: Way) -> Vec<(OsString, OsString)> {
        let mut env = self.home.env();
        let codex = testkit::codex::native_binary(testkit::codex::newest());
        env.push(("CODEX_MCP_CODEX_BIN".into(), codex.into()));
        env.push(("npm_config_registry".into(), self.registry.url().into()));
        env.push(("npm_config_update_notifier".into(), "false".into()));
        let variables = way.variables().into_iter();
        env.extend(variables.map(|(name, value)| (name.into(), value.into())));
        env
    }

    /// What `npx -y codex-mcp` with these arguments prints.
    fn printed(&self, way: Way, args: &[&str]) -> String {
        let mut npx = Command::new(npx());
        npx.args(["-y", "codex-mcp"]).args(args);
        let npx = npx
            .env_clear()
            .envs(self.env(way))
            .current_dir(self.home.work());
        let output = npx.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sets up Cursor, and returns the arguments of its entry. It names npx: the program itself lies
    /// in a cache, from which npm may remove it.
    fn set_up(&self) -> Vec<String> {
        let done = self.printed(Way::Stay, &["setup", "cursor", "--yes", "--json"]);
        let done: Value = serde_json::from_str(&done).unwrap();
        assert!(done["checks"][0]["tools"].is_number(), "{done:#}");
        let file = fs::read(self.home.home().join(".cursor/mcp.json")).unwrap();
        let file: Value = serde_json::from_slice(&file).unwrap();
        let entry = &file["mcpServers"]["codex"];
        assert_eq!(entry["command"], "npx", "{entry:#}");
        serde_json::from_value(entry["args"].clone()).unwrap()
    }

    /// A client that starts npx with the arguments of its entry.
    async fn client(&self, way: Way, args: &[String]) -> McpClient {
        let launch = Launch::new(npx())
            .args(args)
            .env("CODEX_MCP_HOST", "false")
            .envs(self.env(way))
            .current_dir(self.home.work());
        let mut client = McpClient::start(&launch);
        client.set_time_limit(FIRST_ANSWER);
        client.initialize("2025-06-18", json!({})).await;
        client
    }

    /// The processes of the test but those of the registry.
    fn processes(&self) -> Vec<Process> {
        let mut own = self.home.processes();
        own.retain(|process| process.pid != self.registry.pid());
        own
    }

    /// The process that the shell of npx runs: the script, or the program that it became.
    fn script(&self) -> u32 {
        let own = self.processes();
        let is_shell = |process: &&Process| process.command.starts_with("sh -c ");
        let shell = own.iter().find(is_shell);
        let shell = shell.unwrap_or_else(|| panic!("no shell: {own:#?}")).pid;
        let script = own.iter().find(|process| process.parent == shell);
        script.unwrap_or_else(|| panic!("no script: {own:#?}")).pid
    }

    /// Waits until no process is left, although the client still holds the pipes open.
    async fn until_all_have_ended(&self) {
        wait_for("the end of all processes", async || {
            self.processes().is_empty().then_some(())
        })
        .await;
    }
}

/// The path of npx.
fn npx() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join("npx"));
    candidates.find(|path| path.is_file()).unwrap()
}

async fn answer(client: &mut McpClient) {
    let answer = client.call_tool("codex", json!({ "prompt": "hi" })).await;
    assert_eq!(
        answer["structuredContent"]["content"], "hello",
        "{answer:#}"
    );
}

/// Two commands: `npx -y codex-mcp setup`, and the one that it has a client start. Codex is there.
#[tokio::test]
async fn npx_in_an_empty_home_serves_a_session_and_leaves_no_process() {
    let fixture = Fixture::new().await;
    fixture.publish();

    let start = Instant::now();
    let entry = fixture.set_up();
    let mut client = fixture.client(Way::Stay, &entry).await;
    answer(&mut client).await;
    let took = start.elapsed();
    let version = fixture.printed(Way::Become, &["--version"]);
    let words = version.trim_end();
    assert!(
        words.starts_with(&format!("codex-mcp {VERSION}")) && words.ends_with("npx)"),
        "{words}"
    );
    assert!(took < FIRST_ANSWER, "{took:?}");
    process::signal(fixture.script(), Signal::SIGKILL);
    fixture.until_all_have_ended().await;
    drop(client);

    let mut client = fixture.client(Way::Become, &entry).await;
    answer(&mut client).await;
    assert!(client.finish().await.success());
    assert_eq!(fixture.processes(), []);
    assert_eq!(fixture.model.request_count(), 2);
}

/// A program that needs a library of the system has none in an empty root directory.
#[test]
fn trial_of_a_program_that_is_not_static_fails() {
    let home = Home::new("");
    let packages = Packages::make(&home, Path::new("/bin/true"));
    let output = packages.command("try").output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("exit code 127"), "{said}");
    assert!(!packages.path("trial").exists());
}

#[test]
fn packages_name_each_other_and_the_server() {
    let home = Home::new("");
    let packages = Packages::make(&home, Path::new("/bin/true"));
    for part in ["mcpb", "registry"] {
        packages.dist(part);
    }
    let main = packages.manifest("codex-mcp");
    let platform = packages.manifest(&platform_package());
    let dependencies = json!({ platform_package(): VERSION });
    assert_eq!(main["optionalDependencies"], dependencies, "{main:#}");
    assert_eq!(
        main["name"],
        codex_config::logic::codex_servers::OWN_PACKAGE
    );
    assert_eq!(main["scripts"], Value::Null, "{main:#}");
    assert_eq!(platform["os"], json!(["linux"]), "{platform:#}");
    // The program is static.
    assert_eq!(platform["libc"], Value::Null, "{platform:#}");

    let server = fs::read(packages.path("server.json")).unwrap();
    let server: Value = serde_json::from_slice(&server).unwrap();
    assert_eq!(server["name"], "io.github.acme/codex-mcp");
    assert_eq!(main["mcpName"], server["name"]);
    let [npm, bundle] = server["packages"].as_array().unwrap().as_slice() else {
        panic!("{server:#}")
    };
    assert_eq!(npm["identifier"], main["name"]);
    assert_eq!(npm["version"], VERSION);
    let (address, file) = bundle["identifier"]
        .as_str()
        .unwrap()
        .rsplit_once('/')
        .unwrap();
    assert_eq!(
        address,
        format!("{REPOSITORY}/releases/download/v{VERSION}")
    );
    let sum = succeeds(Command::new("sha256sum").arg(packages.path(file)));
    assert!(
        sum.starts_with(bundle["fileSha256"].as_str().unwrap()),
        "{sum}"
    );
}
