//! The interactive Codex, begun and resumed, each in a terminal of its own.
#![expect(
    clippy::disallowed_methods,
    reason = "new files in a directory that is ours alone"
)]

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use codex_mcp_core::eyes::arguments::{Added, Arguments, Attachment};
use codex_mcp_core::eyes::machine::{self, Session};
use codex_mcp_core::eyes::path::PicturePath;
use codex_mcp_core::eyes::picture::{BadPicture, Why};
use rustix::process::geteuid;
use rustix::termios::{Termios, Winsize};
use tempfile::TempDir;

use super::tty::{Tty, behave};
use crate::engine::Exit;
use crate::engine::binary::CodexBinary;
use crate::engine::spawn::{Process, Program, spawn_in_terminal};

/// How Codex is started.
#[derive(Debug)]
pub struct Codex {
    /// Which.
    pub binary: CodexBinary,
    /// What the user has given for it.
    pub arguments: Arguments,
    /// What is added to that.
    pub added: Added,
}

/// A Codex that runs.
#[derive(Debug)]
pub struct Running {
    /// It, with all that it has started.
    pub process: Process,
    /// Our end of its terminal.
    pub tty: Tty,
}

impl Codex {
    /// Begins, in a terminal like the user's.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn begin(&self, size: Winsize, manner: &Termios) -> io::Result<Running> {
        self.start(self.arguments.begin(&self.added), size, manner)
    }

    /// Resumes a conversation.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn resume(
        &self,
        session: &Session,
        picture: Option<&Attachment>,
        words: &str,
        size: Winsize,
        manner: &Termios,
    ) -> io::Result<Running> {
        let args = self.arguments.resume(&self.added, session, picture, words);
        self.start(args, size, manner)
    }

    fn start(&self, args: Vec<OsString>, size: Winsize, manner: &Termios) -> io::Result<Running> {
        let (tty, theirs) = Tty::for_program()?;
        tty.resize(size)?;
        behave(&theirs, manner)?;
        let program = Program {
            env: self.binary.env(),
            ..Program::new(&self.binary.native, args)
        };
        let process = spawn_in_terminal(&program, &theirs)?;
        Ok(Running { process, tty })
    }
}

impl From<Exit> for machine::Exit {
    fn from(exit: Exit) -> Self {
        let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
        match exit {
            Exit::Code(code) => Self::Code(byte(code)),
            Exit::Signal(signal) => Self::Signal(byte(signal)),
            Exit::Unknown => Self::Code(1),
        }
    }
}

/// The copy of a picture, for Codex to read: it takes a picture by its name, and what is
/// under the name in the repository may be another one by then.
#[derive(Debug)]
pub struct Copies {
    folder: TempDir,
    last: Option<PathBuf>,
    count: u32,
}

