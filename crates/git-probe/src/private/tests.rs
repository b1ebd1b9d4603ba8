//! Private git directories of a real repository.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::os::unix::fs::MetadataExt;
use std::pin::pin;
use std::process::Command;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::real_git::guarded_bounds;

struct Repository {
    _temporary: tempfile::TempDir,
    env: Vec<(OsString, OsString)>,
    top: PathBuf,
    git: Git,
}

impl Repository {
    /// A repository with one commit on `main`.
    async fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        let top = root.join("top");
        let env = [
            ("HOME", root.clone().into_os_string()),
            ("XDG_STATE_HOME", root.join("state").into()),
            ("XDG_CONFIG_HOME", root.join("config").into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("GIT_AUTHOR_NAME", "x".into()),
            ("GIT_AUTHOR_EMAIL", "x@example.com".into()),
            ("GIT_COMMITTER_NAME", "x".into()),
            ("GIT_COMMITTER_EMAIL", "x@example.com".into()),
        ];
        let env = env.map(|(name, value)| (OsString::from(name), value));
        let run = |directory: &Path, args: &[&str]| text(command(directory, &env, args));
        run(&root, &["init", "--quiet", "--initial-branch=main", "top"]);
        let commit = ["commit", "--quiet", "--allow-empty", "--message", "start"];
        run(&top, &commit);
        let bounds = guarded_bounds();
        let git = Git::begin(&top, &env, bounds).await.unwrap();
        Self {
            _temporary: temporary,
            env: env.into(),
            top,
            git,
        }
    }

    async fn open(&self, run: &str) -> PrivateGit {
        PrivateGit::open(&self.git, run).await.unwrap()
    }

    /// Continues a run as another process does.
    async fn continuing(
        &self,
        run: &str,
        record: &PrivateGitRecord,
    ) -> Result<PrivateGit, GitError> {
        let record = serde_json::to_string(record).unwrap();
        let record = serde_json::from_str(&record).unwrap();
        let earlier = self.git.repository();
        let git = Git::reopen(&earlier, &self.top, &self.env, guarded_bounds()).await?;
        PrivateGit::continuing(&git, run, record).await
    }

    /// Runs git as the user.
    fn git(&self, args: &[&str]) -> String {
        text(command(&self.top, &self.env, args))
    }

    /// Runs git as Codex does.
    fn git_of_codex(&self, private: &PrivateGit, args: &[&str]) -> String {
        let mut command = command(&self.top, &self.env, args);
        command.envs(private.variables());
        text(command)
    }

    /// Commits a file of this name as Codex does.
    fn commit_as_codex(&self, private: &PrivateGit, file: &str) {
        fs::write(self.top.join(file), file).unwrap();
        self.git_of_codex(private, &["add", file]);
        self.git_of_codex(private, &["commit", "--quiet", "--message", file]);
    }
}

fn command(directory: &Path, env: &[(OsString, OsString)], args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(args).current_dir(directory);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    command
}

