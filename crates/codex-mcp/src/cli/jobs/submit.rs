//! `codex-mcp jobs submit`.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use codex_config::profile::{self, ProfileName};
use codex_protocol::codex::{Effort, SandboxMode};
use common::secrets::mask;
use common::text::shell_word;
use common::{duration, output};
use goal_run::logic::machine::milliseconds;
use goal_run::logic::machine::{Limits, RawLimits};
use goal_run::logic::notifier::Notifier;
use job_queue::call_settings::Approval;
use job_queue::run::spec::RunJobSpec;
use job_queue::service::{Jobs, Submission};
use job_queue::spec::{Continuation, JobSpec};
use job_queue::store::LONGEST_TEXT;
use job_queue::thread_ids::ThreadPrefix;
use safe_files::directory::resolved;
use safe_files::untrusted_file::{self, Links};
use serde_json::{Map, Value, json};
use settings::{Config, Source};

use super::failure::Failure;
use super::find::short;
use super::login::{job_may_do_without, missing_login, run_may_do_without};
use super::wait::{self, EventsFrom, OutputForm};
use super::watcher::no_worker_warning;
use crate::cli::prompt;
use crate::cli::stored::complain;
use crate::cli::table::shortened;
use crate::cli::values::{number_within, one_of, profile as profile_name};

/// The longest schema, in bytes.
const LONGEST_SCHEMA: u64 = 1 << 20;

/// The most of a prompt that becomes the name of an unnamed task, in characters.
const NAME: usize = 40;

const EXAMPLES: &str = "\
Examples:
  codex-mcp jobs submit --sandbox workspace-write \"Write a README\"
  codex-mcp jobs submit --sandbox workspace-write \"Fix the failing test\"
  codex-mcp jobs submit \"Review the last commit\"
  { echo \"Review this:\"; git diff; } | codex-mcp jobs submit -
  codex-mcp jobs submit --timeout 1h --wait - < task.md
  job=$(codex-mcp jobs submit \"Look at HEAD\") && codex-mcp jobs wait \"$job\"

Without --profile, the defaults of model, effort and sandbox are those that `codex-mcp config` \
shows, otherwise those of Codex's own configuration. If neither names a sandbox, it is \
workspace-write: commands can write to the directory, and cannot use the network. Approval \
requests are declined unless --approval ask is given: then `jobs show` shows Codex's questions, \
and `jobs approve` and `jobs decline` answer them. With --wait the exit codes are those of `jobs \
wait`.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The prompt for Codex. With `-`, or without a prompt if stdin is not a terminal, it
    /// is read from stdin: UTF-8, 16 MiB at most.
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

    /// The model, as Codex names it.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    model: Option<String>,

    /// The sandbox of Codex's commands. Default: as configured, else workspace-write.
    #[arg(long, value_parser = one_of::<SandboxMode>())]
    sandbox: Option<SandboxMode>,

    /// How hard the model thinks. Not every model accepts every value.
    #[arg(long, value_parser = one_of::<Effort>())]
    effort: Option<Effort>,

    /// A profile of Codex's configuration.
    #[arg(long, value_name = "NAME", value_parser = profile_name)]
    profile: Option<ProfileName>,

    /// A picture for Codex to look at; can be given several times.
    #[arg(long, value_name = "FILE")]
    image: Vec<String>,

    /// A file with a JSON Schema for Codex's final message.
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,

    /// The Codex thread to continue: its ID, or a prefix of it. `codex-mcp jobs resume`
    /// takes a job instead.
    #[arg(long, alias = "resume", value_name = "THREAD")]
    thread: Option<ThreadPrefix>,

    /// Continue the thread of the latest job of the directory.
    #[arg(long = "continue", conflicts_with = "thread")]
    continue_latest: bool,

    /// How long a call of an MCP server's tool may take, such as 90s. Default: as the
    /// server's entry says, else 5m.
    #[arg(long, value_name = "TIME", value_parser = bounded_duration)]
    tool_timeout: Option<Duration>,

    /// Override a key of Codex's config.toml, such as model_verbosity=low; can be given
    /// several times. The value is read as TOML, or otherwise as text.
    #[arg(long, short = 'c', value_name = "KEY=VALUE", value_parser = setting)]
    config: Vec<(String, Value)>,

    /// Also let commands write to this directory, in workspace-write; can be given
    /// several times.
    #[arg(long, value_name = "DIR")]
    add_dir: Vec<PathBuf>,

    /// Let commands use the network in workspace-write.
    #[arg(long)]
    network: bool,

    /// How approval requests of Codex are handled: `never` declines them, `ask` keeps them open
    /// for `codex-mcp jobs approve` and `decline`. Time limits do not count the time while one is
    /// open.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    approval: Approval,

    /// How long a question stays open before it is declined, from 1s to 24h. Default: 5m.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    approval_timeout: Option<Duration>,

    /// Notify this recipient when the job ends, asks or stalls: mail:AGENT@TEAM,
    /// irc://HOST:PORT/CHANNEL, desktop, webhook:https://HOST/PATH, ntfy:TOPIC or command:PROGRAM
    /// ARGUMENTS, which gets the line as its last argument and the result on stdin; can be given
    /// several times. A job that is cancelled while it is queued sends no notification.
    #[arg(long, value_name = "WHOM")]
    notify: Vec<Notifier>,

    /// How many times the job may be run again after its worker has died, at most 10. Each run
    /// continues the same thread, and the files that Codex has changed stay changed.
    #[arg(
        long, value_name = "NUMBER", default_value_t = 0,
        value_parser = number_within(0..=10_u32),
    )]
    retry: u32,

    #[command(flatten)]
    submit_options: SubmitOptions,
}

