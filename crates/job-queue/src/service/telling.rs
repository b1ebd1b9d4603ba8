//! What the worker of a running job is told: answers to Codex's questions, and words for the
//! turn.

use std::time::Duration;

use agent_team::audit::{Event, Outcome};
use codex_engine::logic::action::Decision;
use common::text::one_line;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use super::{Jobs, JobsError};
use crate::directive::{Answer, Directive};
use crate::logic::{JobId, JobState};
use crate::question::Kept;
use crate::store::{
    DONE, Instructed, NewInstruction, Origin, Progress, Question, StoreError, Written,
};

/// How long a worker may take to follow: it hears of it within a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much of a worker's refusal is shown, in bytes.
const REFUSAL: usize = 1000;

/// Why a job was not told something.
#[derive(Debug, thiserror::Error)]
pub enum NotTold {
    /// It does not run.
    #[error("the job is {0}, and only one that runs can be told something")]
    NotRunning(JobState),
    /// It is a run, which decides by itself.
    #[error(
        "the job is a run, which cannot be steered and answers Codex's questions itself (approve)"
    )]
    Run,
    /// Nothing is asked.
    #[error("the job has no open question; Codex asks only with approval \"ask\"")]
    NothingAsked,
    /// This is not asked, or not any more.
    #[error(
        "the job has no open question {0}: it was answered, its time was over, or Codex no longer \
         needs an answer"
    )]
    NoQuestion(String),
    /// Several questions are open.
    #[error("the job has several open questions: name one of {}", .0.join(", "))]
    Several(Vec<String>),
    /// Somebody was faster.
    #[error("question {0} was answered already; an answer is used once")]
    Answered(String),
    /// Nobody can say whether Codex asks this.
    #[error(
        "question {0} is not signed with the key of this host, and cannot be answered here: \
         answer it on the host of the job's worker"
    )]
    Unproven(String),
    /// The question wants something else.
    #[error("question {question} does not offer {decision}; it offers {offered}")]
    NotOffered {
        /// Its name.
        question: String,
        /// What it was answered.
        decision: String,
        /// What it offers.
        offered: String,
    },
    /// The question wants words.
    #[error(
        "question {question} wants answers for {}: give them by --answer, or answers of \
         call_respond", .fields.join(", ")
    )]
    WantsWords {
        /// Its name.
        question: String,
        /// The fields that want words.
        fields: Vec<String>,
    },
    /// The worker has not done it.
    #[error("the worker has refused it: {0}")]
    Refused(String),
    /// The attempt ended meanwhile.
    #[error("the job's turn ended before it was told")]
    Ended,
    /// The worker does not hear.
    #[error(
        "the job's worker has not taken it within {} s, and it was taken back. If the worker has \
         died, so has Codex: `codex-mcp jobs show` tells",
        PATIENCE.as_secs()
    )]
    NotTaken,
    /// The worker has taken it, and says nothing.
    #[error(
        "the job's worker has taken it, and has not said within {} s what came of it: \
         `codex-mcp jobs logs` tells",
        PATIENCE.as_secs()
    )]
    Unknown,
    /// It cannot be written down.
    #[error("it cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// How a question is to be answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// By this decision.
    Decision(Decision),
    /// Yes, and by the first rule that is proposed.
    Rule,
    /// By words for its fields; by a single text where there is one field.
    Words(Map<String, Value>),
    /// The same, with the text of the only field.
    Text(String),
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

    /// Answers a question of a job: the one whose name begins so, or else the only one.
    /// Returns its name.
    ///
    /// # Errors
    ///
    /// [`JobsError`]; where it is a [`NotTold`], nothing was answered, but for
    /// [`NotTold::Unknown`].
    pub async fn respond(
        &self,
        id: &JobId,
        question: Option<&str>,
        response: Response,
        reason: Option<String>,
    ) -> Result<String, JobsError> {
        self.check_running(id).await?;
        let (question, kept) = self.asked(id, question).await?;
        let decision = decided(&question.id, &kept, response)?;
        let name = decision.name();
        self.note_answer(id, Outcome::Begun, &kept.text, name)?;
        let answer = Answer {
            question: question.id.clone(),
            decision,
            reason,
        };
        let told = self.tell(id, &Directive::Answer(answer)).await;
        let outcome = outcome_of(&told);
        if let Err(error) = self.note_answer(id, outcome, &kept.text, name) {
            tracing::warn!("{error}");
        }
        told.map(|()| question.id)
    }

    /// Adds words to the turn of a job.
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn steer(&self, id: &JobId, words: String) -> Result<(), JobsError> {
        self.check_running(id).await?;
        self.note(id, Event::CallSteer, Outcome::Begun, Some(&words))?;
        let told = self.tell(id, &Directive::Steer(words)).await;
        self.note_end(id, Event::CallSteer, outcome_of(&told));
        told
    }

    async fn check_running(&self, id: &JobId) -> Result<(), JobsError> {
        let none = || JobsError::NotFound(id.to_string());
        let job = self.store().await?.get(id).await?.ok_or_else(none)?;
        match job.summary.state {
            _ if job.request.run.is_some() => Err(NotTold::Run.into()),
            JobState::Running => Ok(()),
            state => Err(NotTold::NotRunning(state).into()),
        }
    }

    /// The question whose name begins so, or else the only one.
    async fn asked(&self, id: &JobId, named: Option<&str>) -> Result<(Question, Kept), JobsError> {
        let mut open = self.questions(id).await?;
        if let Some(name) = named {
            open.retain(|one| one.id.starts_with(name));
        }
        let mut names: Vec<String> = open.iter().map(|one| shown(&one.id)).collect();
        let (Some(question), true) = (open.pop(), names.len() == 1) else {
            return Err(match (names.is_empty(), named) {
                (true, Some(name)) => NotTold::NoQuestion(shown(name)),
                (true, None) => NotTold::NothingAsked,
                (false, _) => NotTold::Several(names),
            }
            .into());
        };
        let name = names.pop().unwrap_or_default();
        match (question.origin, Kept::of(&question)) {
            (Origin::ThisHost, Some(kept)) => Ok((question, kept)),
            _ => Err(NotTold::Unproven(name).into()),
        }
    }

    /// Has the worker of a job do it, and waits until it has.
    async fn tell(&self, id: &JobId, directive: &Directive) -> Result<(), JobsError> {
        let new = directive.instruction().map_err(NotTold::from)?;
        let question = || new.question.clone().unwrap_or_default();
        let store = self.store().await?;
        let given = store.instruct(id, &new).await?;
        match given.ok_or_else(|| JobsError::NotFound(id.to_string()))? {
            Instructed::Given => {}
            Instructed::NotRunning(state) => return Err(NotTold::NotRunning(state).into()),
            Instructed::NoQuestion => return Err(NotTold::NoQuestion(question()).into()),
            Instructed::Answered => return Err(NotTold::Answered(question()).into()),
        }
        let until = Instant::now() + PATIENCE;
        let mut watch = store.watch();
        loop {
            match self.followed(&new, until).await? {
                Some(followed) => return Ok(followed?),
                // Whether it has changed or time is up is looked at above.
                None => drop(timeout_at(until, watch.changed()).await),
            }
        }
    }

    /// What has come of an instruction, once that is known or time is up.
    async fn followed(
        &self,
        new: &NewInstruction,
        until: Instant,
    ) -> Result<Option<Result<(), NotTold>>, StoreError> {
        let store = self.store().await?;
        let is_late = Instant::now() >= until;
        Ok(match store.progress(new).await? {
            Progress::Concluded(outcome) if outcome == DONE => Some(Ok(())),
            Progress::Concluded(why) => Some(Err(NotTold::Refused(one_line(&why, REFUSAL)))),
            Progress::Gone => Some(Err(NotTold::Ended)),
            Progress::Waiting if is_late => match store.withdraw(new).await? {
                Written::Done => Some(Err(NotTold::NotTaken)),
                // The worker was faster.
                Written::Lost => Some(Err(NotTold::Unknown)),
            },
            Progress::Taken if is_late => Some(Err(NotTold::Unknown)),
            Progress::Waiting | Progress::Taken => None,
        })
    }

    fn note_answer(
        &self,
        job: &JobId,
        outcome: Outcome,
        question: &str,
        decision: &str,
    ) -> Result<(), JobsError> {
        self.write_down(job, Event::CallRespond, outcome, |record| {
            record.summary = Some(question);
            record.decision = Some(decision);
        })
    }
}

