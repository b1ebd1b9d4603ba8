//! The command line of the fake Codex.

use std::env;
use std::fs;
use std::process::ExitCode;
use std::rc::Rc;

use super::app_server::AppServerDialect;
use super::dialect::Dialect;
use super::log::{Event, Log};
use super::mcp_server::McpServerDialect;
use super::plan::Plan;
use super::server::Server;
use super::{DEFAULT_VERSION, LOG, PLAN, VERSION};

/// The last 0.x release line with `codex mcp-server`.
const LAST_WITH_MCP_SERVER: u32 = 153;

/// The exit code of `codex help` for a command that isn't there.
const UNKNOWN_COMMAND: u8 = 2;

/// Runs the fake Codex with these arguments, without the program's name.
#[must_use]
pub fn run(args: Vec<String>) -> ExitCode {
    let version = env::var(VERSION).unwrap_or_else(|_| DEFAULT_VERSION.to_owned());
    let has = |word: &str| args.iter().any(|arg| arg == word);
    if has("--version") || has("-V") {
        println!("codex-cli {version}");
        return ExitCode::SUCCESS;
    }
    if let [help, command] = args.as_slice()
        && help == "help"
    {
        return match command.as_str() {
            "app-server" | "exec" => ExitCode::SUCCESS,
            "mcp-server" if has_mcp_server(&version) => ExitCode::SUCCESS,
            _ => ExitCode::from(UNKNOWN_COMMAND),
        };
    }
    if has("app-server") {
        return serve(args, AppServerDialect::new(&version));
    }
    if has("mcp-server") && has_mcp_server(&version) {
        return serve(args, McpServerDialect::new(&version));
    }
    // The real one takes an unknown word as a prompt for the interactive program.
    eprintln!("Error: stdin is not a terminal");
    ExitCode::FAILURE
}

fn has_mcp_server(version: &str) -> bool {
    let minor = version.split('.').nth(1).unwrap_or_default();
    minor
        .parse()
        .is_ok_and(|minor: u32| minor <= LAST_WITH_MCP_SERVER)
}

fn serve(args: Vec<String>, dialect: impl Dialect + 'static) -> ExitCode {
    let log = Log::new(env::var_os(LOG).map(Into::into));
    let directory = env::current_dir().unwrap();
    log.add(Event::Started { args, directory });
    let plan = match env::var_os(PLAN) {
        Some(path) => serde_json::from_slice(&fs::read(path).unwrap()).unwrap(),
        None => Plan::new(),
    };
    let server = Rc::new(Server::new(Box::new(dialect), plan, log));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, server.serve())
}