fn text(mut command: Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn second_attempt_keeps_the_commits_from_before_the_first() {
    let repository = Repository::new().await;
    let before = repository.git(&["rev-parse", "main"]);
    let mut warnings = Vec::new();
    for attempt in ["one", "two"] {
        let mut private = repository.open("run").await;
        let amend = ["commit", "--quiet", "--amend", "--allow-empty"];
        let amend = [&amend[..], &["--message", attempt]].concat();
        repository.git_of_codex(&private, &amend);
        let takeover = private.take_over(&CancellationToken::new()).await.unwrap();
        warnings = takeover.warnings;
    }
    let kept = "refs/codex-mcp/run/before/heads/main";
    assert_eq!(repository.git(&["rev-parse", kept]), before);
    assert!(
        warnings.iter().any(|warning| warning.contains(kept)),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn commits_of_a_skipped_takeover_are_imported_by_the_next_run() {
    let repository = Repository::new().await;
    let mut private = repository.open("first").await;
    repository.commit_as_codex(&private, "a.txt");
    private.skip_takeover().await;
    assert!(private.close().await.is_some());
    let warnings = recover(&repository.git, "second", &CancellationToken::new()).await;
    let tip = repository.git(&["log", "-1", "--format=%s", "main"]);
    assert_eq!(tip, "a.txt", "{warnings:?}");
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

#[tokio::test]
async fn nothing_is_kept_if_a_skipped_takeover_had_nothing_to_take() {
    let repository = Repository::new().await;
    let mut private = repository.open("run").await;
    private.skip_takeover().await;
    assert_eq!(private.close().await, None);
}

/// In a sparse index, a tree stands for the files below it.
#[tokio::test]
async fn sparse_index_is_refused() {
    let repository = Repository::new().await;
    let mut private = repository.open("run").await;
    fs::create_dir(repository.top.join("d")).unwrap();
    repository.commit_as_codex(&private, "d/a.txt");
    fs::write(private.path().join("info/sparse-checkout"), "/*\n!/*/\n").unwrap();
    let sparse = [
        "-c",
        "core.sparseCheckout=true",
        "-c",
        "core.sparseCheckoutCone=true",
        "-c",
        "index.sparse=true",
        "read-tree",
        "-mu",
        "HEAD",
    ];
    repository.git_of_codex(&private, &sparse);
    let index = fs::read(private.path().join("index")).unwrap();
    assert!(index.windows(4).any(|bytes| bytes == b"sdir"));
    let refused = private.take_over(&CancellationToken::new()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("which may be sparse"), "{refused}");
    assert_eq!(repository.git(&["rev-list", "--count", "main"]), "1");
}

#[tokio::test]
async fn runtime_does_not_wait_for_the_removal_of_files() {
    let repository = Repository::new().await;
    let private = repository.open("run").await;
    let directory = private.directory.clone();
    let (release, held) = mpsc::channel::<()>();
    private.io_thread.submit(move || {
        let _ = held.recv();
    });
    let mut closing = pin!(private.close());
    let first = poll_fn(|context| Poll::Ready(closing.as_mut().poll(context))).await;
    assert!(first.is_pending());
    assert!(directory.join(SYNCED).exists());
    drop(release);
    assert_eq!(closing.await, None);
    assert!(!directory.exists());
}

#[tokio::test]
async fn runtime_does_not_wait_for_the_reading_of_refs() {
    let repository = Repository::new().await;
    let mut private = repository.open("run").await;
    let (release, held) = mpsc::channel::<()>();
    private.io_thread.submit(move || {
        let _ = held.recv();
    });
    let mut skipping = Box::pin(private.skip_takeover());
    let first = poll_fn(|context| Poll::Ready(skipping.as_mut().poll(context))).await;
    assert!(first.is_pending());
    drop(release);
    skipping.await;
    assert!(!private.takeover_incomplete);
}

/// The directory's `transfer` is removed before its lock is released, even if nobody waits for the
/// end of closing.
#[tokio::test]
async fn lock_of_a_kept_directory_is_released_after_the_work_with_its_files() {
    let repository = Repository::new().await;
    let mut private = repository.open("run").await;
    repository.commit_as_codex(&private, "a.txt");
    private.skip_takeover().await;
    let (directory, io_thread) = (private.directory.clone(), private.io_thread.clone());
    let (release_first, first) = mpsc::channel::<()>();
    io_thread.submit(move || {
        let _ = first.recv();
    });
    let mut closing = Box::pin(private.close());
    let polled = poll_fn(|context| Poll::Ready(closing.as_mut().poll(context))).await;
    assert!(polled.is_pending());
    let (begin, has_begun) = mpsc::channel();
    let (release_last, last) = mpsc::channel::<()>();
    io_thread.submit(move || {
        begin.send(()).unwrap();
        let _ = last.recv();
    });
    drop(release_first);
    has_begun.recv().unwrap();
    // The directory was kept, and its transfer is not removed yet.
    assert!(directory.join(KEPT).exists());
    drop(closing);
    assert!(DirectoryLock::is_held(&directory).unwrap());
    drop(release_last);
    io_thread.flush().await;
    assert!(!DirectoryLock::is_held(&directory).unwrap());
}

/// Leaves the directory as the death of the process does: with its contents, and without a lock.
fn killed(mut private: PrivateGit) -> PrivateGitRecord {
    drop(private.lock.take());
    private.record()
}

/// The inode and the time of the last change of each entry below a directory.
fn stamps_below(directory: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut stamps = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let about = path.symlink_metadata().unwrap();
        if about.is_dir() {
            stamps.extend(stamps_below(&path));
        }
        stamps.insert(path, (about.ino(), about.ctime(), about.ctime_nsec()));
    }
    stamps
}

#[tokio::test]
async fn commits_from_before_and_after_a_kill_are_taken_over_by_the_continued_run() {
    let repository = Repository::new().await;
    let private = repository.open("run").await;
    repository.commit_as_codex(&private, "a.txt");
    let record = killed(private);
    let mut continued = repository.continuing("run", &record).await.unwrap();
    repository.commit_as_codex(&continued, "b.txt");
    let takeover = continued.take_over(&CancellationToken::new()).await;
    let takeover = takeover.unwrap();
    assert!(takeover.complete, "{:?}", takeover.warnings);
    let subjects = repository.git(&["log", "--format=%s", "main"]);
    assert_eq!(subjects, "b.txt\na.txt\nstart");
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    assert_eq!(continued.close().await, None);
}

/// Codex may amend its own commits of the run.
#[tokio::test]
async fn continued_run_compares_branches_with_those_from_before_the_run() {
    let repository = Repository::new().await;
    let mut private = repository.open("run").await;
    let first = private.first.clone();
    repository.commit_as_codex(&private, "a.txt");
    private.take_over(&CancellationToken::new()).await.unwrap();
    let record = killed(private);
    let mut continued = repository.continuing("run", &record).await.unwrap();
    assert_eq!(continued.first, first);
    let amend = ["commit", "--quiet", "--amend", "--message", "b"];
    repository.git_of_codex(&continued, &amend);
    let takeover = continued.take_over(&CancellationToken::new()).await;
    let warnings = takeover.unwrap().warnings;
    let is_about_rewriting = |warning: &String| warning.contains("rewritten");
    assert!(!warnings.iter().any(is_about_rewriting), "{warnings:?}");
    assert_eq!(repository.git(&["log", "-1", "--format=%s", "main"]), "b");
}

#[tokio::test]
async fn continuing_changes_no_file_of_the_run() {
    let repository = Repository::new().await;
    let private = repository.open("run").await;
    fs::write(repository.top.join("a.txt"), "a").unwrap();
    repository.git_of_codex(&private, &["add", "a.txt"]);
    let directory = private.directory.clone();
    let before = stamps_below(&directory);
    let record = killed(private);
    let mut continued = repository.continuing("run", &record).await.unwrap();
    assert_eq!(stamps_below(&directory), before);
    assert!(DirectoryLock::is_held(&directory).unwrap());
    continued
        .take_over(&CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(repository.git(&["status", "--porcelain"]), "A  a.txt");
}

#[tokio::test]
async fn incomplete_takeover_stays_incomplete_when_the_run_is_continued() {
    let repository = Repository::new().await;
    let mut private = repository.open("run").await;
    repository.commit_as_codex(&private, "a.txt");
    private.skip_takeover().await;
    private.refused = vec![PathBuf::from("sub")];
    let directory = private.directory.clone();
    fs::create_dir(directory.join(KEPT)).unwrap();
    fs::write(directory.join(RETRY), "").unwrap();
    let record = killed(private);
    let continued = repository.continuing("run", &record).await.unwrap();
    assert!(continued.takeover_incomplete);
    assert_eq!(continued.refused, [PathBuf::from("sub")]);
    assert!(!directory.join(KEPT).exists() && !directory.join(RETRY).exists());
}

#[tokio::test]
async fn takeover_that_was_killed_is_incomplete_when_the_run_is_continued() {
    let repository = Repository::new().await;
    let private = repository.open("run").await;
    fs::write(private.directory.join(journal::JOURNAL), "{}").unwrap();
    let record = killed(private);
    let continued = repository.continuing("run", &record).await.unwrap();
    assert!(continued.takeover_incomplete);
}

#[tokio::test]
async fn directory_that_is_gone_is_not_created_by_continuing() {
    let repository = Repository::new().await;
    let private = repository.open("run").await;
    let directory = private.directory.clone();
    let record = killed(private);
    fs::remove_file(directory.join(SYNCED)).unwrap();
    let error = repository.continuing("run", &record).await.unwrap_err();
    assert!(error.to_string().contains("is gone"), "{error}");
    assert!(directory.join(PRIVATE).exists(), "Codex may be working");
    fs::remove_dir_all(&directory).unwrap();
    let error = repository.continuing("run", &record).await.unwrap_err();
    assert!(error.to_string().contains("is gone"), "{error}");
    assert!(!directory.exists());
}

#[tokio::test]
async fn directory_of_another_process_or_repository_is_not_continued() {
    let repository = Repository::new().await;
    let private = repository.open("run").await;
    let record = private.record();
    let error = repository.continuing("run", &record).await.unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    let directory = private.directory.clone();
    drop(killed(private));
    let mut synced = SyncedState::load(&directory).unwrap().unwrap();
    synced.top = "/elsewhere".into();
    let synced = serde_json::to_vec(&synced).unwrap();
    fs::write(directory.join(SYNCED), synced).unwrap();
    let error = repository.continuing("run", &record).await.unwrap_err();
    assert!(error.to_string().contains("another repository"), "{error}");
    assert!(directory.join(SYNCED).exists());
}
