//! Tests of passwords and roles.

use testkit::postgres::Network;

use super::*;

const SCRAM: Network<'_> = Network {
    admitted: "host all all 127.0.0.1/32 scram-sha-256",
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
