//! The location of a run: a repository or a plain directory.

use std::path::{Path, PathBuf};

use git_probe::{Bounds, Git, GitError};

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
        let bounds = Bounds {
            timeout: options.timeout,
            limit: LIMIT,
            halt: options.halt.clone(),
        };
        let git = Git::begin(directory, &options.env, bounds).await?;
        Ok(Self::Tree { git })
    }

    /// The top of the working tree, or the directory.
    pub(super) fn top(&self) -> &Path {
        match self {
            Self::Tree { git, .. } => git.root(),
            Self::Directory { path, .. } => path,
        }
    }
}
