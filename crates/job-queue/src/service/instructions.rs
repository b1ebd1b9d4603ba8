//! Instructions to the worker of a running job: answers to Codex's questions, and steering.

use std::path::Path;
use std::time::Duration;

use agent_team::audit::{AuditOutcome, Event};
use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::form::{self, WrongAnswer};
use common::text::one_line;
use serde::Deserialize;
use serde_json::{Map, Value};
use settings::bounds::OutOfBounds;
use tokio::time::{Instant, timeout_at};

use super::change::{self, ChangeError};
use super::{Jobs, JobsError};
use crate::call_settings::CallSettings;
use crate::directive::{Answer, Directive};
use crate::logic::{JobId, JobState};
use crate::question::StoredQuestion;
use crate::store::{
    DONE, InstructOutcome, InstructionProgress, Job, NewInstruction, Origin, Question, StoreError,
    StoredEvent, WriteOutcome,
};
use crate::worker::TOLD;

/// How long a worker may take to follow an instruction, which it notices within a second.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The limit of a worker's refusal in a message, in bytes.
const REFUSAL: usize = 1000;

/// How many of the last events of a job are searched for the answer to a question.
const SEARCHED_EVENTS: u32 = 1000;

/// An error of instructing the worker of a job.
#[derive(Debug, thiserror::Error)]
pub enum InstructError {
    /// The job does not run.
    #[error("the job is {0}; only a running job accepts instructions")]
    NotRunning(JobState),
    /// The job is a run, which decides by itself.
    #[error(
        "the job is a run: it takes no messages, and `approve` of the run answers Codex's \
         questions; cancel it, then continue its thread"
    )]
    Run,
    /// The job has no open question.
    #[error(
        "the job has no open question: it was answered, it timed out, or Codex has asked \
         nothing, which it does only with approval \"ask\"; `codex-mcp jobs logs` shows which"
    )]
    NothingAsked,
    /// The job has no such open question, or no longer.
    #[error(
        "the job has no open question {0}: it was answered, it timed out, or Codex no longer \
         needs an answer; `codex-mcp jobs logs` shows which"
    )]
    NoQuestion(String),
    /// Several questions are open.
    #[error("the job has several open questions: name one of {}", .0.join(", "))]
    Several(Vec<String>),
    /// The question has been answered already.
    #[error("question {question} was answered already{}; an answer is used once", and_how(.first.as_deref()))]
    Answered {
        /// The ID of the question.
        question: String,
        /// The answer and who gave it, if that is known.
        first: Option<String>,
    },
    /// The question's signature is not valid, so that Codex may not have asked it.
    #[error(
        "question {0} is not signed with the key of this machine, and cannot be answered here: \
         answer it on the host of the job's worker"
    )]
    Unproven(String),
    /// The question does not offer this decision.
    #[error("question {question} does not offer {decision}; it offers {offered}")]
    NotOffered {
        /// The ID of the question.
        question: String,
        /// The given decision.
        decision: String,
        /// The offered decisions.
        offered: String,
    },
    /// The question needs a text for each field.
    #[error(
        "question {question} wants answers for {}: give them by --answer at a shell, or by `answers` \
         of call_respond over MCP", .fields.join(", ")
    )]
    WantsWords {
        /// The ID of the question.
        question: String,
        /// The fields that need a text.
        fields: Vec<String>,
    },
    /// An answer does not fit its field.
    #[error("question {question}: {why}")]
    WrongAnswer {
        /// The ID of the question.
        question: String,
        /// The field, and why.
        why: WrongAnswer,
    },
    /// The worker has refused the instruction.
    #[error("the worker has refused it: {0}")]
    Refused(String),
    /// The attempt ended before.
    #[error("the job's turn ended before it received the instruction")]
    Ended,
    /// The worker has not taken the instruction in time.
    #[error(
        "the job's worker has not taken it within {} s, and it was taken back. If the worker has \
         died, the next one may continue the turn: see `codex-mcp jobs show`",
        TIMEOUT.as_secs()
    )]
    NotTaken,
    /// The worker has taken the instruction, and has not reported the outcome in time.
    #[error(
        "the job's worker has taken it, but has not reported the outcome within {} s: see \
         `codex-mcp jobs logs`",
        TIMEOUT.as_secs()
    )]
    Unknown,
    /// The job is out of our bounds.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The instruction, or the settings of the job, are not the JSON that this program knows.
    #[error("its JSON cannot be read or written: {0}")]
    Json(#[from] serde_json::Error),
}

