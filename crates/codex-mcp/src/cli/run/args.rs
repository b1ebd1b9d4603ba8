//! The command line of `codex-mcp run`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use agent_team::logic::{AgentName, RoleName, TeamName};
use clap::builder::NonEmptyStringValueParser;
use codex_config::profile::ProfileName;
use codex_protocol::codex::{Effort, SandboxMode};
use common::{duration, output};
use goal_run::Caller;
use goal_run::logic::criteria::{Criteria, Criterion};
use goal_run::logic::machine::{Limits, MAX_TURNS, STALL_AFTER};
use goal_run::logic::notifier::Notifier;
use goal_run::logic::snapshot::Preexisting;
use goal_run::spec::{Approve, LONGEST_TASK, RunSpec, WorkspaceMode};
use job_queue::run::spec::RunJobSpec;
use job_queue::thread_ids::ThreadPrefix;
use safe_files::directory::resolved;
use settings::Flags;
use settings::store_location::Location;

use super::failure::Failure;
use crate::cli::prompt;
use crate::cli::values::{criterion, number_within, one_of, profile};

/// The criteria and examples in the help.
const HELP: &str = "\
The criteria of --until; all of them must hold, in the repository of --cwd:
  files=GLOB                  a matching file is new or changed
  commits=N, commits=N@BRANCH there are N new commits, on HEAD or the branch
  branch=NAME                 the branch is new, or has new commits
  pushed                      the remote has what is checked out
  pr                          the branch has a new pull request (needs gh)
  issue_comment=OWNER/REPO#N  you have a new comment there (needs gh)
  clean                       there are no uncommitted changes
  command=CMD                 the command exits with 0; it runs as you, at the
                              top of the repository, outside of Codex's
                              sandbox and without a shell
  review                      a reviewer, another thread, asks for no change
  diff_within=PATH,PATH       nothing else was changed
Without criteria, a run ends when a step of Codex's has succeeded, none was refused in the end, \
and Codex reports that it is done. The result is then not verified.

Examples:
  codex-mcp run --sandbox workspace-write --until files=README.md \"Write it\"
  codex-mcp run --sandbox workspace-write --until 'command=cargo test' \"Fix it\"
  codex-mcp run --sandbox workspace-write --worktree --until pr \\
      --notify mail:lead - < task.md
  codex-mcp run --thread 0199a213 \"Fix what the review found\"
  codex-mcp run --detach --sandbox workspace-write --until pr - < task.md

Some criteria grant Codex the permissions that it needs for them, within --sandbox \
workspace-write: commits, a branch, clean, pushed and pr let it commit in a private git \
directory, which is imported after each turn; pushed, pr and issue_comment let it use the \
network. In a directory that Codex doesn't trust, the sandbox is read-only: a run whose criteria \
need changed files says so before its first turn, and at a terminal offers to continue with \
--sandbox workspace-write. The flag applies to this run alone, and does not make the directory \
trusted. A repository that you trust can replace the prompts (codex-mcp trust): \
.codex-mcp/prompts/initial.md, nudge.md, recovery.md and continuation.md, with {task}, {repo}, \
{criteria}, {missing}, {errors}, {turn} and {max_turns}.

With --detach, the run is a job. `codex-mcp worker`, which is started if there is none, runs it \
in the worker's environment, even if this shell is closed. `codex-mcp jobs wait`, `logs`, `show` \
and `cancel` take the ID that is printed. Nobody can answer Codex's questions: the run declines \
them, or approves all of them with --approve always. The bounds that limit clients \
(`max_sandbox`, `allow_commands`, `allow_dirs`) also limit such a run.

