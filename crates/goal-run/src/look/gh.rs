//! GitHub's program `gh`, with the user's own login.
//!
//! Source: `gh help api`, `gh help environment`, `gh help exit-codes`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use git_probe::ELSEWHERE;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use supervise::exit::Exit;
use supervise::short_lived::{Extent, ProgramOutput, RunOptions, run_with_input};
use supervise::spawn::Program;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::github_time::{GithubTime, date_of};
use crate::logic::names::Issue;
use crate::logic::snapshot::{Age, Comment, PullRequest};

/// How much of one answer is read, in bytes: 100 long comments.
const LIMIT: u64 = 16 * 1024 * 1024;

/// How many pages of comments are read, of [`PAGE`] each.
const PAGES: usize = 10;

/// The number of comments on a page.
const PAGE: usize = 100;

/// gh's exit code without a login.
const NOT_LOGGED_IN: Exit = Exit::Code(4);

/// The exit code of a guard that finds no program, see [`supervise::spawn`].
const NOT_FOUND: Exit = Exit::Code(127);

/// Variables that keep gh from asking questions and from decorating its output.
const PLAIN: [(&str, &str); 6] = [
    ("GH_PROMPT_DISABLED", "1"),
    ("GH_NO_UPDATE_NOTIFIER", "1"),
    ("GH_PAGER", "cat"),
    ("GH_FORCE_TTY", ""),
    ("CLICOLOR_FORCE", "0"),
    ("NO_COLOR", "1"),
];

/// Why gh gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum GhError {
    #[error("there is no program gh on the PATH")]
    Missing,
    #[error("gh is not logged in: {0}")]
    NotLoggedIn(String),
    #[error("gh cannot be run: {0}")]
    Unusable(#[from] io::Error),
    #[error("gh took longer than {}", humantime::format_duration(*.0))]
    Silent(Duration),
    #[error("asking gh was cancelled")]
    Cancelled,
    #[error("gh {exit}: {words}")]
    Failed { exit: Exit, words: String },
    #[error("gh's answer cannot be read: {0}")]
    Garbage(String),
}

/// The program gh, run in one directory.
#[derive(Debug, Clone)]
pub(super) struct Gh {
    pub(super) directory: PathBuf,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) timeout: Duration,
    pub(super) halt: CancellationToken,
}

/// GitHub's time and the user's login when a run begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct GithubIdentity {
    /// The time by GitHub's clock.
    pub(super) at: GithubTime,
    /// The user's login; `None` for a token without an account.
    pub(super) login: Option<String>,
}

#[derive(Deserialize)]
struct User {
    login: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiPullRequest {
    number: u64,
    url: String,
    created_at: String,
    head_ref_name: String,
    head_ref_oid: String,
}

#[derive(Deserialize)]
struct ApiComment {
    html_url: String,
    created_at: String,
    user: Option<User>,
}

impl Gh {
    /// Checks that gh can be run.
    pub(super) async fn check_installed(&self) -> Result<(), GhError> {
        stdout_of(self.run(&["--version".to_owned()]).await?).map(drop)
    }

    /// Asks GitHub for the user's login and the time.
    pub(super) async fn identify(&self) -> Result<GithubIdentity, GhError> {
        let output = self.run(&["api", "-i", "user"].map(str::to_owned)).await?;
        let text = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
        let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
        let status = head.lines().next().and_then(|line| line.split(' ').nth(1));
        let login = match (status, &output.exit) {
            (Some("401"), _) => return Err(GhError::NotLoggedIn(first_error_line(&output))),
            // The token of an app has no account.
            (Some("403"), _) => None,
            _ => {
                stdout_of(output)?;
                let user: User = read(body.as_bytes())?;
                Some(user.login)
            }
        };
        let at = date_of(head).ok_or_else(|| GhError::Garbage("there is no date".to_owned()))?;
        Ok(GithubIdentity { at, login })
    }

