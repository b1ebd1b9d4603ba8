//! The claim of an identity, which one process at a time holds.
//!
//! The claim is a lock on a file. The system releases it however the process ends, so a reused
//! process ID cannot be mistaken for the owner. The content of the file is only for people.
#![expect(
    clippy::disallowed_methods,
    reason = "a file of our own state; no link is followed and no pipe waited for"
)]

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::OFlag;
use safe_files::state_file;
use serde::{Deserialize, Serialize};

use super::identities;
use crate::logic::{AgentName, BadName};

/// The file that is locked, in the identity's directory.
const FILE: &str = "identity.lock";

/// The most bytes of that file that are read; it has about 150.
const LONGEST_OWNER: u64 = 4096;

/// The most servers of one identity that may run at once.
const MAX_INSTANCES: u32 = 1000;

/// The longest wait for a process that checks an identity, or removes it from its team. The caller
/// may be on a thread of the runtime.
const CHECK_TIMEOUT: Duration = Duration::from_millis(100);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// An identity that this process holds until the claim is dropped.
#[derive(Debug)]
pub struct Claim {
    /// The identity: the requested one, with a number if that was taken.
    pub identity: AgentName,
    file: PathBuf,
    /// The locked file.
    _lock: File,
}

/// The process that has claimed an identity, in its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    pid: u32,
    started_at: String,
    /// The client that the process serves, if a later process would recognise it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
}

/// Why no identity could be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// There is no home directory.
    #[error("neither ATM_HOME nor HOME is set to an absolute path")]
    NoHome,
    /// The file of an identity can't be used.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The name with a number appended is not a valid name.
    #[error(transparent)]
    Name(#[from] BadName),
    /// All instances of the identity are taken.
    #[error("{MAX_INSTANCES} servers or other agents have the identity {0} already")]
    AllTaken(AgentName),
}

impl Claim {
    /// Claims the identity that a dead process had for the same `client`, or else the first of an
    /// identity, `NAME-2`, `NAME-3` and so on that no process holds and that may be claimed.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    pub fn take(
        home: &Path,
        requested: &AgentName,
        client: Option<&str>,
        may_be: impl Fn(&AgentName) -> bool,
    ) -> Result<Self, ClaimError> {
        if !home.is_absolute() {
            return Err(ClaimError::NoHome);
        }
        let former = client.and_then(|client| former_identity(home, requested, client));
        if let Some(identity) = former.filter(&may_be)
            && let Some(claim) = Self::take_free(home, identity, client)?
        {
            return Ok(claim);
        }
        for number in 1..=MAX_INSTANCES {
            let identity = match number {
                1 => requested.clone(),
                number => format!("{requested}-{number}").parse()?,
            };
            if may_be(&identity)
                && let Some(claim) = Self::take_free(home, identity, client)?
            {
                return Ok(claim);
            }
        }
        Err(ClaimError::AllTaken(requested.clone()))
    }

    /// Claims an identity; `None` if another process holds it.
    fn take_free(
        home: &Path,
        identity: AgentName,
        client: Option<&str>,
    ) -> Result<Option<Self>, ClaimError> {
        let directory = identities::directory_of(home, &identity);
        let file = directory.join(FILE);
        match lock(&directory, &file, client) {
            Ok(locked) => Ok(locked.map(|lock| Self {
                identity,
                file,
                _lock: lock,
            })),
            Err(error) => Err(ClaimError::File { path: file, error }),
        }
    }

    /// Runs `act` while nobody holds the identity and nobody can claim it; `None` if it is held.
    ///
    /// # Errors
    ///
    /// When the lock can't be checked.
    pub(super) fn while_free<T>(
        home: &Path,
        identity: &AgentName,
        act: impl FnOnce() -> T,
    ) -> io::Result<Option<T>> {
        let path = identities::directory_of(home, identity).join(FILE);
        let file = state_file::open_to_lock(&path)?;
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // If the path names another file now, the owner has just released the identity and cleaned
        // up.
        let done = is_still(&file, &path)?.then(act);
        if done.is_some() && client_in(&path).is_none() {
            // An empty file does not look like the file of a process that died. It is not removed:
            // another check may hold the lock too, and would then remove the new file of a claim at
            // the same path. A file that names a client is not emptied: the client gets the
            // identity again, unless another process claims it first.
            file.set_len(0)?;
        }
        Ok(done)
    }

    /// Whether a process holds the identity, this one included.
    ///
    /// # Errors
    ///
    /// When the lock can't be checked.
    pub fn is_held(home: &Path, identity: &AgentName) -> io::Result<bool> {
        let path = identities::directory_of(home, identity).join(FILE);
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        is_taken(&file)
    }
}

