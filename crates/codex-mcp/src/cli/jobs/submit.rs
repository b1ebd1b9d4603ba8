//! `codex-mcp jobs submit`.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use codex_config::profile::{self, ProfileName};
use codex_protocol::codex::{Effort, SandboxMode};
use common::{duration, output};
use goal_run::logic::machine::milliseconds;
use goal_run::logic::machine::{Limits, Parts};
use goal_run::logic::notifier::Notifier;
use job_queue::call_settings::Approval;
use job_queue::order::{Order, Past};
use job_queue::run::order::RunOrder;
use job_queue::service::{Jobs, Submitted};
use job_queue::store::LONGEST_TEXT;
use job_queue::thread_ids::ThreadPrefix;
use safe_files::directory::resolved;
use safe_files::untrusted_file::{self, Links};
use serde_json::{Map, Value, json};
use settings::Config;

use super::failure::Failure;
use super::find::short;
use super::wait::{self, Form};
use super::watching::nobody_works;
use crate::cli::prompt;
use crate::cli::stored::complain;
use crate::cli::table::shortened;
use crate::cli::values::{one_of, profile as profile_name};

/// The longest schema, in bytes.
const LONGEST_SCHEMA: u64 = 1 << 20;

/// How much of a prompt names a task that has no name, in characters.
const NAME: usize = 40;

const EXAMPLES: &str = "\
Examples:
  codex-mcp jobs submit --sandbox workspace-write \"Write a README\"
  codex-mcp jobs submit --sandbox workspace-write \"Fix the failing test\"
  codex-mcp jobs submit \"Review the last commit\"
  { echo \"Review this:\"; git diff; } | codex-mcp jobs submit -
  codex-mcp jobs submit --sandbox workspace-write --timeout 1h --wait - < task.md
  job=$(codex-mcp jobs submit \"Review the last commit\") && codex-mcp jobs wait \"$job\"

Where nothing is said, model, reasoning_effort and sandbox are what `codex-mcp config` shows,
or else what Codex's own configuration says. Where that names no sandbox either, it is
workspace-write: commands write to the directory, and don't use the network.
What Codex would ask about, it is denied, unless --approval ask lets it ask: `jobs show` shows
its questions, and `jobs approve` and `jobs decline` answer them.
With --wait the exit codes are those of `jobs wait`.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// What Codex is to do. With `-`, or without it where stdin is no terminal, the
    /// prompt is read from stdin: UTF-8, 16 MiB at most.
    prompt: Option<String>,

    /// The directory to work in. Default: this one.
    #[arg(
        long,
        alias = "repo",
        value_name = "DIR",
        default_value = ".",
        hide_default_value = true
    )]
    cwd: PathBuf,

    /// Codex's name of the model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// How far Codex's commands may reach. Default: as configured, else workspace-write.
    #[arg(long, value_parser = one_of::<SandboxMode>(&["read-only", "workspace-write", "danger-full-access"]))]
    sandbox: Option<SandboxMode>,

    /// How hard the model thinks. Not every model takes every value.
    #[arg(long, value_parser = one_of::<Effort>(&["none", "minimal", "low", "medium", "high", "xhigh"]))]
    effort: Option<Effort>,

    /// A profile of Codex's configuration.
    #[arg(long, value_name = "NAME", value_parser = profile_name)]
    profile: Option<ProfileName>,

    /// A picture for Codex to look at; can be given several times.
    #[arg(long, value_name = "FILE")]
    image: Vec<String>,

    /// A file with a JSON Schema, which Codex's final message is to follow.
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,

    /// Go on in this thread of Codex's: its id, or how that begins. `codex-mcp jobs
    /// resume` takes a job instead.
    #[arg(long, alias = "resume", value_name = "THREAD")]
    thread: Option<ThreadPrefix>,

    /// Go on in the session of the latest job of the directory.
    #[arg(long = "continue", conflicts_with = "thread")]
    continue_latest: bool,

    /// How long a call of an MCP server's tool may take, such as 90s. Default: as the
    /// server's entry says, else 5m.
    #[arg(long, value_name = "TIME", value_parser = bounded_duration)]
    tool_timeout: Option<Duration>,

    /// Override a key of Codex's config.toml, such as model_verbosity=low; can be given
    /// several times. The value is TOML, or else a text.
    #[arg(long, short = 'c', value_name = "KEY=VALUE", value_parser = setting)]
    config: Vec<(String, Value)>,

    /// Let commands write to this directory too, in workspace-write; can be given several
    /// times.
    #[arg(long, value_name = "DIR")]
    add_dir: Vec<PathBuf>,

    /// Let commands use the network in workspace-write.
    #[arg(long)]
    network: bool,

    /// What becomes of Codex's questions for approvals: `never` declines them, `ask` keeps them
    /// open for `codex-mcp jobs approve` and `decline`. The time that one is open is not
    /// counted.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    approval: Approval,

    /// How long a question stays open before it is declined, from 1s to 24h. Default: 5m.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    approval_timeout: Option<Duration>,

    /// Tell somebody when the job ends, asks or stalls: mail:AGENT@TEAM, irc://HOST:PORT/CHANNEL or
    /// command:PROGRAM ARGUMENTS, which gets the line as its last argument and the
    /// result on stdin; can be given several times.
    #[arg(long, value_name = "WHOM")]
    notify: Vec<Notifier>,

    /// How often the job may run again if its worker dies. It then goes on in its
    /// session; what Codex has changed by then stays.
    #[arg(
        long, value_name = "NUMBER", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=10),
    )]
    retry: u32,

    #[command(flatten)]
    handing: Handing,
}

