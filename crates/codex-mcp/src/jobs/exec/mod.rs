//! The run of one `codex exec --json`.
//!
//! ```text
//!  Request ──► arguments, files ──► spawn ── stdout, stderr ──► hearing ──► News, Digest
//!                 git, before ──► prompt ──► stdin, closed         │
//!  Outcome ◄── judge ◄── git, after ◄── nothing is left ◄── exit, time-out, cancel, login
//! ```
//!
//! Codex starts at once, and gets its prompt when the state of the repository is
//! known: until then it does nothing. However a run ends, it ends with all that
//! Codex has started, also commands in sessions of their own.

mod arguments;
mod files;
mod git;
mod hearing;
mod refused;
pub(crate) mod rollouts;
mod supervise;
mod ways;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use codex_mcp_core::exec::{Changes, Digest, Ending, FailedStep, Failure, FailureClass, judge};
use codex_mcp_protocol::codex::exec::ExecEvent;
use codex_mcp_protocol::codex::{Effort, Release, SandboxMode, ThreadId};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use self::arguments::CommandLine;
use self::files::Files;
use self::hearing::Hearing;
pub use self::hearing::{GARBAGE_LIMIT, Garbage, STDERR_LIMIT, STREAM_LIMIT, Stream};
use self::rollouts::Rollout;
use self::supervise::{Ended, Limits, Stop, Voice, feed, supervise};
use self::ways::{ProfileKind, UnknownSession, Ways};
use crate::codex_config::UserConfig;
use crate::codex_rules::GitRules;
use crate::directory;
use crate::engine::Exit;
use crate::engine::binary::CodexBinary;
use crate::engine::confinement::left_out;
use crate::engine::profile::ProfileName;
use crate::engine::spawn::{Program, Streams, spawn};
use crate::git::ELSEWHERE;
use crate::jobs::settings::{CallSettings, LimitOrigin};
use crate::off_runtime;
use crate::own_mcp_server::Server;
use crate::picture::Picture;
use crate::trust::directory_trust;

/// How long each question to git may take, and once the run was cancelled.
const GIT_PATIENCE: Duration = Duration::from_secs(10);
const GIT_PATIENCE_WHEN_CANCELLED: Duration = Duration::from_secs(1);

/// The exit codes of a guard that can't start Codex, see [`spawn`].
const CANT_START: [i32; 2] = [126, 127];

/// How such a guard's complaint begins.
const CANT_START_WORDS: &str = "cannot start ";

/// How far the commands of a job may reach where neither the job nor any configuration
/// says so: as `--full-auto` had it, which newer releases refuse.
pub const DEFAULT_SANDBOX: SandboxMode = SandboxMode::WorkspaceWrite;

/// What Codex is to do, and how. What is `None` is left to Codex's configuration.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which Codex.
    pub codex: CodexBinary,
    /// Its release; one that isn't known is taken for a new one.
    pub release: Option<Release>,
    /// Its home, CODEX_HOME.
    pub codex_home: PathBuf,
    /// Variables for Codex and git on top of our own environment.
    pub env: Vec<(OsString, OsString)>,
    /// The prompt, of any length.
    pub prompt: String,
    /// The working folder, absolute.
    pub cwd: PathBuf,
    /// The conversation to go on with; a new one otherwise.
    pub resume: Option<ThreadId>,
    /// The model.
    pub model: Option<String>,
    /// How far commands may reach; [`DEFAULT_SANDBOX`] if Codex's configuration does not
    /// say so either.
    pub sandbox: Option<SandboxMode>,
    /// How hard the model thinks.
    pub effort: Option<Effort>,
    /// The profile.
    pub profile: Option<ProfileName>,
    /// Overrides of Codex's configuration. Null leaves a key alone.
    pub settings: CallSettings,
    /// MCP servers of ours that Codex gets beside the user's own.
    pub mcp_servers: Vec<Server>,
    /// Pictures to look at.
    pub images: Vec<Picture>,
    /// The form of the final message, as a JSON Schema.
    pub output_schema: Option<Map<String, Value>>,
    /// How long the run may take.
    pub timeout: Duration,
    /// How long a call of an MCP server's tool may take; as configured if unset.
    pub tool_limit: Option<ToolLimit>,
    /// Whether the lines of the stream are kept for the outcome.
    pub stream: KeepStream,
}

/// How long a call of an MCP server's tool may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimit {
    /// So long.
    pub limit: Duration,
    /// Whether it takes precedence over a server's own entry.
    pub origin: LimitOrigin,
}

