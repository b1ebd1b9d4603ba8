//! The directories that may contain pictures, and reading pictures in them.
//!
//! A picture is opened once, and the open file is checked and read, so later changes of its
//! name make no difference. The path of the open file, not the requested name, decides
//! whether it is in the repository: links within the repository are followed, links out of it
//! are refused.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use codex_engine::logic::picture_kind::START;
use common::text::one_line;
use git_probe::repository::{Repository, ceilings};
use nix::errno::Errno;
use safe_files::untrusted_file::{self, Links, ReadError};

use super::fitted::check_decodable;
use crate::logic::path::{BadPath, PicturePath, SHOWN_PATH};
use crate::logic::picture::{BadPicture, BadPictureReason, SizeLimit, check};

/// A directory that Codex works in, and the repository around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRoot {
    /// Paths are relative to this directory.
    directory: PathBuf,
    /// Files outside of it are refused. Paths may be relative to it too.
    top: PathBuf,
    limit: SizeLimit,
}

/// An open picture, whose first bytes were checked.
#[derive(Debug)]
pub struct OpenPicture {
    file: File,
    start: Vec<u8>,
    size: u64,
}

impl OpenPicture {
    /// Its size when it was opened, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its bytes, of which there are at most [`OpenPicture::size`]. Reading blocks.
    pub fn into_reader(self) -> impl Read + Send + 'static {
        io::Cursor::new(self.start).chain(self.file).take(self.size)
    }
}

impl ImageRoot {
    /// A directory, and the git repository around it, if any. `limit` is the size limit of
    /// pictures.
    ///
    /// # Errors
    ///
    /// If the directory does not exist.
    pub fn around(directory: &Path, limit: SizeLimit) -> io::Result<Self> {
        let directory = directory.canonicalize()?;
        if !directory.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let repository = Repository::around(&directory, &ceilings());
        let top = repository.map_or_else(|| directory.clone(), |repository| repository.root);
        Ok(Self {
            directory,
            top,
            limit,
        })
    }

    /// The directory, without links.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The top of the repository around the directory, or the directory itself; without
    /// links.
    #[must_use]
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Checks that the picture exists and can be read.
    ///
    /// # Errors
    ///
    /// [`BadPicture`], in words for Codex.
    pub fn check(&self, path: &PicturePath) -> Result<(), BadPicture> {
        self.open(path).map(drop)
    }

    /// Reads a picture.
    ///
    /// # Errors
    ///
    /// [`BadPicture`], in words for Codex.
    pub fn read(&self, path: &PicturePath) -> Result<Vec<u8>, BadPicture> {
        let OpenPicture {
            file,
            start: mut bytes,
            ..
        } = self.open(path)?;
        // It may have grown since its size was looked at.
        let most = self.limit.bytes().saturating_add(1);
        let more = most.saturating_sub(length(&bytes));
        let rest = file.take(more).read_to_end(&mut bytes);
        rest.map_err(|error| self.refused(path, &error))?;
        check(path, length(&bytes), &bytes, self.limit)?;
        Ok(bytes)
    }

    /// Reads a picture that is attached as it is, and checks that it can be decoded.
    ///
    /// # Errors
    ///
    /// [`BadPicture`], in words for Codex.
    pub fn attachable(&self, path: &PicturePath) -> Result<Vec<u8>, BadPicture> {
        let bytes = self.read(path)?;
        match check_decodable(&bytes, path.kind()) {
            Ok(()) => Ok(bytes),
            Err(why) => Err(BadPicture {
                path: path.clone(),
                why,
            }),
        }
    }

    /// The path of the picture that is asked for.
    ///
    /// # Errors
    ///
    /// The reason, in words for Codex.
    pub fn path(&self, text: &str) -> Result<PicturePath, String> {
        text.parse().map_err(|error: BadPath| {
            match (error, Path::new(text).strip_prefix(&self.top)) {
                (BadPath::Absolute, Ok(relative)) => {
                    let relative = one_line(&relative.to_string_lossy(), SHOWN_PATH);
                    format!("{error}, here ./{relative}")
                }
                _ => error.to_string(),
            }
        })
    }

    /// Opens a picture by its path from the directory, or if there is none, from the top of the
    /// repository.
    ///
    /// # Errors
    ///
    /// [`BadPicture`], in words for Codex.
    pub fn open(&self, path: &PicturePath) -> Result<OpenPicture, BadPicture> {
        match self.open_from(&self.directory, path) {
            Err(BadPicture {
                why: BadPictureReason::Missing { .. },
                ..
            }) if self.top != self.directory => self.open_from(&self.top, path),
            other => other,
        }
    }