impl Copies {
    /// None yet. Their folder goes when this does.
    ///
    /// # Errors
    ///
    /// When there is no room for temporary files, or Codex can't be told of them.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            folder: new_folder(&env::temp_dir())?,
            last: None,
            count: 0,
        })
    }

    /// Writes the copy of a picture, under its own name as far as Codex takes that. The
    /// one before goes: who was shown it has gone too.
    ///
    /// # Errors
    ///
    /// [`BadPicture`] if it can't be written.
    pub fn keep(&mut self, path: &PicturePath, bytes: &[u8]) -> Result<Attachment, BadPicture> {
        let unfit = |reason: String| BadPicture {
            path: path.clone(),
            why: Why::Unfit(reason),
        };
        self.make_room().map_err(|error| unfit(error.to_string()))?;
        self.count += 1;
        let folder = self.folder.path().join(self.count.to_string());
        let name = Path::new(path.as_str()).file_name().unwrap_or_default();
        // Codex would take it for several ones.
        let copy = folder.join(name.to_string_lossy().replace(',', "_"));
        self.last = Some(folder.clone());
        write(&folder, &copy, bytes).map_err(|error| unfit(error.to_string()))?;
        Attachment::new(copy.as_os_str()).map_err(|error| unfit(error.to_string()))
    }

    /// Removes the last copy. Who tidies temporary files up may have removed the folder
    /// meanwhile; then there is another one, as anybody may have put something in its place.
    fn make_room(&mut self) -> io::Result<()> {
        let last = self.last.take();
        if !is_ours(self.folder.path()) {
            let gone = std::mem::replace(&mut self.folder, new_folder(&env::temp_dir())?);
            // What is there now isn't ours to remove.
            let _ = gone.keep();
            return Ok(());
        }
        match last.map_or(Ok(()), fs::remove_dir_all) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A new folder that is only ours, among all temporary ones.
fn new_folder(all: &Path) -> io::Result<TempDir> {
    let unfit = |why: &dyn fmt::Display| {
        let all = all.display();
        io::Error::other(format!(
            "no copies of pictures can be kept in {all}: {why}; set TMPDIR to another folder"
        ))
    };
    let folder = tempfile::Builder::new()
        .prefix("codex-mcp-eyes-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(all)
        // The rest of it is a name that is made up.
        .map_err(|error| unfit(&error.kind()))?;
    Attachment::new(folder.path().as_os_str()).map_err(|error| unfit(&error))?;
    Ok(folder)
}

fn is_ours(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|about| {
        about.is_dir() && about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0
    })
}

fn write(folder: &Path, copy: &Path, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(copy)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn copies_have_the_names_of_their_pictures_but_for_commas() {
        let mut copies = Copies::new().unwrap();
        let root = copies.folder.path().to_owned();
        for (path, copy) in [("a/b c.png", "1/b c.png"), ("a/b,c.png", "2/b_c.png")] {
            let kept = copies.keep(&path.parse().unwrap(), b"bytes").unwrap();
            let copy = root.join(copy);
            assert_eq!(kept, Attachment::new(copy.as_os_str()).unwrap());
            assert_eq!(std::fs::read(copy).unwrap(), b"bytes");
        }
        assert!(!root.join("1").exists());
        drop(copies);
        assert!(!root.exists());
    }

    #[test]
    fn copies_are_kept_though_somebody_tidies_up() {
        let mut copies = Copies::new().unwrap();
        let path = "a.png".parse().unwrap();
        copies.keep(&path, b"one").unwrap();
        fs::remove_dir_all(copies.folder.path().join("1")).unwrap();
        copies.keep(&path, b"two").unwrap();
        let old = copies.folder.path().to_owned();
        fs::remove_dir_all(&old).unwrap();
        copies.keep(&path, b"three").unwrap();
        let new = copies.folder.path().to_owned();
        assert_eq!(fs::read(new.join("3/a.png")).unwrap(), b"three");
        assert!(is_ours(&new));
        drop(copies);
        assert!(!old.exists() && !new.exists());
    }

    #[test]
    fn what_somebody_puts_in_the_place_of_the_folder_is_left_alone() {
        let theirs = tempfile::tempdir().unwrap();
        let open = theirs.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        type Put = fn(&Path, &Path);
        let puts: [Put; 2] = [
            |open, place| symlink(open, place).unwrap(),
            |open, place| fs::rename(open, place).unwrap(),
        ];
        for put in puts {
            let mut copies = Copies::new().unwrap();
            let place = copies.folder.path().to_owned();
            fs::remove_dir(&place).unwrap();
            put(&open, &place);
            copies.keep(&"a.png".parse().unwrap(), b"bytes").unwrap();
            assert_ne!(copies.folder.path(), place);
            drop(copies);
            assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
            fs::remove_file(&place)
                .or_else(|_| fs::remove_dir(&place))
                .unwrap();
        }
    }

    #[test]
    fn a_folder_that_is_no_use_is_named_with_the_variable_that_chooses_it() {
        let all = tempfile::tempdir().unwrap();
        let gone = all.path().join("gone");
        let comma = all.path().join("a,b");
        fs::create_dir(&comma).unwrap();
        for (unfit, why) in [(gone, "not found"), (comma, "because of its comma")] {
            let told = new_folder(&unfit).unwrap_err().to_string();
            let begins = format!("no copies of pictures can be kept in {}: ", unfit.display());
            assert!(told.starts_with(&begins), "{told}");
            assert!(told.contains(why), "{told}");
            assert!(told.ends_with("; set TMPDIR to another folder"), "{told}");
            assert!(!told.contains("at path"), "{told}");
        }
    }

    #[test]
    fn one_that_can_not_be_written_is_told() {
        let mut copies = Copies::new().unwrap();
        std::fs::write(copies.folder.path().join("1"), "").unwrap();
        let error = copies.keep(&"a.png".parse().unwrap(), b"").unwrap_err();
        assert!(matches!(error.why, Why::Unfit(_)), "{error}");
    }
}