/// The identity that a dead process held for this client.
fn former_identity(home: &Path, requested: &AgentName, client: &str) -> Option<AgentName> {
    // Without the list of identities, the client gets the first free identity.
    let mut identities = identities::identities(home).unwrap_or_default().into_iter();
    identities.find(|identity| {
        let file = identities::directory_of(home, identity).join(FILE);
        is_instance(identity, requested) && client_in(&file).as_deref() == Some(client)
    })
}

/// Whether an identity is the requested `NAME`, or `NAME-2`, `NAME-3` and so on.
fn is_instance(identity: &AgentName, requested: &AgentName) -> bool {
    match identity.as_str().strip_prefix(requested.as_str()) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|number| number.parse::<u32>().is_ok()),
        None => false,
    }
}

/// The client that the file of an identity names.
fn client_in(path: &Path) -> Option<String> {
    let file = state_file::open(path).ok()??;
    let text = state_file::read(&file, path, LONGEST_OWNER).ok()?;
    let owner: Owner = serde_json::from_slice(&text).ok()?;
    owner.client
}

/// Whether a process holds the identity of this file. The check takes a shared lock, so that a
/// claim can tell a check from another claim.
fn is_taken(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Removed while it is locked: a process that has opened the file meanwhile notices that the
        // path no longer names it. A failure is ignored, as a remaining file does no harm.
        let _ = fs::remove_file(&self.file);
    }
}

/// The result of a try to lock a file.
enum LockAttempt {
    /// This process has the lock.
    Locked(File),
    /// Another process has the identity.
    Taken,
    /// Another process checks the identity, or has just released it.
    Busy,
}

/// Locks a file; `None` if another process holds the lock, even if that process only checks the
/// identity and does not finish in time.
fn lock(directory: &Path, path: &Path, client: Option<&str>) -> io::Result<Option<File>> {
    let begin = Instant::now();
    loop {
        match try_lock(directory, path)? {
            LockAttempt::Locked(file) => return write_owner(file, directory, client).map(Some),
            LockAttempt::Busy if begin.elapsed() < CHECK_TIMEOUT => thread::sleep(PAUSE),
            LockAttempt::Taken | LockAttempt::Busy => return Ok(None),
        }
    }
}

