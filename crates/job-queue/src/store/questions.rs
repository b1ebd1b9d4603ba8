//! Codex's open questions in running jobs.

use super::cells::{count, readable, text};
use super::columns::bounded;
use super::error::Fault;
use super::events::hold;
use super::rows::bound;
use super::signature::{SignedKind, of_attempt};
use super::sql::{Connection, Row, Value};
use super::{Claim, JobStore, NewQuestion, Notify, Question, StoreError, WriteOutcome};
use crate::logic::JobId;

/// The most questions of a job that are read.
const MOST: u32 = 64;

impl JobStore {
    /// Replaces the open questions of a job by these. Questions that are stored already stay
    /// unchanged.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the stored questions are unchanged then.
    pub async fn set_questions(
        &self,
        claim: &Claim,
        open: &[NewQuestion],
    ) -> Result<WriteOutcome, StoreError> {
        let set = async |connection: &mut Connection| {
            let Some(row) = hold(connection, claim).await? else {
                return Ok(WriteOutcome::Lost);
            };
            let job = Value::Integer(row.number("seq")?);
            let sql = "SELECT id FROM codex_questions WHERE job = $1 AND attempt = $2";
            let of_attempt = vec![job.clone(), claim.attempt.into()];
            let rows = connection.rows(sql, of_attempt).await?;
            let there = readable(&rows, |row| text(row, "id"))?;
            for closed in there
                .iter()
                .filter(|id| open.iter().all(|one| one.id != **id))
            {
                let sql = "DELETE FROM codex_questions WHERE job = $1 AND id = $2";
                connection
                    .run(sql, vec![job.clone(), closed.into()])
                    .await?;
            }
            for new in open.iter().filter(|one| !there.contains(&one.id)) {
                self.insert(connection, claim, &job, new).await?;
            }
            Ok(WriteOutcome::Done)
        };
        writing!(self, set, super::pool::Purpose::Write, Notify::Watchers)
    }

    async fn insert(
        &self,
        connection: &mut Connection,
        claim: &Claim,
        job: &Value,
        new: &NewQuestion,
    ) -> Result<(), Fault> {
        bound("a question", &new.question)?;
        let signature =
            self.identity
                .sign_message(&message(&claim.job, claim.attempt, &new.id, &new.question));
        let sql = "INSERT INTO codex_questions (job, attempt, id, asked_at, signature, question) \
                   VALUES ($1, $2, $3, {now}, $4, $5)";
        let values = vec![
            job.clone(),
            claim.attempt.into(),
            (&new.id).into(),
            (&signature).into(),
            (&new.question).into(),
        ];
        connection.run(sql, values).await?;
        Ok(())
    }

    /// The open questions of a job, oldest first. A job whose lease has ended has none.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn questions(&self, job: &JobId) -> Result<Vec<Question>, StoreError> {
        let [question, signature] = ["question", "codex_questions.signature"].map(bounded);
        let sql = format!(
            "SELECT codex_questions.id AS id, attempt, asked_at, {question}, {signature} \
             FROM codex_questions JOIN codex_jobs ON seq = job AND attempts = attempt \
             WHERE codex_jobs.id = $1 AND state = 'running' AND lease_until >= {{now}} \
             ORDER BY asked_at, codex_questions.id LIMIT $2"
        );
        let look = async |connection: &mut Connection| {
            let values = vec![job.as_str().into(), MOST.into()];
            let rows = connection.rows(&sql, values).await?;
            readable(&rows, |row| self.question(job, row))
        };
        reading!(self, look)
    }

    fn question(&self, job: &JobId, row: &Row) -> Result<Question, Fault> {
        let (id, question) = (text(row, "id")?, text(row, "question")?);
        let message = message(job, count(row, "attempt")?, &id, &question);
        let origin = self.identity.origin_of(&message, &text(row, "signature")?);
        Question::read(row, origin)
    }
}

fn message(job: &JobId, attempt: u32, id: &str, question: &str) -> Vec<u8> {
    of_attempt(SignedKind::Question, job.as_str(), attempt, &[id, question])
}