    /// The open pull requests from a branch whose head is the branch's `tip`. Pull requests that
    /// lack the last commits are left out, and so are those from a fork that has a branch of the
    /// same name.
    pub(super) async fn pull_requests(
        &self,
        branch: &str,
        tip: &str,
        start: &GithubTime,
    ) -> Result<Vec<PullRequest>, GhError> {
        let args = [
            "pr".to_owned(),
            "list".to_owned(),
            format!("--head={branch}"),
            "--state=open".to_owned(),
            "--limit=100".to_owned(),
            "--json=number,url,createdAt,headRefName,headRefOid".to_owned(),
        ];
        let requests: Vec<ApiPullRequest> = read(&stdout_of(self.run(&args).await?)?)?;
        let ours = requests
            .into_iter()
            .filter(|request| request.head_ref_name == branch && request.head_ref_oid == tip);
        let request = |request: ApiPullRequest| {
            Ok(PullRequest {
                age: start.age(&request.created_at)?,
                url: request.url,
                number: request.number,
            })
        };
        ours.map(request).collect()
    }

    /// The user's comments on an issue: all of the first [`PAGES`] pages, or those written or
    /// changed since the start.
    pub(super) async fn comments(
        &self,
        issue: &Issue,
        identity: &GithubIdentity,
        filter: CommentFilter,
    ) -> Result<Vec<Comment>, GhError> {
        let path = format!(
            "repos/{}/{}/issues/{}/comments?per_page={PAGE}",
            issue.owner(),
            issue.repository(),
            issue.number()
        );
        let since = match filter {
            CommentFilter::All => String::new(),
            CommentFilter::SinceStart => format!("&since={}", identity.at),
        };
        let mut comments = Vec::new();
        for page in 1..=PAGES {
            let path = format!("{path}{since}&page={page}");
            let output = self.run(&["api".to_owned(), path]).await?;
            let api_comments: Vec<ApiComment> = read(&stdout_of(output)?)?;
            let count = api_comments.len();
            for comment in api_comments {
                if is_by(&comment, identity.login.as_deref()) {
                    let age = identity.at.age(&comment.created_at)?;
                    let url = comment.html_url;
                    comments.push(Comment { url, age });
                }
            }
            if count < PAGE {
                break;
            }
        }
        Ok(comments)
    }

    async fn run(&self, args: &[String]) -> Result<ProgramOutput, GhError> {
        let mut program = Program::new(std::path::Path::new("gh"), args);
        program.cwd = Some(self.directory.clone());
        program.env.clone_from(&self.env);
        let plain = PLAIN.map(|(name, value)| (name.into(), value.into()));
        program.env.extend(plain);
        program.without = ELSEWHERE;
        let talk = RunOptions {
            input: &[],
            limit: LIMIT,
        };
        let end = async {
            let _ = timeout(self.timeout, self.halt.cancelled()).await;
        };
        match run_with_input(&program, &talk, end).await {
            Ok(output) if output.exit == NOT_FOUND => Err(GhError::Missing),
            Ok(output) if output.exit == NOT_LOGGED_IN => {
                Err(GhError::NotLoggedIn(first_error_line(&output)))
            }
            Ok(output) => Ok(output),
            Err(_) if self.halt.is_cancelled() => Err(GhError::Cancelled),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(GhError::Silent(self.timeout))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Which comments of an issue to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommentFilter {
    All,
    /// Those written or changed since the start.
    SinceStart,
}

fn is_by(comment: &ApiComment, login: Option<&str>) -> bool {
    match (&comment.user, login) {
        (Some(user), Some(login)) => user.login.eq_ignore_ascii_case(login),
        _ => false,
    }
}

fn stdout_of(output: ProgramOutput) -> Result<Vec<u8>, GhError> {
    match (output.exit, output.extent) {
        (Exit::Code(0), Extent::Whole) => Ok(output.stdout),
        (Exit::Code(0), Extent::Cut) => Err(GhError::Garbage("it is too long".to_owned())),
        (exit, _) => Err(GhError::Failed {
            exit,
            words: first_error_line(&output),
        }),
    }
}

fn first_error_line(output: &ProgramOutput) -> String {
    let words = String::from_utf8_lossy(&output.stderr);
    words.lines().next().unwrap_or("no message").to_owned()
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, GhError> {
    serde_json::from_slice(answer).map_err(|error| GhError::Garbage(error.to_string()))
}

impl GithubTime {
    fn age(&self, made: &str) -> Result<Age, GhError> {
        let made = Self::parse(made);
        let made = made.ok_or_else(|| GhError::Garbage("a malformed time".to_owned()))?;
        // Times have whole seconds. Something made in the second of the start, but before it, is
        // already in the snapshot of the start.
        match made >= *self {
            true => Ok(Age::New),
            false => Ok(Age::Old),
        }
    }
}