fn shown(name: &str) -> String {
    one_line(name, 80)
}

fn outcome_of(told: &Result<(), JobsError>) -> Outcome {
    match told {
        Ok(()) => Outcome::Done,
        Err(JobsError::NotTold(NotTold::Unknown)) => Outcome::Failed,
        Err(JobsError::NotTold(_) | JobsError::Store(StoreError::OfOthers { .. })) => {
            Outcome::Refused
        }
        Err(_) => Outcome::Failed,
    }
}

/// The decision, if the question offers it.
fn decided(question: &str, kept: &Kept, response: Response) -> Result<Decision, NotTold> {
    let wants_words = || NotTold::WantsWords {
        question: question.to_owned(),
        fields: kept.fields.iter().map(|field| shown(field)).collect(),
    };
    let not_offered = |decision: String| NotTold::NotOffered {
        question: question.to_owned(),
        decision,
        offered: offered(kept),
    };
    match response {
        Response::Decision(decision) if kept.decisions.contains(&decision) => Ok(decision),
        Response::Decision(Decision::Accept) if !kept.fields.is_empty() => Err(wants_words()),
        Response::Decision(Decision::Submit(_)) if kept.fields.is_empty() => {
            Err(not_offered("answers".to_owned()))
        }
        Response::Decision(submitted @ Decision::Submit(_)) => Ok(submitted),
        Response::Decision(decision) => Err(not_offered(in_json(&decision))),
        Response::Rule => {
            let mut rules = kept.decisions.iter();
            let rule = rules.find(|one| matches!(one, Decision::AcceptWithExecpolicyAmendment(_)));
            let rule = rule.cloned();
            rule.ok_or_else(|| not_offered("a rule".to_owned()))
        }
        Response::Words(_) | Response::Text(_) if kept.fields.is_empty() => {
            Err(not_offered("answers".to_owned()))
        }
        Response::Words(words) => Ok(Decision::Submit(words)),
        Response::Text(text) => match kept.fields.as_slice() {
            [field] => Ok(Decision::Submit(Map::from_iter([(
                field.clone(),
                text.into(),
            )]))),
            _ => Err(wants_words()),
        },
    }
}

