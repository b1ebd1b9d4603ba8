//! The store behind pgbouncer in transaction mode.

use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection as _};
use testkit::pgbouncer::Pgbouncer;

use super::*;

/// Few connections, so that clients get each other's.
const CONNECTIONS: usize = 2;

/// A store in a new database, reached through the pooler.
fn store_behind(pooler: &Pgbouncer, server: &Postgres, name: &str) -> TestStore {
    let _ = server.database(name);
    TestStore::at(&pooler.url(name))
}

#[test]
fn store_behind_pgbouncer_conforms() {
    let server = Postgres::start(Durability::Unsynced);
    let pooler = Pgbouncer::start(&server, CONNECTIONS, "");
    block_on(conformance::all(&mut |name| {
        store_behind(&pooler, &server, name)
    }));
}

/// pgbouncer does not pass on a parameter that it ignores, and the setting is often recommended.
#[test]
fn pgbouncer_that_ignores_parameters_is_recognised() {
    let server = Postgres::start(Durability::Unsynced);
    let ignores = "ignore_startup_parameters = extra_float_digits";
    let pooler = Pgbouncer::start(&server, 1, ignores);
    let stage = store_behind(&pooler, &server, "jobs");
    block_on(async {
        let stores = [stage.open().await, stage.open().await].map(Arc::new);
        let submit = async |store: &JobStore| {
            for _ in 0..20 {
                store.submit(&new_job("p")).await.unwrap();
                claim(store, &new_worker_id()).await.unwrap();
                store.list(&JobFilter::default(), 1).await.unwrap();
            }
        };
        futures::future::join_all(stores.iter().map(|store| submit(store))).await;
        let all = stores[0].list(&JobFilter::default(), 1).await.unwrap();
        assert_eq!(all.total, 40);
    });
}

/// The control: what the store must not do there.
#[test]
fn prepared_statements_fail_behind_pgbouncer() {
    let server = Postgres::start(Durability::Unsynced);
    let pooler = Pgbouncer::start(&server, 1, "");
    let _ = server.database("jobs");
    block_on(async {
        let options: PgConnectOptions = pooler.url("jobs").parse().unwrap();
        let options = options.extra_float_digits(None);
        let ask = async |connection: &mut PgConnection, sql: &'static str| {
            sqlx::query(sql).bind(1_i64).execute(connection).await
        };
        let mut first = options.connect().await.unwrap();
        let mut second = options.connect().await.unwrap();
        ask(&mut first, "SELECT $1").await.unwrap();
        let error = ask(&mut second, "SELECT $1 + 1").await.unwrap_err();
        assert!(error.to_string().contains("prepared statement"), "{error}");
        first.close().await.unwrap();
    });
}
