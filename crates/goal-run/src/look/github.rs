//! Facts from GitHub for a snapshot.

use std::collections::BTreeMap;
use std::ffi::OsString;

use futures::stream::{self, StreamExt};

use super::gh::{CommentFilter, Gh, GhError, GithubIdentity};
use super::refs::Refs;
use super::repository::RepoLocation;
use super::{LookError, RepoInspector, StartState};
use crate::logic::names::Issue;
use crate::logic::snapshot::{Comment, Probe, PullRequest};

/// How many issues are asked about at the same time.
const AT_ONCE: usize = 4;

impl RepoInspector {
    /// The facts from GitHub at the start.
    pub(super) async fn identify(
        &self,
    ) -> Result<(Option<GithubIdentity>, BTreeMap<Issue, Vec<Comment>>), LookError> {
        let Some(criterion) = &self.needs.gh else {
            return Ok((None, BTreeMap::new()));
        };
        let look_error = |error| look_error(error, criterion);
        let gh = self.gh();
        let identity = gh.identify().await.map_err(look_error)?;
        if identity.login.is_none() && !self.needs.issues.is_empty() {
            return Err(LookError::NotLoggedIn(
                "GitHub doesn't say whose comments are yours".to_owned(),
            ));
        }
        let mut comments = BTreeMap::new();
        for (issue, written) in self.all_comments(&identity, CommentFilter::All).await {
            comments.insert(issue, written.map_err(look_error)?);
        }
        Ok((Some(identity), comments))
    }

    pub(super) async fn pull_requests(
        &self,
        refs: &Refs,
        at_start: &StartState,
    ) -> Probe<Vec<PullRequest>> {
        let (Some(_), Some(identity)) = (&self.needs.pull_requests, &at_start.identity) else {
            return Probe::default();
        };
        let (Some(branch), Some(tip)) = (&refs.branch, &refs.tip) else {
            return Probe::Found(Vec::new());
        };
        match self.gh().pull_requests(branch, tip, &identity.at).await {
            Ok(requests) => Probe::Found(requests),
            Err(error) => Probe::Failed(error.to_string()),
        }
    }

    pub(super) async fn comments(
        &self,
        at_start: &StartState,
    ) -> BTreeMap<Issue, Probe<Vec<Comment>>> {
        let Some(identity) = &at_start.identity else {
            return BTreeMap::new();
        };
        let mut comments = BTreeMap::new();
        for (issue, written) in self.all_comments(identity, CommentFilter::SinceStart).await {
            let before = at_start.comments.get(&issue);
            let before = before.map(Vec::as_slice).unwrap_or_default();
            let found = match written {
                Ok(mut written) => {
                    written.retain(|one| !before.iter().any(|old| old.url == one.url));
                    Probe::Found([before, &written].concat())
                }
                Err(error) => Probe::Failed(error.to_string()),
            };
            comments.insert(issue, found);
        }
        comments
    }

    /// The user's comments on each issue.
    async fn all_comments(
        &self,
        identity: &GithubIdentity,
        filter: CommentFilter,
    ) -> Vec<(Issue, Result<Vec<Comment>, GhError>)> {
        let gh = &self.gh();
        let each = self.needs.issues.iter().map(|issue| async move {
            let written = gh.comments(issue, identity, filter).await;
            (issue.clone(), written)
        });
        stream::iter(each).buffered(AT_ONCE).collect().await
    }

    /// The environment of gh, which runs git: git must not read the repository's own
    /// configuration.
    fn env_of_gh(&self) -> Vec<(OsString, OsString)> {
        let mut env = self.options.env.clone();
        if let RepoLocation::Tree { git } = &self.location {
            env.push(("GIT_DIR".into(), git.view().into()));
            env.push(("GIT_WORK_TREE".into(), git.root().into()));
        }
        env
    }

    pub(super) fn gh(&self) -> Gh {
        Gh {
            directory: self.top().to_owned(),
            env: self.env_of_gh(),
            timeout: self.options.network_timeout,
            halt: self.options.halt.clone(),
        }
    }
}

/// The error for a criterion, where GitHub cannot be asked at the start.
pub(super) fn look_error(error: GhError, criterion: &str) -> LookError {
    let criterion = criterion.to_owned();
    match error {
        GhError::Missing => LookError::NoGh { criterion },
        GhError::NotLoggedIn(words) => LookError::NotLoggedIn(words),
        error => LookError::Start {
            criterion,
            why: error.to_string(),
        },
    }
}