    fn open_from(&self, base: &Path, path: &PicturePath) -> Result<OpenPicture, BadPicture> {
        let no = |why| BadPicture {
            path: path.clone(),
            why,
        };
        // A file outside is not even opened, as opening a device can have effects.
        let resolved = base.join(path.as_str()).canonicalize();
        let resolved = resolved.map_err(|error| self.refused(path, &error))?;
        if !resolved.starts_with(&self.top) {
            return Err(no(BadPictureReason::Outside));
        }
        let opened = untrusted_file::open(&resolved, Links::Refused);
        let mut file = opened.map_err(|error| match error {
            ReadError::Io { error, .. } => self.refused(path, &error),
            _ => no(BadPictureReason::NotAFile),
        })?;
        // The path may lead to another file by now; the opened one is the one that is checked.
        let place = path_of_open_file(&file).map_err(|error| self.refused(path, &error))?;
        if !place.starts_with(&self.top) {
            return Err(no(BadPictureReason::Outside));
        }
        let about = file
            .metadata()
            .map_err(|error| self.refused(path, &error))?;
        let mut start = Vec::with_capacity(START);
        let most = u64::try_from(START).unwrap_or(u64::MAX);
        let read = file.by_ref().take(most).read_to_end(&mut start);
        read.map_err(|error| self.refused(path, &error))?;
        check(path, about.len(), &start, self.limit)?;
        Ok(OpenPicture {
            file,
            start,
            size: about.len(),
        })
    }

