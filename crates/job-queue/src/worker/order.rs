//! What Codex is asked to do, from what a job says.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_team::Member;
use agent_team::logic::TeamName;
use codex_config::profile::{ProfileError, ProfileName};
use codex_engine::binary::{NoCodex, Source};
use codex_engine::picture::{Picture, PictureError};
use codex_engine::tool_limit::ToolLimit;
use codex_protocol::codex::{NotAThreadId, ThreadId};
use goal_run::logic::criteria::Criteria;
use safe_files::directory::{self, ReplacedDirectory};
use safe_files::off_runtime::{self, OffRuntimeError};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use settings::ConfigError;
use settings::bounds::{Bounds, OutOfBounds};

use super::admission::{self, Refusal};
use super::{MailOf, Options};
use crate::call::{KeepStream, Request};
use crate::call_settings::{CallSettings, ThreadMail};
use crate::store::{Job, Origin, Request as Asked};

/// Why a job can't be run: what it says makes no sense here.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadOrder {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    NoCodex(#[from] NoCodex),
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

/// The worker does not know what jobs may ask for.
#[derive(Debug, thiserror::Error)]
#[error("this worker cannot read its bounds, so it runs nothing: {0}; correct that")]
pub(super) struct NoBounds(#[from] ConfigError);

/// An order, and what to do if its session isn't known.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) request: Request,
    /// Whose mail its thread may use.
    pub(super) mail: Option<MailOf>,
    pub(super) if_unknown: IfUnknown,
}

/// What to do if the session that is to be resumed isn't known to Codex.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IfUnknown {
    /// It was asked for: the job fails.
    Fail,
    /// It is that of an earlier attempt, which was lost before there was anything to
    /// go on with, or on another machine: begin as that one did.
    Begin(Option<ThreadId>),
}

/// The order for an attempt at a job.
///
/// One that follows another goes on in the session that that one has begun, where it
/// has, and is given the prompt again.
pub(super) async fn order(job: &Job, options: &Options) -> Result<Order, BadOrder> {
    admission::check(job, options)?;
    let asked = &job.request;
    let cwd = PathBuf::from(&asked.cwd);
    if !cwd.is_absolute() {
        return Err(BadOrder::Directory(asked.cwd.clone()));
    }
    let mut settings = CallSettings::of(asked).map_err(BadOrder::Settings)?;
    let cwd = match is_of_this_host(job, options) {
        true => {
            directory::check(&cwd)?;
            settings.check_directories()?;
            cwd
        }
        // Another machine has not resolved the paths as they are here.
        false => {
            let cwd = directory::resolved(&cwd);
            settings.resolve_directories(&cwd);
            cwd
        }
    };
    let bounds = bounds(job, options)?;
    let cwd = match bounds.directories {
        Some(_) => bounds.directory(&cwd)?,
        None => cwd,
    };
    let profile = profile(asked.profile.as_deref())?;
    bounds.check_config(&settings.overrides(|_| None))?;
    bounds.check_run(&Criteria::default(), &settings.notify, false)?;
    let sandbox = word("sandbox", asked.sandbox.as_deref())?;
    let of_sandbox = bounds_of_sandbox(job, &bounds);
    let sandbox = of_sandbox.sandbox_of_job(sandbox, profile.as_ref(), &cwd)?;
    let (resume, if_unknown) = session(job)?;
    let member = member(job, settings.team.clone());
    let home = settings.atm_home.as_deref();
    let mail = mail(job, settings.mail, settings.team.as_ref(), home);
    let request = Request {
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
        stream: keep(asked),
        member,
        refused_until: job.wait_history.refused_until(),
        cwd,
    };
    Ok(Order {
        request,
        mail,
        if_unknown,
    })
}

/// What a job may ask for as of now, by the configuration of the Codex that it runs with.
pub(super) fn bounds(job: &Job, options: &Options) -> Result<Bounds, NoBounds> {
    Ok(Bounds {
        codex_home: codex_home(job, options),
        ..options.bounds.now()?
    })
}

