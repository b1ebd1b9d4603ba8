//! `codex-mcp jobs schema`.

use std::io::Write;
use std::process::ExitCode;

use common::output;
use job_queue::store::postgres_schema;

use super::failure::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Grant this role the rights to use the tables.
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: Option<String>,

    /// Upgrade tables of this version of the schema: 0 creates new ones.
    #[arg(long, value_name = "VERSION", default_value_t = 0)]
    from: u32,
}

impl Args {
    pub(super) fn act(&self) -> Result<ExitCode, Failure> {
        let sql = postgres_schema(self.from, self.role.as_deref());
        let sql = sql.map_err(|error| Failure::Cannot(error.to_string()))?;
        output::stdout().write_all(sql.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The name of a role, which is shown and quoted.
fn role(name: &str) -> Result<String, &'static str> {
    match name.is_empty() || name.chars().any(char::is_control) {
        true => Err("a role has a name without control characters"),
        false => Ok(name.to_owned()),
    }
}
