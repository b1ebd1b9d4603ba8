//! `codex-mcp jobs prune`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use common::{duration, output};
use job_queue::service::Jobs;
use job_queue::store::JobList;

use super::failure::Failure;
use super::list;

/// How many removed jobs are named.
const NAMED: u32 = 20;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Remove jobs that ended longer ago than this, such as 12h, 7d or "2 months".
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration::parse)]
    older_than: Duration,

    /// Print what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object: {"jobs": [the newest ones], "total": number of matching jobs,
    /// "removed": number of removed jobs}.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let store = jobs.store().await?;
        let old = store.prunable(self.older_than, NAMED).await?;
        if !self.json {
            self.announce(&old)?;
        }
        let removed = match self.dry_run || old.total == 0 {
            true => 0,
            false => store.prune(self.older_than).await?,
        };
        if self.json {
            let mut told = list::as_json(&old);
            if let Some(members) = told.as_object_mut() {
                members.insert("removed".to_owned(), removed.into());
            }
            output::json(&told)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Names the jobs before they are removed.
    fn announce(&self, old: &JobList) -> Result<(), Failure> {
        let mut out = output::stdout();
        if old.total == 0 {
            writeln!(out, "There is nothing to remove.")?;
            return Ok(());
        }
        let verb = if self.dry_run {
            "Would remove"
        } else {
            "Removing"
        };
        let what = if old.total == 1 { "job" } else { "jobs" };
        writeln!(out, "{verb} {} {what}:\n", old.total)?;
        list::write_table(&old.jobs, &list::Marks::default(), &mut out)?;
        let named = u64::try_from(old.jobs.len()).unwrap_or(u64::MAX);
        match old.total.saturating_sub(named) {
            0 => {}
            more => writeln!(out, "and {more} older ones")?,
        }
        out.flush()?;
        Ok(())
    }
}
