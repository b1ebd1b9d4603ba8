//! Instructions to the workers of running jobs. Each is taken by the attempt for which it was given,
//! until it has an outcome.

use settings::store_access::OthersJobs;

use super::cells::{count, parsed, readable, state, text};
use super::columns::bounded;
use super::error::Fault;
use super::events::hold;
use super::pool::Purpose;
use super::rows::bound;
use super::signature::{SignedKind, of_attempt};
use super::sql::{Connection, Row, Value};
use super::{
    Claim, InstructOutcome, Instruction, InstructionProgress, JobStore, NewInstruction, Notify,
    StoreError, WriteOutcome, access,
};
use crate::logic::{JobId, JobState, WorkerId};

impl JobStore {
    /// Gives an instruction to the worker of a job; `None` if there is no such job. Giving the
    /// same instruction again has no effect, also if the job has ended meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError`], also if the job belongs to others and this machine does not manage it.
    pub async fn instruct(
        &self,
        job: &JobId,
        new: &NewInstruction,
    ) -> Result<Option<InstructOutcome>, StoreError> {
        let may = self.identity.may(OthersJobs::Manage);
        let owner = bounded("owner");
        let sql = format!(
            "SELECT seq, state, attempts, {owner}, \
             CAST(CASE WHEN {may} THEN 1 ELSE 0 END AS BIGINT) AS may \
             FROM codex_jobs WHERE id = $1 {{locked}}"
        );
        let instruct = async |connection: &mut Connection| {
            let Some(row) = connection.row(&sql, vec![job.as_str().into()]).await? else {
                return Ok(None);
            };
            if count(&row, "may")? == 0 {
                return Err(Fault::OfOthers(job.clone(), access::name(&row)?));
            }
            let known = "SELECT id FROM codex_instructions WHERE id = $1";
            let id = vec![(&new.id.to_string()).into()];
            if connection.row(known, id).await?.is_some() {
                return Ok(Some(InstructOutcome::Given));
            }
            match state(&row)? {
                JobState::Running => {}
                state => return Ok(Some(InstructOutcome::NotRunning(state))),
            }
            self.give(connection, job, &row, new).await.map(Some)
        };
        writing!(self, instruct, Purpose::Write, Notify::Watchers)
    }

    async fn give(
        &self,
        connection: &mut Connection,
        job: &JobId,
        row: &Row,
        new: &NewInstruction,
    ) -> Result<InstructOutcome, Fault> {
        bound("the instruction", &new.data)?;
        let (seq, attempt) = (Value::Integer(row.number("seq")?), count(row, "attempts")?);
        let id = new.id.to_string();
        if let Some(question) = &new.question {
            let of_question = vec![seq.clone(), attempt.into(), question.into()];
            let answered = format!(
                "SELECT {} FROM codex_instructions WHERE job = $1 AND attempt = $2 \
                 AND question = $3 AND (outcome IS NULL OR outcome = 'done')",
                bounded("data")
            );
            if let Some(row) = connection.row(&answered, of_question.clone()).await? {
                return Ok(InstructOutcome::Answered(row.text("data")?));
            }
            let open = "SELECT id FROM codex_questions \
                        WHERE job = $1 AND attempt = $2 AND id = $3";
            if connection.row(open, of_question).await?.is_none() {
                return Ok(InstructOutcome::NoQuestion);
            }
        }
        let message = message(job, attempt, &id, new.question.as_deref(), &new.data);
        let sql = "INSERT INTO codex_instructions \
                   (id, job, attempt, question, signature, data) \
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
        let values = vec![
            (&id).into(),
            seq,
            attempt.into(),
            (&new.question).into(),
            (&self.identity.sign_message(&message)).into(),
            (&new.data).into(),
        ];
        Ok(match connection.run(sql, values).await? {
            0 => InstructOutcome::Answered(None),
            _ => InstructOutcome::Given,
        })
    }

