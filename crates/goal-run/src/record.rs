//! The record of a run with which another process can continue it.

use std::time::{Duration, SystemTime};

use codex_engine::GrantedSettings;
use codex_engine::command::SessionId;
use codex_protocol::codex::{SandboxMode, ThreadId};
use git_probe::private::PrivateGitRecord;
use git_probe::{Submodules, SubmodulesRecord};
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::evidence::EvidenceMark;
use super::look::{InspectOptions, RepoInspector, StartState};
use super::spec::RunSpec;
use crate::logic::artifacts::SeenArtifacts;
use crate::logic::criteria::Criteria;
use crate::logic::findings::Verdict;
use crate::logic::machine::{Run, TurnPrompt};
use crate::logic::outcome::{TurnRecord, Usage};
use crate::logic::prompts::Templates;
use crate::logic::snapshot::{Snapshot, Work};

/// What another process needs to continue a run. Codex has the rest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    pub(super) session: SessionId,
    /// The number of the session's turn.
    pub(super) turn: u64,
    pub(super) wanted: TurnPrompt,
    pub(super) run: Run,
    /// How long the run had taken when the turn began.
    pub(super) elapsed: Duration,
    /// When the turn began.
    pub(super) begun: SystemTime,
    pub(super) at_start: StartState,
    pub(super) state: RunState,
    pub(super) granted: GrantedSettings,
    /// The instructions that follow those of the role, for new threads.
    pub(super) behind: Option<String>,
    /// The sandbox that the prompt had to apply to a resumed thread.
    pub(super) sandbox_to_reapply: Option<SandboxMode>,
    pub(super) private: Option<PrivateGitRecord>,
    pub(super) submodules: SubmodulesRecord,
    pub(super) templates: Templates,
    pub(super) evidence: Option<EvidenceMark>,
    pub(super) warnings: Vec<String>,
}

/// The start of a run, and the results of its turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RunState {
    /// Why some of Codex's commits were not taken over into the repository.
    pub(super) takeover_error: Option<String>,
    /// The repository before Codex began.
    pub(super) start: Snapshot,
    pub(super) seen: SeenArtifacts,
    pub(super) work: Work,
    pub(super) verdict: Verdict,
    /// The tokens of all turns.
    pub(super) usage: Usage,
    pub(super) log: Vec<TurnRecord>,
    pub(super) thread: Option<ThreadId>,
    /// The sandbox of commands, if Codex reports it.
    pub(super) sandbox: Option<SandboxMode>,
    /// The errors of the last turn, a line each, for Codex.
    pub(super) errors: Vec<String>,
    /// Why the last turn failed.
    pub(super) failure: Option<String>,
    /// Whether it failed at a usage limit of the account.
    pub(super) at_usage_limit: bool,
    pub(super) response: String,
}

impl RunState {
    pub(super) fn new(start: Snapshot, verdict: Verdict, thread: Option<ThreadId>) -> Self {
        Self {
            takeover_error: None,
            start,
            seen: SeenArtifacts::default(),
            work: Work::default(),
            verdict,
            usage: Usage::default(),
            log: Vec::new(),
            thread,
            sandbox: None,
            errors: Vec::new(),
            failure: None,
            at_usage_limit: false,
            response: String::new(),
        }
    }
}

impl RunRecord {
    /// The thread of the run.
    #[must_use]
    pub fn thread(&self) -> Option<&ThreadId> {
        self.state.thread.as_ref()
    }

    /// The session of the run.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The number of the run's turn, from 1.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.wanted.turn
    }

    /// How many turns had ended before this one.
    #[must_use]
    pub fn ended_turns(&self) -> u32 {
        u32::try_from(self.state.log.len()).unwrap_or(u32::MAX)
    }

    /// How long the run has taken until now. A clock that was set back counts as standing.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        elapsed_since(self.elapsed, self.begun)
    }

    /// The templates of the run's prompts.
    #[must_use]
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// The specification with the instructions that the run began with.
    #[must_use]
    pub fn with_instructions(&self, mut spec: RunSpec) -> RunSpec {
        spec.settings.added.behind.clone_from(&self.behind);
        spec
    }

    /// An inspector for the run, which has these criteria.
    ///
    /// # Errors
    ///
    /// [`RunError::NotContinued`].
    pub async fn inspector(
        &self,
        criteria: &Criteria,
        options: InspectOptions,
    ) -> Result<RepoInspector, RunError> {
        let inspector = RepoInspector::continuing(self.at_start.clone(), criteria, options).await;
        inspector.map_err(|error| RunError::NotContinued(error.to_string()))
    }

    /// The submodules of the repository as they were before Codex began.
    ///
    /// # Errors
    ///
    /// [`RunError::NotContinued`].
    pub async fn submodules(&self, inspector: &RepoInspector) -> Result<Submodules, RunError> {
        match inspector.git() {
            None => Ok(Submodules::none()),
            Some(git) => {
                let continued = Submodules::continuing(git, self.submodules.clone()).await;
                continued.map_err(|error| RunError::NotContinued(error.to_string()))
            }
        }
    }
}

