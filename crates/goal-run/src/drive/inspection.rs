//! The inspection of the repository after a turn, with the commands and the review that
//! criteria name, and the confirmation at the end of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use codex_engine::{PauseError, Paused, Shutdown};
use codex_protocol::codex::{Persistence, ReviewTarget};
use common::text::first_names;
use git_probe::private::Takeover;
use tokio::time::Instant;

use super::Driver;
use crate::logic::findings::{Verdict, judge};
use crate::logic::machine::{RunEnd, TurnEnd};
use crate::logic::names::CommandLine;
use crate::logic::review::{self, ReviewEnd};
use crate::logic::snapshot::{Answer, CommandEnd, Probe, Snapshot};
use crate::look::LocalState;
use crate::reviewer::{ReviewRequest, ReviewResult, run_review};
use crate::spec::RunSpec;
use crate::turn::TurnResult;
use crate::watcher::{RunEvent, Watcher};

/// How long a review may take (10 min), or less if the run has less time left.
const REVIEW_LIMIT: Duration = Duration::from_secs(600);

/// How many branches of remotes a warning names.
const PUSHED_NAMED: usize = 20;

/// The repository after a turn.
pub(super) struct Inspection {
    pub(super) now: Snapshot,
    /// The local state that the verdict rests on, which is that after the commands of
    /// criteria.
    judged: LocalState,
    /// Codex's stopped commands. They continue when this is dropped.
    paused: Paused,
}

