//! Where a run takes place.

use std::path::{Path, PathBuf};

use git_probe::{Bounds, Git, GitError};

use super::needs::Needs;
use super::{InspectOptions, LookError};

/// How much of one answer of git's is read, in bytes.
const LIMIT: u64 = 16 * 1024 * 1024;

/// Where a run takes place.
#[derive(Debug)]
pub(super) enum Place {
    /// In the working tree of a repository.
    Tree {
        /// Asked there, whatever becomes of the repository's configuration.
        git: Git,
    },
    /// In a mere directory.
    Directory {
        /// Which.
        path: PathBuf,
        /// Why git can't tell.
        why: String,
    },
}

impl Place {
    pub(super) async fn at(
        directory: &Path,
        needs: &Needs,
        means: &InspectOptions,
    ) -> Result<Self, LookError> {
        let unusable = |source| LookError::Directory {
            directory: directory.to_owned(),
            source,
        };
        let path = directory.canonicalize().map_err(unusable)?;
        path.read_dir().map_err(unusable)?;
        let error = match Self::around(&path, means).await {
            Ok(place) => return Ok(place),
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

    async fn around(directory: &Path, means: &InspectOptions) -> Result<Self, GitError> {
        let bounds = Bounds {
            patience: means.patience,
            limit: LIMIT,
            halt: means.halt.clone(),
        };
        let git = Git::begin(directory, &means.env, bounds).await?;
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
