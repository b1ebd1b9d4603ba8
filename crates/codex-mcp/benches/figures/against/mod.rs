//! codex-mcp beside Codex's app-server spoken to directly and beside other MCP servers for Codex,
//! and its job stores beside bare SQL: `cargo xtask bench --against`.
//!
//! There is no target: the result is a page. All servers get the same directory, prompt and model,
//! and take turns round by round.

mod bare_sql;
mod page;
mod peers;
mod plot;
mod rounds;
mod side;
mod stores;

use std::fs;
use std::path::Path;

use clap::ValueEnum;
use side::{Server, Side};

use crate::table::{self, PAGE};

/// The page with the short table, and the plot, relative to the directory of the documentation.
const README: &str = "../README.md";
const PLOT: &str = "bench.svg";

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The app-server and other MCP servers
    Servers,
    /// The job stores and bare SQL
    Stores,
}

/// Measures everything or one part, prints the tables, and writes them into the pages of `docs` and
/// `README.md` beside it if there is such a directory.
pub(crate) fn run(rounds: u16, part: Option<Part>, docs: Option<&Path>) {
    let has = |wanted| part.is_none_or(|part| part == wanted);
    if has(Part::Servers) {
        compare_servers(rounds, docs);
    }
    if has(Part::Stores) {
        let table = page::stores(&stores::measure(rounds.div_ceil(5)));
        println!("{table}");
        docs.inspect(|docs| table::write(&docs.join(PAGE), "stores", &table));
    }
}

fn compare_servers(rounds: u16, docs: Option<&Path>) {
    let sides = sides();
    let measured = rounds::measure(&sides, rounds);
    let table = page::servers(&sides, &measured);
    println!("{table}");
    if let Some(docs) = docs {
        table::write(&docs.join(PAGE), "servers", &table);
        let short = page::servers_short(&sides, &measured);
        table::write(&docs.join(README), "servers", &short);
        fs::write(docs.join(PLOT), plot::draw(&sides, &measured)).unwrap();
    }
}

/// The servers: ours first, and the one that the others are compared with second.
fn sides() -> Vec<Side> {
    let side = |title: &str, server| Side {
        title: title.to_owned(),
        server,
    };
    let mut sides = vec![
        side("**codex-mcp**", Server::Ours { with_host: true }),
        side("app-server, spoken to directly", Server::Direct),
        side(
            "codex-mcp without its host",
            Server::Ours { with_host: false },
        ),
    ];
    sides.extend(peers::all());
    sides
}