impl<W: Watcher> Driver<'_, W> {
    /// Inspects and judges the repository. Commands of criteria run if nothing else is
    /// missing, after Codex's own commands were killed.
    pub(super) async fn inspect(&mut self, result: &TurnResult) -> Inspection {
        self.state.usage += result.usage;
        self.state.work.add(&result.steps, result.refusal());
        let has_answered = result.end == TurnEnd::Completed && !result.text.trim().is_empty();
        self.state.work.answer = match has_answered {
            true => Answer::Present,
            false => Answer::Missing,
        };
        match self.inspect_paused().await {
            Ok(inspection) => inspection,
            Err(error) => self.failed_inspection(&error).await,
        }
    }

    async fn inspect_paused(&mut self) -> Result<Inspection, PauseError> {
        let mut paused = self.context.engine.pause_commands().await?;
        let restored = self.context.submodules.restore().await;
        self.context.warn(restored);
        self.take_over().await;
        let now = self.inspector.now().await;
        let mut now = self.without_failed_takeover(now);
        self.state.verdict = self.judge(&now);
        if self.inspector.has_commands() && self.state.verdict.is_worth_commands() {
            // The commands run outside of the sandbox, and must read the state that was just
            // judged.
            paused.kill_commands().await?;
            now = self.run_commands(&now).await;
            self.state.verdict = self.judge(&now);
        }
        let judged = LocalState::from(&now);
        if self.state.verdict.is_worth_review() {
            // The reviewer's own commands have to run, but no others may. Changes made in the
            // meantime are found when the run is confirmed.
            paused.kill_commands().await?;
            drop(paused);
            let reviewed = self.review(&now).await;
            now.review = Some(reviewed);
            paused = self.context.engine.pause_commands().await?;
            self.state.verdict = self.judge(&now);
        }
        Ok(Inspection {
            now,
            judged,
            paused,
        })
    }

    /// The inspection to report when Codex's background processes could not be stopped.
    async fn failed_inspection(&mut self, error: &PauseError) -> Inspection {
        if let Some(private) = &mut self.private {
            private.skip_takeover().await;
        }
        let why = format!("{error}. The repository was not looked at");
        let now = self.inspector.failed_snapshot(&why);
        self.state.verdict = self.judge(&now);
        self.context.warn([why]);
        Inspection {
            now,
            judged: LocalState::default(),
            paused: Paused::default(),
        }
    }

    /// Has another thread review the changes of the run.
    async fn review(&mut self, now: &Snapshot) -> Probe<ReviewEnd> {
        let watcher = self.context.watcher;
        watcher.on_event(RunEvent::Reviewing);
        let others = now.other_branches(&self.state.start);
        let instructions = review::instructions(self.state.start.tip(), &others, &self.spec.task);
        let mut settings = self.spec.settings.clone();
        settings.thread.cwd = Some(self.inspector.top().to_owned());
        settings.persistence = Persistence::Ephemeral;
        let left = self
            .spec
            .limits
            .total()
            .saturating_sub(self.clock.elapsed());
        let asked = ReviewRequest {
            target: ReviewTarget::Custom { instructions },
            limit: left.min(REVIEW_LIMIT),
            stop: self.context.stop,
            on_step: &|step| watcher.on_event(RunEvent::Step(step)),
        };
        match run_review(self.context.engine, settings, asked).await {
            Ok(ReviewResult { text, .. }) => {
                self.review = Some(review::within_limit(&text));
                match review::parse(&text) {
                    Ok(end) => Probe::Found(end),
                    Err(why) => Probe::Failed(why),
                }
            }
            Err(error) => Probe::Failed(error.to_string()),
        }
    }

    /// Runs the commands of criteria, and takes the snapshot after them: they execute code that
    /// Codex has written, and can change the state that other criteria depend on.
    async fn run_commands(&self, before: &Snapshot) -> Snapshot {
        let commands = self.commands().await;
        let after = self.inspector.after_commands(before).await;
        Snapshot {
            commands,
            ..self.without_failed_takeover(after)
        }
    }

    async fn commands(&self) -> BTreeMap<CommandLine, Probe<CommandEnd>> {
        let limits = self.spec.limits;
        let left = limits.total().saturating_sub(self.clock.elapsed());
        let until = Instant::now() + left;
        self.inspector
            .commands(limits.command(), until, self.context.stop)
            .await
    }

    /// Takes over Codex's commits into the repository. After a failure, which becomes a
    /// warning, criteria about git do not hold.
    async fn take_over(&mut self) {
        let Some(private) = &mut self.private else {
            return;
        };
        let (warnings, takeover_error) = match private.take_over(self.context.stop).await {
            Ok(Takeover {
                warnings,
                complete: true,
                ..
            }) => (warnings, None),
            Ok(Takeover { warnings, .. }) => {
                let why = warnings.last().cloned().unwrap_or_default();
                (warnings, Some(why))
            }
            Err(error) => {
                let pushed = private.pushed().await;
                let pushed = match pushed.is_empty() {
                    true => String::new(),
                    false => format!(
                        ". What Codex has pushed is at the remote all the same: {}",
                        first_names(pushed, PUSHED_NAMED)
                    ),
                };
                let why = format!("Codex's commits cannot be taken over: {error}{pushed}");
                (vec![why.clone()], Some(why))
            }
        };
        self.state.takeover_error = takeover_error;
        self.context.warn(warnings);
    }

    /// The snapshot, without facts from git if Codex's commits could not be taken over.
    fn without_failed_takeover(&self, now: Snapshot) -> Snapshot {
        match &self.state.takeover_error {
            Some(why) => self.inspector.without_git(now, why),
            None => now,
        }
    }

    fn judge(&self, now: &Snapshot) -> Verdict {
        let RunSpec {
            criteria,
            preexisting,
            ..
        } = self.spec;
        judge(
            criteria,
            &self.state.start,
            now,
            &self.state.work,
            *preexisting,
        )
    }

    /// Confirms the end of the run, after Codex and its processes have ended: the state must still
    /// be the one that was judged.
    pub(super) async fn confirm(
        &mut self,
        end: RunEnd,
        inspection: Inspection,
    ) -> (RunEnd, Snapshot) {
        let Inspection {
            now,
            judged,
            paused,
        } = inspection;
        let killed = paused.kill_commands().await;
        // MCP servers are asked to end, and have to run for that.
        drop(paused);
        if killed.is_ok() {
            self.context.engine.remove_mount_targets().await;
        }
        if end != RunEnd::Satisfied || !self.state.verdict.has_criteria() {
            return (end, now);
        }
        let ended = self.context.engine.shut_down().await;
        let changed = match (killed, ended) {
            (Err(error), _) => error.to_string(),
            (Ok(()), Shutdown::Unfinished) => {
                "Codex has not ended in time, and may still change the repository".to_owned()
            }
            (Ok(()), Shutdown::Complete) => {
                match self.inspector.local().await.difference(&judged) {
                    None => return (end, now),
                    Some(what) => format!(
                        "all held when it was judged, but this changed before Codex had ended: \
                     {what}. Look at `git status`"
                    ),
                }
            }
        };
        self.state.failure = Some(changed);
        (RunEnd::Unconfirmed, now)
    }
}
