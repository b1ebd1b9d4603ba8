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

use std::path::Path;

use side::{Server, Side};

/// Measures everything, prints the tables, and writes them into the pages of `docs` if there is
/// such a directory.
pub(crate) fn run(rounds: u16, docs: Option<&Path>) {
    let sides = sides();
    let measured = rounds::measure(&sides, rounds);
    let servers = page::servers(&sides, &measured);
    println!("{servers}");
    let stores = page::stores(&stores::measure(rounds.div_ceil(5)));
    println!("{stores}");
    if let Some(docs) = docs {
        page::write(docs, "servers", &servers);
        page::write(docs, "stores", &stores);
        std::fs::write(docs.join("bench.svg"), plot::draw(&sides, &measured)).unwrap();
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
        side("app-server, spoken to directly", Server::AppServer),
        side(
            "codex-mcp without its host",
            Server::Ours { with_host: false },
        ),
    ];
    sides.extend(peers::all());
    sides
}
