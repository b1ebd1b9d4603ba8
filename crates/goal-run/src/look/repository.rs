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
    /// In a mere folder.
    Folder {
        /// Which.
        path: PathBuf,
        /// Why git can't tell.
        why: String,
    },
}

impl Place {
    pub(super) async fn at(
        folder: &Path,
        needs: &Needs,
        means: &InspectOptions,
    ) -> Result<Self, LookError> {
        let unusable = |source| LookError::Folder {
            folder: folder.to_owned(),
            source,
        };
        let path = folder.canonicalize().map_err(unusable)?;
        path.read_dir().map_err(unusable)?;
        let error = match Self::around(&path, means).await {
            Ok(place) => return Ok(place),
            Err(error) => error,
        };
        match (&needs.git, error) {
            (None, error) => Ok(Self::Folder {
                path,
                why: error.to_string(),
            }),
            (Some(criterion), GitError::Missing) => Err(LookError::NoGit {
                criterion: criterion.clone(),
            }),
            (Some(criterion), error) if error.is_no_repository() => Err(LookError::NoRepository {
                criterion: criterion.clone(),
                folder: path,
            }),
            (Some(criterion), error) => Err(LookError::Start {
                criterion: criterion.clone(),
                why: error.to_string(),
            }),
        }
    }

    async fn around(folder: &Path, means: &InspectOptions) -> Result<Self, GitError> {
        let bounds = Bounds {
            patience: means.patience,
            limit: LIMIT,
            halt: means.halt.clone(),
        };
        let git = Git::begin(folder, &means.env, bounds).await?;
        Ok(Self::Tree { git })
    }

    /// The top of the working tree, or the folder.
    pub(super) fn top(&self) -> &Path {
        match self {
            Self::Tree { git, .. } => git.root(),
            Self::Folder { path, .. } => path,
        }
    }
}
