//! Continues a run whose process was killed, in a process that has taken its app-server over.
//!
//! Before each prompt, the run hands a record to its [`Watcher`], with the number of the turn that is
//! about to begin. The next process follows that turn to its end, whether it still runs or has ended
//! meanwhile, and inspects the repository then. No prompt is sent again: if Codex does not have the
//! turn, the turn has failed.

use std::time::{Duration, SystemTime};

use codex_engine::command::{SessionId, TurnRef, TurnView};
use git_probe::private::PrivateGit;
use tokio::time::timeout;

use super::conversation::NextPrompt;
use super::{Driver, RunContext, RunResult, git_for_commits, grants};
use crate::clock::RunClock;
use crate::error::RunError;
use crate::evidence::{EvidenceFile, EvidenceMark};
use crate::logic::machine::{Run, TurnEnd};
use crate::look::RepoInspector;
use crate::record::RunRecord;
use crate::spec::RunSpec;
use crate::turn::{TurnDeadline, TurnResult};
use crate::watcher::Watcher;

/// A turn that another process has begun.
pub(super) struct LeftTurn {
    turn: TurnRef,
    /// How long the run had taken when the turn began.
    pub(super) began: Duration,
}

/// How long Codex may take to return the last turn and the open questions of a session.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(10);

/// The failure of a turn whose prompt Codex does not have.
const NOT_BEGUN: &str = "the process of the run was killed before Codex had begun the turn";

/// Continues a run that another process has begun, with its app-server. The inspector, the submodules
/// and the templates are those of the record; the evidence and the warnings of `context` are replaced
/// by those of the record.
///
/// # Errors
///
/// [`RunError`] if the run cannot be continued. Its turn may still run then.
pub async fn resume<W: Watcher>(
    mut context: RunContext<'_, W>,
    spec: &RunSpec,
    inspector: RepoInspector,
    record: RunRecord,
) -> Result<RunResult, RunError> {
    let elapsed = record.elapsed();
    context.warnings = record.warnings;
    context.evidence = record.evidence.and_then(continued_evidence);
    let _active = context.mark_active(inspector.top()).await;
    let private = match (git_for_commits(spec, &inspector), record.private) {
        (Some(git), Some(kept)) => {
            let private = PrivateGit::continuing(git, &context.name, kept).await;
            Some(private.map_err(not_continued)?)
        }
        (None, None) => None,
        _ => return Err(not_continued("its criteria have changed")),
    };
    let granted = (record.granted, grants(spec, private.as_ref()));
    let clock = RunClock::at(elapsed);
    let mut driver = Driver::new(
        context,
        spec,
        inspector,
        private,
        granted,
        record.state,
        clock,
    );
    driver.session = Some(record.session.clone());
    driver.sandbox_to_reapply = record.sandbox_to_reapply;
    let left = LeftTurn {
        turn: TurnRef {
            session: record.session,
            number: record.turn,
        },
        began: record.elapsed,
    };
    driver
        .drive_from(record.run, record.wanted, Some(left))
        .await
}

fn not_continued(why: impl ToString) -> RunError {
    RunError::NotContinued(why.to_string())
}

/// The evidence file of the other process. Without it, the result of the run has the evidence all the same.
fn continued_evidence(mark: EvidenceMark) -> Option<EvidenceFile> {
    let continued = EvidenceFile::continuing(&mark);
    continued
        .inspect_err(|error| tracing::warn!("cannot continue the evidence file: {error}"))
        .ok()
}

impl<W: Watcher> Driver<'_, W> {
    /// Hands the record to the watcher with which another process can continue the run from this turn.
    pub(super) async fn keep_record(&self, next: &NextPrompt, session: &SessionId, turn: u64) {
        let record = || {
            Some(RunRecord {
                session: session.clone(),
                turn,
                wanted: next.wanted,
                run: next.run.clone(),
                elapsed: self.clock.elapsed(),
                begun: SystemTime::now(),
                at_start: self.inspector.at_start()?.clone(),
                state: self.state.clone(),
                granted: self.granted.clone(),
                behind: self.spec.settings.added.behind.clone(),
                sandbox_to_reapply: self.sandbox_to_reapply,
                private: self.private.as_ref().map(PrivateGit::record),
                submodules: self.context.submodules.record(),
                templates: self.context.templates.clone(),
                evidence: self.evidence_mark(),
                warnings: self.context.warnings.clone(),
            })
        };
        self.context.watcher.keep(record).await;
    }

    fn evidence_mark(&self) -> Option<EvidenceMark> {
        let mark = self.context.evidence.as_ref()?.mark();
        mark.inspect_err(|error| tracing::warn!("cannot read the evidence file: {error}"))
            .ok()
    }

    /// Waits for the end of a turn that another process has begun.
    pub(super) async fn left_turn(&mut self, run: &mut Run, left: LeftTurn) -> TurnResult {
        let left_behind = |failure: String| TurnResult {
            failure: Some(failure),
            ..TurnResult::nothing(TurnEnd::Died)
        };
        let view = match self.continued(&left.turn.session).await {
            Ok(view) => view,
            Err(failure) => {
                // The state of the session is unknown, so the next turn resumes the thread.
                self.session = None;
                return left_behind(failure);
            }
        };
        if view.turn != left.turn.number {
            return left_behind(NOT_BEGUN.to_owned());
        }
        let clock = self.clock.clone();
        let deadline = TurnDeadline::new(run, &clock, self.context.stop);
        let result = self.follow(left.turn, view.progress, deadline).await;
        // A turn that was lost may not have applied it.
        if result.end != TurnEnd::Died {
            self.sandbox_to_reapply = None;
        }
        result
    }

    /// Continues a session of another process. A session that takes too long is cancelled.
    async fn continued(&self, session: &SessionId) -> Result<TurnView, String> {
        let engine = self.context.engine;
        match timeout(CONTINUE_TIMEOUT, engine.continue_session(session)).await {
            Ok(continued) => continued
                .and_then(|()| engine.inspect(session))
                .map_err(|error| error.to_string()),
            Err(_) => {
                let why = "its turn could not be continued in time";
                match engine.cancel(session, why).await {
                    Ok(_) => Err(why.to_owned()),
                    Err(error) => Err(format!("{why}: {error}")),
                }
            }
        }
    }
}