/// How long a run has taken until now that had taken `elapsed` at the moment `begun`.
fn elapsed_since(elapsed: Duration, begun: SystemTime) -> Duration {
    let since = SystemTime::now().duration_since(begun);
    elapsed.saturating_add(since.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use codex_config::logic::prompt_kind::PromptKind;
    use codex_engine::logic::work::Evidence;

    use super::*;
    use crate::clock::RunClock;
    use crate::logic::artifacts::Gain;
    use crate::logic::criteria::Criterion;
    use crate::logic::findings::judge;
    use crate::logic::machine::{Conversation, Limits};
    use crate::logic::review::ReviewEnd;
    use crate::logic::snapshot::{
        Age, Answer, CommandEnd, Comment, Commit, Head, History, Preexisting, Probe, PullRequest,
        Tree,
    };

    /// A criterion of each kind.
    const CRITERIA: [&str; 12] = [
        "files=a [b]/**/ö*.{md,txt}",
        "commits=2",
        "commits=2@feature/x",
        "branch=feature/x",
        "pushed",
        "pr",
        "issue_comment=o/r#1",
        "clean",
        "command=sh -c 'echo \"a b\"'",
        "review",
        "diff_within=src,docs/a",
        "files=*",
    ];

    fn snapshot() -> Snapshot {
        let history = History {
            tip: Some("1".to_owned()),
            tip_is_foreign: true,
            total: 2,
            new: 1,
            newest: vec![Commit {
                id: "1".to_owned(),
                subject: "Add ö\u{202e}".to_owned(),
            }],
        };
        let url = || "https://example.org".to_owned();
        let named = |value: &str| BTreeMap::from([("a".to_owned(), value.to_owned())]);
        Snapshot {
            tree: Probe::Found(Tree::default()),
            head: Probe::Found(Head {
                branch: None,
                history: history.clone(),
            }),
            branches: BTreeMap::from([("b/c".parse().unwrap(), Probe::Found(Some(history)))]),
            branch_changes: BTreeMap::from([("b".parse().unwrap(), Probe::default())]),
            remote: Probe::Found(named("1")),
            remote_had_tip: true,
            files: Probe::Found(named("stamp")),
            pull_requests: Probe::Found(vec![PullRequest {
                url: url(),
                number: 3,
                age: Age::New,
            }]),
            comments: BTreeMap::from([(
                "o/r#1".parse().unwrap(),
                Probe::Found(vec![Comment {
                    url: url(),
                    age: Age::Old,
                }]),
            )]),
            commands: BTreeMap::from([
                (
                    "cargo test".parse().unwrap(),
                    Probe::Found(CommandEnd::TimedOut(Duration::from_millis(1))),
                ),
                (
                    "sh -c 'a \"b\"'".parse().unwrap(),
                    Probe::Found(CommandEnd::Exited {
                        code: -1,
                        tail: "\0".to_owned(),
                    }),
                ),
            ]),
            review: Some(Probe::Found(ReviewEnd::Passed("fine".to_owned()))),
        }
    }

    #[test]
    fn state_of_a_run_is_the_same_after_it_was_stored() {
        let criteria = CRITERIA.map(|text| text.parse::<Criterion>().unwrap());
        let criteria = Criteria::new(criteria).unwrap();
        let (start, now) = (Snapshot::default(), snapshot());
        let work = Work {
            answer: Answer::Present,
            ..Work::default()
        };
        let verdict = judge(&criteria, &start, &now, &work, Preexisting::Ignored);
        let mut state = RunState::new(now.clone(), verdict.clone(), None);
        state.seen.record(&start, &now);
        state.log.push(TurnRecord {
            turn: 1,
            prompt: PromptKind::Initial,
            conversation: Conversation::New,
            end: "completed".to_owned(),
            duration_ms: 1,
            evidence: Evidence::default(),
            denied: Vec::new(),
            usage: Usage::default(),
            errors: vec!["e".to_owned()],
            promises: vec!["i will".to_owned()],
            gain: Gain::Something,
            review: None,
            criteria: verdict,
        });
        let stored = serde_json::to_string(&state).unwrap();
        let read: RunState = serde_json::from_str(&stored).unwrap();
        assert_eq!(read.start, state.start);
        // Instructions for Codex are not stored: each turn is judged anew before they are used.
        assert_eq!(
            serde_json::to_string(&read.verdict).unwrap(),
            serde_json::to_string(&state.verdict).unwrap()
        );
        assert_eq!(
            serde_json::to_string(&read.log).unwrap(),
            serde_json::to_string(&state.log).unwrap()
        );
        let mut seen = read.seen;
        assert_eq!(seen.record(&start, &now), Gain::Nothing);
    }

    #[test]
    fn time_between_two_processes_counts() {
        let (at_start, state) = (RunClock::at(Duration::from_secs(3)), Duration::from_secs(2));
        assert!(at_start.elapsed() >= Duration::from_secs(3));
        let before = SystemTime::now() - Duration::from_secs(5);
        assert!(elapsed_since(state, before) >= Duration::from_secs(7));
        let later = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(elapsed_since(state, later), state);
    }

    #[test]
    fn machine_of_a_run_is_the_same_after_it_was_stored() {
        let limits = Limits::default().within_tokens(Some(7)).unwrap();
        let (run, wanted) = Run::start(limits);
        let stored = serde_json::to_string(&(&run, &wanted)).unwrap();
        let read: (Run, TurnPrompt) = serde_json::from_str(&stored).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", (run, wanted)));
    }
}
