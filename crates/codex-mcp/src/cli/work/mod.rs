//! `codex-mcp approve`, `decline`, `steer`, `cancel`, `logs` and `attach`, for all kinds of work
//! that `codex-mcp ps` lists.

mod attach;
mod logs;
mod session;

use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;

use agent_team::ClaimError;
use clap::builder::NonEmptyStringValueParser;
use common::output;
use host_process::connect::ConnectError;
use host_process::logic::handshake::{Door, SessionAct};
use job_queue::logic::JobPrefix;
use job_queue::service::{InstructError, Jobs, Response};
use settings::ConfigError;

use super::exit::{COULD_NOT, worst};
use super::jobs::answer::{ApprovalArgs, RefusalArgs, lasting_effect};
use super::jobs::failure::Failure as JobFailure;
use super::jobs::{self, LogForm};
use super::prompt::{self, PromptError};
use super::runtime;
use super::serve::HostEndpointError;
use super::stored::{complain, exit_code, partial_configuration};
use super::table::within_terminal;
use super::wrong_state::{Verb, WrongState};
use session::HostedSession;

pub(super) use session::{answer_of, told};

/// The longest text that is sent to a session, in bytes. A request to a host has room for it, even
/// if each byte is escaped.
const LONGEST_STEER: usize = 128 * 1024;

/// How the IDs of sessions begin.
const SESSION: &str = "sess_";

const CODES: &str = "\
`codex-mcp ps` lists the work under way. Sessions are those of clients that a host process serves.

Exit codes: 0 done; 3 there is no such work, or it cannot be done, which stderr explains.";

const CANCEL_CODES: &str = "\
Changes that Codex has made stay. The thread of a session can be resumed.

Exit codes: 0 cancelled, now or before; 1 a job had ended in another way; 3 there is no such work, \
or it cannot be reached.";

const LOGS_CODES: &str = "\
Each line begins with the time since the first event. With --follow, the events of a session are \
shown until its turn ends, also by the next host process if one is killed; Ctrl-C ends the output, \
not the work. A session keeps at least its last 1,000 events.

Exit codes: 0 done; 3 there is no such work, or it cannot be reached; 130 after Ctrl-C.";

const ATTACH_CODES: &str = "\
Both sides see the same turns, and the first answer to a question counts. A turn that you begin \
there belongs to the session. When you leave Codex, the session continues.

This requires Linux, a client that a host process serves, and Codex 0.130 or newer.

Exit codes: that of Codex; 3 the session cannot be opened, which stderr explains.";

/// The ID of some work, or a prefix of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WorkId {
    Session(String),
    Job(JobPrefix),
}

impl FromStr for WorkId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.starts_with(SESSION) {
            true => Ok(Self::Session(text.to_owned())),
            false => text.parse().map(Self::Job).map_err(|_| {
                let text: String = text.chars().take(100).collect();
                format!(
                    "{text:?} is not a session, job or run: give the ID of one from `codex-mcp ps`, or \
                     a prefix of 8 or more characters ({SESSION} included)"
                )
            }),
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct ApproveArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    form: ApprovalArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct DeclineArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    form: RefusalArgs,
}

/// A question of some work.
#[derive(Debug, clap::Args)]
struct Target {
    /// The session or job: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    id: WorkId,

    /// The question: its name, or a prefix of it. Default: the only open one.
    #[arg(value_name = "QUESTION", value_parser = NonEmptyStringValueParser::new())]
    question: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct SteerArgs {
    /// The session or job: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    id: WorkId,

    /// The message for Codex. With `-`, or without a message if stdin is not a terminal, it is
    /// read from stdin.
    #[arg(value_name = "WORDS")]
    words: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = CANCEL_CODES)]
pub(super) struct CancelArgs {
    /// The sessions, jobs and runs: their IDs, or prefixes of them.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<WorkId>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH_CODES)]
pub(super) struct AttachArgs {
    /// The session: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    id: WorkId,
}

#[derive(Debug, clap::Args)]
#[command(after_help = LOGS_CODES)]
pub(super) struct LogsArgs {
    /// The session, job or run: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    id: WorkId,

