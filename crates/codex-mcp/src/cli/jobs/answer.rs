//! `codex-mcp jobs approve` and `codex-mcp jobs decline`.

use std::io::Write;
use std::process::ExitCode;

use codex_engine::logic::action::Decision;
use common::output;
use job_queue::logic::JobPrefix;
use job_queue::service::{Jobs, Response};
use serde_json::{Map, Value};

use super::failure::Failure;
use super::find::{self, short};

const CODES: &str = "\
`codex-mcp jobs show ID` shows the open questions of a job. Codex asks only in jobs that were
submitted with --approval ask.

Exit codes: 0 it is answered; 3 there is no such job or question, the answer does not fit, it
came too late or a second time, or the worker has not taken it.";

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct ApproveArgs {
    #[command(flatten)]
    which: Which,

    /// Allow it for the rest of the job, and the like of it.
    #[arg(long, conflicts_with_all = ["rule", "answer"])]
    for_session: bool,

    /// Allow it, and from now on all commands that begin as the proposed rule says.
    #[arg(long, conflicts_with = "answer")]
    rule: bool,

    /// What to answer where Codex asks for words: a text, or FIELD=TEXT where there are several
    /// fields; can be given several times.
    #[arg(long, value_name = "TEXT")]
    answer: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct DeclineArgs {
    #[command(flatten)]
    which: Which,

    /// End the turn too.
    #[arg(long)]
    end: bool,

    /// Why, for the log of the job. Codex is not told: `codex-mcp jobs steer` tells it something.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Which question of which job.
#[derive(Debug, clap::Args)]
struct Which {
    /// The job: its id, or how it begins.
    #[arg(value_name = "ID")]
    job: JobPrefix,

    /// The question: its name, or how it begins. Default: the only one that is open.
    #[arg(value_name = "QUESTION")]
    question: Option<String>,
}

impl ApproveArgs {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        self.which.answer(jobs, self.response()?, None).await
    }

    fn response(&self) -> Result<Response, Failure> {
        Ok(
            match (self.answer.as_slice(), self.rule, self.for_session) {
                ([], true, _) => Response::Rule,
                ([], _, true) => Response::Decision(Decision::AcceptForSession),
                ([], false, false) => Response::Decision(Decision::Accept),
                ([text], ..) if !text.contains('=') => Response::Text(text.clone()),
                (several, ..) => Response::Words(fields(several)?),
            },
        )
    }
}

fn fields(given: &[String]) -> Result<Map<String, Value>, Failure> {
    let field = |given: &String| match given.split_once('=') {
        Some((field, text)) => Ok((field.to_owned(), Value::from(text))),
        None => Err(Failure::Cannot(format!(
            "--answer {given}: of several answers, each must be FIELD=TEXT"
        ))),
    };
    given.iter().map(field).collect()
}

impl DeclineArgs {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let decision = match self.end {
            true => Decision::Cancel,
            false => Decision::Decline,
        };
        let response = Response::Decision(decision);
        self.which.answer(jobs, response, self.reason.clone()).await
    }
}

impl Which {
    async fn answer(
        &self,
        jobs: &Jobs,
        response: Response,
        reason: Option<String>,
    ) -> Result<ExitCode, Failure> {
        let id = find::find(jobs, &self.job).await?;
        let done = match response {
            Response::Decision(Decision::Decline | Decision::Cancel) => "declined",
            _ => "approved",
        };
        let question = self.question.as_deref();
        let question = jobs.respond(&id, question, response, reason).await?;
        writeln!(output::stdout(), "{}: {question} {done}", short(&id))?;
        Ok(ExitCode::SUCCESS)
    }
}