impl ToolLimit {
    /// In whole seconds, rounded up, as Codex's configuration has it.
    pub(crate) fn seconds(self) -> u64 {
        self.limit.as_secs() + u64::from(self.limit.subsec_nanos() > 0)
    }
}

/// Whether the lines that Codex prints are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeepStream {
    /// Only what matters of them.
    #[default]
    No,
    /// As they are, up to [`STREAM_LIMIT`].
    Yes,
}

/// What a run tells while it runs.
#[derive(Debug)]
pub enum News<'a> {
    /// Codex's process is there.
    Started,
    /// Codex's name for the conversation. Told once, before the event that has it.
    Session(&'a ThreadId),
    /// An event, read and as it came: one line without its newline.
    Event(&'a ExecEvent, &'a str),
}

/// What came of a run. Nothing of it runs any more.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Why it failed; `None` if Codex did what it was to do.
    pub failure: Option<Failure>,
    /// What matters of what Codex did, also when it failed.
    pub digest: Digest,
    /// The sandbox that was in force: a mode, or the name of permissions. `None` if Codex
    /// was not started.
    pub sandbox: Option<String>,
    /// How Codex ended, if it was started.
    pub exit: Option<Exit>,
    /// The files that the run changed.
    pub changes: Changes,
    /// The end of what Codex wrote to stderr.
    pub stderr: String,
    /// What Codex wrote to stdout that is no event.
    pub garbage: Garbage,
    /// The lines that Codex printed, if they were to be kept.
    pub stream: Stream,
    /// How long it took.
    pub took: Duration,
}

