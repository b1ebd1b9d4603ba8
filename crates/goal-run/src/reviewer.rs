//! Reviews of code, by a thread of its own that can change nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use codex_engine::command::{McpServers, Prompt, Settings, Start, TurnRef};
use codex_engine::logic::progress::CurrentStep;
use codex_engine::logic::session::Ending;
use codex_engine::logic::work::in_words;
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::{ApprovalPolicy, ReviewTarget, SandboxMode, ThreadId, TokenCount};
use git_probe::{Bounds, Git, GitError};
use supervise::exit::Exit;
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

/// A commit that was looked for.
#[derive(Debug)]
pub struct Sought {
    /// As it was named.
    name: String,
    /// Where.
    directory: PathBuf,
}

/// Why there is no review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Git does not tell.
    #[error(transparent)]
    Git(#[from] GitError),
    /// There is no such commit.
    #[error("there is no commit {:?} in {}; `git log --all` shows what there is", .0.name, .0.directory.display())]
    NoCommit(Sought),
    /// There is no such branch, nor another commit of that name.
    #[error(
        "there is no branch {:?} in {}; `git branch --all` shows the branches, and `git fetch` \
         brings those of a remote",
        .0.name, .0.directory.display()
    )]
    NoBase(Sought),
    /// Nothing is committed that could be compared with the branch.
    #[error(
        "HEAD has no commit in {} that could be compared with {:?}; review what is not \
         committed instead",
        .0.directory.display(), .0.name
    )]
    NoHead(Sought),
    /// The branch and what is checked out have nothing in common.
    #[error(
        "{:?} and HEAD have no common ancestor in {}; name another branch, or run \
         `git fetch --unshallow` if the clone is shallow",
        .0.name, .0.directory.display()
    )]
    NoMergeBase(Sought),
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
    /// What Codex is asked to review. Codex does not refuse a commit that does not exist, and
    /// the model would have to find out. The merge base with a branch is looked up here, as
    /// Codex's own git must not run on the repository.
    ///
    /// # Errors
    ///
    /// [`ReviewError`], of those that tell what git has found.
    pub async fn target(self, directory: &Path) -> Result<ReviewTarget, ReviewError> {
        Ok(match self {
            Self::Uncommitted => {
                Repository::around(directory).await?;
                ReviewTarget::UncommittedChanges
            }
            Self::Since(branch) => {
                let repository = Repository::around(directory).await?;
                let base = repository.merge_base(&branch).await?;
                let instructions = since(&branch, &base);
                ReviewTarget::Custom { instructions }
            }
            Self::Commit(name) => {
                let repository = Repository::around(directory).await?;
                let sha = repository.commit(&name).await?;
                let missing = || ReviewError::NoCommit(repository.sought(&name));
                ReviewTarget::Commit {
                    sha: sha.ok_or_else(missing)?,
                }
            }
            Self::Described(instructions) => ReviewTarget::Custom { instructions },
        })
    }
}

/// The instructions to review the changes since the merge base with a branch.
fn since(branch: &str, base: &str) -> String {
    format!(
        "Review the changes since the branch {branch:?}. The merge base of HEAD and that branch \
         is the commit {base}; `git diff {base}` shows the changes. Report the faults that the \
         author should mend, each with its priority and its place, the gravest first."
    )
}

/// A repository in which commits are looked up.
struct Repository<'a> {
    directory: &'a Path,
    git: Git,
}

impl<'a> Repository<'a> {
    async fn around(directory: &'a Path) -> Result<Self, GitError> {
        let bounds = Bounds {
            patience: GIT_PATIENCE,
            limit: GIT_LIMIT,
            halt: CancellationToken::new(),
        };
        let git = Git::begin(directory, &[], bounds).await?;
        Ok(Self { directory, git })
    }

    /// The id of a commit by a name that git knows, which may look like an option.
    async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        let wanted = format!("{name}^{{commit}}");
        let question = ["rev-parse", "--verify", "--quiet", "--end-of-options"];
        let question = [&question[..], &[&wanted]].concat();
        match self.git.text(&question, &[]).await {
            Ok(id) => Ok(Some(id.trim().to_owned())),
            Err(GitError::Failed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The id of the best common ancestor of a branch and HEAD.
    async fn merge_base(&self, branch: &str) -> Result<String, ReviewError> {
        let no_head = || ReviewError::NoHead(self.sought(branch));
        let no_base = || ReviewError::NoBase(self.sought(branch));
        let head = self.commit("HEAD").await?.ok_or_else(no_head)?;
        let tip = self.commit(branch).await?.ok_or_else(no_base)?;
        match self.git.text(&["merge-base", &tip, &head], &[]).await {
            Ok(base) => Ok(base.trim().to_owned()),
            Err(GitError::Failed {
                exit: Exit::Code(1),
                ..
            }) => Err(ReviewError::NoMergeBase(self.sought(branch))),
            Err(error) => Err(error.into()),
        }
    }

    fn sought(&self, name: &str) -> Sought {
        Sought {
            name: name.to_owned(),
            directory: self.directory.to_owned(),
        }
    }
}

/// The settings of a thread that reviews: it reads, and asks nobody. Tools of MCP servers are
/// not kept from writing by the sandbox, and an AGENTS.md among the changes under review is no
/// instruction to the reviewer (0.104.0 takes it for one; newer reviewers read none).
pub fn reading(mut settings: Settings) -> Settings {
    settings.thread.sandbox = Some(SandboxMode::ReadOnly);
    settings.thread.approval_policy = Some(ApprovalPolicy::Never);
    settings.mcp_servers = McpServers::Off;
    let config = &mut settings.thread.config;
    config.insert("project_doc_max_bytes".to_owned(), 0.into());
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