    /// The progress of an instruction.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn progress(&self, new: &NewInstruction) -> Result<InstructionProgress, StoreError> {
        let outcome = bounded("outcome");
        let sql = format!("SELECT taken, {outcome} FROM codex_instructions WHERE id = $1");
        let id = new.id.to_string();
        let look = async |connection: &mut Connection| {
            let Some(row) = connection.row(&sql, vec![(&id).into()]).await? else {
                return Ok::<_, Fault>(InstructionProgress::Gone);
            };
            Ok(match (row.text("outcome")?, count(&row, "taken")?) {
                (Some(outcome), _) => InstructionProgress::Concluded(outcome),
                (None, 0) => InstructionProgress::Waiting,
                (None, _) => InstructionProgress::Taken,
            })
        };
        reading!(self, look)
    }

    /// Withdraws an instruction, unless a worker has taken it.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn withdraw(&self, new: &NewInstruction) -> Result<WriteOutcome, StoreError> {
        let sql = "DELETE FROM codex_instructions WHERE id = $1 AND taken = 0";
        let id = new.id.to_string();
        let withdraw = async |connection: &mut Connection| {
            let rows = connection.run(sql, vec![(&id).into()]).await?;
            Ok(match rows {
                0 => WriteOutcome::Lost,
                _ => WriteOutcome::Done,
            })
        };
        writing!(self, withdraw)
    }

    /// The jobs of a worker that have new instructions. Call this after each
    /// [`changed`](super::Watch::changed).
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn jobs_with_instructions(
        &self,
        worker: &WorkerId,
    ) -> Result<Vec<JobId>, StoreError> {
        let sql = "SELECT id FROM codex_jobs WHERE state = 'running' AND worker = $1 \
                   AND EXISTS (SELECT 1 FROM codex_instructions \
                   WHERE job = seq AND attempt = attempts AND taken = 0)";
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(sql, vec![worker.as_str().into()]).await?;
            readable(&rows, |row| parsed(row, "id"))
        };
        reading!(self, look)
    }

    /// Takes the instructions for an attempt. No other attempt gets them, and they can no longer
    /// be withdrawn. Those without an outcome are taken again, as an answer with them may be lost.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn take_instructions(&self, claim: &Claim) -> Result<Vec<Instruction>, StoreError> {
        let [signature, data] = ["signature", "data"].map(bounded);
        let sql = format!(
            "UPDATE codex_instructions SET taken = 1 \
             WHERE job = $1 AND attempt = $2 AND outcome IS NULL \
             RETURNING id, question, {signature}, {data}"
        );
        let take = async |connection: &mut Connection| {
            let Some(row) = hold(connection, claim).await? else {
                return Ok(Vec::new());
            };
            let job = Value::Integer(row.number("seq")?);
            let values = vec![job, claim.attempt.into()];
            let rows = connection.rows(&sql, values).await?;
            readable(&rows, |row| self.instruction(claim, row))
        };
        writing!(self, take)
    }

    fn instruction(&self, claim: &Claim, row: &Row) -> Result<Instruction, Fault> {
        let (id, data) = (text(row, "id")?, text(row, "data")?);
        let question = row.text("question")?;
        let message = message(&claim.job, claim.attempt, &id, question.as_deref(), &data);
        let origin = self.identity.origin_of(&message, &text(row, "signature")?);
        Ok(Instruction { id, data, origin })
    }

    /// Stores this outcome for the messages to a turn that an earlier worker has taken without storing
    /// the outcome: they may have arrived, and would be sent twice. An answer to a question is taken
    /// again, as a question is closed once.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn conclude_taken_messages(
        &self,
        claim: &Claim,
        outcome: &str,
    ) -> Result<WriteOutcome, StoreError> {
        let sql = "UPDATE codex_instructions SET outcome = $3, data = '' \
                   WHERE job = $1 AND attempt = $2 AND taken = 1 AND outcome IS NULL \
                   AND question IS NULL";
        let conclude = async |connection: &mut Connection| {
            let Some(row) = hold(connection, claim).await? else {
                return Ok(WriteOutcome::Lost);
            };
            let job = Value::Integer(row.number("seq")?);
            let values = vec![job, claim.attempt.into(), outcome.into()];
            connection.run(sql, values).await?;
            Ok(WriteOutcome::Done)
        };
        writing!(self, conclude, Purpose::Write, Notify::Watchers)
    }

    /// Stores the outcome of an instruction; [`DONE`] if it was followed.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn conclude(
        &self,
        claim: &Claim,
        instruction: &str,
        outcome: &str,
    ) -> Result<WriteOutcome, StoreError> {
        let sql = "UPDATE codex_instructions SET outcome = $2, data = '' \
                   WHERE id = $1 AND outcome IS NULL";
        let conclude = async |connection: &mut Connection| {
            if hold(connection, claim).await?.is_none() {
                return Ok(WriteOutcome::Lost);
            }
            let values = vec![instruction.into(), outcome.into()];
            connection.run(sql, values).await?;
            Ok(WriteOutcome::Done)
        };
        writing!(self, conclude, Purpose::Write, Notify::Watchers)
    }
}

/// The outcome of an instruction that was followed.
pub const DONE: &str = "done";

fn message(job: &JobId, attempt: u32, id: &str, question: Option<&str>, data: &str) -> Vec<u8> {
    let parts = [id, question.unwrap_or_default(), data];
    of_attempt(SignedKind::Instruction, job.as_str(), attempt, &parts)
}