/// Runs Codex once. When `cancel` is cancelled, or time is up, Codex is ended with
/// all that it has started: in the time that this takes, up to a second and a bit
/// for what ignores SIGTERM.
///
/// There are no errors beside [`Outcome::failure`].
pub async fn run(
    request: &Request,
    mut on_news: impl FnMut(News<'_>),
    cancel: CancellationToken,
) -> Outcome {
    let (begun, since) = (Instant::now(), SystemTime::now());
    let mut hearing = Hearing::new(request.resume.as_ref(), request.stream, &mut on_news);
    let own = request.clone();
    let prepared = off_runtime::run(move || prepare(&own)).await;
    let prepared = prepared.unwrap_or_else(|error| Err(Ending::NotStarted(error.to_string())));
    let (ran, sandbox, warnings) = match prepared {
        Ok(prepared) if !cancel.is_cancelled() => (
            run_program(request, &prepared.program, &mut hearing, &cancel).await,
            Some(prepared.sandbox),
            prepared.warnings,
        ),
        Ok(_) => (Ran::nothing(Ending::Cancelled), None, Vec::new()),
        Err(ending) => (Ran::nothing(ending), None, Vec::new()),
    };
    let mut heard = hearing.heard();
    heard.digest.warnings.splice(..0, warnings);
    for failure in refused_calls(request, &heard.digest, since).await {
        heard.digest.add_failure(failure);
    }
    let changes = told_changes(request, &ran, &heard.digest).await;
    Outcome {
        failure: judge(&ran.ending, &heard.digest, &heard.stderr),
        digest: heard.digest,
        sandbox,
        exit: ran.exit,
        changes,
        stderr: heard.stderr,
        garbage: heard.garbage,
        stream: heard.stream,
        took: begun.elapsed(),
    }
}

/// What came of Codex's process.
struct Ran {
    ending: Ending,
    exit: Option<Exit>,
    before: git::Seen,
}

impl Ran {
    fn nothing(ending: Ending) -> Self {
        Self {
            ending,
            exit: None,
            before: git::Seen::Nothing,
        }
    }
}

/// What is ready to be started.
struct Prepared {
    program: Program,
    sandbox: String,
    /// A warning of what the repository brings and is not used.
    /// What the caller has to know.
    warnings: Vec<String>,
    /// Those that the command line names, which live as long as this.
    _files: Files,
}

fn prepare(request: &Request) -> Result<Prepared, Ending> {
    let cant = |why: String| Ending::NotStarted(why);
    if !request.cwd.is_dir() {
        let folder = request.cwd.display();
        return Err(cant(format!(
            "the working folder {folder} is not there, or not a folder"
        )));
    }
    let noted = directory::check(&request.cwd);
    let noted = noted.and_then(|()| request.settings.check_directories());
    noted.map_err(|replaced| cant(replaced.to_string()))?;
    let ways = Ways::of(request.release);
    if let (Some(id), UnknownSession::StartsAfresh) = (&request.resume, ways.unknown_session)
        && rollouts::find(&request.codex_home, id) == Rollout::Missing
    {
        return Err(Ending::UnknownSession(id.clone()));
    }
    if let (Some(name), ProfileKind::File) = (&request.profile, ways.profile) {
        let file = request.codex_home.join(format!("{name}.config.toml"));
        if !file.is_file() {
            let file = file.display();
            return Err(cant(format!(
                "there is no profile {name}: {file} is missing"
            )));
        }
    }
    let files = Files::write(&request.images, request.output_schema.as_ref());
    let files = files.map_err(|error| cant(error.to_string()))?;
    let user = UserConfig::read(&request.codex_home);
    let trust = directory_trust(&request.cwd, &user);
    let trust = trust.map_err(|error| cant(error.to_string()))?;
    let config = user.layers(request.profile.as_ref(), Some(&trust));
    let CommandLine { arguments, sandbox } = arguments::arguments(request, &files, &trust, &config);
    let rules = GitRules::of(&request.codex_home);
    let rules = rules.filter(|_| request.sandbox != Some(SandboxMode::DangerFullAccess));
    let of_rules = rules.map(|rules| format!("{rules}. {}", GitRules::HINT));
    let mut program = Program::new(&request.codex.native, arguments);
    program.env = arguments::variables(request);
    program.cwd = Some(request.cwd.clone());
    // It works in the repository around its folder.
    program.without = ELSEWHERE;
    Ok(Prepared {
        program,
        sandbox,
        warnings: left_out(&trust).into_iter().chain(of_rules).collect(),
        _files: files,
    })
}

async fn run_program(
    request: &Request,
    program: &Program,
    hearing: &mut Hearing<'_>,
    cancel: &CancellationToken,
) -> Ran {
    let (mut process, streams) = match spawn(program) {
        Ok(started) => started,
        Err(error) => return Ran::nothing(Ending::NotStarted(error.to_string())),
    };
    hearing.started();
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    let halt = CancellationToken::new();
    let limits = Limits {
        timeout: request.timeout,
        cancel,
        halt: &halt,
    };
    let looking = git::look(&request.cwd, &request.env, GIT_PATIENCE, &halt);
    let feeding = feed(stdin, &request.prompt, looking, &halt);
    let voice = Voice { stdout, stderr };
    let ended = supervise(&mut process, voice, feeding, hearing, &limits).await;
    Ran {
        ending: ending(&ended, request, hearing),
        exit: Some(ended.exit),
        before: ended.fed,
    }
}

fn ending(ended: &Ended<git::Seen>, request: &Request, hearing: &Hearing<'_>) -> Ending {
    match (&ended.stop, ended.exit) {
        (Some(Stop::TimedOut), _) => Ending::TimedOut(request.timeout),
        (Some(Stop::Cancelled), _) => Ending::Cancelled,
        (Some(Stop::AskedToLogIn(words)), _) => Ending::AskedToLogIn(words.clone()),
        (Some(Stop::OtherSession(wanted)), _) => Ending::UnknownSession(wanted.clone()),
        (None, Exit::Code(code)) if CANT_START.contains(&code) => {
            match hearing.complaint(CANT_START_WORDS) {
                Some(why) => Ending::NotStarted(why),
                None => Ending::Exited(code),
            }
        }
        (None, Exit::Code(code)) => Ending::Exited(code),
        (None, Exit::Signal(number)) => Ending::Signalled(number),
        (None, Exit::Unknown) => Ending::Unknown,
    }
}

/// The calls of the model's that Codex refused since the run began. Where the rollout
/// cannot be read, none are known.
async fn refused_calls(request: &Request, digest: &Digest, since: SystemTime) -> Vec<FailedStep> {
    let Some(id) = digest.session.clone() else {
        return Vec::new();
    };
    let codex_home = request.codex_home.clone();
    let looked = off_runtime::run(move || match rollouts::find(&codex_home, &id) {
        Rollout::At(path) => refused::calls(&path, since),
        Rollout::Missing | Rollout::Unknown => Vec::new(),
    });
    looked.await.unwrap_or_else(|error| {
        tracing::debug!("looking for refused calls: {error}");
        Vec::new()
    })
}

async fn told_changes(request: &Request, ran: &Ran, digest: &Digest) -> Changes {
    let patience = match ran.ending {
        Ending::Cancelled => GIT_PATIENCE_WHEN_CANCELLED,
        _ => GIT_PATIENCE,
    };
    git::changes(&request.cwd, &request.env, &ran.before, digest, patience).await
}

impl Outcome {
    /// Whether the run was ended because it was no longer wanted.
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        let class = self.failure.as_ref().map(|failure| failure.class);
        class == Some(FailureClass::Cancelled)
    }
}