/// The options of each verb that submits a job.
#[derive(Debug, clap::Args)]
pub(super) struct SubmitOptions {
    /// The name of the task. Default: the beginning of the prompt.
    #[arg(long, value_name = "TASK")]
    pub(super) name: Option<String>,

    /// How long Codex may take, such as 90s or 2h. Default: that of the job that is resumed or
    /// retried, else 10m.
    #[arg(long, value_name = "TIME", value_parser = bounded_duration)]
    pub(super) timeout: Option<Duration>,

    /// Wait until the job has ended, then print Codex's final message, as
    /// `codex-mcp jobs wait` does.
    #[arg(long)]
    pub(super) wait: bool,

    /// Print one JSON object: the id of the job, or with --wait the whole job.
    #[arg(long)]
    pub(super) json: bool,
}

/// The default of `--timeout`.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);

/// Parses a timeout within the limits of jobs.
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
        let spec = self.spec(prompt, config)?;
        self.submit_options.submit_job(config, spec).await
    }

    fn spec(&self, prompt: String, config: &Config) -> Result<JobSpec, Failure> {
        if let Some(profile) = &self.profile {
            profile::check_exists(&config.codex_home, profile)?;
        }
        let continuation = match (&self.thread, self.continue_latest) {
            // A whole ID may exist on the machine that runs the job.
            (Some(session), _) => Continuation::Session(match session.whole() {
                Some(session) => session,
                None => session.resolve(&config.codex_home, &config.atm_home)?,
            }),
            (None, true) => Continuation::Latest,
            (None, false) => Continuation::None,
        };
        Ok(JobSpec {
            continuation,
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
            ..JobSpec::new(prompt, &self.cwd)
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

/// Resolves a picture from the shell's directory, which may differ from the job's.
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

/// Submits a run for another verb, and prints its ID.
pub(in crate::cli) async fn submit_run(
    config: &Config,
    spec: RunJobSpec,
    json: bool,
) -> Result<ExitCode, Failure> {
    super::check_homes(config)?;
    let options = SubmitOptions {
        name: None,
        timeout: None,
        wait: false,
        json,
    };
    options.submit_run(config, spec).await
}

impl SubmitOptions {
    /// Submits a job, and prints its ID or waits for it.
    pub(super) async fn submit_job(
        &self,
        config: &Config,
        spec: JobSpec,
    ) -> Result<ExitCode, Failure> {
        let name = self.name.clone().or_else(|| spec.task_name.clone());
        let spec = JobSpec {
            task_name: name.or_else(|| beginning(&spec.prompt)),
            timeout: self.timeout.unwrap_or(spec.timeout),
            ..spec
        };
        let needs_login = !job_may_do_without(&spec);
        let jobs = super::service(config);
        let submitted = jobs.submit(spec).await?;
        self.report_or_wait(config, &jobs, &submitted, needs_login)
            .await
    }

    /// Submits a run; its timeout is that of all its turns together.
    pub(super) async fn submit_run(
        &self,
        config: &Config,
        spec: RunJobSpec,
    ) -> Result<ExitCode, Failure> {
        let mut spec = RunJobSpec {
            task_name: self.name.clone().or(spec.task_name),
            ..spec
        };
        if let Some(limit) = self.timeout {
            let limits = RawLimits {
                total_timeout_ms: Some(milliseconds(limit)),
                ..spec.run.limits.into()
            };
            let limits = Limits::try_from(limits);
            let wrong = |error| Failure::Cannot(format!("--timeout: {error}"));
            spec.run.limits = limits.map_err(wrong)?;
        }
        let needs_login = !run_may_do_without(&spec.run);
        let jobs = super::service(config);
        let submitted = jobs.submit_run(spec).await?;
        self.report_or_wait(config, &jobs, &submitted, needs_login)
            .await
    }

    /// With `--wait`, the outcome reports whether Codex has no login.
    async fn report_or_wait(
        &self,
        config: &Config,
        jobs: &Jobs,
        submitted: &Submission,
        needs_login: bool,
    ) -> Result<ExitCode, Failure> {
        let id = &submitted.job;
        if !self.wait {
            let told = self.tell(submitted, &store_option(config));
            // Without its ID, nobody would find the job.
            told.inspect_err(|_| complain("submitted", id.as_str()))?;
            if needs_login {
                hint_at_login(config).await;
            }
            return Ok(ExitCode::SUCCESS);
        }
        complain("submitted", id.as_str());
        let (ids, form) = (std::slice::from_ref(id), OutputForm::of(self.json));
        wait::wait(jobs, ids, EventsFrom::Beginning, None, form).await
    }

    /// Prints the ID of the job. `store` is the option for the next commands.
    fn tell(&self, submitted: &Submission, store: &str) -> Result<(), Failure> {
        let Submission { job, session, .. } = submitted;
        let why = submitted.no_worker.as_ref().map(ToString::to_string);
        let warning = why.map(|why| no_worker_warning(&why));
        if let Some(warning) = &warning {
            complain("warning", warning);
        }
        if self.json {
            let message = warning.unwrap_or_else(|| {
                format!("`codex-mcp jobs wait {job}{store}` waits for it and prints its result")
            });
            return Ok(output::json(&json!({
                "status": "queued",
                "job_id": job,
                "session_id": session,
                "thread_id": session,
                "message": message,
            }))?);
        }
        writeln!(output::stdout(), "{job}")?;
        if output::stdout_is_terminal() {
            let id = short(job);
            output::stderr_message(&format!(
                "`codex-mcp jobs wait {id}{store}` waits for it, `codex-mcp jobs logs -f \
                 {id}{store}` shows what Codex does, `codex-mcp jobs cancel {id}{store}` ends it"
            ))?;
        }
        Ok(())
    }
}

/// The option that has other commands use the store of this one, with a blank before it.
fn store_option(config: &Config) -> String {
    let store = &config.jobs.store;
    match store.source {
        Source::Flag(_) => format!(" --store {}", shell_word(store.value.to_string())),
        _ => String::new(),
    }
}

/// Prints a hint if Codex has no login.
async fn hint_at_login(config: &Config) {
    if let Some(login) = missing_login(config).await {
        complain(
            "hint",
            &format!(
                "Codex has no login, without which the job will fail. Run `{login}`; then \
                 `codex-mcp jobs retry` submits a failed job again"
            ),
        );
    }
}

/// The first line of a prompt, as a name. Credentials are masked, as the name is kept when the job
/// ends.
fn beginning(prompt: &str) -> Option<String> {
    let prompt = mask(prompt);
    let line = prompt.lines().find(|line| !line.trim().is_empty())?;
    Some(shortened(line.trim(), NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_task_is_named_by_its_prompt() {
        assert_eq!(beginning("\n  Fix it.\nNow."), Some("Fix it.".to_owned()));
        assert_eq!(beginning(" \n"), None);
        let name = beginning(&format!("a\u{1b}\u{9b}\tb{}", "ß".repeat(NAME))).unwrap();
        assert!(name.starts_with("a\\u{1b}\\u{9b} bß"), "{name}");
        assert_eq!(name.chars().count(), NAME);
    }

    #[test]
    fn credentials_are_masked_in_the_name_of_an_unnamed_task() {
        let name = beginning("true password=hunter2hunter2 and more");
        assert_eq!(name.as_deref(), Some("true password=[masked] and more"));
        // A credential of several lines is masked as a whole.
        let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\nUse it.";
        assert_eq!(beginning(key).as_deref(), Some("[masked]"));
    }

    #[test]
    fn setting_value_is_toml_or_text() {
        let read = |text: &str| setting(text).unwrap().1;
        assert_eq!(read("a.b = true"), true);
        assert_eq!(read("a=[1, 2]"), json!([1, 2]));
        assert_eq!(read("model=gpt-x=y"), "gpt-x=y");
        assert!(setting("a").is_err() && setting("=1").is_err());
    }

    #[test]
    fn duration_outside_the_limits_of_jobs_is_refused() {
        assert_eq!(
            bounded_duration("49d"),
            Ok(Duration::from_secs(49 * 86_400))
        );
        for text in ["0s", "50d", "999us", "x", ""] {
            assert!(bounded_duration(text).is_err(), "{text}");
        }
    }
}
