//! What GitHub says of a run.

use std::collections::BTreeMap;
use std::ffi::OsString;

use futures::stream::{self, StreamExt};

use super::gh::{Gh, GhError, Greeting, Since};
use super::refs::Refs;
use super::repository::Place;
use super::{Begin, LookError, RepoInspector};
use crate::logic::names::Issue;
use crate::logic::snapshot::{Comment, Probe, PullRequest};

/// How many issues are asked about at the same time.
const AT_ONCE: usize = 4;

impl RepoInspector {
    /// What GitHub has at the start.
    pub(super) async fn greet(
        &self,
    ) -> Result<(Option<Greeting>, BTreeMap<Issue, Vec<Comment>>), LookError> {
        let Some(criterion) = &self.needs.gh else {
            return Ok((None, BTreeMap::new()));
        };
        let told = |error| told(error, criterion);
        let gh = self.gh();
        let greeting = gh.greet().await.map_err(told)?;
        if greeting.login.is_none() && !self.needs.issues.is_empty() {
            return Err(LookError::NotLoggedIn(
                "GitHub doesn't say whose comments are yours".to_owned(),
            ));
        }
        let mut comments = BTreeMap::new();
        for (issue, written) in self.all_comments(&greeting, Since::Ever).await {
            comments.insert(issue, written.map_err(told)?);
        }
        Ok((Some(greeting), comments))
    }

    pub(super) async fn pull_requests(
        &self,
        refs: &Refs,
        begin: &Begin,
    ) -> Probe<Vec<PullRequest>> {
        let (Some(_), Some(greeting)) = (&self.needs.pull_requests, &begin.greeting) else {
            return Probe::default();
        };
        let (Some(branch), Some(tip)) = (&refs.branch, &refs.tip) else {
            return Probe::Found(Vec::new());
        };
        match self.gh().pull_requests(branch, tip, &greeting.at).await {
            Ok(requests) => Probe::Found(requests),
            Err(error) => Probe::Failed(error.to_string()),
        }
    }

    pub(super) async fn comments(&self, begin: &Begin) -> BTreeMap<Issue, Probe<Vec<Comment>>> {
        let Some(greeting) = &begin.greeting else {
            return BTreeMap::new();
        };
        let mut comments = BTreeMap::new();
        for (issue, written) in self.all_comments(greeting, Since::Start).await {
            let before = begin.comments.get(&issue);
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

    /// Our comments on each of the issues.
    async fn all_comments(
        &self,
        greeting: &Greeting,
        since: Since,
    ) -> Vec<(Issue, Result<Vec<Comment>, GhError>)> {
        let gh = &self.gh();
        let each = self.needs.issues.iter().map(|issue| async move {
            let written = gh.comments(issue, greeting, since).await;
            (issue.clone(), written)
        });
        stream::iter(each).buffered(AT_ONCE).collect().await
    }

    /// Gh asks git, which is to read none of the repository's own configuration.
    fn env_of_gh(&self) -> Vec<(OsString, OsString)> {
        let mut env = self.means.env.clone();
        if let Place::Tree { git } = &self.place {
            env.push(("GIT_DIR".into(), git.view().into()));
            env.push(("GIT_WORK_TREE".into(), git.root().into()));
        }
        env
    }

    pub(super) fn gh(&self) -> Gh {
        Gh {
            directory: self.top().to_owned(),
            env: self.env_of_gh(),
            patience: self.means.network_patience,
            halt: self.means.halt.clone(),
        }
    }
}

/// Why GitHub can't be asked when a run begins.
pub(super) fn told(error: GhError, criterion: &str) -> LookError {
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
