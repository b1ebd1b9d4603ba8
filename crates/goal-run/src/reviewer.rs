//! Reviews of code, by a thread of its own that can change nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use codex_engine::command::{Prompt, Settings, Start, TurnRef};
use codex_engine::logic::progress::CurrentStep;
use codex_engine::logic::session::Ending;
use codex_engine::logic::work::in_words;
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::{ApprovalPolicy, ReviewTarget, SandboxMode, ThreadId, TokenCount};
use git_probe::{Bounds, Git, GitError};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long git may take to look up a commit (10 s).
const GIT_PATIENCE: Duration = Duration::from_secs(10);

/// How much of git's answer is read, in bytes. The longest are the settings of the user and
/// the repository.
const GIT_LIMIT: u64 = 4 * 1024 * 1024;

/// How long an interrupted review may take to end (3 s).
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(3);

/// The changes to review, as a person or a client names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Those that are not committed.
    Uncommitted,
    /// Those since the merge base with a branch.
    Since(String),
    /// Those of a commit, by any name that git knows.
    Commit(String),
    /// Those that a text describes.
    Described(String),
}

/// Why there is no review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Git does not tell.
    #[error(transparent)]
    Git(#[from] GitError),
    /// There is no such commit.
    #[error("there is no commit {name:?} in {}; `git log --all` shows what there is", directory.display())]
    NoCommit {
        /// As it was named.
        name: String,
        /// Where.
        directory: PathBuf,
    },
    /// Codex can't be used.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The review ended early.
    #[error("the review failed: {0}")]
    Failed(String),
    /// The review took too long.
    #[error("the review took longer than {} s and was interrupted{}", limit.as_secs(), last_heard(.step))]
    TimedOut {
        /// As long as it may take.
        limit: Duration,
        /// The step that the reviewer was at.
        step: String,
    },
    /// Nobody wants it any more.
    #[error("the review was interrupted")]
    Interrupted,
}

fn last_heard(step: &str) -> String {
    match step {
        "" => String::new(),
        step => format!("; the last that was heard: {step}"),
    }
}

impl Subject {
    /// What Codex is asked to review. Codex does not refuse a branch or a commit that does
    /// not exist, and the model would have to find out.
    ///
    /// # Errors
    ///
    /// [`ReviewError::Git`] and [`ReviewError::NoCommit`].
    pub async fn target(self, directory: &Path) -> Result<ReviewTarget, ReviewError> {
        Ok(match self {
            Self::Uncommitted => {
                git(directory).await?;
                ReviewTarget::UncommittedChanges
            }
            Self::Since(branch) => {
                commit(directory, &branch).await?;
                ReviewTarget::BaseBranch { branch }
            }
            Self::Commit(name) => ReviewTarget::Commit {
                sha: commit(directory, &name).await?,
            },
            Self::Described(instructions) => ReviewTarget::Custom { instructions },
        })
    }
}

async fn git(directory: &Path) -> Result<Git, GitError> {
    let bounds = Bounds {
        patience: GIT_PATIENCE,
        limit: GIT_LIMIT,
        halt: CancellationToken::new(),
    };
    Git::begin(directory, &[], bounds).await
}

/// The id of a commit by a name that git knows.
async fn commit(directory: &Path, name: &str) -> Result<String, ReviewError> {
    let wanted = format!("{name}^{{commit}}");
    let question = ["rev-parse", "--verify", "--quiet", "--end-of-options"];
    let question = [&question[..], &[&wanted]].concat();
    match git(directory).await?.text(&question, &[]).await {
        Ok(id) => Ok(id.trim().to_owned()),
        Err(GitError::Failed { .. }) => Err(ReviewError::NoCommit {
            name: name.to_owned(),
            directory: directory.to_owned(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// The settings of a thread that reviews: it reads, and asks nobody.
pub fn reading(mut settings: Settings) -> Settings {
    settings.thread.sandbox = Some(SandboxMode::ReadOnly);
    settings.thread.approval_policy = Some(ApprovalPolicy::Never);
    settings
}

/// A review that is wanted.
pub struct Asked<'a> {
    /// What is reviewed.
    pub target: ReviewTarget,
    /// How long the review may take.
    pub limit: Duration,
    /// Cancelled when nobody wants it any more.
    pub stop: &'a CancellationToken,
    /// Hears each step of the reviewer.
    pub hears: &'a dyn Fn(&CurrentStep),
}

/// A review that was made.
pub struct Reviewed {
    /// The thread that made it.
    pub thread: ThreadId,
    /// Its text, see [`codex_engine::logic::review`].
    pub text: String,
    /// How many tokens it used.
    pub(crate) spent: TokenCount,
}

/// Has a new thread review. Its session is over afterwards.
///
/// # Errors
///
/// [`ReviewError`].
pub async fn reviewed(
    engine: &Engine,
    settings: Settings,
    asked: Asked<'_>,
) -> Result<Reviewed, ReviewError> {
    let start = Start {
        settings: reading(settings),
        ..Start::default()
    };
    let opened = engine.start(start).await?;
    let reviewing = async {
        let prompt = Prompt::review(asked.target.clone());
        let turn = engine.prompt(&opened.session, prompt).await?;
        let late = tokio::select! {
            ended = ended(engine, &turn, asked.hears) => return ended,
            () = sleep(asked.limit) => ReviewError::TimedOut {
                limit: asked.limit,
                step: engine.inspect(&turn.session)?.progress.words,
            },
            () = asked.stop.cancelled() => ReviewError::Interrupted,
        };
        engine.interrupt(&turn)?;
        // The session is cancelled afterwards in any case.
        let _ = tokio::time::timeout(INTERRUPT_PATIENCE, ended(engine, &turn, &|_| {})).await;
        Err(late)
    };
    let reviewed = reviewing.await;
    engine.cancel(&opened.session, "the review is over")?;
    let (text, spent) = reviewed?;
    Ok(Reviewed {
        thread: opened.thread,
        text,
        spent,
    })
}

/// The text of a review once it has ended, and how many tokens it used.
async fn ended(
    engine: &Engine,
    turn: &TurnRef,
    hears: &dyn Fn(&CurrentStep),
) -> Result<(String, TokenCount), ReviewError> {
    let mut told = CurrentStep::default();
    loop {
        let view = engine.inspect(&turn.session)?;
        if (told.number, &told.words) != (view.progress.number, &view.progress.words) {
            hears(&view.progress);
            told = view.progress;
        }
        if let Some((number, outcome)) = &view.outcome
            && *number >= turn.number
        {
            return match &outcome.ending {
                Ending::Completed => Ok((outcome.text.clone(), outcome.facts.spent)),
                Ending::Interrupted => Err(ReviewError::Interrupted),
                Ending::Failed(error) => Err(ReviewError::Failed(in_words(error))),
                Ending::Lost(how) => Err(ReviewError::Failed(how.clone())),
            };
        }
        engine.changed(&turn.session, view.revision).await?;
    }
}
