//! The job stores beside bare SQL in the same database.

use std::cell::Cell;

use testkit::postgres::{Durability, Postgres};

use super::bare_sql;
use crate::jobs::{self, LISTED, LOAD, LOOKS, Load, StoreUrl};
use crate::stats::Summary;
use crate::table::Unit;

/// The same workers in a store that has many jobs already.
const FULL: Load = Load {
    waiting: 2000,
    stored: LISTED,
    ..LOAD
};

/// Ten machines that share a database, and claim jobs as fast as they can.
const MACHINES: Load = Load {
    workers: 10,
    finishes: false,
    ..LOAD
};

/// A list alone.
const LIST: Load = Load {
    waiting: LISTED,
    ..LOAD
};

/// One line of the table.
pub(super) struct StoreRow {
    pub(super) figure: String,
    pub(super) unit: Unit,
    pub(super) ours: Summary,
    pub(super) bare: Summary,
}

/// Measures both stores. PostgreSQL has its usual settings, and waits for the disk.
pub(super) fn measure(rounds: u16) -> Vec<StoreRow> {
    let server = Postgres::start(Durability::Synced);
    let directory = tempfile::tempdir_in(testkit::target_dir()).unwrap();
    let number = Cell::new(0);
    let next = || number.replace(number.get() + 1);
    let sqlite = || {
        let path = directory.path().join(format!("{}.db", next()));
        path.to_str().unwrap().to_owned()
    };
    let postgres = || server.database(&format!("jobs{}", next()));
    let mut rows = Vec::new();
    for (name, store) in [
        ("SQLite", &sqlite as &dyn Fn() -> StoreUrl),
        ("PostgreSQL", &postgres),
    ] {
        rows.push(claims(
            store,
            rounds,
            format!("claimed and finished, {name}"),
            &LOAD,
        ));
        let figure = format!("the same with 100,000 stored jobs, {name}");
        rows.push(claims(store, rounds, figure, &FULL));
        rows.push(list(
            store,
            rounds,
            format!("the newest 20 of 100,000 jobs, {name}"),
        ));
    }
    let figure = "claimed by ten machines, PostgreSQL".to_owned();
    rows.push(claims(&postgres, rounds, figure, &MACHINES));
    rows
}

fn claims(
    store: &dyn Fn() -> StoreUrl,
    rounds: u16,
    figure: String,
    load: &'static Load,
) -> StoreRow {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        eprintln!("{figure}: round {round}");
        ours.push(jobs::claimed(&store(), load));
        let store_url = store();
        bare_sql::fill(&store_url, load);
        bare.push(jobs::worked_off(&store_url, load, async |url, _| {
            bare_sql::work(&url, load).await
        }));
    }
    StoreRow {
        figure,
        unit: Unit::PerSecond,
        ours: Summary::of(ours),
        bare: Summary::of(bare),
    }
}

fn list(store: &dyn Fn() -> StoreUrl, rounds: u16, figure: String) -> StoreRow {
    eprintln!("{figure}");
    let (ours, _) = jobs::listed(&store(), rounds);
    let store_url = store();
    bare_sql::fill(&store_url, &LIST);
    let bare = bare_sql::listed(&store_url, u32::from(rounds) * LOOKS);
    StoreRow {
        figure,
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        bare: Summary::of(bare),
    }
}
