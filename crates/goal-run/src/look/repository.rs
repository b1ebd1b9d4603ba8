//! The location of a run: a repository or a plain directory.

use std::path::{Path, PathBuf};

use git_probe::{Bounds, Git, GitError, Repository};
use serde::{Deserialize, Serialize};

use super::needs::Needs;
use super::{InspectOptions, LookError};

/// How much of git's output is read, in bytes.
const LIMIT: u64 = 16 * 1024 * 1024;

/// The location of a run.
#[derive(Debug)]
pub(super) enum RepoLocation {
    /// The working tree of a repository.
    Tree {
        /// Git for it, with the repository's settings of the start.
        git: Git,
    },
    /// A directory without a repository.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why git found no repository.
        why: String,
    },
}

/// The location of a run for another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum LocationRecord {
    Tree {
        top: PathBuf,
        repository: Repository,
    },
    Directory {
        path: PathBuf,
        why: String,
    },
}

fn bounds(options: &InspectOptions) -> Bounds {
    Bounds {
        timeout: options.timeout,
        limit: LIMIT,
        halt: options.halt.clone(),
    }
}

impl RepoLocation {
    pub(super) async fn at(
        directory: &Path,
        needs: &Needs,
        options: &InspectOptions,
    ) -> Result<Self, LookError> {
        let unusable = |source| LookError::Directory {
            directory: directory.to_owned(),
            source,
        };
        let path = directory.canonicalize().map_err(unusable)?;
        path.read_dir().map_err(unusable)?;
        let error = match Self::around(&path, options).await {
            Ok(location) => return Ok(location),
            Err(error) => error,
        };
        match (&needs.git, error) {
            (None, error) => Ok(Self::Directory {
                path,
                why: error.to_string(),
            }),
            (Some(criterion), GitError::Missing) => Err(LookError::NoGit {
                criterion: criterion.clone(),
            }),
            (Some(criterion), error) if error.is_no_repository() => Err(LookError::NoRepository {
                criterion: criterion.clone(),
                directory: path,
            }),
            (Some(criterion), error) => Err(LookError::Start {
                criterion: criterion.clone(),
                why: error.to_string(),
            }),
        }
    }

    async fn around(directory: &Path, options: &InspectOptions) -> Result<Self, GitError> {
        let git = Git::begin(directory, &options.env, bounds(options)).await?;
        Ok(Self::Tree { git })
    }

    /// The location in which another process has begun a run, with the settings of its repository as
    /// they were then.
    pub(super) async fn continuing(
        record: &LocationRecord,
        options: &InspectOptions,
    ) -> Result<Self, LookError> {
        let (top, repository) = match record {
            LocationRecord::Tree { top, repository } => (top, repository),
            LocationRecord::Directory { path, why } => {
                return Ok(Self::Directory {
                    path: path.clone(),
                    why: why.clone(),
                });
            }
        };
        let git = Git::reopen(repository, top, &options.env, bounds(options)).await;
        let git = git.map_err(LookError::Reopen)?;
        match repository.is_of(&git) {
            true => Ok(Self::Tree { git }),
            false => Err(LookError::Replaced(top.clone())),
        }
    }

    /// The record with which another process can continue.
    pub(super) fn record(&self) -> LocationRecord {
        match self {
            Self::Tree { git } => LocationRecord::Tree {
                top: git.root().to_owned(),
                repository: git.repository(),
            },
            Self::Directory { path, why } => LocationRecord::Directory {
                path: path.clone(),
                why: why.clone(),
            },
        }
    }

    /// The top of the working tree, or the directory.
    pub(super) fn top(&self) -> &Path {
        match self {
            Self::Tree { git, .. } => git.root(),
            Self::Directory { path, .. } => path,
        }
    }
}
