//! The job store. Nothing is created or upgraded.

use std::path::Path;
use std::time::Duration;

use job_queue::store::{JobStore, StoreError};
use safe_files::off_runtime;
use settings::{Access, Location, Setting};
use tokio::time::timeout;

use super::super::facts::{Directory, Store, StoreState};
use super::home::directory;

/// Looks at the store for at most `limit`.
pub(super) async fn inspect(location: Setting<Location>, access: Access, limit: Duration) -> Store {
    let state = timeout(limit, state(&location.value, &access)).await;
    Store {
        state: state.unwrap_or(StoreState::TimedOut(limit)),
        location,
    }
}

async fn state(location: &Location, access: &Access) -> StoreState {
    // The store refuses a relative path.
    if let Some(path) = location.path().filter(|path| path.is_absolute()) {
        let path = path.to_owned();
        match off_runtime::run(move || directory_of_missing(&path)).await {
            Ok(None) => {}
            Ok(Some(directory)) => return StoreState::Missing(directory),
            Err(error) => return StoreState::Failed(error.to_string()),
        }
    }
    match JobStore::inspect(location, access).await {
        Ok(_) => StoreState::Readable,
        Err(StoreError::Older { found: 0, .. }) => StoreState::Empty,
        Err(StoreError::Older { .. }) => StoreState::Older,
        Err(error) => StoreState::Failed(error.to_string()),
    }
}

/// The state of the directory of a file, if the file certainly does not exist.
fn directory_of_missing(path: &Path) -> Option<Directory> {
    match path.try_exists() {
        Ok(false) => path.parent().map(directory),
        Ok(true) | Err(_) => None,
    }
}
