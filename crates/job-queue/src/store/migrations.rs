//! The migrations of the schema, also as a script for the owner of a PostgreSQL database.

/// A migration to the next version of the schema. Its script must set the version.
pub(super) struct Migration {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        sqlite: include_str!("schema/1-sqlite.sql"),
        postgres: include_str!("schema/1-postgres.sql"),
    },
    Migration {
        sqlite: include_str!("schema/2-sqlite.sql"),
        postgres: include_str!("schema/2-postgres.sql"),
    },
    Migration {
        sqlite: include_str!("schema/3-sqlite.sql"),
        postgres: include_str!("schema/3-postgres.sql"),
    },
    Migration {
        sqlite: include_str!("schema/4-sqlite.sql"),
        postgres: include_str!("schema/4-postgres.sql"),
    },
    Migration {
        sqlite: include_str!("schema/5-sqlite.sql"),
        postgres: include_str!("schema/5-postgres.sql"),
    },
    Migration {
        sqlite: include_str!("schema/6-sqlite.sql"),
        postgres: include_str!("schema/6-postgres.sql"),
    },
    Migration {
        sqlite: include_str!("schema/7-sqlite.sql"),
        postgres: include_str!("schema/7-postgres.sql"),
    },
    Migration {
        sqlite: include_str!("schema/8-sqlite.sql"),
        postgres: include_str!("schema/8-postgres.sql"),
    },
    Migration {
        sqlite: include_str!("schema/9-sqlite.sql"),
        postgres: include_str!("schema/9-postgres.sql"),
    },
];

/// From this version on, credentials are masked when a job ends.
pub(super) const MASKED_SINCE: i64 = 4;

pub(super) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// The tables with which a role works, and what it does with them.
const TABLES: &str = "codex_jobs, codex_events, codex_workers, codex_counts, \
                      codex_folder_counts, codex_changes, codex_numbers, codex_questions, \
                      codex_instructions";

/// The SQL that creates the tables of a PostgreSQL store, or upgrades them from a version, and
/// grants their use to a role that may not create tables. The owner of the database runs it.
///
/// # Errors
///
/// [`NoSuchVersion`].
pub fn postgres_schema(from: u32, role: Option<&str>) -> Result<String, NoSuchVersion> {
    let newest = newest();
    let is_known = i64::from(from) <= newest && (from == 0 || i64::from(from) >= MASKED_SINCE);
    if !is_known {
        return Err(NoSuchVersion { from, newest });
    }
    let mut sql = "BEGIN;\n".to_owned();
    if from > 0 {
        sql += &format!(
            "DO $$ BEGIN IF (SELECT MAX(version) FROM codex_store) <> {from} THEN \
             RAISE EXCEPTION 'this store has another version than {from}'; END IF; END $$;\n"
        );
    }
    let known = usize::try_from(from).unwrap_or(usize::MAX);
    for step in MIGRATIONS.iter().skip(known) {
        sql += step.postgres;
        sql += "\n";
    }
    if let Some(role) = role {
        let role = role.replace('"', "\"\"");
        sql += &format!(
            "GRANT SELECT ON codex_store TO \"{role}\";\n\
             GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLES} TO \"{role}\";\n\
             GRANT USAGE ON SEQUENCE codex_changes_made TO \"{role}\";\n"
        );
    }
    Ok(sql + "COMMIT;\n")
}

/// There is no script for an upgrade from this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no upgrade by a script from schema version {from}: use 0 for a new database, or \
     {MASKED_SINCE} to {newest}; a role that may create tables upgrades older stores"
)]
pub struct NoSuchVersion {
    from: u32,
    newest: i64,
}
