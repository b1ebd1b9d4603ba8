//! Removes the files of hosts that nobody has started for a while.
//!
//! Each environment of a client and each build of the program has a host with files of its own, and
//! both change: the directory would grow with each login. The lock of a host is held while its
//! files are removed, so none that is starting loses them.
//!
//! A client that is killed leaves its proof if nobody has taken it. A proof belongs to no host, and is
//! needed for seconds.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use supervise::adoptable::AdoptionSockets;
use supervise::proof::{self, ProofName};

use crate::endpoint::{HostEndpoint, LOCK, LOG, SOCKET};

/// How long files stay after the last change of one of them.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The end of the name of a log that was set aside because of its length.
const OLDER_LOG: &str = "log.1";

/// The ends of the names of a host's files, without its lock.
const BESIDE_LOCK: [&str; 3] = [SOCKET, LOG, OLDER_LOG];

/// The ends of the names of all its files. The lock is the last to be removed.
const ALL: [&str; 4] = [SOCKET, LOG, OLDER_LOG, LOCK];

/// Removes the files of hosts with other keys that do not run, have left no app-server, and were last
/// changed more than a week ago, and proofs of that age. Failures are logged.
pub fn remove(own: &HostEndpoint, now: SystemTime) {
    let others = match others(own) {
        Ok(others) => others,
        Err(error) => return tracing::warn!("cannot look for files of old hosts: {error}"),
    };
    for other in others {
        if let Err(error) = remove_unused(&other, now) {
            let key = other.key();
            tracing::warn!("cannot remove the files of the old host {key}: {error}");
        }
    }
    match proofs(own.directory()) {
        Ok(proofs) => proofs.iter().for_each(|name| {
            if let Err(error) = remove_old(own.directory(), name, now) {
                tracing::warn!(
                    "cannot remove the proof {} of an old client: {error}",
                    name.as_str()
                );
            }
        }),
        Err(error) => tracing::warn!("cannot look for proofs of old clients: {error}"),
    }
}

fn proofs(directory: &Path) -> io::Result<Vec<ProofName>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        if let Ok(name) = entry?.file_name().into_string() {
            found.extend(ProofName::try_from(name));
        }
    }
    Ok(found)
}

fn remove_old(directory: &Path, name: &ProofName, now: SystemTime) -> io::Result<()> {
    match was_changed(&directory.join(name.as_str()), now)? {
        true => Ok(()),
        false => proof::take(directory, name).map(drop),
    }
}

/// The endpoints of other hosts that have files but no adoption socket.
fn others(own: &HostEndpoint) -> io::Result<Vec<HostEndpoint>> {
    let mut keys = BTreeSet::new();
    let mut adoptable = BTreeSet::new();
    for entry in fs::read_dir(own.directory())? {
        let name = entry?.file_name();
        let Some((key, end)) = name.to_str().and_then(|name| name.split_once('.')) else {
            continue;
        };
        if ALL.contains(&end) {
            keys.insert(key.to_owned());
        } else if end.rsplit('.').next() == Some(AdoptionSockets::END) {
            adoptable.insert(key.to_owned());
        }
    }
    let unused = keys.difference(&adoptable).filter(|key| *key != own.key());
    Ok(unused.filter_map(|key| own.beside(key)).collect())
}

