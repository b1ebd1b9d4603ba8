//! GitHub's program `gh`, with the user's own login.
//!
//! Source: `gh help api`, `gh help environment`, `gh help exit-codes`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use git_probe::ELSEWHERE;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use supervise::converse::{Extent, Heard, Talk, converse};
use supervise::exit::Exit;
use supervise::spawn::Program;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::moment::{Moment, date_of};
use crate::logic::names::Issue;
use crate::logic::snapshot::{Age, Comment, PullRequest};

/// The most that is read of one answer, in bytes: 100 long comments.
const LIMIT: u64 = 16 * 1024 * 1024;

/// How many pages of comments are read, of [`PAGE`] each.
const PAGES: usize = 10;

/// How many comments GitHub tells at once.
const PAGE: usize = 100;

/// The exit code where nobody is logged in.
const NOT_LOGGED_IN: Exit = Exit::Code(4);

/// The exit code of a guard that finds no program, see [`supervise::spawn`].
const NOT_FOUND: Exit = Exit::Code(127);

/// So that it asks nothing and decorates nothing.
const PLAIN: [(&str, &str); 6] = [
    ("GH_PROMPT_DISABLED", "1"),
    ("GH_NO_UPDATE_NOTIFIER", "1"),
    ("GH_PAGER", "cat"),
    ("GH_FORCE_TTY", ""),
    ("CLICOLOR_FORCE", "0"),
    ("NO_COLOR", "1"),
];

/// Why gh doesn't tell.
#[derive(Debug, thiserror::Error)]
pub(super) enum GhError {
    #[error("there is no program gh on the PATH")]
    Missing,
    #[error("nobody is logged in: {0}")]
    NotLoggedIn(String),
    #[error("gh can't be run: {0}")]
    Unusable(#[from] io::Error),
    #[error("gh took longer than {}", humantime::format_duration(*.0))]
    Silent(Duration),
    #[error("asking gh was given up")]
    GivenUp,
    #[error("gh {exit}: {words}")]
    Failed { exit: Exit, words: String },
    #[error("gh's answer can't be read: {0}")]
    Garbage(String),
}

/// The program, in one directory.
#[derive(Debug, Clone)]
pub(super) struct Gh {
    pub(super) directory: PathBuf,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) patience: Duration,
    pub(super) halt: CancellationToken,
}

/// What GitHub says of itself and of us when a run begins.
#[derive(Debug, Clone)]
pub(super) struct Greeting {
    /// Its clock.
    pub(super) at: Moment,
    /// Who we are; `None` if it doesn't say, as to those who have no account.
    pub(super) login: Option<String>,
}

#[derive(Deserialize)]
struct User {
    login: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    number: u64,
    url: String,
    created_at: String,
    head_ref_name: String,
    head_ref_oid: String,
}

#[derive(Deserialize)]
struct Remark {
    html_url: String,
    created_at: String,
    user: Option<User>,
}

impl Gh {
    /// Whether it is there.
    pub(super) async fn is_there(&self) -> Result<(), GhError> {
        answered(self.run(&["--version".to_owned()]).await?).map(drop)
    }

    /// Asks GitHub who we are and what time it is.
    pub(super) async fn greet(&self) -> Result<Greeting, GhError> {
        let heard = self.run(&["api", "-i", "user"].map(str::to_owned)).await?;
        let told = String::from_utf8_lossy(&heard.stdout).replace("\r\n", "\n");
        let (head, body) = told.split_once("\n\n").unwrap_or((&told, ""));
        let status = head.lines().next().and_then(|line| line.split(' ').nth(1));
        let login = match (status, &heard.exit) {
            (Some("401"), _) => return Err(GhError::NotLoggedIn(complaint(&heard))),
            // A program's token is nobody's account.
            (Some("403"), _) => None,
            _ => {
                answered(heard)?;
                let user: User = read(body.as_bytes())?;
                Some(user.login)
            }
        };
        let at = date_of(head).ok_or_else(|| GhError::Garbage("there is no date".to_owned()))?;
        Ok(Greeting { at, login })
    }

