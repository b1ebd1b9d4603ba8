//! `codex-mcp jobs resume` and `retry`: new jobs with the settings of another.

use std::mem;
use std::path::{Component, Path};
use std::process::ExitCode;
use std::time::Duration;

use codex_config::profile::ProfileName;
use codex_engine::tool_timeout::LimitOrigin;
use codex_protocol::codex::ThreadId;
use common::secrets::MASK;
use goal_run::Caller;
use goal_run::logic::notifier::Notifier;
use job_queue::call_settings::{Approval, CallSettings};
use job_queue::logic::JobPrefix;
use job_queue::machine;
use job_queue::run::spec::{RunJobSpec, StoredRun};
use job_queue::service::Jobs;
use job_queue::spec::{Continuation, JobSpec};
use job_queue::store::{Job, LONGEST_TEXT, Origin, Ownership, PromptText, Request};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use settings::Config;
use work_board::Resubmitted;

use super::failure::Failure;
use super::find::{self, short};
use super::list::owner;
use super::submit::SubmitOptions;
use crate::cli::prompt;
use crate::cli::stored::complain;
use crate::cli::values::word;

const SAME: &str = "\
The new job keeps the directory, model, sandbox, effort, profile and timeouts of that job; \
pictures and a schema belong to its prompt and are not used again. For a run, the new job \
continues its thread without its criteria: `jobs retry` submits the run itself again. With --wait \
the exit codes are those of `jobs wait`.";

#[derive(Debug, clap::Args)]
#[command(after_help = SAME)]
pub(super) struct Args {
    /// The job: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    job: JobPrefix,

    /// The next prompt for Codex. With `-`, or without a prompt if stdin is not a
    /// terminal, it is read from stdin.
    prompt: Option<String>,

    #[command(flatten)]
    submit_options: SubmitOptions,
}

/// The arguments of `retry`.
#[derive(Debug, clap::Args)]
pub(super) struct RetryArgs {
    /// The job: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    job: JobPrefix,

    #[command(flatten)]
    submit_options: SubmitOptions,
}

impl Args {
    pub(super) async fn act(&self, config: Config) -> Result<ExitCode, Failure> {
        let jobs = super::service(&config);
        let job = find::job(&jobs, &self.job).await?;
        may_be_resumed(&jobs, &job)?;
        let session = session(&job)?;
        let prompt = prompt::read(self.prompt.as_deref(), LONGEST_TEXT)?;
        let spec = JobSpec {
            prompt,
            continuation: Continuation::Session(session),
            images: Vec::new(),
            output_schema: None,
            ..spec(&job, &config)?
        };
        let mut spec = match job.origin {
            Origin::ThisMachine => without_masked(&job, spec),
            // The access that an unproven job requested is not used.
            Origin::Unproven => JobSpec {
                sandbox: None,
                profile: None,
                config: Map::new(),
                add_dirs: Vec::new(),
                network: None,
                approval: Approval::Never,
                approval_timeout: None,
                notify: Vec::new(),
                ..spec
            },
        };
        warn_of_left_out(take_unusable(&jobs, &mut spec.notify, &spec.cwd).await?);
        let config = config_of(&job, config);
        self.submit_options.submit_job(&config, spec).await
    }
}

impl RetryArgs {
    pub(super) async fn act(&self, config: Config) -> Result<ExitCode, Failure> {
        let jobs = super::service(&config);
        let job = find::job(&jobs, &self.job).await?;
        let config = config_of(&job, config);
        let mut again = Again::of(&job, &config, Caller::Shell)?;
        warn_of_left_out(again.take_unusable(&jobs).await?);
        match again {
            Again::Job(spec) => self.submit_options.submit_job(&config, spec).await,
            Again::Run(spec) => self.submit_options.submit_run(&config, spec).await,
        }
    }
}

/// A job or run that is to be submitted again.
enum Again {
    Job(JobSpec),
    Run(RunJobSpec),
}

impl Again {
    fn of(job: &Job, config: &Config, caller: Caller) -> Result<Self, Failure> {
        if job.origin == Origin::Unproven {
            return Err(not_ours(job, "tried again"));
        }
        has_ended(job, "tried again")?;
        is_whole(job)?;
        let task_name = Some(job.request.task_name.clone());
        if let Some(kept) = StoredRun::of(&job.request) {
            let kept = kept.map_err(|error| unreadable("run", &error))?;
            let spec = RunJobSpec {
                run: kept.spec,
                caller,
                client: None,
                task_name,
                retry: job.request.retry,
            };
            return Ok(Self::Run(spec));
        }
        let spec = JobSpec {
            task_name,
            ..spec(job, config)?
        };
        Ok(Self::Job(spec))
    }

