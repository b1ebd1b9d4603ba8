//! Tests of passwords and roles.

use testkit::postgres::Network;

use super::*;

const SCRAM: Network<'_> = Network {
    admitted: "host all all 127.0.0.1/32 scram-sha-256",
    certificate: None,
};

const TRUST: Network<'_> = Network {
    admitted: "host all all 127.0.0.1/32 trust",
    certificate: None,
};

/// A server that asks for the password of the role `me`, who owns the database `jobs`.
fn server_with_password(password: &str) -> Postgres {
    let server = Postgres::start_on_tcp(Durability::Unsynced, &SCRAM);
    let _ = server.database("jobs");
    server.sql(&format!(
        "SET password_encryption = 'scram-sha-256'; CREATE ROLE me LOGIN PASSWORD '{password}'; \
         CREATE ROLE other LOGIN; ALTER DATABASE jobs OWNER TO me"
    ));
    server
}

async fn open(url: &str) -> Result<JobStore, StoreError> {
    let stage = TestStore::at(url);
    JobStore::open(&stage.location, &stage.access()).await
}

#[test]
fn password_is_proved_by_scram() {
    let server = server_with_password("a ses@me/ü%");
    block_on(async {
        let url = server.url("me:a%20ses%40me%2F%C3%BC%25", "localhost", "jobs");
        let store = open(&url).await.unwrap();
        store.submit(&new_job("p")).await.unwrap();
        assert!(claim(&store, &new_worker_id()).await.is_some());
    });
}

#[test]
fn wrong_password_is_explained_and_not_shown() {
    let server = server_with_password("open-sesame");
    block_on(async {
        for user in ["me:closed-sesame", "me", "other:sesame", "nobody:sesame"] {
            let url = server.url(user, "localhost", "jobs");
            let error = open(&url).await.unwrap_err();
            assert!(
                matches!(error, StoreError::Refused { .. }),
                "{user}: {error:?}"
            );
            assert!(!error.is_retryable());
            let error = format!("{error} {error:?}");
            assert!(error.contains("PGPASSWORD"), "{error}");
            assert!(!error.contains("sesame"), "{error}");
        }
        // The control: only the password was wrong.
        let url = server.url("me:open-sesame", "localhost", "jobs");
        assert!(open(&url).await.is_ok());
    });
}

#[test]
fn missing_database_is_named() {
    let server = server_with_password("open-sesame");
    block_on(async {
        let url = server.url("me:open-sesame", "localhost", "absent");
        let error = open(&url).await.unwrap_err().to_string();
        assert!(error.contains("\"absent\" does not exist"), "{error}");
        assert!(error.contains("CREATE DATABASE"), "{error}");
    });
}

/// A role that may not create tables.
const ROLE: &str = "a \"worker\"";

fn server_with_role() -> Postgres {
    let server = Postgres::start_on_tcp(Durability::Unsynced, &TRUST);
    server.sql(&format!("CREATE ROLE {} LOGIN", quoted(ROLE)));
    server
}

fn quoted(role: &str) -> String {
    format!("\"{}\"", role.replace('"', "\"\""))
}

fn url_of_role(server: &Postgres, database: &str) -> String {
    server.url("a%20%22worker%22", "localhost", database)
}

#[test]
fn role_that_may_not_create_tables_is_told_what_to_do() {
    let server = server_with_role();
    let _ = server.database("jobs");
    block_on(async {
        let url = url_of_role(&server, "jobs");
        let error = open(&url).await.unwrap_err();
        assert!(matches!(error, StoreError::NoRight { .. }), "{error:?}");
        let error = error.to_string();
        let command = "codex-mcp jobs schema --role 'a \"worker\"'";
        assert!(error.contains(command), "{error}");

        // The tables of an older version, whose upgrade the role may not make either.
        server.sql_in("jobs", &postgres_schema(0, Some(ROLE)).unwrap());
        server.sql_in("jobs", "UPDATE codex_store SET version = 7");
        let error = open(&url).await.unwrap_err().to_string();
        assert!(
            error.contains("codex-mcp jobs schema --from 7 --role"),
            "{error}"
        );

        // The owner has not granted everything.
        server.sql_in("jobs", "UPDATE codex_store SET version = 9");
        let revoke = format!("REVOKE SELECT ON codex_store FROM {}", quoted(ROLE));
        server.sql_in("jobs", &revoke);
        let error = open(&url).await.unwrap_err().to_string();
        assert!(
            error.contains("codex-mcp jobs schema --from 9 --role"),
            "{error}"
        );
        server.sql_in("jobs", &postgres_schema(9, Some(ROLE)).unwrap());
        assert!(open(&url).await.is_ok());
    });
}

#[test]
fn role_without_tables_of_its_own_conforms() {
    let server = server_with_role();
    let schema = postgres_schema(0, Some(ROLE)).unwrap();
    block_on(conformance::of_existing_tables(&mut |name| {
        let _ = server.database(name);
        server.sql_in(name, &schema);
        TestStore::at(&url_of_role(&server, name))
    }));
}

#[test]
fn schema_is_upgraded_by_a_script_from_its_own_version_only() {
    let server = server_with_role();
    let stage = TestStore::postgres(&server, "jobs");
    block_on(async { drop(stage.open().await) });
    let script = postgres_schema(7, None).unwrap();
    assert!(script.contains("another version than 7"), "{script}");
    assert!(!script.contains("GRANT"), "{script}");
    assert!(!server.accepts_sql_in("jobs", &script));
    for from in [1, 3, 10] {
        let error = postgres_schema(from, None).unwrap_err().to_string();
        assert!(error.contains(&format!("version {from}")), "{error}");
    }
}
