//! The tables of `docs/bench.md`, and the short one of `README.md`.

use std::fmt::Write as _;

use super::rounds::{CROWD, Figures, Measured, SESSIONS};
use super::side::{Server, Side};
use super::stores::StoreRow;
use crate::stats::Summary;
use crate::table::{Unit, heading};

/// The place of the server in the list with which the others are compared.
const REFERENCE: usize = 1;

/// The cells of a server that are in the short table.
const SHORT: [usize; 7] = [0, 1, 2, 3, 5, 6, 8];

/// The table of the servers: medians, and the ratio to the reference.
pub(super) fn servers(sides: &[Side], measured: &[Measured<Figures>]) -> String {
    let [one, some, many] = SESSIONS;
    let columns = [
        "server".to_owned(),
        "start".to_owned(),
        "first call".to_owned(),
        "later call".to_owned(),
        format!("{CROWD} calls at once"),
        format!("memory of {one} session"),
        format!("of {some}"),
        format!("of {many}"),
        format!("of {some}, idle"),
        "tools".to_owned(),
    ];
    let mut table = heading(&columns);
    let reference = measured.get(REFERENCE).and_then(|one| one.as_ref().ok());
    for (side, measured) in sides.iter().zip(measured) {
        table += &row(side, measured, |figures| cells(figures, reference));
    }
    table
}

/// The short table of the servers: medians alone, and our server as it is started by default.
pub(super) fn servers_short(sides: &[Side], measured: &[Measured<Figures>]) -> String {
    let [_, some, many] = SESSIONS;
    let columns = [
        "server".to_owned(),
        "start".to_owned(),
        "first call".to_owned(),
        "later call".to_owned(),
        format!("{CROWD} calls at once"),
        format!("memory of {some} sessions"),
        format!("of {many}"),
        "tools".to_owned(),
    ];
    let mut table = heading(&columns);
    for (side, measured) in sides.iter().zip(measured) {
        if matches!(side.server, Server::Ours { with_host: false }) {
            continue;
        }
        table += &row(side, measured, |figures| {
            let cells = cells(figures, None);
            SHORT.map(|cell| cells[cell].clone()).to_vec()
        });
    }
    table
}

fn row(
    side: &Side,
    measured: &Measured<Figures>,
    cells: impl Fn(&Figures) -> Vec<String>,
) -> String {
    let cells = match measured {
        Ok(figures) => cells(figures),
        Err(why) => vec![format!("not run: {why}")],
    };
    format!("| {} | {} |\n", side.title, cells.join(" | "))
}

fn cells(figures: &Figures, reference: Option<&Figures>) -> Vec<String> {
    let time = |of: fn(&Figures) -> &Summary| beside(Unit::Seconds, of(figures), reference.map(of));
    let mut cells = vec![
        time(|figures| &figures.start),
        time(|figures| &figures.first_call),
        time(|figures| &figures.later_call),
        time(|figures| &figures.crowd),
    ];
    for (number, memory) in figures.memory.iter().enumerate() {
        let reference = reference.and_then(|other| other.memory[number].as_ref().ok());
        cells.push(match memory {
            Ok(memory) => beside(
                Unit::Bytes,
                &memory.at_work,
                reference.map(|other| &other.at_work),
            ),
            Err(why) => why.clone(),
        });
    }
    let idle = figures.memory[1].as_ref();
    cells.push(idle.map_or_else(|_| "–".to_owned(), |it| Unit::Bytes.show(it.idle.median)));
    let tools = figures
        .tools
        .map(|(number, bytes)| format!("{number}: {bytes} B"));
    cells.push(tools.unwrap_or_else(|| "–".to_owned()));
    cells
}

/// A median, and how many times that of the reference it is.
fn beside(unit: Unit, ours: &Summary, reference: Option<&Summary>) -> String {
    let shown = unit.show(ours.median);
    let ratio = reference.map(|other| ours.median / other.median);
    match ratio {
        // This is the reference.
        Some(1.0) | None => shown,
        Some(ratio) => format!("{shown} ({ratio:.2} ×)"),
    }
}

/// The table of the job stores.
pub(super) fn stores(rows: &[StoreRow]) -> String {
    let columns = ["jobs", "codex-mcp", "bare SQL", "ratio"].map(str::to_owned);
    let mut table = heading(&columns);
    for row in rows {
        let ratio = row.ours.median / row.bare.median;
        let [ours, bare] = [&row.ours, &row.bare].map(|side| match row.unit {
            // Thousands are too coarse here.
            Unit::PerSecond => format!("{:.0}/s", side.median),
            unit => unit.show(side.median),
        });
        writeln!(table, "| {} | {ours} | {bare} | {ratio:.2} × |", row.figure).unwrap();
    }
    table
}