/// What there is to say of each job that is handed over.
#[derive(Debug, clap::Args)]
pub(super) struct Handing {
    /// What to call the task. Default: how the prompt begins.
    #[arg(long, value_name = "TASK")]
    pub(super) name: Option<String>,

    /// How long Codex may take, such as 90s or 2h. Default: that of the job that is
    /// gone on with or tried again, else 10m.
    #[arg(long, value_name = "TIME", value_parser = bounded_duration)]
    pub(super) timeout: Option<Duration>,

    /// Wait until the job has ended, then print Codex's final message, as
    /// `codex-mcp jobs wait` does.
    #[arg(long)]
    pub(super) wait: bool,

    /// Print one JSON object: the id of the job, or with --wait all of it.
    #[arg(long)]
    pub(super) json: bool,
}

/// How long Codex may take where nothing is said.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);

/// A time that a job can have.
fn bounded_duration(text: &str) -> Result<Duration, String> {
    let most = Duration::from_millis(u32::MAX.into());
    let time = duration::parse(text)?;
    match time >= Duration::from_millis(1) && time <= most {
        true => Ok(time),
        false => Err("it must be between 1ms and 49d".to_owned()),
    }
}

impl Args {
    pub(super) async fn act(&self, config: &Config) -> Result<ExitCode, Failure> {
        let prompt = prompt::read(self.prompt.as_deref(), LONGEST_TEXT)?;
        let order = self.order(prompt, config)?;
        self.handing.hand_over(&super::jobs(config), order).await
    }

    fn order(&self, prompt: String, config: &Config) -> Result<Order, Failure> {
        if let Some(profile) = &self.profile {
            profile::check_exists(&config.codex_home, profile)?;
        }
        let past = match (&self.thread, self.continue_latest) {
            // A whole id may be known where the job is run, on another machine.
            (Some(session), _) => Past::Session(match session.whole() {
                Some(session) => session,
                None => session.resolve(&config.codex_home, &config.atm_home)?,
            }),
            (None, true) => Past::Latest,
            (None, false) => Past::None,
        };
        Ok(Order {
            past,
            model: self.model.clone(),
            sandbox: self.sandbox,
            effort: self.effort,
            profile: self.profile.clone(),
            images: self.image.iter().map(|image| from_here(image)).collect(),
            output_schema: self.output_schema.as_deref().map(schema).transpose()?,
            timeout: TIMEOUT,
            tool_timeout: self.tool_timeout,
            config: self.config.iter().cloned().collect(),
            add_dirs: self.add_dir.iter().map(|path| resolved(path)).collect(),
            network: self.network.then_some(true),
            approval: self.approval,
            approval_timeout: self.approval_timeout,
            notify: self.notify.clone(),
            retry: self.retry,
            ..Order::new(prompt, &self.cwd)
        })
    }
}

/// A key of `config.toml` with its value, as Codex's own `-c` has them.
fn setting(text: &str) -> Result<(String, Value), String> {
    let wrong = || "it must be KEY=VALUE".to_owned();
    let (key, value) = text.split_once('=').ok_or_else(wrong)?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() {
        return Err(wrong());
    }
    let document: Result<Map<String, Value>, _> = toml::from_str(&format!("x = {value}"));
    let read = document.ok().and_then(|mut document| document.remove("x"));
    Ok((key.to_owned(), read.unwrap_or_else(|| value.into())))
}

/// A picture of the shell's directory, which need not be that of the job.
fn from_here(image: &str) -> String {
    let is_url = image.starts_with("data:") || image.contains("://");
    match env::current_dir() {
        Ok(here) if !is_url => here.join(image).to_string_lossy().into_owned(),
        _ => image.to_owned(),
    }
}