/// A user's response to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// A decision.
    Decision(Decision),
    /// A decision as JSON.
    Json(Value),
    /// Approval with the first proposed rule.
    Rule,
    /// Texts for the fields of the question.
    Words(Map<String, Value>),
    /// A text for the only field of the question, or FIELD=TEXT.
    Text(String),
}

/// A user's answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAnswer {
    /// The response.
    pub response: Response,
    /// The reason, for the log of the job.
    pub reason: Option<String>,
    /// Where it is decided.
    pub by: DecidedBy,
}

impl NewAnswer {
    /// An answer without a reason.
    #[must_use]
    pub fn new(response: Response, by: DecidedBy) -> Self {
        Self {
            response,
            reason: None,
            by,
        }
    }
}

impl Jobs {
    /// The open questions of a job.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn questions(&self, id: &JobId) -> Result<Vec<Question>, StoreError> {
        self.store().await?.questions(id).await
    }

    /// Answers a question of a job: the one with this ID prefix, or else the only one. Returns
    /// its ID.
    ///
    /// # Errors
    ///
    /// [`JobsError`]. The question was not answered then, except perhaps after
    /// [`InstructError::Unknown`] and [`JobsError::InstructionUnclear`].
    pub async fn respond(
        &self,
        id: &JobId,
        question: Option<&str>,
        NewAnswer {
            response,
            reason,
            by,
        }: NewAnswer,
    ) -> Result<String, JobsError> {
        let job = self.running(id).await?;
        let (question, stored) = self.find_question(id, question).await?;
        let decision = decision_for(&question.id, &stored, response)?;
        if !matches!(decision, Decision::Decline | Decision::Cancel) {
            self.check_bounds(&job)?;
        }
        let name = decision.name();
        self.note_answer(id, AuditOutcome::Started, &stored.text, name)?;
        let answer = Answer {
            question: question.id.clone(),
            decision,
            reason,
            by: Some(by),
        };
        let instructed = self.instruct_worker(id, &Directive::Answer(answer)).await;
        let outcome = outcome_of(&instructed);
        if let Err(error) = self.note_answer(id, outcome, &stored.text, name) {
            tracing::warn!("{error}");
        }
        instructed.map(|()| question.id)
    }

    /// Adds a text to the turn of a job.
    ///
    /// # Errors
    ///
    /// As [`Jobs::respond`].
    pub async fn steer(&self, id: &JobId, words: String) -> Result<(), JobsError> {
        self.check_bounds(&self.running(id).await?)?;
        self.note(id, Event::CallSteer, AuditOutcome::Started, Some(&words))?;
        let instructed = self.instruct_worker(id, &Directive::Steer(words)).await;
        self.note_end(id, Event::CallSteer, outcome_of(&instructed));
        instructed
    }

    /// The job, which has to be running.
    async fn running(&self, id: &JobId) -> Result<Job, JobsError> {
        let none = || JobsError::NotFound(id.to_string());
        let job = self.store().await?.get(id).await?.ok_or_else(none)?;
        match job.summary.state {
            state if state.has_ended() => Err(InstructError::NotRunning(state).into()),
            _ if job.request.run.is_some() => Err(InstructError::Run.into()),
            JobState::Running => Ok(job),
            state => Err(InstructError::NotRunning(state).into()),
        }
    }

    /// Refuses to give more work to a job that another client has submitted without our bounds.
    fn check_bounds(&self, job: &Job) -> Result<(), InstructError> {
        let bounds = &self.submitter.bounds;
        let settings = CallSettings::of(&job.request)?;
        // Others who write to the store could have added the bound.
        let theirs = settings.bound.as_ref();
        let theirs = theirs.filter(|_| job.origin == Origin::ThisMachine);
        bounds.check_running_job(Path::new(&job.request.cwd), theirs)?;
        bounds.check_config(&settings.overrides(|_| None))?;
        Ok(())
    }

    /// Finds the question with this ID prefix, or else the only one.
    async fn find_question(
        &self,
        id: &JobId,
        named: Option<&str>,
    ) -> Result<(Question, StoredQuestion), JobsError> {
        let mut open = self.questions(id).await?;
        if let Some(name) = named {
            open.retain(|one| one.id.starts_with(name));
        }
        let mut names: Vec<String> = open.iter().map(|one| shown(&one.id)).collect();
        let (Some(question), true) = (open.pop(), names.len() == 1) else {
            return Err(match (names.is_empty(), named) {
                (true, Some(name)) => self.not_open(id, name).await?,
                (true, None) => InstructError::NothingAsked,
                (false, _) => InstructError::Several(names),
            }
            .into());
        };
        let name = names.pop().unwrap_or_default();
        match (question.origin, StoredQuestion::of(&question)) {
            (Origin::ThisMachine, Some(stored)) => Ok((question, stored)),
            _ => Err(InstructError::Unproven(name).into()),
        }
    }

    /// The error for a question that is not open. If it was answered, the last events of the job
    /// say how.
    async fn not_open(&self, id: &JobId, name: &str) -> Result<InstructError, JobsError> {
        let mut found = None;
        let store = self.store().await?;
        let looking = store.each_of_tail(id, SEARCHED_EVENTS, |event| {
            if let Some(answer) = answer_in(&event)
                && answer.request_id.starts_with(name)
            {
                found = Some(answer);
            }
        });
        looking.await?;
        Ok(match found {
            Some(answer) => InstructError::Answered {
                question: shown(&answer.request_id),
                first: Some(one_line(&answer.answer, REFUSAL)),
            },
            None => InstructError::NoQuestion(shown(name)),
        })
    }

    /// Gives a directive to the worker of a job, and waits until it is followed.
    async fn instruct_worker(&self, id: &JobId, directive: &Directive) -> Result<(), JobsError> {
        let new = directive.instruction().map_err(InstructError::from)?;
        let question = || new.question.clone().unwrap_or_default();
        let unclear = |error| JobsError::InstructionUnclear {
            job: id.clone(),
            error,
        };
        let store = self.store().await?;
        let given = change::repeat(|| store.instruct(id, &new)).await;
        let given = given.map_err(|error| match error {
            ChangeError::NotMade(error) => JobsError::Store(error),
            ChangeError::Unclear(error) => unclear(error),
        })?;
        match given.ok_or_else(|| JobsError::NotFound(id.to_string()))? {
            InstructOutcome::Given => {}
            InstructOutcome::NotRunning(state) => {
                return Err(InstructError::NotRunning(state).into());
            }
            InstructOutcome::NoQuestion => return Err(InstructError::NoQuestion(question()).into()),
            InstructOutcome::Answered(data) => {
                let first = data.and_then(|data| serde_json::from_str(&data).ok());
                let first = match first {
                    Some(Directive::Answer(answer)) => Some(answer.in_short()),
                    Some(Directive::Steer(_)) | None => None,
                };
                let question = question();
                return Err(InstructError::Answered { question, first }.into());
            }
        }
        let until = Instant::now() + TIMEOUT;
        let mut watch = store.watch();
        loop {
            match self.followed(&new, until).await {
                Ok(Some(followed)) => return Ok(followed?),
                Err(error) if !error.is_retryable() || Instant::now() >= until => {
                    return Err(unclear(error));
                }
                // The loop checks both the change and the time.
                Ok(None) | Err(_) => drop(timeout_at(until, watch.changed()).await),
            }
        }
    }

    /// The outcome of an instruction, once it is known or the time is up.
    async fn followed(
        &self,
        new: &NewInstruction,
        until: Instant,
    ) -> Result<Option<Result<(), InstructError>>, StoreError> {
        let store = self.store().await?;
        let is_late = Instant::now() >= until;
        Ok(match store.progress(new).await? {
            InstructionProgress::Concluded(outcome) if outcome == DONE => Some(Ok(())),
            InstructionProgress::Concluded(why) => {
                Some(Err(InstructError::Refused(one_line(&why, REFUSAL))))
            }
            InstructionProgress::Gone => Some(Err(InstructError::Ended)),
            InstructionProgress::Waiting if is_late => match store.withdraw(new).await? {
                WriteOutcome::Done => Some(Err(InstructError::NotTaken)),
                // The worker was faster.
                WriteOutcome::Lost => Some(Err(InstructError::Unknown)),
            },
            InstructionProgress::Taken if is_late => Some(Err(InstructError::Unknown)),
            InstructionProgress::Waiting | InstructionProgress::Taken => None,
        })
    }

    fn note_answer(
        &self,
        job: &JobId,
        outcome: AuditOutcome,
        question: &str,
        decision: &str,
    ) -> Result<(), JobsError> {
        self.write_down(job, Event::CallRespond, outcome, |record| {
            record.summary = Some(question);
            record.decision = Some(decision);
        })
    }
}

