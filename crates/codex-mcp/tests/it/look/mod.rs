//! Inspections of real git repositories, judged as a run judges.

mod commands;
mod commits;
mod credentials;
mod deceived;
mod files;
mod github;
mod hostile;
mod pipes;
mod places;
mod pushed;
mod worktrees;

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use codex_engine::logic::work::Evidence;
use goal_run::logic::criteria::Criteria;
use goal_run::logic::findings::{Finding, Subject, Verdict, judge};
use goal_run::logic::snapshot::{Answer, Preexisting, Snapshot, Work};
use goal_run::look::{InspectOptions, LookError, RepoInspector};
use supervise::spawn::set_guard_executable;
use testkit::Home;
use tokio::time::Instant;

/// The time of the first git command of a test; each further one is a minute later, so that
/// reflogs keep their order.
const BEGIN: u64 = 1_800_000_000;

const MINUTE: u64 = 60;

/// A home, and a clock for git's timestamps.
struct Scene {
    home: Home,
    time: Cell<u64>,
    means: InspectOptions,
}

impl Scene {
    fn new() -> Self {
        set_guard_executable(Path::new(env!("CARGO_BIN_EXE_codex-mcp")));
        let home = Home::new("");
        let means = InspectOptions {
            env: home.env(),
            ..InspectOptions::default()
        };
        Self {
            home,
            time: Cell::new(BEGIN),
            means,
        }
    }

    fn work(&self) -> PathBuf {
        self.home.work()
    }

    /// Runs git in the work directory.
    fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.work(), args)
    }

    fn git_in(&self, directory: &Path, args: &[&str]) -> String {
        self.time.set(self.time.get() + MINUTE);
        let date = format!("{} +0000", self.time.get());
        let output = Command::new("git")
            .args(["-c", "protocol.file.allow=always"])
            .args(["-c", "user.name=Test", "-c", "user.email=test@example.com"])
            .args(args)
            .current_dir(directory)
            .env_clear()
            .envs(self.home.env())
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_DATE", &date)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?} failed: {stderr}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.work().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Commits a file of that name with new content.
    fn commit(&self, path: &str) -> String {
        self.commit_in(&self.work(), path)
    }

    fn commit_in(&self, directory: &Path, path: &str) -> String {
        fs::write(directory.join(path), self.time.get().to_string()).unwrap();
        self.git_in(directory, &["add", "--all"]);
        self.git_in(directory, &["commit", "--quiet", "--message", path]);
        self.git_in(directory, &["rev-parse", "HEAD"])
    }

    /// A bare repository, to which the work directory has pushed its branch.
    fn with_remote(&self) -> PathBuf {
        let bare = self.home.root().join("remote.git");
        let text = bare.to_str().unwrap();
        self.git(&["init", "--quiet", "--bare", "--initial-branch=main", text]);
        self.git(&["remote", "add", "origin", text]);
        self.git(&["push", "--quiet", "--set-upstream", "origin", "main"]);
        bare
    }

    /// Another user's clone of the remote.
    fn clone_of(&self, remote: &Path) -> PathBuf {
        let clone = self.home.root().join("theirs");
        let texts = [remote, &clone].map(|path| path.to_str().unwrap());
        self.git(&["clone", "--quiet", texts[0], texts[1]]);
        clone
    }

    async fn try_at(&self, directory: &Path, texts: &[&str]) -> Result<RepoInspector, LookError> {
        RepoInspector::at(directory, &criteria(texts), self.means.clone()).await
    }

    async fn run(&self, texts: &[&str]) -> Run {
        self.run_in(&self.work(), texts).await
    }

    async fn run_in(&self, directory: &Path, texts: &[&str]) -> Run {
        let mut looker = self.try_at(directory, texts).await.unwrap();
        let start = looker.start().await.unwrap();
        Run {
            criteria: criteria(texts),
            looker,
            start,
        }
    }

    /// Checks that no run begins, as the state of the remote is unknown.
    async fn refuses_to_begin(&self, texts: &[&str]) -> String {
        let mut looker = self.try_at(&self.work(), texts).await.unwrap();
        let refused = looker.start().await.unwrap_err();
        assert!(matches!(refused, LookError::Start { .. }), "{refused}");
        refused.to_string()
    }

    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.means.env.push((name.into(), value.into()));
    }
}

/// A started run.
struct Run {
    criteria: Criteria,
    looker: RepoInspector,
    start: Snapshot,
}

impl Run {
    fn verdict(&self, now: &Snapshot, preexisting: Preexisting) -> Verdict {
        let work = Work {
            evidence: Evidence {
                commands: 1,
                ..Evidence::default()
            },
            succeeded: 1,
            answer: Answer::Present,
            ..Work::default()
        };
        judge(&self.criteria, &self.start, now, &work, preexisting)
    }

    /// The finding of each criterion, in their order.
    async fn judged(&self) -> Vec<String> {
        told(&self.verdict(&self.looker.now().await, Preexisting::Ignored))
    }

    /// The findings, with commands run.
    async fn judged_with_commands(&self, limit: Duration) -> Vec<String> {
        let before = self.looker.now().await;
        let commands = self
            .looker
            .commands(limit, Instant::now() + limit * 8, &Default::default())
            .await;
        let now = Snapshot {
            commands,
            ..self.looker.after_commands(&before).await
        };
        told(&self.verdict(&now, Preexisting::Ignored))
    }

    #[track_caller]
    fn assert_first(&self, judged: &[String], beginning: &str) {
        assert!(judged[0].starts_with(beginning), "{judged:#?}");
    }
}

fn told(verdict: &Verdict) -> Vec<String> {
    let asked = verdict
        .iter()
        .filter(|judged| matches!(judged.subject, Subject::Criterion(_)));
    asked
        .map(|judged| match &judged.finding {
            Finding::Satisfied { found } => format!("yes: {found}"),
            Finding::NotYet { missing, .. } | Finding::NotRun { missing } => {
                format!("no: {missing}")
            }
            Finding::Unknown { why } => format!("unknown: {why}"),
        })
        .collect()
}

fn criteria(texts: &[&str]) -> Criteria {
    Criteria::new(texts.iter().map(|text| text.parse().unwrap())).unwrap()
}

/// The first word of each finding.
fn beginnings(judged: &[String]) -> Vec<&str> {
    judged
        .iter()
        .map(|one| one.split_once(':').unwrap().0)
        .collect()
}