fn offered(kept: &Kept) -> String {
    let decisions = kept.decisions.iter().map(in_json);
    let words = (!kept.fields.is_empty()).then(|| "answers".to_owned());
    let all: Vec<String> = decisions.chain(words).collect();
    one_line(&all.join(", "), REFUSAL)
}

fn in_json(decision: &Decision) -> String {
    serde_json::to_string(decision).unwrap_or_else(|_| decision.name().to_owned())
}

#[cfg(test)]
mod tests {
    use codex_engine::logic::action::ActionKind;
    use serde_json::json;

    use super::*;

    fn kept(decisions: Vec<Decision>, fields: &[&str]) -> Kept {
        Kept {
            kind: ActionKind::Command,
            text: "May I?".to_owned(),
            decisions,
            fields: fields.iter().map(|&field| field.to_owned()).collect(),
            expires_at: String::new(),
            details: None,
        }
    }

    fn refused(kept: &Kept, response: Response) -> String {
        decided("q", kept, response).unwrap_err().to_string()
    }

    #[test]
    fn decision_is_one_of_those_offered() {
        let rule = |word: &str| Decision::AcceptWithExecpolicyAmendment(vec![word.to_owned()]);
        let command = kept(vec![Decision::Accept, rule("ls"), Decision::Decline], &[]);
        let given = |response| decided("q", &command, response).unwrap();
        let accept = Response::Decision(Decision::Accept);
        assert_eq!(given(accept.clone()), Decision::Accept);
        assert_eq!(given(Response::Rule), rule("ls"));
        for other in [
            Response::Decision(Decision::AcceptForSession),
            Response::Decision(rule("rm")),
            Response::Text("x".to_owned()),
        ] {
            let refused = refused(&command, other);
            let offered =
                r#"it offers "accept", {"acceptWithExecpolicyAmendment":["ls"]}, "decline""#;
            assert!(refused.ends_with(offered), "{refused}");
        }
        let bounded = kept(vec![Decision::Decline], &[]);
        let no_yes = refused(&bounded, accept);
        assert!(no_yes.contains(r#"does not offer "accept""#), "{no_yes}");
    }

    #[test]
    fn words_are_for_the_fields_of_a_question() {
        let words = |text: &str| Response::Text(text.to_owned());
        let one = kept(vec![Decision::Decline], &["colour"]);
        let red = Map::from_iter([("colour".to_owned(), json!("red"))]);
        let submitted = Decision::Submit(red.clone());
        assert_eq!(decided("q", &one, words("red")).unwrap(), submitted);
        let named = Response::Words(red);
        assert_eq!(decided("q", &one, named).unwrap(), submitted);
        let two = kept(vec![Decision::Decline], &["colour", "size"]);
        for response in [words("red"), Response::Decision(Decision::Accept)] {
            let refused = refused(&two, response);
            assert!(refused.contains("answers for colour, size"), "{refused}");
        }
    }
}