/// The words for how a question was answered, as the continuation of a sentence.
fn and_how(first: Option<&str>) -> String {
    first.map_or_else(String::new, |first| format!(": {first}"))
}

/// An answer that was followed, in an event.
#[derive(Deserialize)]
struct FollowedAnswer {
    request_id: String,
    /// See [`Answer::in_short`].
    answer: String,
}

fn answer_in(event: &StoredEvent) -> Option<FollowedAnswer> {
    let is_answer = event.kind == TOLD;
    is_answer.then(|| serde_json::from_str(&event.data).ok())?
}

fn shown(name: &str) -> String {
    one_line(name, 80)
}

fn outcome_of(instructed: &Result<(), JobsError>) -> AuditOutcome {
    match instructed {
        Ok(()) => AuditOutcome::Succeeded,
        Err(JobsError::Instruct(InstructError::Unknown)) => AuditOutcome::Failed,
        Err(JobsError::Instruct(_) | JobsError::Store(StoreError::OfOthers { .. })) => {
            AuditOutcome::Refused
        }
        Err(_) => AuditOutcome::Failed,
    }
}

/// The decision of a response, if the question with this ID offers it.
///
/// # Errors
///
/// [`InstructError::NotOffered`], [`InstructError::WantsWords`] and
/// [`InstructError::WrongAnswer`].
pub fn decision_for(
    question: &str,
    stored: &StoredQuestion,
    response: Response,
) -> Result<Decision, InstructError> {
    let wants_words = || InstructError::WantsWords {
        question: question.to_owned(),
        fields: stored.fields.iter().map(|field| shown(&field.id)).collect(),
    };
    let not_offered = |decision: String| InstructError::NotOffered {
        question: question.to_owned(),
        decision,
        offered: offered(stored),
    };
    match response {
        Response::Json(given) => match Decision::deserialize(&given) {
            Ok(decision) => decision_for(question, stored, Response::Decision(decision)),
            Err(_) => Err(not_offered(one_line(&given.to_string(), REFUSAL))),
        },
        Response::Decision(decision) if stored.decisions.contains(&decision) => Ok(decision),
        Response::Decision(Decision::Accept) if !stored.fields.is_empty() => Err(wants_words()),
        Response::Decision(Decision::Submit(_)) if stored.fields.is_empty() => {
            Err(not_offered("answers".to_owned()))
        }
        Response::Decision(Decision::Submit(words)) => submitted(question, stored, &words),
        Response::Decision(decision) => Err(not_offered(in_json(&decision))),
        Response::Rule => {
            let mut rules = stored.decisions.iter();
            let rule = rules.find(|one| matches!(one, Decision::AcceptWithExecpolicyAmendment(_)));
            let rule = rule.cloned();
            rule.ok_or_else(|| not_offered("a rule".to_owned()))
        }
        Response::Words(_) | Response::Text(_) if stored.fields.is_empty() => {
            Err(not_offered("answers".to_owned()))
        }
        Response::Words(words) => submitted(question, stored, &words),
        Response::Text(text) => match (stored.fields.as_slice(), text.split_once('=')) {
            ([field], Some((name, text))) if name == field.id => {
                submitted(question, stored, &one(name, text))
            }
            ([field], _) => submitted(question, stored, &one(&field.id, &text)),
            (_, Some((name, text))) => submitted(question, stored, &one(name, text)),
            (_, None) => Err(wants_words()),
        },
    }
}

