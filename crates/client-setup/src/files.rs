//! The configuration files themselves: where they are, read, and replaced.
#![expect(
    clippy::disallowed_methods,
    reason = "files are opened in a directory that is held open, without links and without waiting"
)]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, Mode, OFlags, access, fchmod, fsync, mkdirat, open, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Uid, geteuid};
use safe_files::directory;
use safe_files::state_file::{self, with_suffix};
use safe_files::untrusted_file::{self, Links, ReadError};

/// The longest file of a user that is edited, in bytes. Claude Code's grows with each project.
pub(crate) const LIMIT: u64 = 16 << 20;

/// The longest file of a repository that is edited, in bytes: its author must not keep us busy.
const REPOSITORY_LIMIT: u64 = 32 << 10;

/// The mode of a new file: clients keep credentials in the same files.
const NEW_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The end of the name of a file that is about to take the place of another.
const NEW_SUFFIX: &str = ".codex-mcp-new";

/// Why a configuration file is not read or replaced.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The system refuses.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A symbolic link in a repository, whose author chose its target.
    #[error("{} is a link, which is not followed in a repository; remove it", .0.display())]
    Link(PathBuf),
    /// A link of the user's leads to nothing.
    #[error("{} is a link to a file that does not exist; remove it, or make the file", .0.display())]
    Dangling(PathBuf),
    /// Its path cannot be noted.
    #[error("{} is not UTF-8; rename it", .0.display())]
    NotUtf8(PathBuf),
    /// The user may not write to it.
    #[error("{} is read-only; make it writable, or add the entry by hand", .0.display())]
    ReadOnly(PathBuf),
    /// The user may not put a new file beside it.
    #[error(
        "{} is in a read-only directory, where it cannot be replaced; make the directory writable, or edit the file by \
         hand",
        .0.display()
    )]
    ReadOnlyDirectory(PathBuf),
    /// It is a mount point, which no other file can replace.
    #[error("{} is mounted by itself, so it cannot be replaced; edit it by hand", .0.display())]
    Mounted(PathBuf),
    /// It belongs to another user. Only root can give a new file to that user.
    #[error("{} belongs to another user, and would become yours; edit it by hand", .0.display())]
    OfAnotherUser(PathBuf),
    /// Another program has changed it since it was read.
    #[error("{} was changed by another program meanwhile; run the command again", .0.display())]
    Changed(PathBuf),
    /// Another process that sets up clients has locked its directory for too long.
    #[error(transparent)]
    Busy(#[from] state_file::FileError),
}

fn about(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError::Io { path, error }
}

/// Whose configuration file it is, and so whether links are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    User,
    /// The repository with this top.
    Repository(PathBuf),
}

/// A configuration file as it was read.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    owner: Owner,
    path: PathBuf,
    /// The file that is replaced: the target of `path`, if that is a symbolic link.
    target: PathBuf,
    /// `None` if there is no such file.
    text: Option<String>,
}