    /// See [`take_unusable`].
    async fn take_unusable(&mut self, jobs: &Jobs) -> Result<Option<String>, Failure> {
        let (notify, directory) = match self {
            Self::Job(spec) => (&mut spec.notify, &spec.cwd),
            Self::Run(spec) => (&mut spec.run.notify, &spec.run.repo),
        };
        take_unusable(jobs, notify, directory).await
    }
}

/// Submits a job once more.
pub(in crate::cli) async fn retry(
    config: Config,
    job: &JobPrefix,
    caller: Caller,
) -> Result<Resubmitted, Failure> {
    let job = find::job(&super::service(&config), job).await?;
    let config = config_of(&job, config);
    let jobs = super::service(&config);
    let mut again = Again::of(&job, &config, caller)?;
    let warning = again.take_unusable(&jobs).await?;
    let submitted = match again {
        Again::Job(spec) => jobs.submit(spec).await?,
        Again::Run(spec) => jobs.submit_run(spec).await?,
    };
    Ok(Resubmitted {
        job: submitted.job,
        warning,
    })
}

/// Takes out the notifiers of an earlier job that cannot work, and returns a warning that names
/// them. The new job would be refused because of them, although the caller did not name them.
async fn take_unusable(
    jobs: &Jobs,
    notify: &mut Vec<Notifier>,
    directory: &Path,
) -> Result<Option<String>, Failure> {
    let (usable, unusable) = jobs.usable_notifiers(mem::take(notify), directory).await?;
    *notify = usable;
    let unusable = unusable.iter();
    let names: Vec<String> = unusable
        .map(|unusable| format!("{} ({})", unusable.notifier, unusable.why))
        .collect();
    Ok((!names.is_empty()).then(|| {
        format!(
            "notifiers that cannot work are left out of the new job: {}",
            names.join(", ")
        )
    }))
}

fn warn_of_left_out(warning: Option<String>) {
    if let Some(warning) = warning {
        complain("warning", &warning);
    }
}

/// A job that another user wrote into a shared store is not resumed unless this machine runs the
/// jobs of others.
fn may_be_resumed(jobs: &Jobs, job: &Job) -> Result<(), Failure> {
    let is_ours = job.origin == Origin::ThisMachine;
    let others_may =
        job.summary.owner.ownership == Ownership::Others && jobs.may_run(Ownership::Others);
    match is_ours || others_may {
        true => Ok(()),
        false => Err(not_ours(job, "resumed")),
    }
}

fn not_ours(job: &Job, to_be: &str) -> Failure {
    let id = short(&job.summary.id);
    let owner = owner(&job.summary.owner);
    Failure::Cannot(format!(
        "job {id} of {owner} cannot be {to_be}: this machine has not submitted it, or not as it is \
         there now (it is not signed with this machine's key); submit what is wanted with `codex-mcp \
         jobs submit`"
    ))
}

/// A job whose credentials were masked cannot be submitted again.
fn is_whole(job: &Job) -> Result<(), Failure> {
    let id = short(&job.summary.id);
    match job.prompt {
        PromptText::Whole => Ok(()),
        PromptText::Masked => Err(Failure::Cannot(format!(
            "job {id} cannot be tried again: credentials in it were masked when it ended; submit \
             it as a new job with `codex-mcp jobs submit`"
        ))),
    }
}

/// The spec without the settings whose credentials were masked when the job ended: the new job would
/// use the mask as a credential.
fn without_masked(job: &Job, spec: JobSpec) -> JobSpec {
    if job.prompt == PromptText::Whole {
        return spec;
    }
    let (masked_keys, config): (Map<String, Value>, Map<String, Value>) = spec
        .config
        .into_iter()
        .partition(|(_, value)| value.to_string().contains(MASK));
    let (masked_notifiers, notify): (Vec<_>, Vec<_>) = spec
        .notify
        .into_iter()
        .partition(|notifier| notifier.secret().contains(MASK));
    let keys = masked_keys.into_iter().map(|(key, _)| key);
    let notifiers = masked_notifiers.iter().map(ToString::to_string);
    let left_out: Vec<String> = keys.chain(notifiers).collect();
    if !left_out.is_empty() {
        complain(
            "warning",
            &format!(
                "left out of the new job, as their credentials were masked when job {} ended: {}. \
                 `codex-mcp jobs submit --thread` continues the thread with settings that you give",
                short(&job.summary.id),
                left_out.join(", ")
            ),
        );
    }
    JobSpec {
        config,
        notify,
        ..spec
    }
}

