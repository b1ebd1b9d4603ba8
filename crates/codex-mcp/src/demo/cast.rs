//! The leading part: a real Codex.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, Instant};

use codex_engine::binary::{self, CodexBinary, NoCodex, Source};
use codex_protocol::codex::Release;
use supervise::converse::run;
use tokio_util::sync::CancellationToken;

use super::install::{self, InstallError};
use super::show::Show;
use super::stage::Stage;
use super::tail::said;

/// How long Codex may take to tell its version.
const VERSION_PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no Codex for the demo.
#[derive(Debug, thiserror::Error)]
pub enum CastError {
    /// What was chosen can't be run.
    #[error("{0}. Choose another one, or none: then the demo finds or installs its own.")]
    Chosen(NoCodex),
    /// None could be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// It is not a Codex.
    #[error(
        "`{} --version` does not answer as Codex does ({how}). Name another Codex with --codex-bin.{}",
        path.display(), said(.words)
    )]
    NotCodex {
        /// What was run.
        path: PathBuf,
        /// How it ended.
        how: String,
        /// What it said.
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
pub(super) struct Cast {
    codex: CodexBinary,
    origin: Origin,
}

impl Cast {
    /// Whether a demo has installed this Codex.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.origin, Origin::Cache)
    }

    /// Finds a Codex: the one that was chosen, else the first on PATH, else one
    /// of our own, which is installed if there is none.
    ///
    /// # Errors
    ///
    /// [`CastError`].
    pub(super) async fn find<W: Write>(
        chosen: Option<(PathBuf, Source)>,
        show: &mut Show<W>,
        stop: &CancellationToken,
    ) -> Result<Self, CastError> {
        match binary::find(chosen) {
            Ok(codex) => {
                let origin = Origin::User(codex.source.clone());
                return Ok(Self::new(codex, origin)?);
            }
            Err(NoCodex::NotOnPath) => {}
            Err(error) => return Err(CastError::Chosen(error)),
        }
        let place = install::place()?;
        let codex = match install::installed(&place) {
            Some(codex) => codex,
            None => {
                show.note(&format!(
                    "There is no codex on PATH. Installing release {} with npm into {}, this once; \
                     it takes some 400 MB.",
                    install::RELEASE,
                    place.display()
                ))?;
                let began = Instant::now();
                let codex = install::install(&place, stop).await?;
                let seconds = began.elapsed().as_secs_f64();
                show.note(&format!("Installed in {seconds:.1} s."))?;
                codex
            }
        };
        Ok(Self::new(codex, Origin::Cache)?)
    }

    /// The paths are used from other directories than ours.
    fn new(mut codex: CodexBinary, origin: Origin) -> io::Result<Self> {
        codex.chosen = absolute(codex.chosen)?;
        codex.native = absolute(codex.native)?;
        Ok(Self { codex, origin })
    }

    /// What the user would call it.
    pub(super) fn path(&self) -> &Path {
        &self.codex.chosen
    }

    /// Whether `codex-mcp serve` finds the same one without being told.
    pub(super) fn is_found_by_itself(&self) -> bool {
        matches!(self.origin, Origin::User(Source::Path | Source::File(_)))
    }

    /// What the user types to run it.
    pub(super) fn command(&self) -> &Path {
        match self.origin {
            Origin::User(Source::Path) => Path::new("codex"),
            _ => self.path(),
        }
    }

    /// Whether a run that is to commit can begin with it.
    pub(super) async fn can_commit(&self, stage: &Stage) -> bool {
        let mut program = stage.program(&self.codex.native, ["--version"]);
        program.env.extend(self.codex.env());
        let told = run(&program, VERSION_PATIENCE).await.ok();
        let release = told.and_then(|told| Release::announced(&told.stdout)?.1);
        release.is_none_or(|release| release >= Release::FIRST_WITH_PROTECTED_GIT)
    }

    /// Its name, version and origin in words.
    ///
    /// # Errors
    ///
    /// [`CastError::NotCodex`].
    pub(super) async fn introduce(&self, stage: &Stage) -> Result<String, CastError> {
        let not_codex = |how: String, words: &str| CastError::NotCodex {
            path: self.codex.chosen.clone(),
            how,
            words: words.trim().to_owned(),
        };
        let mut program = stage.program(&self.codex.native, ["--version"]);
        program.env.extend(self.codex.env());
        let done = run(&program, VERSION_PATIENCE)
            .await
            .map_err(|error| not_codex(error.to_string(), ""))?;
        let version = done.stdout.trim();
        if !done.succeeded() || !version.starts_with("codex") {
            let words = format!("{version}\n{}", done.stderr);
            return Err(not_codex(format!("it {}", done.exit), &words));
        }
        let path = self.codex.chosen.display();
        Ok(format!("{version}, {}\n{path}", self.origin))
    }
}