impl ConfigFile {
    /// Reads a file of the user's. Links are followed: users keep such files in a repository of
    /// their own.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn of_user(path: &Path) -> Result<Self, FileError> {
        Self::read(Owner::User, path)
    }

    /// Reads a file of a repository, whose top is given.
    ///
    /// # Errors
    ///
    /// [`FileError`], also if a link leads to the file.
    pub fn of_repository(top: &Path, file: &Path) -> Result<Self, FileError> {
        let top = fs::canonicalize(top).map_err(about(top))?;
        let path = top.join(file);
        Self::read(Owner::Repository(top), &path)
    }

    /// Reads the file once more.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn reread(&self) -> Result<Self, FileError> {
        Self::read(self.owner.clone(), &self.path)
    }

    /// The file as it will be once it has this text.
    #[must_use]
    pub fn with_text(&self, text: &str) -> Self {
        Self {
            text: Some(text.to_owned()),
            ..self.clone()
        }
    }

    fn read(owner: Owner, path: &Path) -> Result<Self, FileError> {
        if path.to_str().is_none() {
            return Err(FileError::NotUtf8(path.to_owned()));
        }
        let target = match &owner {
            Owner::User => target(path)?,
            Owner::Repository(top) => {
                refuse_links(top, path)?;
                path.to_owned()
            }
        };
        let limit = match owner {
            Owner::User => LIMIT,
            Owner::Repository(_) => REPOSITORY_LIMIT,
        };
        let text = match untrusted_file::read_text(&target, limit, Links::Refused) {
            Ok(text) => Some(text),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            owner,
            path: path.to_owned(),
            target,
            text,
        })
    }

    /// The path by which the client knows it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether both lead to one file, as links into a repository of the user's may.
    #[must_use]
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.target == other.target
    }

    /// Its text; `None` if there is no such file.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Fails if the user may not write to the file, which could be replaced all the same, if it
    /// cannot be replaced in its directory, or if it could not keep its owner.
    ///
    /// # Errors
    ///
    /// [`FileError::ReadOnly`], [`FileError::ReadOnlyDirectory`] and [`FileError::OfAnotherUser`].
    pub fn check_writable(&self) -> Result<(), FileError> {
        let is_refused = |path: &Path, wanted: Access| {
            let access = access(path, wanted);
            matches!(access, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS))
        };
        // For root the system says yes also where the mode lets nobody write.
        let about = fs::metadata(&self.target);
        let is_for_nobody = about.is_ok_and(|about| about.permissions().readonly());
        if is_refused(&self.target, Access::WRITE_OK) || is_for_nobody {
            return Err(FileError::ReadOnly(self.path.clone()));
        }
        let mut directories = self.target.ancestors().skip(1);
        let directory = directories.find(|directory| directory.exists());
        if directory.is_some_and(|path| is_refused(path, Access::WRITE_OK | Access::EXEC_OK)) {
            return Err(FileError::ReadOnlyDirectory(self.path.clone()));
        }
        self.check_owner(geteuid())
    }

    fn check_owner(&self, user: Uid) -> Result<(), FileError> {
        let about = fs::metadata(&self.target);
        let is_anothers = about.is_ok_and(|about| about.uid() != user.as_raw());
        match is_anothers && !user.is_root() {
            true => Err(FileError::OfAnotherUser(self.path.clone())),
            false => Ok(()),
        }
    }

    /// Replaces the file atomically, and keeps its mode and its owner, and its group if the user may
    /// give a file to it.
    ///
    /// # Errors
    ///
    /// [`FileError`], also if another program has changed the file since it was read. The file is
    /// as it was then.
    pub fn replace(&self, after: &str) -> Result<(), FileError> {
        self.check_unchanged()?;
        self.check_writable()?;
        let directory = self.lock_directory()?;
        self.check_in(&directory)?;
        let name = self.target.file_name().unwrap_or_default();
        let new = with_suffix(Path::new(name), NEW_SUFFIX);
        // What a killed process has left.
        let _ = unlinkat(&directory, &new, AtFlags::empty());
        let written = self.write(&directory, &new, after);
        let written = written.map_err(about(&self.target));
        let replaced = written.and_then(|()| self.put_in_place(&directory, &new));
        if replaced.is_err() {
            // On a full disk it takes up room.
            let _ = unlinkat(&directory, &new, AtFlags::empty());
        }
        replaced
    }

    /// Renames the new file to the name of the file. Writing takes seconds on a slow disk, so another
    /// program may have saved the file meanwhile.
    fn put_in_place(&self, directory: &File, new: &Path) -> Result<(), FileError> {
        self.check_in(directory)?;
        let name = self.target.file_name().unwrap_or_default();
        let renamed = renameat(directory, new, directory, name).and_then(|()| fsync(directory));
        renamed.map_err(|errno| self.refused(errno))
    }

    /// The error of replacing or removing the file.
    fn refused(&self, errno: Errno) -> FileError {
        match errno {
            Errno::BUSY => FileError::Mounted(self.path.clone()),
            errno => about(&self.target)(errno.into()),
        }
    }

    fn write(&self, directory: &File, new: &Path, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(directory, new, flags, NEW_FILE)?);
        file.write_all(text.as_bytes())?;
        let name = self.target.file_name().unwrap_or_default();
        if let Ok(about) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            let own = file.metadata()?;
            let mut mode = about.st_mode;
            if (own.uid(), own.gid()) != (about.st_uid, about.st_gid) {
                match fchown(&file, Some(about.st_uid), Some(about.st_gid)) {
                    // A user who is not in the file's group cannot give a file to it. Our own group
                    // may do what everybody may.
                    Err(error)
                        if own.uid() == about.st_uid
                            && error.kind() == io::ErrorKind::PermissionDenied =>
                    {
                        mode = (mode & !0o070) | ((mode & 0o007) << 3);
                    }
                    given => given?,
                }
            }
            fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        file.sync_all()
    }

    /// Makes the directory of the file and those above it, and returns the ones that did not exist.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn make_directory(&self) -> Result<Vec<PathBuf>, FileError> {
        let (_, mut made) = self.make_and_open_directory()?;
        // Receipts are UTF-8, and so is the path of the file, but without its links it need not be.
        made.retain(|path| path.to_str().is_some());
        Ok(made)
    }

    fn open_directory(&self) -> Result<File, FileError> {
        self.make_and_open_directory().map(|(opened, _)| opened)
    }

    /// Opens the directory of the file, which is made if there is none, and returns it with the
    /// directories that were made. In a repository, no link is followed, even if one takes the place
    /// of a directory meanwhile.
    fn make_and_open_directory(&self) -> Result<(File, Vec<PathBuf>), FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = self.target.parent().unwrap_or(Path::new("/"));
        let Owner::Repository(top) = &self.owner else {
            let made = directory::create_missing(parent, 0o777).map_err(about(parent))?;
            let opened =
                open(parent, flags, Mode::empty()).map_err(|errno| about(parent)(errno.into()))?;
            return Ok((File::from(opened), made));
        };
        let mut made = Vec::new();
        let mut path = top.clone();
        let mut directory =
            open(top, flags, Mode::empty()).map_err(|errno| about(top)(errno.into()))?;
        let below = parent.strip_prefix(top).unwrap_or(Path::new(""));
        for part in below.components() {
            path.push(part);
            let name = part.as_os_str();
            match mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => made.push(path.clone()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(about(&path)(errno.into())),
            }
            let next = openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty());
            directory = next.map_err(|errno| match errno {
                Errno::LOOP | Errno::NOTDIR => FileError::Link(path.clone()),
                errno => about(&path)(errno.into()),
            })?;
        }
        Ok((File::from(directory), made))
    }

    /// Opens the directory of the file, and locks it until the returned file is dropped: new files have
    /// a name that another process would use too. The lock of the receipts is not enough, because each
    /// state directory has receipts of its own.
    fn lock_directory(&self) -> Result<File, FileError> {
        let directory = self.open_directory()?;
        let path = self.target.parent().unwrap_or(Path::new("/"));
        match state_file::lock_open(&directory, path) {
            Err(busy @ state_file::FileError::Busy { .. }) => Err(busy.into()),
            // On a file system without such locks, as NFS, it is done without one.
            Ok(()) | Err(_) => Ok(directory),
        }
    }

    /// Fails if the file in this directory is not as it was read.
    fn check_in(&self, directory: &File) -> Result<(), FileError> {
        let name = self.target.file_name().unwrap_or_default();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let same = match (openat(directory, name, flags, Mode::empty()), &self.text) {
            (Err(Errno::NOENT), None) => true,
            (Ok(file), Some(text)) => {
                let mut now = Vec::new();
                let read = File::from(file)
                    .take(text.len() as u64 + 1)
                    .read_to_end(&mut now);
                read.is_ok() && now == text.as_bytes()
            }
            _ => false,
        };
        match same {
            true => Ok(()),
            false => Err(FileError::Changed(self.path.clone())),
        }
    }

    /// Removes the file, which did not exist before an entry was added.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn remove(&self) -> Result<(), FileError> {
        self.check_unchanged()?;
        let directory = self.lock_directory()?;
        self.check_in(&directory)?;
        let name = self.target.file_name().unwrap_or_default();
        let removed = unlinkat(&directory, name, AtFlags::empty());
        removed.map_err(|errno| self.refused(errno))
    }

    /// Whether its path is a symbolic link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|about| about.is_symlink())
    }

    /// Fails if another program has changed the file since it was read.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn check_unchanged(&self) -> Result<(), FileError> {
        let now = self.reread()?;
        match (&now.target, &now.text) == (&self.target, &self.text) {
            true => Ok(()),
            false => Err(FileError::Changed(self.path.clone())),
        }
    }
}