    /// The open pull requests from a branch that have all up to this commit, its tip.
    /// One whose last commits have not been pushed is none, and neither is anybody's
    /// from a fork that has a branch of that name.
    pub(super) async fn pull_requests(
        &self,
        branch: &str,
        tip: &str,
        start: &Moment,
    ) -> Result<Vec<PullRequest>, GhError> {
        let args = [
            "pr".to_owned(),
            "list".to_owned(),
            format!("--head={branch}"),
            "--state=open".to_owned(),
            "--limit=100".to_owned(),
            "--json=number,url,createdAt,headRefName,headRefOid".to_owned(),
        ];
        let requests: Vec<Request> = read(&answered(self.run(&args).await?)?)?;
        let ours = requests
            .into_iter()
            .filter(|request| request.head_ref_name == branch && request.head_ref_oid == tip);
        let request = |request: Request| {
            Ok(PullRequest {
                age: start.age(&request.created_at)?,
                url: request.url,
                number: request.number,
            })
        };
        ours.map(request).collect()
    }

    /// Our comments on an issue: all of the first [`PAGES`] pages, or those that were
    /// written or changed since.
    pub(super) async fn comments(
        &self,
        issue: &Issue,
        greeting: &Greeting,
        since: Since,
    ) -> Result<Vec<Comment>, GhError> {
        let place = format!(
            "repos/{}/{}/issues/{}/comments?per_page={PAGE}",
            issue.owner(),
            issue.repository(),
            issue.number()
        );
        let since = match since {
            Since::Ever => String::new(),
            Since::Start => format!("&since={}", greeting.at),
        };
        let mut comments = Vec::new();
        for page in 1..=PAGES {
            let place = format!("{place}{since}&page={page}");
            let told = self.run(&["api".to_owned(), place]).await?;
            let remarks: Vec<Remark> = read(&answered(told)?)?;
            let count = remarks.len();
            for remark in remarks {
                if is_by(&remark, greeting.login.as_deref()) {
                    let age = greeting.at.age(&remark.created_at)?;
                    let url = remark.html_url;
                    comments.push(Comment { url, age });
                }
            }
            if count < PAGE {
                break;
            }
        }
        Ok(comments)
    }

    async fn run(&self, args: &[String]) -> Result<Heard, GhError> {
        let mut program = Program::new(std::path::Path::new("gh"), args);
        program.cwd = Some(self.directory.clone());
        program.env.clone_from(&self.env);
        let plain = PLAIN.map(|(name, value)| (name.into(), value.into()));
        program.env.extend(plain);
        program.without = ELSEWHERE;
        let talk = Talk {
            input: &[],
            limit: LIMIT,
        };
        let end = async {
            let _ = timeout(self.patience, self.halt.cancelled()).await;
        };
        match converse(&program, &talk, end).await {
            Ok(heard) if heard.exit == NOT_FOUND => Err(GhError::Missing),
            Ok(heard) if heard.exit == NOT_LOGGED_IN => {
                Err(GhError::NotLoggedIn(complaint(&heard)))
            }
            Ok(heard) => Ok(heard),
            Err(_) if self.halt.is_cancelled() => Err(GhError::GivenUp),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(GhError::Silent(self.patience))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// From when on comments are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Ever,
    Start,
}

fn is_by(remark: &Remark, login: Option<&str>) -> bool {
    match (&remark.user, login) {
        (Some(user), Some(login)) => user.login.eq_ignore_ascii_case(login),
        _ => false,
    }
}

fn answered(heard: Heard) -> Result<Vec<u8>, GhError> {
    match (heard.exit, heard.extent) {
        (Exit::Code(0), Extent::Whole) => Ok(heard.stdout),
        (Exit::Code(0), Extent::Cut) => Err(GhError::Garbage("it is too long".to_owned())),
        (exit, _) => Err(GhError::Failed {
            exit,
            words: complaint(&heard),
        }),
    }
}

fn complaint(heard: &Heard) -> String {
    let words = String::from_utf8_lossy(&heard.stderr);
    words.lines().next().unwrap_or("it says nothing").to_owned()
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, GhError> {
    serde_json::from_slice(answer).map_err(|error| GhError::Garbage(error.to_string()))
}

impl Moment {
    fn age(&self, made: &str) -> Result<Age, GhError> {
        let made = Self::parse(made);
        let made = made.ok_or_else(|| GhError::Garbage("a time is none".to_owned()))?;
        // What was made in the second of the start, before it, was seen then.
        match made >= *self {
            true => Ok(Age::New),
            false => Ok(Age::Old),
        }
    }
}