fn schema(path: &Path) -> Result<Map<String, Value>, Failure> {
    let wrong = |why: String| Failure::Cannot(format!("--output-schema {}: {why}", path.display()));
    let text = untrusted_file::read_text(path, LONGEST_SCHEMA, Links::Followed);
    let text = text.map_err(|error| wrong(error.to_string()))?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(schema)) => Ok(schema),
        Ok(_) => Err(wrong("a JSON Schema is an object".to_owned())),
        Err(error) => Err(wrong(format!("it is no JSON: {error}"))),
    }
}

impl Handing {
    /// Submits a job, and tells its name or waits for it.
    pub(super) async fn hand_over(&self, jobs: &Jobs, order: Order) -> Result<ExitCode, Failure> {
        let name = self.name.clone().or_else(|| order.task_name.clone());
        let order = Order {
            task_name: name.or_else(|| beginning(&order.prompt)),
            timeout: self.timeout.unwrap_or(order.timeout),
            ..order
        };
        let submitted = jobs.submit(order).await?;
        self.tell_or_wait(jobs, &submitted).await
    }

    /// The same with a run, whose time is that of all its turns.
    pub(super) async fn hand_over_a_run(
        &self,
        jobs: &Jobs,
        order: RunOrder,
    ) -> Result<ExitCode, Failure> {
        let mut order = RunOrder {
            task_name: self.name.clone().or(order.task_name),
            ..order
        };
        if let Some(limit) = self.timeout {
            let limits = Parts {
                total_timeout_ms: Some(milliseconds(limit)),
                ..order.run.limits.into()
            };
            let limits = Limits::try_from(limits);
            let wrong = |error| Failure::Cannot(format!("--timeout: {error}"));
            order.run.limits = limits.map_err(wrong)?;
        }
        let submitted = jobs.submit_run(order).await?;
        self.tell_or_wait(jobs, &submitted).await
    }

    async fn tell_or_wait(&self, jobs: &Jobs, submitted: &Submitted) -> Result<ExitCode, Failure> {
        let id = &submitted.job;
        if !self.wait {
            self.tell(submitted)?;
            return Ok(ExitCode::SUCCESS);
        }
        complain("submitted", id.as_str());
        wait::wait(jobs, std::slice::from_ref(id), None, Form::of(self.json)).await
    }

    fn tell(&self, submitted: &Submitted) -> Result<(), Failure> {
        let Submitted { job, session, .. } = submitted;
        let why = submitted.no_worker.as_ref().map(ToString::to_string);
        let warning = why.map(|why| nobody_works(&why));
        if let Some(warning) = &warning {
            complain("warning", warning);
        }
        if self.json {
            let message = warning.unwrap_or_else(|| {
                format!("`codex-mcp jobs wait {job}` waits for it and prints what comes of it")
            });
            return Ok(output::json(&json!({
                "status": "queued",
                "job_id": job,
                "session_id": session,
                "thread_id": session,
                "message": message,
            }))?);
        }
        let mut out = output::stdout();
        writeln!(out, "{job}")?;
        if output::stdout_is_terminal() {
            let id = short(job);
            writeln!(
                out,
                "`codex-mcp jobs wait {id}` waits for it, `codex-mcp jobs logs -f {id}` shows \
                 what Codex does"
            )?;
        }
        Ok(())
    }
}

/// How a prompt begins, as a name.
fn beginning(prompt: &str) -> Option<String> {
    let line = prompt.lines().find(|line| !line.trim().is_empty())?;
    Some(shortened(line.trim(), NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_a_name_is_called_by_its_prompt() {
        assert_eq!(beginning("\n  Fix it.\nNow."), Some("Fix it.".to_owned()));
        assert_eq!(beginning(" \n"), None);
        let name = beginning(&format!("a\u{1b}\u{9b}\tb{}", "ß".repeat(NAME))).unwrap();
        assert!(name.starts_with("a\\u{1b}\\u{9b} bß"), "{name}");
        assert_eq!(name.chars().count(), NAME);
    }

    #[test]
    fn setting_is_a_key_with_toml_or_a_text() {
        let read = |text: &str| setting(text).unwrap().1;
        assert_eq!(read("a.b = true"), true);
        assert_eq!(read("a=[1, 2]"), json!([1, 2]));
        assert_eq!(read("model=gpt-x=y"), "gpt-x=y");
        assert!(setting("a").is_err() && setting("=1").is_err());
    }

    #[test]
    fn times_are_those_that_a_job_can_have() {
        assert_eq!(
            bounded_duration("49d"),
            Ok(Duration::from_secs(49 * 86_400))
        );
        for text in ["0s", "50d", "999us", "x", ""] {
            assert!(bounded_duration(text).is_err(), "{text}");
        }
    }
}