/// The path without symbolic links; the path itself if there is no such file.
fn target(path: &Path) -> Result<PathBuf, FileError> {
    match fs::canonicalize(path) {
        Ok(target) => Ok(target),
        // A link without a target would be replaced by a file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::symlink_metadata(path) {
            Ok(_) => Err(FileError::Dangling(path.to_owned())),
            Err(_) => Ok(path.to_owned()),
        },
        Err(error) => Err(about(path)(error)),
    }
}

fn refuse_links(top: &Path, path: &Path) -> Result<(), FileError> {
    let below = path.ancestors().take_while(|ancestor| *ancestor != top);
    for part in below {
        if fs::symlink_metadata(part).is_ok_and(|about| about.is_symlink()) {
            return Err(FileError::Link(part.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn file_is_replaced_and_keeps_its_mode_and_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (
            directory.path().join("real.json"),
            directory.path().join("link.json"),
        );
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o664)).unwrap();
        symlink(&real, &link).unwrap();
        let file = ConfigFile::of_user(&link).unwrap();
        assert_eq!(file.text(), Some("old"));
        file.replace("new").unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o664);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn file_of_another_user_is_refused_unless_root_replaces_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.json");
        let file = ConfigFile::of_user(&path).unwrap();
        let another = Uid::from_raw(geteuid().as_raw() + 1);
        assert!(file.check_owner(another).is_ok());
        fs::write(&path, "x").unwrap();
        let refused = file.check_owner(another);
        assert!(
            matches!(refused, Err(FileError::OfAnotherUser(_))),
            "{refused:?}"
        );
        for user in [geteuid(), Uid::ROOT] {
            assert!(file.check_owner(user).is_ok());
        }
    }

    #[test]
    fn new_file_is_for_the_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/new.json");
        let file = ConfigFile::of_user(&path).unwrap();
        assert_eq!(file.text(), None);
        file.replace("x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn change_by_another_program_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.json");
        fs::write(&path, "first").unwrap();
        let file = ConfigFile::of_user(&path).unwrap();
        fs::write(&path, "second").unwrap();
        assert!(matches!(file.replace("ours"), Err(FileError::Changed(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    }

    /// Two processes with state directories of their own do not wait for each other's receipts.
    #[test]
    fn writers_of_one_file_take_turns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.json");
        fs::write(&path, "").unwrap();
        let texts = |letter: &'static str| (1..=30).map(move |length| letter.repeat(length * 1000));
        let write = |letter: &'static str| {
            for text in texts(letter) {
                let file = ConfigFile::of_user(&path).unwrap();
                let replaced = file.replace(&text);
                let is_clean = matches!(replaced, Ok(()) | Err(FileError::Changed(_)));
                assert!(is_clean, "{replaced:?}");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write("a"));
            scope.spawn(|| write("b"));
        });
        let text = fs::read_to_string(&path).unwrap();
        assert!(texts("a").chain(texts("b")).any(|whole| whole == text));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn change_while_the_new_file_is_written_is_not_lost() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("c.json");
        fs::write(&path, "first").unwrap();
        let file = ConfigFile::of_user(&path).unwrap();
        let directory = file.open_directory().unwrap();
        let new = Path::new("new");
        file.write(&directory, new, "ours").unwrap();
        fs::write(&path, "second").unwrap();
        let refused = file.put_in_place(&directory, new);
        assert!(matches!(refused, Err(FileError::Changed(_))), "{refused:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        // As a control: the file as it was read is replaced.
        fs::write(&path, "first").unwrap();
        file.put_in_place(&directory, new).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
    }

    #[test]
    fn link_of_a_repository_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (top, secret) = (
            directory.path().join("repository"),
            directory.path().join("bashrc"),
        );
        fs::create_dir(&top).unwrap();
        fs::write(&secret, "mine").unwrap();
        symlink(&secret, top.join(".mcp.json")).unwrap();
        symlink(directory.path(), top.join(".cursor")).unwrap();
        for file in [".mcp.json", ".cursor/bashrc", ".cursor/mcp.json"] {
            let refused = ConfigFile::of_repository(&top, Path::new(file));
            assert!(matches!(refused, Err(FileError::Link(_))), "{refused:?}");
        }
        // As a control: the user's own links are followed.
        let followed = ConfigFile::of_user(&top.join(".mcp.json")).unwrap();
        assert_eq!(followed.text(), Some("mine"));
    }

    #[test]
    fn link_that_takes_the_place_of_a_directory_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (top, mine) = (directory.path().join("top"), directory.path().join("mine"));
        fs::create_dir_all(top.join(".cursor")).unwrap();
        fs::create_dir(&mine).unwrap();
        let file = ConfigFile::of_repository(&top, Path::new(".cursor/mcp.json")).unwrap();
        assert!(file.open_directory().is_ok());
        fs::remove_dir(top.join(".cursor")).unwrap();
        symlink(&mine, top.join(".cursor")).unwrap();
        let refused = file.open_directory();
        assert!(matches!(refused, Err(FileError::Link(_))), "{refused:?}");
        // As a control: the path leads to the user's directory.
        fs::write(file.path(), "theirs").unwrap();
        assert!(mine.join("mcp.json").exists());
    }

    #[test]
    fn strange_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("bytes"), [0xff, 0xfe]).unwrap();
        symlink(path("nothing"), path("dangling")).unwrap();
        fs::write(path("read-only"), "x").unwrap();
        fs::set_permissions(path("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
        for name in ["directory", "bytes", "dangling"] {
            let refused = ConfigFile::of_user(&path(name));
            assert!(refused.is_err(), "{name}: {refused:?}");
        }
        let file = ConfigFile::of_user(&path("read-only")).unwrap();
        assert!(matches!(file.replace("y"), Err(FileError::ReadOnly(_))));
        assert_eq!(fs::read_to_string(path("read-only")).unwrap(), "x");
    }
}
