//! Finds or installs the Codex of the demo.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, Instant};

use codex_engine::binary::{self, CodexBinary, NoCodex, Source};
use codex_protocol::codex::Release;
use supervise::short_lived::run;
use tokio_util::sync::CancellationToken;

use super::install::{self, InstallError};
use super::printer::Printer;
use super::tail::quoted_output;
use super::workspace::Workspace;

/// How long Codex may take to tell its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no Codex for the demo.
#[derive(Debug, thiserror::Error)]
pub enum CodexError {
    /// The chosen Codex cannot be run.
    #[error("{0}. Choose another one, or none: then the demo finds or installs its own.")]
    Chosen(NoCodex),
    /// Codex could not be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The program is not Codex.
    #[error(
        "`{} --version` does not answer as Codex does ({how}). Name another Codex with --codex-bin.{}",
        path.display(), quoted_output(.words)
    )]
    NotCodex {
        /// The program.
        path: PathBuf,
        /// How the program ended.
        how: String,
        /// The output of the program.
        words: String,
    },
    /// The output can't be written, or there is no current directory.
    #[error("{0}")]
    Output(#[from] io::Error),
}

/// Where a Codex came from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// The user's own.
    User(Source),
    /// Installed by a demo.
    Cache,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(Source::FlagOrVariable | Source::Job) => f.write_str("as chosen"),
            Self::User(Source::File(file)) => write!(f, "as chosen in {}", file.display()),
            Self::User(Source::Path) => f.write_str("found on PATH"),
            Self::Cache => f.write_str("installed by the demo"),
        }
    }
}

/// A Codex, and where it came from.
#[derive(Debug)]
pub(super) struct DemoCodex {
    codex: CodexBinary,
    origin: Origin,
    /// Its release, if it has told one.
    release: Option<Release>,
}

impl DemoCodex {
    /// Whether a demo has installed this Codex.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.origin, Origin::Cache)
    }

    /// Finds a Codex: the one that was chosen, else the first on PATH, else one
    /// of our own, which is installed if there is none.
    ///
    /// # Errors
    ///
    /// [`CodexError`].
    pub(super) async fn find<W: Write>(
        chosen: Option<(PathBuf, Source)>,
        printer: &mut Printer<W>,
        stop: &CancellationToken,
    ) -> Result<Self, CodexError> {
        match binary::find(chosen) {
            Ok(codex) => {
                let origin = Origin::User(codex.source.clone());
                return Ok(Self::new(codex, origin)?);
            }
            Err(NoCodex::NotOnPath) => {}
            Err(error) => return Err(CodexError::Chosen(error)),
        }
        let place = install::place()?;
        let codex = match install::installed(&place) {
            Some(codex) => codex,
            None => {
                printer.note(&format!(
                    "There is no codex on PATH. Installing release {} with npm into {}, this once; \
                     it takes some 400 MB.",
                    install::RELEASE,
                    place.display()
                ))?;
                let began = Instant::now();
                let codex = install::install(&place, stop).await?;
                let seconds = began.elapsed().as_secs_f64();
                printer.note(&format!("Installed in {seconds:.1} s."))?;
                codex
            }
        };
        Ok(Self::new(codex, Origin::Cache)?)
    }

    /// The paths become absolute, as they are used in directories other than the current one.
    fn new(mut codex: CodexBinary, origin: Origin) -> io::Result<Self> {
        codex.chosen = absolute(codex.chosen)?;
        codex.native = absolute(codex.native)?;
        Ok(Self {
            codex,
            origin,
            release: None,
        })
    }

    /// The path as the user knows it.
    pub(super) fn path(&self) -> &Path {
        &self.codex.chosen
    }

    /// Whether `codex-mcp serve` finds the same Codex without options.
    pub(super) fn is_found_by_itself(&self) -> bool {
        matches!(self.origin, Origin::User(Source::Path | Source::File(_)))
    }

    /// The command that the user types to run it.
    pub(super) fn command(&self) -> &Path {
        match self.origin {
            Origin::User(Source::Path) => Path::new("codex"),
            _ => self.path(),
        }
    }

    /// Its release, if it has told one when it was [introduced](Self::introduce).
    pub(super) fn release(&self) -> Option<Release> {
        self.release
    }

    /// Whether a run with commits as a criterion can use this Codex.
    pub(super) fn can_commit(&self) -> bool {
        let first = Release::FIRST_WITH_PROTECTED_GIT;
        self.release.is_none_or(|release| release >= first)
    }

    /// The name, version and origin as text. Notes the release.
    ///
    /// # Errors
    ///
    /// [`CodexError::NotCodex`].
    pub(super) async fn introduce(&mut self, workspace: &Workspace) -> Result<String, CodexError> {
        let not_codex = |how: String, words: &str| CodexError::NotCodex {
            path: self.codex.chosen.clone(),
            how,
            words: words.trim().to_owned(),
        };
        let mut program = workspace.program(&self.codex.native, ["--version"]);
        program.env.extend(self.codex.env());
        let done = run(&program, VERSION_TIMEOUT)
            .await
            .map_err(|error| not_codex(error.to_string(), ""))?;
        let version = done.stdout.trim();
        if !done.succeeded() || !version.starts_with("codex") {
            let words = format!("{version}\n{}", done.stderr);
            return Err(not_codex(format!("it {}", done.exit), &words));
        }
        self.release = Release::announced(&done.stdout).and_then(|(_, release)| release);
        let path = self.codex.chosen.display();
        Ok(format!("{version}, {}\n{path}", self.origin))
    }
}