/// Who has submitted a job of this host.
pub(super) fn member(job: &Job, team: Option<TeamName>) -> Option<Member> {
    let identity = job.request.submitted_by.as_ref();
    let identity = identity.filter(|_| job.origin == Origin::ThisHost)?;
    Some(Member {
        identity: identity.parse().ok()?,
        team,
    })
}

/// Whose mail the threads of a job may use.
pub(super) fn mail(
    job: &Job,
    given: ThreadMail,
    team: Option<&TeamName>,
    atm_home: Option<&Path>,
) -> Option<MailOf> {
    let atm_home = atm_home.filter(|_| given == ThreadMail::Given)?;
    Some(MailOf {
        member: member(job, Some(team?.clone()))?,
        atm_home: atm_home.to_owned(),
    })
}

/// The bounds for the sandbox of a job.
pub(super) fn bounds_of_sandbox<'a>(job: &Job, bounds: &'a Bounds) -> Cow<'a, Bounds> {
    match job.origin {
        Origin::ThisHost => Cow::Borrowed(bounds),
        _ => Cow::Owned(bounds.for_others()),
    }
}

/// Whether the lines of the stream are kept for the report.
pub(super) fn keep(asked: &Asked) -> KeepStream {
    match asked.expose_stream {
        true => KeepStream::Yes,
        false => KeepStream::No,
    }
}

/// The Codex and the home of who has submitted a job are there on their machine. A file
/// is one machine's, whatever that is called by now. That a job names this machine means
/// nothing unless this machine has signed it.
fn is_of_this_host(job: &Job, options: &Options) -> bool {
    let names_it = || job.request.host.as_ref() == Some(&options.host);
    job.origin == Origin::ThisHost && (options.location.path().is_some() || names_it())
}

/// The Codex that is to run a job, if one was chosen.
pub(super) fn chosen(job: &Job, options: &Options) -> Option<(PathBuf, Source)> {
    let theirs = job.request.codex_bin.as_ref();
    let theirs = theirs.filter(|_| is_of_this_host(job, options));
    match theirs {
        Some(path) => Some((path.into(), Source::Job)),
        None => options.codex.clone(),
    }
}

/// Its home.
pub(super) fn codex_home(job: &Job, options: &Options) -> PathBuf {
    match &job.request.codex_home {
        Some(home) if is_of_this_host(job, options) => home.into(),
        _ => options.codex_home.clone(),
    }
}

fn session(job: &Job) -> Result<(Option<ThreadId>, IfUnknown), BadOrder> {
    let read = |id: &String| {
        ThreadId::parse(id).map_err(|error| BadOrder::Session {
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

/// The session that an earlier attempt has begun.
pub(super) fn earlier(job: &Job) -> Option<ThreadId> {
    let earlier = job.summary.session_id.as_deref();
    let earlier = earlier.filter(|_| job.attempts > 1);
    earlier.and_then(|id| ThreadId::parse(id).ok())
}

/// A setting by the word that Codex has for it.
fn word<T: DeserializeOwned>(
    what: &'static str,
    word: Option<&str>,
) -> Result<Option<T>, BadOrder> {
    let Some(word) = word else { return Ok(None) };
    let read = serde_json::from_value(Value::from(word));
    read.map(Some).map_err(|_| BadOrder::Word {
        what,
        value: word.to_owned(),
    })
}

fn profile(name: Option<&str>) -> Result<Option<ProfileName>, BadOrder> {
    let read = |name: &str| {
        ProfileName::try_from(name.to_owned()).map_err(|error| BadOrder::Profile {
            name: name.to_owned(),
            error: Box::new(error),
        })
    };
    name.map(read).transpose()
}

async fn images(names: &[String], cwd: &Path) -> Result<Vec<Picture>, BadOrder> {
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

fn schema(schema: Option<&Value>) -> Result<Option<Map<String, Value>>, BadOrder> {
    match schema {
        None => Ok(None),
        Some(Value::Object(schema)) => Ok(Some(schema.clone())),
        Some(_) => Err(BadOrder::Schema),
    }
}

#[cfg(test)]
mod tests;