fn try_lock(directory: &Path, path: &Path) -> io::Result<LockAttempt> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let file = match state_file::open_to_lock(path) {
        Ok(file) => file,
        // Another process may have removed the directory meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LockAttempt::Busy),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) if is_still(&file, path)? => Ok(LockAttempt::Locked(file)),
        Ok(()) => Ok(LockAttempt::Busy),
        // A check has a shared lock, a claim an exclusive one.
        Err(TryLockError::WouldBlock) => Ok(match is_taken(&file)? {
            true => LockAttempt::Taken,
            false => LockAttempt::Busy,
        }),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Writes this process as the owner into the file that it has locked.
fn write_owner(mut file: File, directory: &Path, client: Option<&str>) -> io::Result<File> {
    if file.metadata()?.len() > 0 {
        tracing::warn!(
            "took over the identity of a process that died: {}",
            directory.display()
        );
    }
    file.set_len(0)?;
    let owner = Owner {
        pid: std::process::id(),
        started_at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        client: client.map(str::to_owned),
    };
    writeln!(file, "{}", serde_json::to_string(&owner)?)?;
    Ok(file)
}

/// Whether the path still names the opened file.
pub(super) fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(home: &Path) -> Claim {
        Claim::take(home, &"codex".parse().unwrap(), None, |_| true).unwrap()
    }

    #[test]
    fn second_claim_gets_a_number_and_a_released_name_is_free() {
        let home = tempfile::tempdir().unwrap();
        let first = take(home.path());
        let second = take(home.path());
        let third = take(home.path());
        let names = [&first, &second, &third].map(|claim| claim.identity.to_string());
        assert_eq!(names, ["codex", "codex-2", "codex-3"]);
        let file = first.file.clone();
        let text = fs::read_to_string(&file).unwrap();
        let about: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(about["pid"], std::process::id());
        drop(first);
        assert!(!file.exists());
        assert_eq!(take(home.path()).identity.as_str(), "codex");
    }

    #[test]
    fn identity_of_another_agent_is_not_claimed() {
        let home = tempfile::tempdir().unwrap();
        let codex: AgentName = "codex".parse().unwrap();
        let claimed = |others: &[&str]| {
            let may_be = |identity: &AgentName| !others.contains(&identity.as_str());
            Claim::take(home.path(), &codex, None, may_be).unwrap()
        };
        let first = claimed(&["codex-2"]);
        let second = claimed(&["codex-2"]);
        let third = claimed(&["codex"]);
        let names = [&first, &second, &third].map(|claim| claim.identity.to_string());
        assert_eq!(names, ["codex", "codex-3", "codex-2"]);
    }

    #[test]
    fn claim_of_a_dead_process_is_taken_over() {
        let home = tempfile::tempdir().unwrap();
        let directory = identities::directory_of(home.path(), &"codex".parse().unwrap());
        fs::create_dir_all(&directory).unwrap();
        // The ID of another process, which is alive.
        fs::write(directory.join(FILE), "{\"pid\":1}\n").unwrap();
        let claim = take(home.path());
        assert_eq!(claim.identity.as_str(), "codex");
        let mode = fs::metadata(&claim.file).unwrap().mode();
        assert_eq!(mode & 0o111, 0);
    }

    #[test]
    fn client_of_a_dead_process_gets_its_identity_again() {
        let home = tempfile::tempdir().unwrap();
        let take_as = |name: &str, client: &str| {
            Claim::take(home.path(), &name.parse().unwrap(), Some(client), |_| true).unwrap()
        };
        let first = ["a", "b", "c"].map(|client| take_as("codex", client));
        let names = ["codex", "codex-2", "codex-3"];
        assert_eq!(first.each_ref().map(|claim| claim.identity.as_str()), names);
        let files = first.map(|claim| {
            let text = fs::read_to_string(&claim.file).unwrap();
            (claim.file.clone(), text)
        });
        // A killed process leaves the files like this.
        for (file, text) in files {
            fs::write(file, text).unwrap();
        }
        // The members are removed from their team meanwhile.
        for name in names {
            let checked = Claim::while_free(home.path(), &name.parse().unwrap(), || ());
            assert_eq!(checked.unwrap(), Some(()));
        }
        let other = take_as("other", "c");
        assert_eq!(other.identity.as_str(), "other");
        let again = ["c", "b", "a", "d"].map(|client| take_as("codex", client));
        let names = again.each_ref().map(|claim| claim.identity.as_str());
        assert_eq!(names, ["codex-3", "codex-2", "codex", "codex-4"]);
        // An identity is held once.
        assert_eq!(take_as("codex", "c").identity.as_str(), "codex-5");
    }

    #[test]
    fn lock_file_that_is_a_link_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let directory = identities::directory_of(home.path(), &"codex".parse().unwrap());
        fs::create_dir_all(&directory).unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, directory.join(FILE)).unwrap();
        let refused = Claim::take(home.path(), &"codex".parse().unwrap(), None, |_| true);
        assert!(matches!(refused, Err(ClaimError::File { .. })));
        assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
    }

    #[test]
    fn pipe_in_place_of_the_lock_file_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let codex: AgentName = "codex".parse().unwrap();
        let directory = identities::directory_of(home.path(), &codex);
        fs::create_dir_all(&directory).unwrap();
        nix::unistd::mkfifo(&directory.join(FILE), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let path = home.path().to_owned();
        thread::spawn(move || tell.send(Claim::is_held(&path, &codex)));
        let is_held = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(!is_held.unwrap());
    }

    #[test]
    fn claim_without_home_or_with_a_long_name_is_refused() {
        let refused = Claim::take(Path::new(""), &"codex".parse().unwrap(), None, |_| true);
        assert!(matches!(refused, Err(ClaimError::NoHome)));
        let long: AgentName = "x".repeat(100).parse().unwrap();
        let home = tempfile::tempdir().unwrap();
        let _held = Claim::take(home.path(), &long, None, |_| true).unwrap();
        let refused = Claim::take(home.path(), &long, None, |_| true);
        assert!(matches!(refused, Err(ClaimError::Name(_))));
    }

    #[test]
    fn is_held_check_does_not_disturb_claims() {
        let home = tempfile::tempdir().unwrap();
        let codex: AgentName = "codex".parse().unwrap();
        let is_held = || Claim::is_held(home.path(), &codex).unwrap();
        assert!(!is_held());
        let claim = take(home.path());
        let file = claim.file.clone();
        assert!(is_held());
        drop(claim);
        // A killed process leaves the file like this.
        fs::write(&file, "{}").unwrap();
        assert!(!is_held());
        let looking = File::open(&file).unwrap();
        let (looked, taken) = std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                (0..200)
                    .map(|_| take(home.path()).identity.clone())
                    .collect()
            });
            let mut looked = 0_u32;
            while !taker.is_finished() {
                if looking.try_lock_shared().is_ok() {
                    looking.unlock().unwrap();
                }
                looked += 1;
            }
            let taken: Vec<AgentName> = taker.join().unwrap();
            (looked, taken)
        });
        assert!(looked > 0 && taken.iter().all(|name| *name == codex));
    }

    /// A check that lasts, as when another process holds the lock of the team, delays no server.
    #[test]
    fn lasting_check_counts_as_a_claim() {
        let home = tempfile::tempdir().unwrap();
        let codex: AgentName = "codex".parse().unwrap();
        drop(take(home.path()));
        let during = Claim::while_free(home.path(), &codex, || take(home.path()));
        let during = during.unwrap().unwrap();
        assert_eq!(during.identity.as_str(), "codex-2");
        // The control: nobody holds the identity itself.
        assert_eq!(take(home.path()).identity, codex);
    }

    /// Two clean-ups at once would remove the file twice: the second time that of a new claim, and
    /// then two servers have the identity.
    #[test]
    fn concurrent_checks_leave_the_file_of_a_claim() {
        let home = tempfile::tempdir().unwrap();
        let codex: AgentName = "codex".parse().unwrap();
        let claim = take(home.path());
        let file = claim.file.clone();
        drop(claim);
        // A killed process leaves the file like this.
        fs::write(&file, "{}").unwrap();
        let check = |act: &dyn Fn() -> Option<Claim>| Claim::while_free(home.path(), &codex, act);
        let claim = check(&|| {
            check(&|| None).unwrap();
            Some(take(home.path()))
        });
        let claim = claim.unwrap().flatten().unwrap();
        assert!(is_still(&claim._lock, &claim.file).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
        assert!(is_still(&take(home.path())._lock, &file).unwrap());
    }

    #[test]
    fn concurrent_claims_get_distinct_names() {
        let home = tempfile::tempdir().unwrap();
        let claims: Vec<Claim> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..16).map(|_| scope.spawn(|| take(home.path()))).collect();
            takers
                .into_iter()
                .map(|taker| taker.join().unwrap())
                .collect()
        });
        let mut names: Vec<String> = claims
            .iter()
            .map(|claim| claim.identity.to_string())
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 16);
    }
}
