//! The identity with which a store is opened, and its rights over the jobs of others.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::text::one_line;
use nix::unistd::{Uid, User};
use rustix::process::geteuid;
use settings::store_access::{Access, OthersJobs};
use settings::store_location::Location;

use super::cells::{state, text};
use super::error::Fault;
use super::record::{NewJob, Origin, Owner, Ownership};
use super::signature::{self, SignaturePurpose};
use super::sql::{Row, Value};
use crate::logic::JobId;
use crate::machine::{self, KeyError, MachineKey};

/// The longest name of an owner that is shown, in bytes.
const LONGEST_NAME: usize = 200;

/// Who can write to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writers {
    /// This user only: the store is a file that nobody else can read or write, in a directory in
    /// which nobody else can create files.
    ThisUser,
    /// Also others, as the server or the mode of the file or its directory admits them.
    Others,
}

impl Writers {
    fn of(location: &Location) -> Self {
        match location {
            Location::Sqlite(path) if is_private(path) => Self::ThisUser,
            Location::Sqlite(_) | Location::Postgres(_) => Self::Others,
        }
    }
}

/// Whether nobody else can read or write a file, or create files next to it: SQLite applies the
/// changes in a log or journal there, whoever has written it.
fn is_private(path: &Path) -> bool {
    // The log of a link lies beside the file to which the link leads.
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let user = geteuid().as_raw();
    let is_ours = |about: fs::Metadata| about.uid() == user && about.mode() & 0o077 == 0;
    let is_closed = |about: fs::Metadata| {
        (about.uid() == user || about.uid() == 0) && about.mode() & 0o022 == 0
    };
    let directory = path.parent().map(fs::metadata);
    fs::metadata(&path).is_ok_and(is_ours)
        && directory.is_some_and(|directory| directory.is_ok_and(is_closed))
}

/// The identity with which a store is opened, for its statements.
pub(super) struct Identity {
    key: MachineKey,
    owner: String,
    others: OthersJobs,
    writers: Writers,
}

impl Identity {
    /// The identity of this machine and user. The store must exist already.
    pub(super) fn new(location: &Location, access: &Access) -> Result<Self, KeyError> {
        let key = MachineKey::load_or_create(&access.state)?;
        Ok(Self::with(key, location, access))
    }

    /// The same without creating a key: a machine without one has signed no jobs.
    pub(super) fn inspecting(location: &Location, access: &Access) -> Result<Self, KeyError> {
        let key = MachineKey::load_or_forget(&access.state)?;
        Ok(Self::with(key, location, access))
    }

    fn with(key: MachineKey, location: &Location, access: &Access) -> Self {
        Self {
            key,
            owner: format!("{}@{}", user(), machine::name()),
            others: access.others,
            writers: Writers::of(location),
        }
    }

    /// The SQL condition for the jobs that may be changed: our own, and all if the setting
    /// allows `needs`.
    pub(super) fn may(&self, needs: OthersJobs) -> String {
        match self.others >= needs {
            true => "TRUE".to_owned(),
            false => self.is_own(),
        }
    }

    /// The SQL condition for our own jobs.
    pub(super) fn is_own(&self) -> String {
        match self.writers == Writers::ThisUser {
            true => "TRUE".to_owned(),
            // The name of a key has hexadecimal digits only.
            false => format!("(signer = '{}'{{same role}})", self.key.id()),
        }
    }

    /// The values of the columns [`SIGNED`](super::columns::SIGNED).
    pub(super) fn sign(&self, job: &NewJob, request: &[Value]) -> [Value; 4] {
        let id = job.id.as_str();
        let sign = |purpose, request: &[Value]| {
            let message = signature::message(purpose, id, &self.owner, request);
            self.key.sign(&message)
        };
        let ended = signature::masked(request);
        [
            (&self.owner).into(),
            self.key.id().into(),
            sign(SignaturePurpose::Run, request).as_str().into(),
            sign(SignaturePurpose::Again, ended.as_deref().unwrap_or(request))
                .as_str()
                .into(),
        ]
    }

    /// The signature of a message that holds for one attempt.
    pub(super) fn sign_message(&self, message: &[u8]) -> String {
        self.key.sign(message)
    }

    /// The origin of a message, by its signature.
    pub(super) fn origin_of(&self, message: &[u8], signature: &str) -> Origin {
        match self.key.has_signed(message, signature) {
            true => Origin::ThisMachine,
            false => Origin::Unproven,
        }
    }

    /// The signature of the thread of a job.
    pub(super) fn sign_session(&self, job: &JobId, session: &str) -> String {
        self.key.sign(&signature::of_session(job.as_str(), session))
    }

    /// The origin of the thread of a row: whether a worker of this machine has stored it. Nobody
    /// else can have written it to a file of this user.
    pub(super) fn session_origin(&self, row: &Row) -> Result<Origin, Fault> {
        if self.writers == Writers::ThisUser {
            return Ok(Origin::ThisMachine);
        }
        let signed = row.text("session_id")?.zip(row.text("session_signature")?);
        let Some((session, signature)) = signed else {
            return Ok(Origin::Unproven);
        };
        let message = signature::of_session(&text(row, "id")?, &session);
        Ok(self.origin_of(&message, &signature))
    }

    /// The owner of the job of a row, as the row names it.
    pub(super) fn owner(&self, row: &Row) -> Result<Owner, Fault> {
        let is_ours = self.writers == Writers::ThisUser
            || (row.text("signer")?.as_deref() == Some(self.key.id())
                && row.number("same_role")? == Some(1));
        Ok(Owner {
            name: name(row)?,
            role: row.text("owner_role")?,
            ownership: match is_ours {
                true => Ownership::Ours,
                false => Ownership::Others,
            },
        })
    }

    /// The origin of a row: whether it is unchanged since this machine has submitted it.
    pub(super) fn origin(&self, row: &Row) -> Result<Origin, Fault> {
        let (purpose, column) = match state(row)?.has_ended() {
            true => (SignaturePurpose::Again, "ended_signature"),
            false => (SignaturePurpose::Run, "signature"),
        };
        let (owner, signature) = (row.text("owner")?, row.text(column)?);
        let (Some(owner), Some(signature)) = (&owner, &signature) else {
            // Older programs stored neither signature nor owner. Nobody else can have added
            // the row to a file of this user.
            let is_old = owner.is_none() && row.text("signer")?.is_none();
            return Ok(match is_old && self.writers == Writers::ThisUser {
                true => Origin::ThisMachine,
                false => Origin::Unproven,
            });
        };
        let id = text(row, "id")?;
        let message = signature::message(purpose, &id, owner, &signature::fields(row)?);
        Ok(match self.key.has_signed(&message, signature) {
            true => Origin::ThisMachine,
            false => Origin::Unproven,
        })
    }
}

/// The owner that a row names, shortened: others may have written any text.
pub(super) fn name(row: &Row) -> Result<Option<String>, Fault> {
    let name = row.text("owner")?;
    Ok(name.map(|name| one_line(&name, LONGEST_NAME)))
}

/// The name of the user, or else the number.
fn user() -> String {
    let uid = Uid::effective();
    let known = User::from_uid(uid).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}