    #[command(flatten)]
    form: LogForm,
}

/// Why something cannot be done with some work.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Job(#[from] JobFailure),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Home(#[from] ClaimError),
    #[error(transparent)]
    Host(#[from] HostEndpointError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Prompt(#[from] PromptError),
    #[error(transparent)]
    Answer(#[from] InstructError),
    #[error(
        "there is no session {0}; `codex-mcp ps` lists those of clients that a host process serves, \
         `codex-mcp threads` also the threads of those that have ended"
    )]
    NoSession(String),
    #[error(
        "several sessions begin with {prefix}: {}; give more characters of the ID",
        found.join(", ")
    )]
    Ambiguous { prefix: String, found: Vec<String> },
    #[error(
        "session {0} has no such open question: it was answered, it timed out, Codex has asked \
         nothing, or too many are open; `codex-mcp logs {0}` shows what can be answered"
    )]
    NotAsked(String),
    #[error("session {session} has several open questions: name one of {}", questions.join(", "))]
    SeveralQuestions {
        session: String,
        questions: Vec<String>,
    },
    #[error(
        "there is no session {0}; `codex-mcp ps` lists those. The thread of a job, which \
         `codex-mcp jobs show` names, and any other thread are opened by `codex resume THREAD` when \
         nothing else works in them"
    )]
    NotAttachable(JobPrefix),
    #[error("Codex's interactive program needs a terminal, as stdin and stdout")]
    NoTerminal,
    #[error("cannot start Codex: {0}")]
    NotStarted(io::Error),
    #[error(transparent)]
    WrongState(#[from] WrongState),
    #[error("{0}")]
    Refused(String),
    #[error("unexpected answer from the host process")]
    UnexpectedAnswer,
    #[error("cannot start the runtime or listen for signals: {0}")]
    Runtime(io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
}

pub(super) fn approve(args: &ApproveArgs) -> ExitCode {
    act(async {
        let response = args.form.response()?;
        args.target.answer(response, None).await
    })
}

pub(super) fn decline(args: &DeclineArgs) -> ExitCode {
    act(args.target.answer(args.form.response(), args.form.reason()))
}

pub(super) fn steer(args: &SteerArgs) -> ExitCode {
    act(async {
        let id = match &args.id {
            WorkId::Job(job) => {
                return Ok(jobs::steer(&service()?, job, args.words.as_deref()).await?);
            }
            WorkId::Session(id) => id,
        };
        let session = HostedSession::find(id).await?;
        let text = prompt::read_message(args.words.as_deref(), LONGEST_STEER)?;
        let (verb, act) = (Verb::Steer, SessionAct::Steer { text });
        session.explained(verb, session.act(act).await).await?;
        writeln!(output::stdout(), "{}: {}", session.short(), verb.done())?;
        Ok(ExitCode::SUCCESS)
    })
}

pub(super) fn cancel(args: &CancelArgs) -> ExitCode {
    act(async {
        let mut codes = Vec::new();
        let mut jobs = Vec::new();
        for id in &args.ids {
            match id {
                WorkId::Job(job) => jobs.push(job.clone()),
                WorkId::Session(id) => codes.push(match cancel_session(id).await {
                    Ok(()) => 0,
                    Err(error) => {
                        complain("error", &error.to_string());
                        COULD_NOT
                    }
                }),
            }
        }
        if !jobs.is_empty() {
            codes.push(jobs::cancel(&service()?, &jobs).await?);
        }
        Ok(ExitCode::from(worst(codes)))
    })
}

async fn cancel_session(id: &str) -> Result<(), Failure> {
    let session = HostedSession::find(id).await?;
    let door = Door::Terminal;
    let done = match session.act(SessionAct::Cancel { door }).await {
        Ok(()) => Verb::Cancel.done(),
        Err(error) => match session.is_cancelled().await {
            // As with a job, nothing else was wanted.
            true => "already cancelled",
            false => return Err(error),
        },
    };
    let how = match session.resume_command().await {
        Some(resume) => format!("its thread can be resumed:\n  {resume}"),
        None => "`codex-mcp threads` lists its thread".to_owned(),
    };
    writeln!(output::stdout(), "{}: {done}; {how}", session.short())?;
    Ok(())
}

pub(super) fn attach(args: &AttachArgs) -> ExitCode {
    act(async {
        let session = match &args.id {
            WorkId::Job(job) => return Err(Failure::NotAttachable(job.clone())),
            WorkId::Session(id) => HostedSession::find(id).await?,
        };
        Err(Failure::NotStarted(attach::open(&session).await?))
    })
}

pub(super) fn logs(args: &LogsArgs) -> ExitCode {
    act(async {
        match &args.id {
            WorkId::Job(job) => Ok(jobs::logs(&service()?, job.clone(), args.form).await?),
            WorkId::Session(id) => logs::print(&HostedSession::find(id).await?, args.form).await,
        }
    })
}

impl Target {
    async fn answer(
        &self,
        response: Response,
        reason: Option<String>,
    ) -> Result<ExitCode, Failure> {
        let question = self.question.as_deref();
        let id = match &self.id {
            WorkId::Job(job) => {
                let jobs = service()?;
                return Ok(jobs::answer::answer(&jobs, job, question, response, reason).await?);
            }
            WorkId::Session(id) => id,
        };
        let session = HostedSession::find(id).await?;
        let (verb, effect) = (Verb::of(&response), lasting_effect(&response));
        let decision = session.decision(question, response);
        let (question, decision) = session.explained(verb, decision).await?;
        let act = SessionAct::Answer {
            question: question.clone(),
            decision: serde_json::json!(decision),
            reason,
            door: Door::Terminal,
        };
        session.explained(verb, session.act(act).await).await?;
        let (short, done) = (session.short(), verb.done());
        let asked = session.question_summary(&question);
        let line = format!("{short}: {question} {done}: {asked}");
        writeln!(output::stdout(), "{}", within_terminal(&line))?;
        effect.map_or(Ok(()), output::stdout_message)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn act(acting: impl Future<Output = Result<ExitCode, Failure>>) -> ExitCode {
    let done = runtime::block_on(acting).map_err(Failure::Runtime);
    exit_code(done.and_then(|done| done), COULD_NOT, |error| {
        matches!(
            error,
            Failure::Write(error) | Failure::Job(JobFailure::Write(error))
                if error.kind() == io::ErrorKind::BrokenPipe
        )
    })
}

/// The job service of the configured store.
fn service() -> Result<Jobs, Failure> {
    Ok(jobs::service(&partial_configuration::<Failure>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_id_selects_session_or_job() {
        let id = |text: &str| text.parse::<WorkId>();
        assert_eq!(id("sess_0123"), Ok(WorkId::Session("sess_0123".to_owned())));
        let job: JobPrefix = "0123abcd".parse().unwrap();
        assert_eq!(id("0123abcd"), Ok(WorkId::Job(job)));
        let refused = id("0123").unwrap_err();
        assert!(refused.contains("codex-mcp ps"), "{refused}");
    }
}