fn one(field: &str, text: &str) -> Map<String, Value> {
    Map::from_iter([(field.to_owned(), text.into())])
}

/// The decision of a form, with the values in the types of its fields.
fn submitted(
    question: &str,
    stored: &StoredQuestion,
    words: &Map<String, Value>,
) -> Result<Decision, InstructError> {
    let filled = form::filled(&stored.fields, words);
    filled
        .map(Decision::Submit)
        .map_err(|why| InstructError::WrongAnswer {
            question: question.to_owned(),
            why,
        })
}

fn offered(stored: &StoredQuestion) -> String {
    let decisions = stored.decisions.iter().map(in_json);
    let words = (!stored.fields.is_empty()).then(|| "answers".to_owned());
    let all: Vec<String> = decisions.chain(words).collect();
    one_line(&all.join(", "), REFUSAL)
}

fn in_json(decision: &Decision) -> String {
    serde_json::to_string(decision).unwrap_or_else(|_| decision.name().to_owned())
}

#[cfg(test)]
mod tests {
    use codex_engine::logic::action::ActionKind;
    use codex_engine::logic::form::{Field, FieldKind};
    use serde_json::json;

    use super::*;

    fn stored(decisions: Vec<Decision>, fields: &[&str]) -> StoredQuestion {
        StoredQuestion {
            kind: ActionKind::Command,
            text: "May I?".to_owned(),
            decisions,
            fields: fields.iter().map(|&field| Field::named(field)).collect(),
            expires_at: String::new(),
            details: None,
            shortened: Vec::new(),
        }
    }