/// The thread of a job that has ended.
fn session(job: &Job) -> Result<ThreadId, Failure> {
    has_ended(job, "resumed")?;
    let id = short(&job.summary.id);
    let Some(session) = &job.summary.session_id else {
        return Err(Failure::Cannot(format!(
            "job {id} has no thread that could be resumed: Codex had not begun; `codex-mcp jobs \
             retry {id}` submits it once more"
        )));
    };
    if job.proven_session().is_none() {
        return Err(Failure::Cannot(format!(
            "job {id} cannot be resumed: its thread is not signed with this machine's key. Another \
             machine or an older codex-mcp has run the job, or somebody else has changed its row; \
             `codex-mcp jobs submit --thread THREAD` continues a thread that you name"
        )));
    }
    ThreadId::parse(session).map_err(|error| Failure::Cannot(format!("{session:?}: {error}")))
}

/// Two jobs in one session would disturb each other.
fn has_ended(job: &Job, to_be: &str) -> Result<(), Failure> {
    let id = short(&job.summary.id);
    match job.summary.state.has_ended() {
        true => Ok(()),
        false => Err(Failure::Cannot(format!(
            "job {id} is still under way; wait for it with `codex-mcp jobs wait {id}`, or call it \
             off with `codex-mcp jobs cancel {id}`, then it can be {to_be}"
        ))),
    }
}

/// The configuration for a job like this one, which must use the CODEX_HOME that holds the session.
fn config_of(job: &Job, mut config: Config) -> Config {
    let is_ours = job.is_of_machine(&machine::name(), &config.jobs.store.value);
    if let Some(codex_home) = &job.request.codex_home
        && is_ours
    {
        config.codex_home = codex_home.into();
    }
    config
}

/// Rebuilds the spec of a job.
fn spec(job: &Job, config: &Config) -> Result<JobSpec, Failure> {
    let Request {
        prompt,
        cwd,
        model_override,
        timeout_ms,
        tool_timeout_ms,
        expose_stream,
        resume_session_id,
        sandbox,
        effort,
        profile,
        images,
        output_schema,
        retry,
        ..
    } = &job.request;
    let settings = CallSettings::of(&job.request);
    let settings = settings.map_err(|error| unreadable("settings", &error))?;
    let continuation = match resume_session_id.as_deref().map(ThreadId::parse) {
        None => Continuation::None,
        Some(Ok(session)) => Continuation::Session(session),
        Some(Err(error)) => return Err(unreadable("resume_session_id", &error)),
    };
    let profile = profile.clone().map(ProfileName::try_from).transpose();
    Ok(JobSpec {
        continuation,
        model: model_override.clone(),
        sandbox: known("sandbox", sandbox.as_deref())?,
        effort: known("effort", effort.as_deref())?,
        profile: profile.map_err(|error| unreadable("profile", &error))?,
        images: images.clone(),
        output_schema: match output_schema {
            Some(Value::Object(schema)) => Some(schema.clone()),
            _ => None,
        },
        timeout: Duration::from_millis((*timeout_ms).into()),
        tool_timeout: (settings.tool_timeout == LimitOrigin::Requested)
            .then(|| Duration::from_millis((*tool_timeout_ms).into())),
        config: settings.config,
        add_dirs: settings.add_dirs,
        network: settings.network,
        approval: settings.approval,
        approval_timeout: settings
            .approval_timeout_ms
            .map(|millis| Duration::from_millis(millis.into())),
        notify: settings.notify,
        expose_stream: *expose_stream,
        retry: *retry,
        ..JobSpec::new(prompt, worktree(job, config).unwrap_or(cwd))
    })
}

/// The worktree that a run has left behind. Results are not signed, so the path is used only if it
/// is below the directory of this machine's worktrees.
fn worktree<'a>(job: &'a Job, config: &Config) -> Option<&'a str> {
    let path = job.result.as_ref()?.pointer("/run/worktree/path")?;
    let path = path.as_str()?;
    let below = Path::new(path).strip_prefix(config.jobs.state.join("worktrees"));
    let mut components = below.ok()?.components();
    let is_plain = components.all(|component| matches!(component, Component::Normal(_)));
    is_plain.then_some(path)
}

/// A newer program may have written values that we don't know.
fn known<T: DeserializeOwned>(what: &str, text: Option<&str>) -> Result<Option<T>, Failure> {
    let known = text.map(word).transpose();
    known.map_err(|error| unreadable(what, &error))
}

fn unreadable(what: &str, error: &dyn std::error::Error) -> Failure {
    Failure::Cannot(format!("the {what} of that job cannot be read: {error}"))
}