fn remove_unused(host: &HostEndpoint, now: SystemTime) -> io::Result<()> {
    if is_recent(host, &ALL, now)? {
        return Ok(());
    }
    let Some(_lock) = host.take()? else {
        return Ok(());
    };
    // A client may have opened the log meanwhile, to start a host. The lock may have been made here.
    if is_recent(host, &BESIDE_LOCK, now)? {
        return Ok(());
    }
    for end in ALL {
        match fs::remove_file(host.file(end)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether one of these files was changed within [`KEPT`], or in the future.
fn is_recent(host: &HostEndpoint, ends: &[&str], now: SystemTime) -> io::Result<bool> {
    for end in ends {
        if was_changed(&host.file(end), now)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether there is a file that was changed within [`KEPT`], or in the future.
fn was_changed(path: &Path, now: SystemTime) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(about) => {
            let age = now.duration_since(about.modified()?);
            Ok(!age.is_ok_and(|age| age > KEPT))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use safe_files::state_file::open_to_append;
    use supervise::private_socket;
    use supervise::proof::PROOF_BYTES;
    use tempfile::TempDir;

    use super::*;

    const OWN: &str = "aaaa";
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// A directory of hosts, eight days after its files were made.
    struct Hosts {
        state: TempDir,
        own: HostEndpoint,
        now: SystemTime,
    }

    impl Hosts {
        /// With the lock of the own host, and files of these names.
        fn with(names: &[&str]) -> Self {
            let state = tempfile::tempdir().unwrap();
            let own = HostEndpoint::new(state.path(), OWN.to_owned());
            drop(own.take().unwrap().unwrap());
            for name in names {
                let path = own.directory().join(name);
                match name.ends_with(SOCKET) {
                    true => drop(private_socket::bind(&path).unwrap()),
                    false => drop(open_to_append(&path).unwrap()),
                }
            }
            Self {
                state,
                own,
                now: SystemTime::now() + 8 * DAY,
            }
        }

        fn host(&self, key: &str) -> HostEndpoint {
            HostEndpoint::new(self.state.path(), key.to_owned())
        }

        /// The names of the files that stay.
        fn left(&self) -> Vec<String> {
            remove(&self.own, self.now);
            let entries = fs::read_dir(self.own.directory()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        }
    }

    #[test]
    fn files_of_old_hosts_are_removed() {
        let killed = ["bbbb.sock", "bbbb.lock", "bbbb.log", "bbbb.log.1"];
        let failed = ["cccc.log"];
        let others = ["control.log", "dddd.proof", "README"];
        let hosts = Hosts::with(&[&killed[..], &failed, &others].concat());
        let expected = ["README", "aaaa.lock", "control.log", "dddd.proof"];
        assert_eq!(hosts.left(), expected);
    }

    #[test]
    fn files_of_a_running_host_stay() {
        let hosts = Hosts::with(&["bbbb.sock", "bbbb.log"]);
        let running = hosts.host("bbbb").take().unwrap().unwrap();
        let expected = ["aaaa.lock", "bbbb.lock", "bbbb.log", "bbbb.sock"];
        assert_eq!(hosts.left(), expected);
        drop(running);
        assert_eq!(hosts.left(), ["aaaa.lock"]);
    }

    #[test]
    fn files_of_a_host_with_an_app_server_stay() {
        let names = ["bbbb.0123.guard", "bbbb.lock", "bbbb.log", "bbbb.sock"];
        let hosts = Hosts::with(&names);
        assert_eq!(hosts.left(), [&["aaaa.lock"][..], &names].concat());
    }

    #[test]
    fn files_stay_for_a_week_after_the_last_change() {
        let mut hosts = Hosts::with(&["bbbb.lock", "bbbb.log"]);
        let log = open_to_append(&hosts.host("bbbb").log()).unwrap();
        log.set_modified(hosts.now).unwrap();
        let expected = ["aaaa.lock", "bbbb.lock", "bbbb.log"];
        assert_eq!(hosts.left(), expected);
        hosts.now += 6 * DAY;
        assert_eq!(hosts.left(), expected);
        hosts.now += 2 * DAY;
        assert_eq!(hosts.left(), ["aaaa.lock"]);
    }

    /// A client that is about to make its request has a new one.
    #[test]
    fn only_old_proofs_are_removed() {
        let mut hosts = Hosts::with(&[]);
        let proof = ProofName::new([7; PROOF_BYTES]);
        proof::make(hosts.own.directory(), &proof).unwrap();
        hosts.now -= 2 * DAY;
        assert_eq!(hosts.left(), [proof.as_str(), "aaaa.lock"]);
        hosts.now += 2 * DAY;
        assert_eq!(hosts.left(), ["aaaa.lock"]);
    }

    /// A lock is made to remove it.
    #[test]
    fn old_log_without_a_lock_is_removed() {
        let mut hosts = Hosts::with(&["bbbb.log"]);
        let log = open_to_append(&hosts.host("bbbb").log()).unwrap();
        log.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        hosts.now = SystemTime::now();
        assert_eq!(hosts.left(), ["aaaa.lock"]);
    }

    #[test]
    fn links_are_not_followed() {
        let hosts = Hosts::with(&["target", "bbbb.lock"]);
        let link = |name: &str| symlink("target", hosts.own.directory().join(name)).unwrap();
        link("bbbb.log");
        link("cccc.lock");
        assert_eq!(hosts.left(), ["aaaa.lock", "cccc.lock", "target"]);
    }
}
