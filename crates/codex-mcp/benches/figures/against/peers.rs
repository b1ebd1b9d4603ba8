//! Other MCP servers for Codex: how each is started, and how it is asked to hand Codex a prompt.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Launch, target_dir};

use super::side::{Call, Server, Side};
use crate::fixture::{Fixture, codex_binary, codex_binary_of};

/// The packages, with their versions.
const LIST: &str = include_str!("../../../../testkit/peers.txt");

/// The last release with a `codex mcp-server`.
const RELEASE: &str = "0.153.4";

/// A package of a registry.
struct Package {
    registry: &'static str,
    name: &'static str,
    version: &'static str,
}

/// Codex's own server, and those of the registries.
pub(super) fn all() -> Vec<Side> {
    let own = Side {
        title: format!("`codex mcp-server` {RELEASE}"),
        server: Server::Mcp(own_server, Call::of("codex", Some("cwd"))),
    };
    let packages = packages().map(|package| Side {
        title: format!(
            "{} {}, from {}",
            package.name, package.version, package.registry
        ),
        server: package.server(),
    });
    [own].into_iter().chain(packages).collect()
}

fn packages() -> impl Iterator<Item = Package> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(Package {
            registry: words.next()?,
            name: words.next()?,
            version: words.next()?,
        })
    })
}

impl Package {
    fn server(&self) -> Server {
        match self.name {
            "codex-mcp-server" => {
                let call = Call::of("codex", Some("workingDirectory"));
                Server::Mcp(codex_mcp_server, call)
            }
            "@trishchuk/codex-mcp-tool" => {
                Server::Mcp(codex_mcp_tool, Call::of("ask-codex", Some("workingDir")))
            }
            "codex-as-mcp" => Server::Mcp(codex_as_mcp, Call::of("spawn_agent", None)),
            "codex-cli-mcp-slim" => Server::Mcp(codex_cli_mcp_slim, Call::of("codex", Some("cd"))),
            other => panic!("how is {other} started? peers.txt has it, peers.rs has not"),
        }
    }
}

fn own_server(fixture: &Fixture) -> Launch {
    fixture.direct_launch_of(&codex_binary_of(RELEASE), "mcp-server")
}

fn codex_mcp_server(fixture: &Fixture) -> Launch {
    node(fixture, "codex-mcp-server")
}

fn codex_mcp_tool(fixture: &Fixture) -> Launch {
    node(fixture, "@trishchuk/codex-mcp-tool")
}

fn codex_as_mcp(fixture: &Fixture) -> Launch {
    python(fixture, "codex-as-mcp").args(["-m", "codex_as_mcp"])
}

fn codex_cli_mcp_slim(fixture: &Fixture) -> Launch {
    let start = "from codex_cli_mcp_slim.server import main; main()";
    // What follows the program is passed on to `codex exec`; the directory is no repository.
    let server = python(fixture, "codex-cli-mcp-slim").args(["-c", start]);
    server.args(["--skip-git-repo-check"])
}

/// Python with a package of PyPI.
fn python(fixture: &Fixture, name: &str) -> Launch {
    let packages = install(name).join("site-packages");
    peer(fixture, "python3").env("PYTHONPATH", packages)
}

/// A package of npm, whose program has the same path in all that are listed.
fn node(fixture: &Fixture, name: &str) -> Launch {
    let package = install(name).join("node_modules").join(name);
    peer(fixture, "node").args([package.join("dist/index.js")])
}

/// A program that finds Codex on its PATH: the native one, without the Node that npm's script adds.
fn peer(fixture: &Fixture, program: &str) -> Launch {
    let codex = codex_binary();
    let first = codex.parent().map(Path::to_owned);
    let rest = env::var_os("PATH").unwrap_or_default();
    let path = first.into_iter().chain(env::split_paths(&rest));
    let path: OsString = env::join_paths(path).unwrap();
    let program = Launch::new(program).envs(fixture.direct_env());
    program.env("PATH", path).current_dir(fixture.work())
}

/// The directory in which `cargo xtask bench --against` has installed a package.
fn install(name: &str) -> PathBuf {
    let package = packages().find(|package| package.name == name).unwrap();
    let peer = target_dir().join("peers").join(name);
    let install = peer.join(package.version);
    if !install.is_dir() {
        let reason = fs::read_to_string(peer.join("not-installed.txt")).unwrap_or_default();
        panic!("not installed: {reason}");
    }
    install
}
