//! Reports of a run: each turn for the machine and as a record, and the result at the end.

use std::time::Duration;

use codex_engine::logic::work::Refusal;
use codex_protocol::codex::SandboxMode;

use super::{Driver, RunResult};
use crate::evidence::EvidenceFile;
use crate::logic::artifacts;
use crate::logic::machine::{
    AnswerNovelty, RunEnd, TurnEnd, TurnPrompt, TurnReport, WriteAccess, milliseconds,
};
use crate::logic::outcome::{RunEvidence, RunOutcome, TurnRecord, notes};
use crate::logic::promises::promises;
use crate::logic::snapshot::Snapshot;
use crate::spec::Approve;
use crate::turn::TurnResult;
use crate::turn_failure;
use crate::watcher::{RunEvent, Watcher};

impl<W: Watcher> Driver<'_, W> {
    pub(super) fn report(&mut self, result: &TurnResult, now: &Snapshot) -> TurnReport {
        TurnReport {
            end: result.end,
            evidence: result.steps.evidence,
            denied: result.refused(),
            failed: result.steps.failed,
            status: self.state.verdict.status(),
            gain: self.state.seen.record(&self.state.start, now),
            answer: self.novelty(result),
            write_access: self.write_access(result),
            tokens: self.state.usage.total_tokens,
        }
    }

    /// Whether the turn has shown that Codex cannot make a change that a criterion needs. It has
    /// not if a later turn may make the change outside of the sandbox: by an approval, under a
    /// rule, or with a tool if Codex has called one.
    fn write_access(&self, result: &TurnResult) -> WriteAccess {
        let was_refused = self.state.sandbox == Some(SandboxMode::ReadOnly)
            && result.refusal() != Refusal::None
            && self.state.verdict.needs_change();
        let has_way_out = || {
            self.spec.approve != Approve::Never
                || result.steps.evidence.tool_calls > 0
                || self.context.engine.has_command_rules(self.inspector.top())
        };
        match was_refused && !has_way_out() {
            true => WriteAccess::Refused,
            false => WriteAccess::Possible,
        }
    }

    /// Whether the answer of a turn differs from the one before. A turn that was cut short
    /// has no answer.
    fn novelty(&self, result: &TurnResult) -> AnswerNovelty {
        let answer = result.text.trim();
        let has_answered = result.end == TurnEnd::Completed && !answer.is_empty();
        match has_answered && answer == self.state.response.trim() {
            true => AnswerNovelty::Repeated,
            false => AnswerNovelty::New,
        }
    }

    /// Records a turn in the log, the evidence file and the watcher.
    pub(super) fn record(
        &mut self,
        wanted: &TurnPrompt,
        result: TurnResult,
        report: &TurnReport,
        took: Duration,
    ) {
        let TurnResult {
            end,
            steps,
            denied,
            usage,
            text,
            failure,
            at_usage_limit,
        } = result;
        let denied = notes(steps.denied.into_iter().chain(denied));
        let errors = notes(failure.clone().into_iter().chain(steps.errors));
        let not_allowed = denied.iter().map(|what| format!("not allowed: {what}"));
        let advice = (end == TurnEnd::TimedOut).then(|| turn_failure::IN_SMALLER_STEPS.to_owned());
        let told = errors.iter().cloned().chain(not_allowed).chain(advice);
        self.state.errors = told.collect();
        self.state.failure = failure;
        self.state.at_usage_limit = at_usage_limit;
        let record = TurnRecord {
            turn: wanted.turn,
            prompt: wanted.kind,
            conversation: wanted.conversation,
            end: end.name().to_owned(),
            duration_ms: milliseconds(took),
            evidence: steps.evidence,
            usage,
            denied,
            errors,
            promises: promises(&text).into_iter().map(str::to_owned).collect(),
            gain: report.gain,
            review: self.review.take(),
            criteria: self.state.verdict.clone(),
        };
        if !text.is_empty() {
            self.state.response = text;
        }
        if let Some(file) = &mut self.context.evidence {
            file.write(&record);
        }
        self.context.watcher.on_event(RunEvent::TurnEnded(&record));
        self.state.log.push(record);
    }

    pub(super) async fn finish(mut self, end: RunEnd, now: &Snapshot, turns: u32) -> RunResult {
        let kept = match self.private.take() {
            Some(private) => private.close().await,
            None => None,
        };
        self.context.warn(kept);
        let made = artifacts::all_artifacts(&self.state.start, now);
        let evidence = RunEvidence {
            total: self.state.work.evidence,
            criteria: self.state.verdict,
            log: self.state.log,
        };
        let why = match end {
            RunEnd::CouldNotRun(_) | RunEnd::Unconfirmed => self.state.failure,
            _ => None,
        };
        let evidence_file = self.context.evidence.and_then(EvidenceFile::close);
        RunResult {
            outcome: RunOutcome::new(end, made, evidence, turns, why),
            thread_id: self.state.thread,
            sandbox: self.state.sandbox,
            usage: self.state.usage,
            rate_limits: self.context.engine.rate_limits(),
            at_usage_limit: self.state.at_usage_limit,
            response: self.state.response,
            evidence_file,
            warnings: self.context.warnings,
        }
    }
}