Exit codes: 0 all criteria hold, or with --detach the run is submitted, 2 some do not, 3 the run \
failed (also for a wrong command line), 130 after Ctrl-C.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(in crate::cli) struct Args {
    /// The task for Codex. With `-`, or without a task if stdin is not a terminal, it is
    /// read from stdin: UTF-8, 1 MiB at most.
    task: Option<String>,

    /// The repository to work in. Default: that of the current directory.
    #[arg(
        long,
        alias = "repo",
        value_name = "DIR",
        default_value = ".",
        hide_default_value = true
    )]
    cwd: PathBuf,

    /// A criterion that must hold at the end; can be given several times, see below.
    #[arg(long, value_name = "CRITERION", value_parser = criterion)]
    pub(super) until: Vec<Criterion>,

    /// Count artifacts from before the run, too.
    #[arg(long)]
    pub(super) allow_preexisting: bool,

    /// Maximum number of turns, from 1 to 100.
    #[arg(long, value_name = "N", default_value_t = MAX_TURNS)]
    pub(super) max_turns: u32,

    /// How long a turn may take. A criterion's command may take as long, or 5 minutes if
    /// that is longer.
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration::parse)]
    pub(super) turn_timeout: Duration,

    /// How long the whole run may take.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse)]
    pub(super) total_timeout: Duration,

    /// Stop after N turns in a row without progress, from 1 to 100. Such a turn produces
    /// nothing new, and executes nothing or repeats the last answer.
    #[arg(long, value_name = "N", default_value_t = STALL_AFTER)]
    pub(super) stall_after: u32,

    /// Maximum number of tokens of all turns together, as Codex counts them: read, cached or
    /// not, and written.
    #[arg(long, value_name = "N")]
    pub(super) max_tokens: Option<u64>,

    /// The Codex thread to continue: its ID, or a prefix of it. `codex-mcp threads` lists
    /// threads.
    #[arg(long, value_name = "THREAD")]
    pub(super) thread: Option<ThreadPrefix>,

    /// Work in a new git worktree, on a new branch. The worktree is kept if it has
    /// changes.
    #[arg(long)]
    worktree: bool,

    /// The sandbox of Codex's commands. Default: `sandbox` of the configuration, or what Codex's
    /// own configuration says.
    #[arg(long, value_parser = one_of::<SandboxMode>())]
    pub(super) sandbox: Option<SandboxMode>,

    /// The model, as Codex names it.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(super) model: Option<String>,

    /// How hard the model thinks. Not every model accepts every value.
    #[arg(long, value_parser = one_of::<Effort>())]
    pub(super) effort: Option<Effort>,

    /// A profile of Codex's configuration.
    #[arg(long, value_name = "NAME", value_parser = profile)]
    pub(super) profile: Option<ProfileName>,

    /// How Codex's questions are answered: ask asks you, never declines them, always accepts
    /// them. Default: ask in a terminal, else never; with --detach never.
    #[arg(long, value_enum)]
    pub(super) approve: Option<Approve>,

    /// Notify this recipient when the run ends: mail:AGENT@TEAM, irc://HOST:PORT/CHANNEL,
    /// desktop, webhook:https://HOST/PATH, ntfy:TOPIC or command:PROGRAM ARGUMENTS, which gets
    /// the line as its last argument and the result on stdin; can be given several times.
    #[arg(long, value_name = "WHOM")]
    pub(super) notify: Vec<Notifier>,

    /// Append the evidence to this file outside of the repository, a line of JSON for
    /// each turn. Default: a new file below ~/.local/state/codex-mcp/runs.
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,

    /// Submit the run as a job, print the job's ID and return at once: the run continues without
    /// this shell.
    #[arg(long, conflicts_with = "evidence")]
    pub(super) detach: bool,

    /// The name of the job of --detach. Default: the beginning of the task.
    #[arg(long, value_name = "TASK", requires = "detach")]
    name: Option<String>,

    /// How many times the job of --detach may be run again after its worker has died, at most 10.
    /// Each run continues the same thread, and the files that Codex has changed stay changed.
    #[arg(
        long, value_name = "NUMBER", default_value_t = 0, requires = "detach",
        value_parser = number_within(0..=10_u32),
    )]
    retry: u32,

    /// Print the result as one JSON object; with --detach the ID of the job.
    #[arg(long)]
    json: bool,

    /// The Codex to run: a path, or a name on PATH. Default: the variable
    /// CODEX_MCP_CODEX_BIN, `codex_bin` in the configuration, else `codex` on PATH.
    #[arg(long, value_name = "PATH")]
    pub(super) codex_bin: Option<PathBuf>,

    /// Your name among the agents of your team. Default: the variable ATM_IDENTITY, `identity` in
    /// the configuration, else `codex`.
    #[arg(long, value_name = "NAME")]
    pub(super) identity: Option<AgentName>,

    /// Your team. Default: the variable ATM_TEAM, `team` in the configuration, or
    /// `default_team` in `[core]`.
    #[arg(long, value_name = "NAME")]
    pub(super) team: Option<TeamName>,

    /// A preset of the configuration, `[plugins.codex-mcp.roles.NAME]`.
    #[arg(long, value_name = "NAME")]
    pub(super) role: Option<RoleName>,

    /// The store that keeps the job of --detach, and numbers runs for the notices of --notify: as
    /// in `codex-mcp jobs`.
    #[arg(long, value_name = "LOCATION")]
    pub(super) store: Option<Location>,
}

impl Args {
    pub(super) fn flags(&self) -> Flags {
        Flags {
            codex_bin: self.codex_bin.clone(),
            identity: self.identity.clone(),
            team: self.team.clone(),
            role: self.role.clone(),
            store: self.store.clone(),
            sandbox: self.sandbox,
            ..Flags::default()
        }
    }

    /// The directory of `--cwd`, as an absolute path.
    pub(super) fn repo(&self) -> PathBuf {
        resolved(&self.cwd)
    }

    pub(super) fn json(&self) -> bool {
        self.json
    }

    pub(super) fn evidence(&self) -> Option<&PathBuf> {
        self.evidence.as_ref()
    }

    /// The run as a job.
    pub(super) fn job(&self, run: RunSpec) -> RunJobSpec {
        RunJobSpec {
            caller: Caller::Shell,
            client: Some("codex-mcp run".to_owned()),
            task_name: self.name.clone(),
            retry: self.retry,
            ..RunJobSpec::new(run)
        }
    }

    pub(super) fn spec(&self) -> Result<RunSpec, Failure> {
        if self.detach && self.approve == Some(Approve::Ask) {
            return Err(Failure::NobodyToAsk);
        }
        let limits = Limits::new(self.max_turns, self.turn_timeout, self.total_timeout)?
            .stalling_after(self.stall_after)?
            .within_tokens(self.max_tokens)?;
        let task = prompt::read(self.task.as_deref(), LONGEST_TASK)?;
        let mut spec = RunSpec::new(task, &self.cwd);
        spec.check_repo_is_named()?;
        spec.repo = self.repo();
        spec.criteria = Criteria::new(self.until.iter().cloned())?;
        spec.limits = limits;
        if self.allow_preexisting {
            spec.preexisting = Preexisting::Counts;
        }
        if self.worktree {
            spec.workspace = WorkspaceMode::Worktree;
        }
        let settings = &mut spec.settings;
        settings.thread.sandbox = self.sandbox;
        settings.thread.model.clone_from(&self.model);
        settings.model_options.effort = self.effort;
        settings.profile.clone_from(&self.profile);
        spec.approve = self.approve.unwrap_or_else(|| self.usual_approval());
        spec.notify.clone_from(&self.notify);
        Ok(spec)
    }

    fn usual_approval(&self) -> Approve {
        match !self.detach && io::stdin().is_terminal() && output::stderr_is_terminal() {
            true => Approve::Ask,
            false => Approve::Never,
        }
    }
}
