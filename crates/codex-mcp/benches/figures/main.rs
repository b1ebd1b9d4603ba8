//! The performance targets of `codex-mcp`, measured in one run beside the same work on Codex's
//! app-server, spoken to directly: `cargo xtask bench`.
//!
//! Both sides get the newest real Codex, the same scripted model, the same directory
//! and the same prompt, and take turns round by round, so that a busy machine is
//! as bad for one as for the other. The exit code is 1 if a figure is missed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a bench is test code: it panics when something is wrong, prints, and starts \
              the programs that it compares with"
)]

mod against;
mod called;
mod crowd;
mod dispatch;
mod eyes;
mod fixture;
mod hello;
mod host;
mod jobs;
mod looks;
mod mail;
mod memory;
mod model;
mod page;
mod pictures;
mod proxy;
mod sessions;
mod start;
mod stats;
mod table;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use table::Row;

/// Measures codex-mcp beside Codex's app-server spoken to directly.
#[derive(Debug, Parser)]
struct Options {
    /// Measure only this; can be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<Figure>,

    /// How often each side of each figure is measured; default: as often as the
    /// figure needs to be steady
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,

    /// Print JSON in place of a table
    #[arg(long)]
    json: bool,

    /// Compare with Codex's app-server, with other MCP servers and with bare SQL; nothing else is
    /// measured
    #[arg(long, conflicts_with_all = ["only", "json"])]
    against: bool,

    /// Do only this part of the comparison
    #[arg(long, value_name = "NAME", requires = "against")]
    part: Option<against::Part>,

    /// Write the tables into the pages of this directory, and with `--against` into README.md
    /// beside it
    #[arg(long, value_name = "DIR", conflicts_with = "only")]
    docs: Option<PathBuf>,

    /// What cargo adds when it runs a bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// From the start of the process to the answer to `initialize`
    Start,
    /// A call that says hello
    Hello,
    /// Clients that share the host process
    Host,
    /// 50 and 100 calls at once
    Crowd,
    /// Memory after 100 and 500 calls
    Memory,
    /// Notifications taken in
    Dispatch,
    /// A session that says hello, polled every 5 ms
    Polled,
    /// Memory of 12 idle sessions
    Idle,
    /// 50 sessions that write at once
    Torrent,
    /// A poll that is 1,000 events behind
    Behind,
    /// What the tools of the sessions take of a client's context
    Tools,
    /// Pings through the proxy
    Proxy,
    /// Mail with 10,000 messages
    Mail,
    /// A look at a repository of 50,000 files, after a turn of a run
    Looks,
    /// Keys and floods through the wrapper of the interactive Codex
    Eyes,
    /// A picture of 1 MB that the model asks for
    Pictures,
    /// Jobs on the real Codex: one to its end, and the memory of eight at once
    Called,
    /// The page: 200 sessions, events in a browser, a crowd that watches, and memory
    Page,
    /// Jobs in a store: claimed, listed, their events, and in the hands of a worker
    Jobs,
}

impl Figure {
    fn rounds(self) -> u16 {
        match self {
            Self::Start => 25,
            Self::Hello => 60,
            Self::Host => 60,
            Self::Crowd => 5,
            Self::Memory => 1,
            Self::Dispatch => 15,
            Self::Polled => 100,
            Self::Idle | Self::Torrent => 3,
            Self::Behind => 200,
            Self::Tools => 1,
            Self::Proxy => 10,
            Self::Mail => 40,
            Self::Looks => 30,
            Self::Eyes => 10,
            Self::Pictures => 20,
            Self::Called => 3,
            Self::Page => 20,
            Self::Jobs => 3,
        }
    }

    fn measure(self, rounds: u16) -> Vec<Row> {
        match self {
            Self::Start => block_on(start::measure(rounds)),
            Self::Hello => block_on(hello::measure(rounds)),
            Self::Host => block_on(host::measure(rounds)),
            Self::Crowd => block_on(crowd::measure(rounds)),
            Self::Memory => block_on(memory::measure(rounds)),
            Self::Dispatch => dispatch::measure(rounds),
            Self::Polled => block_on(sessions::polled::measure(rounds)),
            Self::Idle => block_on(sessions::idle::measure(rounds)),
            Self::Torrent => block_on(sessions::torrent::measure(rounds)),
            Self::Behind => block_on(sessions::behind::measure(rounds)),
            Self::Tools => block_on(sessions::tools::measure()),
            Self::Proxy => block_on(proxy::measure(rounds)),
            Self::Mail => mail::measure(rounds),
            Self::Looks => block_on(looks::measure(rounds)),
            Self::Eyes => eyes::measure(rounds),
            Self::Pictures => block_on(pictures::measure(rounds)),
            Self::Called => block_on(called::measure(rounds)),
            Self::Page => block_on(page::measure(rounds)),
            Self::Jobs => jobs::measure(rounds),
        }
    }
}

/// The rounds of the comparison: each server is started once in each.
const AGAINST_ROUNDS: u16 = 15;

/// Runs something on this thread alone, as the server itself runs.
fn block_on<T>(something: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(something)
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.against {
        let rounds = options.rounds.unwrap_or(AGAINST_ROUNDS);
        against::run(rounds, options.part, options.docs.as_deref());
        return ExitCode::SUCCESS;
    }
    let (mut rows, mut broken) = (Vec::new(), Vec::new());
    for figure in Figure::value_variants() {
        if options.only.is_empty() || options.only.contains(figure) {
            let rounds = options.rounds.unwrap_or(figure.rounds());
            eprintln!("measuring: {figure:?}, {rounds} × each side");
            // A figure that panics must not lose the results of the others.
            match std::panic::catch_unwind(|| figure.measure(rounds)) {
                Ok(measured) => rows.extend(measured),
                Err(_) => broken.push(figure),
            }
        }
    }
    if let Some(docs) = &options.docs
        && broken.is_empty()
    {
        table::write(&docs.join(table::PAGE), "figures", &table::markdown(&rows));
    }
    if options.json {
        println!("{}", table::json(&rows));
    } else {
        table::print(&rows);
    }
    for figure in &broken {
        eprintln!("could not be measured: {figure:?}");
    }
    if broken.is_empty() && rows.iter().all(Row::is_reached) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
