//! Builds the request of an attempt from its job.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_team::Member;
use agent_team::logic::TeamName;
use codex_config::profile::{ProfileError, ProfileName};
use codex_engine::binary::{NoCodex, Source};
use codex_engine::picture::{Picture, PictureError};
use codex_engine::tool_timeout::ToolLimit;
use codex_protocol::codex::{NotAThreadId, SandboxMode, ThreadId};
use goal_run::logic::criteria::Criteria;
use safe_files::directory::{self, ReplacedDirectory};
use safe_files::off_runtime::{self, OffRuntimeError};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use settings::ConfigError;
use settings::bounds::{Bounds, OutOfBounds, SubmitterBound};

use super::admission::{self, Refusal};
use super::{MailAccess, Options};
use crate::call::CallRequest;
use crate::call_settings::{CallSettings, ThreadMail};
use crate::run::spec::StoredRun;
use crate::store::{Job, Origin, Request};

/// An error of a job that this worker cannot run.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadAttemptSpec {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    NoCodex(#[from] NoCodex),
    #[error("the Codex of a worker that was killed could not be taken over")]
    NotTakenOver,
    #[error("this worker refuses it: {0}")]
    OutOfBounds(#[from] OutOfBounds),
    #[error(transparent)]
    Bounds(#[from] NoBounds),
    #[error(transparent)]
    Replaced(#[from] ReplacedDirectory),
    #[error("the working directory {0:?} is not an absolute path")]
    Directory(String),
    #[error("{value:?} is not a {what} that Codex knows")]
    Word { what: &'static str, value: String },
    #[error("the profile {name:?}: {error}")]
    Profile {
        name: String,
        error: Box<ProfileError>,
    },
    #[error(transparent)]
    Picture(#[from] PictureError),
    #[error("cannot read the images: {0}")]
    Files(#[from] OffRuntimeError),
    #[error("the output schema is not a JSON object")]
    Schema,
    #[error(
        "cannot read the settings of the job: {0}; if a newer codex-mcp has submitted it, update \
         the one of this worker"
    )]
    Settings(serde_json::Error),
    #[error("the session {id:?} to resume is {error}")]
    Session { id: String, error: NotAThreadId },
}

/// The bounds of a job cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoBounds {
    #[error("this worker cannot read its bounds, so it runs nothing: {0}; correct that")]
    OfWorker(#[from] ConfigError),
    #[error("cannot read the bound of the job's submitter: {0}; update the worker's codex-mcp")]
    OfSubmitter(#[from] serde_json::Error),
}

/// The specification of an attempt.
#[derive(Debug)]
pub(super) struct AttemptSpec {
    pub(super) request: CallRequest,
    /// The mail that the thread may use.
    pub(super) mail: Option<MailAccess>,
    pub(super) if_unknown: IfUnknown,
}

/// What to do if Codex does not know the thread to resume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IfUnknown {
    /// The submitter has named the thread: the job fails.
    Fail,
    /// The thread is that of an earlier attempt. That attempt was lost before Codex had stored the
    /// thread, or ran on another machine: start in the same way as that attempt did.
    Begin(Option<ThreadId>),
}

/// The specification of an attempt at a job.
///
/// A repeated attempt resumes the thread of the earlier one, if that had started a thread, and gets
/// the prompt again.
pub(super) async fn attempt_spec(
    job: &Job,
    options: &Options,
) -> Result<AttemptSpec, BadAttemptSpec> {
    admission::check(job, options)?;
    let asked = &job.request;
    let cwd = PathBuf::from(&asked.cwd);
    if !cwd.is_absolute() {
        return Err(BadAttemptSpec::Directory(asked.cwd.clone()));
    }
    let mut settings = CallSettings::of(asked).map_err(BadAttemptSpec::Settings)?;
    let cwd = resolved_directories(is_of_this_host(job, options), cwd, &mut settings)?;
    let bounds = bounds(job, options)?;
    let cwd = match bounds.directories {
        Some(_) => bounds.directory(&cwd)?,
        None => cwd,
    };
    let (resume, if_unknown) = session(job)?;
    let profile = profile(asked.profile.as_deref())?;
    let own = worker_bounds(job, options)?;
    own.check_config(&settings.overrides(|_| None))?;
    own.check_run(&Criteria::default(), &settings.notify, false)?;
    let sandbox = sandbox(job, &bounds, profile.as_ref(), &cwd)?;
    let member = member(job, settings.team.clone());
    let home = settings.atm_home.as_deref();
    let mail = mail(job, settings.mail, settings.team.as_ref(), home);
    let request = CallRequest {
        codex_home: codex_home(job, options),
        env: Vec::new(),
        prompt: asked.prompt.clone(),
        resume,
        model: asked.model_override.clone(),
        sandbox,
        effort: word("reasoning effort", asked.effort.as_deref())?,
        profile,
        images: images(&asked.images, &cwd).await?,
        output_schema: schema(asked.output_schema.as_ref())?,
        timeout: Duration::from_millis(asked.timeout_ms.into()),
        tool_limit: Some(ToolLimit {
            limit: Duration::from_millis(asked.tool_timeout_ms.into()),
            origin: settings.tool_timeout,
        }),
        settings,
        keep_stream: asked.expose_stream,
        member,
        refused_until: job.wait_history.refused_until(),
        cwd,
    };
    Ok(AttemptSpec {
        request,
        mail,
        if_unknown,
    })
}

/// The resolved working directory of an attempt. Resolves the directories of a job of another
/// machine, also those in `settings`; this machine has resolved those of its own jobs at the
/// submission.
///
/// # Errors
///
/// [`ReplacedDirectory`] if a directory of a job of this machine was replaced since the job was
/// submitted.
fn resolved_directories(
    is_of_this_host: bool,
    cwd: PathBuf,
    settings: &mut CallSettings,
) -> Result<PathBuf, ReplacedDirectory> {
    if is_of_this_host {
        directory::check(&cwd)?;
        settings.check_directories()?;
        return Ok(cwd);
    }
    // Another machine has not resolved the paths as this one does.
    let cwd = directory::resolved(&cwd);
    settings.resolve_directories(&cwd);
    Ok(cwd)
}

/// The sandbox of a job that works in `cwd`, within the bounds of the job.
fn sandbox(
    job: &Job,
    bounds: &Bounds,
    profile: Option<&ProfileName>,
    cwd: &Path,
) -> Result<Option<SandboxMode>, BadAttemptSpec> {
    let asked = word("sandbox", job.request.sandbox.as_deref())?;
    let bounds = bounds_of_sandbox(job, bounds);
    Ok(bounds.sandbox_of_job(asked, profile, cwd)?)
}

/// The current bounds of a job: those of this worker and of the submitter together, with the
/// configuration of the job's Codex.
pub(super) fn bounds(job: &Job, options: &Options) -> Result<Bounds, NoBounds> {
    let bounds = worker_bounds(job, options)?;
    Ok(bounds.narrowed_to(submitter_bound(&job.request)?))
}

/// The current bounds of this worker alone, with the configuration of the job's Codex. The
/// submitter has checked the request against its own bounds; the job carries only its bound on the
/// sandbox.
pub(super) fn worker_bounds(job: &Job, options: &Options) -> Result<Bounds, NoBounds> {
    Ok(Bounds {
        codex_home: codex_home(job, options),
        ..options.bounds.now()?
    })
}

/// The bound on the submitter's sandbox.
fn submitter_bound(asked: &Request) -> Result<Option<SubmitterBound>, serde_json::Error> {
    match StoredRun::of(asked) {
        Some(run) => Ok(run?.bound),
        None => Ok(CallSettings::of(asked)?.bound),
    }
}

/// The submitter of a job, if this machine has signed the job.
pub(super) fn member(job: &Job, team: Option<TeamName>) -> Option<Member> {
    let identity = job.request.submitted_by.as_ref();
    let identity = identity.filter(|_| job.origin == Origin::ThisMachine)?;
    Some(Member {
        identity: identity.parse().ok()?,
        team,
    })
}

/// The mail that the threads of a job may use.
pub(super) fn mail(
    job: &Job,
    given: ThreadMail,
    team: Option<&TeamName>,
    atm_home: Option<&Path>,
) -> Option<MailAccess> {
    let atm_home = atm_home.filter(|_| given == ThreadMail::Given)?;
    Some(MailAccess {
        member: member(job, Some(team?.clone()))?,
        atm_home: atm_home.to_owned(),
    })
}

/// The bounds for the sandbox of a job.
pub(super) fn bounds_of_sandbox<'a>(job: &Job, bounds: &'a Bounds) -> Cow<'a, Bounds> {
    match job.origin {
        Origin::ThisMachine => Cow::Borrowed(bounds),
        _ => Cow::Owned(bounds.for_others()),
    }
}

/// Whether a job was submitted on this machine.
fn is_of_this_host(job: &Job, options: &Options) -> bool {
    job.is_of_machine(&options.host, &options.location)
}

/// The Codex for a job, if one was chosen.
pub(super) fn chosen(job: &Job, options: &Options) -> Option<(PathBuf, Source)> {
    let theirs = job.request.codex_bin.as_ref();
    let theirs = theirs.filter(|_| is_of_this_host(job, options));
    match theirs {
        Some(path) => Some((path.into(), Source::Job)),
        None => options.codex.clone(),
    }
}

/// The home of the Codex for a job.
pub(super) fn codex_home(job: &Job, options: &Options) -> PathBuf {
    match &job.request.codex_home {
        Some(home) if is_of_this_host(job, options) => home.into(),
        _ => options.codex_home.clone(),
    }
}

fn session(job: &Job) -> Result<(Option<ThreadId>, IfUnknown), BadAttemptSpec> {
    let read = |id: &String| {
        ThreadId::parse(id).map_err(|error| BadAttemptSpec::Session {
            id: id.clone(),
            error,
        })
    };
    let asked = job.request.resume_session_id.as_ref();
    let asked = asked.map(read).transpose()?;
    Ok(match earlier(job) {
        Some(earlier) if Some(&earlier) != asked.as_ref() => {
            (Some(earlier), IfUnknown::Begin(asked))
        }
        _ => (asked, IfUnknown::Fail),
    })
}

/// The thread that an earlier attempt has started. A thread that this machine has not signed is
/// ignored, as somebody else may have chosen it.
pub(super) fn earlier(job: &Job) -> Option<ThreadId> {
    let earlier = job.summary.session_id.as_deref();
    let earlier = earlier.filter(|_| job.attempts > 1);
    let earlier = ThreadId::parse(earlier?).ok()?;
    if job.proven_session().is_none() {
        tracing::warn!(
            "job {} is not continued in the thread {earlier}: the row names it, but it is not \
             signed with the key of this machine",
            job.summary.id
        );
        return None;
    }
    Some(earlier)
}

/// Parses a setting from Codex's name of it.
fn word<T: DeserializeOwned>(
    what: &'static str,
    word: Option<&str>,
) -> Result<Option<T>, BadAttemptSpec> {
    let Some(word) = word else { return Ok(None) };
    let read = serde_json::from_value(Value::from(word));
    read.map(Some).map_err(|_| BadAttemptSpec::Word {
        what,
        value: word.to_owned(),
    })
}

fn profile(name: Option<&str>) -> Result<Option<ProfileName>, BadAttemptSpec> {
    let read = |name: &str| {
        ProfileName::try_from(name.to_owned()).map_err(|error| BadAttemptSpec::Profile {
            name: name.to_owned(),
            error: Box::new(error),
        })
    };
    name.map(read).transpose()
}

async fn images(names: &[String], cwd: &Path) -> Result<Vec<Picture>, BadAttemptSpec> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let (names, cwd) = (names.to_vec(), cwd.to_owned());
    let named = off_runtime::run(move || {
        let named = names.iter().map(|name| Picture::named(name, &cwd));
        named.collect::<Result<_, _>>()
    });
    Ok(named.await??)
}

fn schema(schema: Option<&Value>) -> Result<Option<Map<String, Value>>, BadAttemptSpec> {
    match schema {
        None => Ok(None),
        Some(Value::Object(schema)) => Ok(Some(schema.clone())),
        Some(_) => Err(BadAttemptSpec::Schema),
    }
}

#[cfg(test)]
pub(super) mod tests;
