//! `codex-mcp jobs list`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anstyle::AnsiColor;
use common::duration::ago;
use common::output::{self, Output};
use job_queue::job_json::{self, PROBLEMS_MARK};
use job_queue::logic::{JobId, JobState};
use job_queue::service::Jobs;
use job_queue::store::{JobFilter, JobList, JobSummary, Owner, Ownership};
use safe_files::directory::resolved;
use serde_json::{Value, json};
use settings::store_location::Location;

use super::failure::Failure;
use super::{find, state_style, with_thread_id};
use crate::cli::table::{self, Cell, Cut, shown_directory};
use crate::cli::times::took;
use crate::cli::values::{job_state, number_within};

/// The most that is shown of a task's name, a directory and an error, in characters.
const NAME: usize = 40;
const DIRECTORY: usize = 40;
const ERROR: usize = 80;

/// The most that is shown of an owner, in characters.
const OWNER: usize = 40;

const HEADINGS: [&str; COLUMNS] = ["JOB", "STATE", "AGE", "TOOK", "TASK", "DIRECTORY", "ERROR"];
const COLUMNS: usize = 7;

/// The headings with a column for the owner, where jobs of others are listed.
const HEADINGS_OF_ALL: [&str; COLUMNS + 1] = [
    "JOB",
    "STATE",
    "AGE",
    "TOOK",
    "OWNER",
    "TASK",
    "DIRECTORY",
    "ERROR",
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only jobs in this state.
    #[arg(long, value_name = "STATE", value_parser = job_state())]
    status: Option<JobState>,

    /// Only jobs of this tool: `call_codex`, or `codex_run`.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,

    /// Only jobs of this directory.
    #[arg(long, alias = "repo", value_name = "DIR")]
    cwd: Option<PathBuf>,

    /// Maximum number of jobs to list.
    #[arg(
        long, value_name = "NUMBER", default_value_t = 20,
        value_parser = number_within(1..=1000_u32),
    )]
    limit: u32,

    /// Print one JSON object instead of a table: {"jobs": […], "total"}.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let directory = self.cwd.as_deref().map(resolved);
        let filter = JobFilter {
            status: self.status,
            tool_name: self.tool.clone(),
            cwd: directory.map(|directory| directory.to_string_lossy().into_owned()),
        };
        let listed = jobs.list(&filter, self.limit).await?;
        match self.json {
            true => output::json(&as_json(&listed))?,
            false => {
                let marks = Marks::of(jobs, &listed.jobs).await?;
                print(&listed, &filter, &marks, jobs.store().await?.location())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The jobs that need attention.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Completed jobs whose report lists problems.
    with_problems: BTreeSet<JobId>,
    /// Running jobs in which Codex asks something.
    asking: BTreeSet<JobId>,
}

impl Marks {
    async fn of(jobs: &Jobs, listed: &[JobSummary]) -> Result<Self, Failure> {
        let store = jobs.store().await?;
        let mut marks = Self::default();
        for JobSummary { id, state, .. } in listed {
            match state {
                JobState::Completed if job_json::has_problems_in(store, id).await? => {
                    marks.with_problems.insert(id.clone());
                }
                JobState::Running if !jobs.questions(id).await?.is_empty() => {
                    marks.asking.insert(id.clone());
                }
                _ => {}
            }
        }
        Ok(marks)
    }
}

/// The answer of `call_jobs`, with the names of the command line added.
pub(super) fn as_json(listed: &JobList) -> Value {
    let jobs = listed.jobs.iter().map(job_json::summary);
    let jobs: Vec<Value> = jobs.map(with_thread_id).collect();
    json!({ "jobs": jobs, "total": listed.total })
}

fn print(
    listed: &JobList,
    filter: &JobFilter,
    marks: &Marks,
    store: &Location,
) -> Result<(), Failure> {
    let mut out = output::stdout();
    match (listed.total, *filter == JobFilter::default()) {
        (0, true) => output::stdout_message(&format!(
            "There are no jobs yet in {store}. `codex-mcp jobs submit \"WHAT TO DO\"` hands one to \
             Codex."
        ))?,
        (0, false) => writeln!(
            out,
            "There are no such jobs. `codex-mcp jobs list` lists all that there are."
        )?,
        _ => {
            write_table(&listed.jobs, marks, &mut out)?;
            writeln!(out, "\n{} of {}", listed.jobs.len(), listed.total)?;
            if !marks.with_problems.is_empty() {
                writeln!(
                    out,
                    "{PROBLEMS_MARK} with problems: `codex-mcp jobs show ID` lists them"
                )?;
            }
            if !marks.asking.is_empty() {
                writeln!(
                    out,
                    "asking: `codex-mcp jobs show ID` shows Codex's question"
                )?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// Writes jobs as a table, in colours, and marks those with problems.
pub(super) fn write_table(
    jobs: &[JobSummary],
    marks: &Marks,
    out: &mut Output<impl Write>,
) -> Result<(), Failure> {
    let now = SystemTime::now();
    let id_length = output::stdout_columns().map_or(usize::MAX, |_| find::SHORT);
    let rows = jobs.iter().map(|job| {
        let id = job.id.as_str();
        let id = Cell::plain(id.get(..id_length).unwrap_or(id));
        let [state, age, took, task, directory, error] = cells(job, marks, now);
        [id, state, age, took, task, directory, error]
    });
    match jobs
        .iter()
        .all(|job| job.owner.ownership == Ownership::Ours)
    {
        true => table::write(HEADINGS, rows, out)?,
        false => {
            let owners = jobs
                .iter()
                .map(|job| Cell::foreign(&owner(&job.owner), OWNER));
            let rows = rows.zip(owners).map(|(cells, owner)| {
                let [id, state, age, took, task, directory, error] = cells;
                [id, state, age, took, owner, task, directory, error]
            });
            table::write(HEADINGS_OF_ALL, rows, out)?;
        }
    }
    Ok(())
}

/// The owner of a job: the name that the submitter gave, and the database role.
pub(super) fn owner(owner: &Owner) -> String {
    let name = owner.name.as_deref().unwrap_or("unknown");
    match &owner.role {
        Some(role) if owner.ownership == Ownership::Others => format!("{name} (role {role})"),
        _ => name.to_owned(),
    }
}

fn cells(job: &JobSummary, marks: &Marks, now: SystemTime) -> [Cell; COLUMNS - 1] {
    let age = now.duration_since(job.created_at).unwrap_or_default();
    let so_far = || {
        let since = job.started_at.filter(|_| job.state == JobState::Running)?;
        now.duration_since(since).ok()
    };
    let time = job.duration().or_else(so_far).map(took);
    let error = job.error.as_deref().and_then(|error| error.lines().next());
    let wait = job_json::waiting(job).map(|wait| wait.to_string());
    let error = wait.as_deref().or(error);
    [
        state_cell(job, marks),
        Cell::plain(ago(age)),
        Cell::plain(time.unwrap_or_default()),
        Cell::foreign(&job.task_name, NAME),
        Cell::foreign(&shown_directory(&job.cwd), DIRECTORY).losing(Cut::Begin),
        Cell::foreign(error.unwrap_or_default(), ERROR),
    ]
}

fn state_cell(job: &JobSummary, marks: &Marks) -> Cell {
    let (problems, asking) = (&marks.with_problems, &marks.asking);
    match (problems.contains(&job.id), asking.contains(&job.id)) {
        (true, _) => {
            let state = format!("{}{PROBLEMS_MARK}", job.state);
            Cell::coloured(state, AnsiColor::Yellow.on_default())
        }
        (_, true) => Cell::coloured("asking", AnsiColor::Yellow.on_default()),
        _ => Cell::coloured(job.state.as_str(), state_style(job.state)),
    }
}
