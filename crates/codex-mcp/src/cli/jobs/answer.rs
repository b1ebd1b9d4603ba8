//! `codex-mcp jobs approve` and `codex-mcp jobs decline`.

use std::io::Write;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use codex_engine::logic::action::{DecidedBy, Decision};
use common::output;
use job_queue::logic::JobPrefix;
use job_queue::service::{Jobs, NewAnswer, Response};
use serde_json::{Map, Value};

use super::failure::Failure;
use super::find::{self, short};
use super::next_step;
use crate::cli::wrong_state::Verb;

const CODES: &str = "\
`codex-mcp jobs show ID` shows the open questions of a job. Codex asks only in jobs that were \
submitted with --approval ask.

Exit codes: 0 the question is answered; 3 there is no such job or question, the answer is invalid, \
late or a duplicate, or the worker has not taken it.";

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct ApproveArgs {
    #[command(flatten)]
    target: QuestionArgs,
    #[command(flatten)]
    form: ApprovalArgs,
}

/// How something is allowed.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ApprovalArgs {
    /// Allow this and similar requests for the rest of the session.
    #[arg(long, conflicts_with_all = ["rule", "answer"])]
    for_session: bool,

    /// Allow this request, and from now on all commands that match the proposed rule, in every
    /// thread: Codex stores the rule in its CODEX_HOME.
    #[arg(long, conflicts_with = "answer")]
    rule: bool,

    /// The answer to a question that asks for text, or FIELD=TEXT where there are several fields;
    /// can be given several times.
    #[arg(long, value_name = "TEXT")]
    answer: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct DeclineArgs {
    #[command(flatten)]
    target: QuestionArgs,
    #[command(flatten)]
    form: RefusalArgs,
}

/// How something is declined.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RefusalArgs {
    /// Also end the turn. This has no effect if an MCP server asks.
    #[arg(long)]
    end: bool,

    /// The reason, for the log of the work. Codex does not get it: `steer` sends text to Codex.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// A question of a job.
#[derive(Debug, clap::Args)]
struct QuestionArgs {
    /// The job: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    job: JobPrefix,

    /// The question: its name, or a prefix of it. Default: the only open one.
    #[arg(value_name = "QUESTION", value_parser = NonEmptyStringValueParser::new())]
    question: Option<String>,
}

impl ApproveArgs {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        self.target.answer(jobs, self.form.response()?, None).await
    }
}

impl ApprovalArgs {
    pub(in crate::cli) fn response(&self) -> Result<Response, Failure> {
        Ok(
            match (self.answer.as_slice(), self.rule, self.for_session) {
                ([], true, _) => Response::Rule,
                ([], _, true) => Response::Decision(Decision::AcceptForSession),
                ([], false, false) => Response::Decision(Decision::Accept),
                ([text], ..) => Response::Text(text.clone()),
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
        let (response, reason) = (self.form.response(), self.form.reason());
        self.target.answer(jobs, response, reason).await
    }
}

impl RefusalArgs {
    pub(in crate::cli) fn response(&self) -> Response {
        Response::Decision(match self.end {
            true => Decision::Cancel,
            false => Decision::Decline,
        })
    }

    pub(in crate::cli) fn reason(&self) -> Option<String> {
        self.reason.clone()
    }
}

impl QuestionArgs {
    async fn answer(
        &self,
        jobs: &Jobs,
        response: Response,
        reason: Option<String>,
    ) -> Result<ExitCode, Failure> {
        let question = self.question.as_deref();
        answer(jobs, &self.job, question, response, reason).await
    }
}

/// The effect of a response beyond its question, in a sentence.
pub(in crate::cli) fn lasting_effect(response: &Response) -> Option<&'static str> {
    matches!(response, Response::Rule).then_some(
        "The rule holds for good, in all threads: Codex stores it in rules/default.rules of its \
         CODEX_HOME.",
    )
}

/// Answers a question of a job: the one with this ID prefix, or else the only one.
pub(in crate::cli) async fn answer(
    jobs: &Jobs,
    job: &JobPrefix,
    question: Option<&str>,
    response: Response,
    reason: Option<String>,
) -> Result<ExitCode, Failure> {
    let id = find::find(jobs, job).await?;
    let (verb, effect) = (Verb::of(&response), lasting_effect(&response));
    let given = NewAnswer {
        response,
        reason,
        by: DecidedBy::Terminal,
    };
    let question = match jobs.respond(&id, question, given).await {
        Ok(question) => question,
        Err(error) => return Err(next_step::explained(jobs, &id, verb, error).await),
    };
    let done = verb.done();
    writeln!(output::stdout(), "{}: {question} {done}", short(&id))?;
    effect.map_or(Ok(()), output::stdout_message)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_of_a_rule_says_where_it_is_kept() {
        let effect = lasting_effect(&Response::Rule).unwrap();
        assert!(effect.contains("rules/default.rules"), "{effect}");
        let once = Response::Decision(Decision::Accept);
        assert_eq!(lasting_effect(&once), None);
    }
}