    fn refused(stored: &StoredQuestion, response: Response) -> String {
        decision_for("q", stored, response).unwrap_err().to_string()
    }

    #[test]
    fn decision_is_one_of_those_offered() {
        let rule = |word: &str| Decision::AcceptWithExecpolicyAmendment(vec![word.to_owned()]);
        let command = stored(vec![Decision::Accept, rule("ls"), Decision::Decline], &[]);
        let given = |response| decision_for("q", &command, response).unwrap();
        let accept = Response::Decision(Decision::Accept);
        assert_eq!(given(accept.clone()), Decision::Accept);
        assert_eq!(given(Response::Rule), rule("ls"));
        let by_name = json!({ "acceptWithExecpolicyAmendment": ["ls"] });
        assert_eq!(given(Response::Json(by_name)), rule("ls"));
        for other in [
            Response::Decision(Decision::AcceptForSession),
            Response::Decision(rule("rm")),
            Response::Json(json!("yes")),
            Response::Json(json!("acceptWithExecpolicyAmendment")),
            Response::Json(json!("submit")),
            Response::Json(json!({ "acceptWithExecpolicyAmendment": ["rm"] })),
            Response::Text("x".to_owned()),
        ] {
            let refused = refused(&command, other);
            let offered =
                r#"it offers "accept", {"acceptWithExecpolicyAmendment":["ls"]}, "decline""#;
            assert!(refused.ends_with(offered), "{refused}");
        }
        let bounded = stored(vec![Decision::Decline], &[]);
        let no_yes = refused(&bounded, accept);
        assert!(no_yes.contains(r#"does not offer "accept""#), "{no_yes}");
    }

    #[test]
    fn answers_require_fields_in_the_question() {
        let words = |text: &str| Response::Text(text.to_owned());
        let one = stored(vec![Decision::Decline], &["colour"]);
        let red = Map::from_iter([("colour".to_owned(), json!("red"))]);
        let submitted = Decision::Submit(red.clone());
        assert_eq!(decision_for("q", &one, words("red")).unwrap(), submitted);
        let named = Response::Words(red);
        assert_eq!(decision_for("q", &one, named).unwrap(), submitted);
        let two = stored(vec![Decision::Decline], &["colour", "size"]);
        for response in [words("red"), Response::Decision(Decision::Accept)] {
            let refused = refused(&two, response);
            assert!(refused.contains("answers for colour, size"), "{refused}");
        }
    }

    #[test]
    fn texts_become_the_types_of_the_fields() {
        let mut count = stored(vec![Decision::Decline], &["count"]);
        for field in &mut count.fields {
            field.kind = FieldKind::Integer;
        }
        let words = |text: &str| Map::from_iter([("count".to_owned(), json!(text))]);
        let seven = Decision::Submit(Map::from_iter([("count".to_owned(), json!(7))]));
        for response in [
            Response::Text("7".to_owned()),
            Response::Text("count=7".to_owned()),
            Response::Words(words("7")),
            Response::Decision(Decision::Submit(words("7"))),
        ] {
            assert_eq!(decision_for("q", &count, response).unwrap(), seven);
        }
        let refused = refused(&count, Response::Text("many".to_owned()));
        let expected = r#"question q: the answer for "count" does not fit: must be a whole number"#;
        assert_eq!(refused, expected);
        let empty = Response::Words(words(""));
        let nothing = Decision::Submit(Map::new());
        assert_eq!(decision_for("q", &count, empty).unwrap(), nothing);
    }
}