    fn refused(&self, path: &PicturePath, error: &io::Error) -> BadPicture {
        let why = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ENOTDIR) => BadPictureReason::Missing {
                directory: self.directory.display().to_string(),
            },
            // A socket, or a device that does not exist.
            Some(Errno::ENXIO | Errno::ENODEV) => BadPictureReason::NotAFile,
            _ => BadPictureReason::Unreadable(error.to_string()),
        };
        BadPicture {
            path: path.clone(),
            why,
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// The path of an open file, without links.
#[cfg(target_os = "linux")]
fn path_of_open_file(file: &File) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The path of an open file, without links.
#[cfg(target_vendor = "apple")]
fn path_of_open_file(file: &File) -> io::Result<PathBuf> {
    let mut place = PathBuf::new();
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_GETPATH(&mut place))?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and the rest of it";

    struct Files {
        place: ImageRoot,
        root: PathBuf,
        _directory: tempfile::TempDir,
    }

    /// `outside/`, and beside it `repository/`, a git repository, with `sub/` in it.
    fn files(directory: &str, limit: u64) -> Files {
        let made = tempfile::tempdir().unwrap();
        let base = made.path().canonicalize().unwrap();
        let root = base.join("repository");
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::create_dir_all(base.join("outside")).unwrap();
        fs::write(base.join("outside/secret.png"), PNG).unwrap();
        fs::write(root.join("a.png"), PNG).unwrap();
        let limit = SizeLimit::try_from(limit).unwrap();
        Files {
            place: ImageRoot::around(&root.join(directory), limit).unwrap(),
            root,
            _directory: made,
        }
    }

    fn why(place: &ImageRoot, path: &str) -> BadPictureReason {
        let path = path.parse().unwrap();
        let checked = place.check(&path).unwrap_err();
        assert_eq!(place.read(&path).unwrap_err(), checked);
        checked.why
    }

    fn read(place: &ImageRoot, path: &str) -> Vec<u8> {
        let path = path.parse().unwrap();
        place.check(&path).unwrap();
        place.read(&path).unwrap()
    }

    #[test]
    fn links_are_followed_only_within_the_repository() {
        let Files {
            place,
            root,
            _directory,
        } = files("", 100);
        symlink("a.png", root.join("near.png")).unwrap();
        symlink(root.join("a.png"), root.join("absolute.png")).unwrap();
        symlink("../outside/secret.png", root.join("far.png")).unwrap();
        symlink("../outside", root.join("directory")).unwrap();
        symlink("/etc/passwd", root.join("passwd.png")).unwrap();
        symlink("nothing.png", root.join("dangling.png")).unwrap();
        symlink("loop.png", root.join("loop.png")).unwrap();
        for within in ["a.png", "near.png", "absolute.png"] {
            assert_eq!(read(&place, within), PNG, "{within}");
        }
        for out in ["far.png", "directory/secret.png", "passwd.png"] {
            assert_eq!(why(&place, out), BadPictureReason::Outside, "{out}");
        }
        for missing in ["dangling.png", "nothing.png", "a.png/b.png"] {
            assert!(
                matches!(why(&place, missing), BadPictureReason::Missing { .. }),
                "{missing}"
            );
        }
        assert!(matches!(
            why(&place, "loop.png"),
            BadPictureReason::Unreadable(_)
        ));
    }

    #[test]
    fn special_files_are_refused_without_waiting() {
        let Files {
            place,
            root,
            _directory,
        } = files("", 100);
        fs::create_dir(root.join("directory.png")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe.png"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(root.join("socket.png")).unwrap();
        for odd in ["directory.png", "pipe.png", "socket.png"] {
            assert_eq!(why(&place, odd), BadPictureReason::NotAFile, "{odd}");
        }
        symlink("/dev/zero", root.join("device.png")).unwrap();
        assert_eq!(why(&place, "device.png"), BadPictureReason::Outside);
    }

    #[test]
    fn large_files_and_other_contents_are_refused() {
        let Files {
            place,
            root,
            _directory,
        } = files("", 20);
        assert!(matches!(
            why(&place, "a.png"),
            BadPictureReason::TooLarge { size: 27, .. }
        ));
        fs::write(root.join("text.png"), "root:x:0:0").unwrap();
        fs::write(root.join("empty.png"), "").unwrap();
        fs::copy(root.join("a.png"), root.join("a.jpg")).unwrap();
        for other in ["text.png", "empty.png"] {
            assert!(
                matches!(why(&place, other), BadPictureReason::Content(_)),
                "{other}"
            );
        }
        let large = ImageRoot {
            limit: SizeLimit::default(),
            ..place
        };
        assert!(matches!(why(&large, "a.jpg"), BadPictureReason::Content(_)));
    }

    #[test]
    fn path_is_resolved_from_the_directory_then_from_the_top() {
        let Files {
            place,
            root,
            _directory,
        } = files("sub", 100);
        assert_eq!(place.directory(), root.join("sub"));
        assert_eq!(read(&place, "a.png"), PNG);
        fs::write(root.join("sub/a.png"), b"\x89PNG\r\n\x1a\nnearer").unwrap();
        assert_eq!(read(&place, "a.png"), b"\x89PNG\r\n\x1a\nnearer");
        assert_eq!(read(&place, "sub/a.png"), b"\x89PNG\r\n\x1a\nnearer");
        symlink("../a.png", root.join("sub/up.png")).unwrap();
        assert_eq!(read(&place, "up.png"), PNG);
        let directory = root.join("sub").display().to_string();
        assert_eq!(
            why(&place, "none.png"),
            BadPictureReason::Missing { directory }
        );
    }

    #[test]
    fn picture_that_cannot_be_decoded_is_not_attached() {
        let Files { place, root, .. } = &files("", 10_000);
        fs::write(root.join("cut.png"), b"\x89PNG\r\n\x1a\n\0\0\0\r").unwrap();
        let refused = place.attachable(&"cut.png".parse().unwrap()).unwrap_err();
        assert!(
            matches!(refused.why, BadPictureReason::Damaged(_)),
            "{refused}"
        );
        let good = root.join("good.png");
        image::RgbImage::new(2, 2).save(&good).unwrap();
        let attached = place.attachable(&"good.png".parse().unwrap()).unwrap();
        assert_eq!(attached, fs::read(good).unwrap());
    }

    #[test]
    fn directory_without_a_repository_bounds_the_pictures() {
        let Files { root, .. } = &files("", 100);
        let outside = root.parent().unwrap().join("outside");
        let place = ImageRoot::around(&outside, SizeLimit::default()).unwrap();
        assert_eq!(read(&place, "secret.png"), PNG);
        symlink("../repository/a.png", outside.join("b.png")).unwrap();
        assert_eq!(why(&place, "b.png"), BadPictureReason::Outside);
    }

    #[test]
    fn open_picture_is_read_although_its_name_is_replaced() {
        let Files {
            place,
            root,
            _directory,
        } = files("", 100);
        let opened = place.open(&"a.png".parse().unwrap()).unwrap();
        fs::remove_file(root.join("a.png")).unwrap();
        symlink("/etc/passwd", root.join("a.png")).unwrap();
        assert_eq!(bytes_of(opened), PNG);
    }

    #[test]
    fn open_picture_that_grows_is_read_up_to_its_size() {
        let Files {
            place,
            root,
            _directory,
        } = files("", 100);
        let opened = place.open(&"a.png".parse().unwrap()).unwrap();
        fs::write(root.join("a.png"), [PNG, b"more"].concat()).unwrap();
        assert_eq!(opened.size(), PNG.len() as u64);
        assert_eq!(bytes_of(opened), PNG);
    }

    fn bytes_of(opened: OpenPicture) -> Vec<u8> {
        let mut bytes = Vec::new();
        opened.into_reader().read_to_end(&mut bytes).unwrap();
        bytes
    }
}
