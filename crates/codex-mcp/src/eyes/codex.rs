//! The interactive Codex, begun and resumed, each in a terminal of its own.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use codex_mcp_core::eyes::arguments::{Added, Arguments, Attachment};
use codex_mcp_core::eyes::machine::{self, Session};
use codex_mcp_core::eyes::path::PicturePath;
use codex_mcp_core::eyes::picture::{BadPicture, Why};
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
        let folder = tempfile::Builder::new()
            .prefix("codex-mcp-eyes-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        Attachment::new(folder.path().as_os_str())
            .map_err(|error| io::Error::other(format!("{error}: set TMPDIR to another folder")))?;
        Ok(Self {
            folder,
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
        if let Some(last) = self.last.take() {
            fs::remove_dir_all(last).map_err(|error| unfit(error.to_string()))?;
        }
        self.count += 1;
        let folder = self.folder.path().join(self.count.to_string());
        let name = Path::new(path.as_str()).file_name().unwrap_or_default();
        // Codex would take it for several ones.
        let copy = folder.join(name.to_string_lossy().replace(',', "_"));
        self.last = Some(folder.clone());
        write(&folder, &copy, bytes).map_err(|error| unfit(error.to_string()))?;
        Attachment::new(copy.as_os_str()).map_err(|error| unfit(error.to_string()))
    }
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
    fn one_that_can_not_be_written_is_told() {
        let mut copies = Copies::new().unwrap();
        std::fs::write(copies.folder.path().join("1"), "").unwrap();
        let error = copies.keep(&"a.png".parse().unwrap(), b"").unwrap_err();
        assert!(matches!(error.why, Why::Unfit(_)), "{error}");
    }
}
