//! The table of error codes: the name, whether a retry is worthwhile, and the hint.

/// Whether the same call may succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Worthwhile,
    Pointless,
}

/// The name, retry and hint of a code.
pub(super) struct CodeRow {
    pub(super) name: &'static str,
    pub(super) retry: Retry,
    pub(super) hint: &'static str,
}

macro_rules! codes {
    ($($code:ident: $name:literal, $retry:ident, $hint:literal;)*) => {
        /// The kind of an error; programs may rely on the names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = concat!("`", $name, "`: ", $hint)] $code,)*
        }

        impl Code {
            /// All of them, in the order of the table.
            pub(super) const ALL: &[Self] = &[$(Self::$code,)*];

            pub(super) fn row(self) -> CodeRow {
                match self {
                    $(Self::$code => CodeRow { name: $name, retry: Retry::$retry, hint: $hint },)*
                }
            }
        }
    };
}

codes! {
    InvalidArgument: "INVALID_ARGUMENT", Pointless,
        "Correct the argument and call again.";
    OutOfBounds: "OUT_OF_BOUNDS", Pointless,
        "Stay within the named setting; only the user can change it, where the message says it is set.";
    DirectoryReplaced: "DIRECTORY_REPLACED", Pointless,
        "Nothing of the thread is lost: it continues when the directory is back.";
    CodexNotFound: "CODEX_NOT_FOUND", Pointless,
        "Install Codex with `npm install -g @openai/codex`, or name it with --codex-bin or CODEX_MCP_CODEX_BIN.";
    AppServerStartFailed: "APP_SERVER_START_FAILED", Pointless,
        "Run `codex-mcp doctor`: it reports what is wrong with this Codex.";
    CodexDied: "CODEX_DIED", Worthwhile,
        "Continue with codex-reply and the threadId: Codex is started again and the thread resumed.";
    ServerDied: "CODEX_DIED", Pointless,
        "Close the MCP connection and open it again: codex mcp-server is not restarted automatically. If it ends again, run `codex-mcp doctor`.";
    OverLimit: "PROTOCOL_PARSE_ERROR", Pointless,
        "Allow longer messages with --max-line, or have Codex send shorter answers.";
    CodexSilent: "CODEX_SILENT", Worthwhile,
        "A slow MCP server in Codex's config can be the cause; run `codex-mcp doctor`.";
    CodexRefused: "CODEX_REFUSED", Pointless,
        "Correct the problem that Codex names, then call again.";
    ThreadNotFound: "THREAD_NOT_FOUND", Pointless,
        "Check the threadId and CODEX_HOME, or begin a new thread with the codex tool.";
    ThreadInUse: "THREAD_IN_USE", Worthwhile,
        "Close the Codex that has it open, or cancel the session that has it \
         (`codex-mcp ps` lists those that a host process serves), or begin a new thread with the codex tool.";
    ThreadOutOfStep: "THREAD_OUT_OF_STEP", Pointless,
        "Begin a new thread with the codex tool and include the relevant context; codex-mcp's default backend continues after a failure.";
    SessionNotFound: "SESSION_NOT_FOUND", Pointless,
        "List the sessions; resume an ended session by its threadId.";
    TooManySessions: "TOO_MANY_SESSIONS", Worthwhile,
        "Cancel sessions that are no longer needed, then call again.";
    SessionBusy: "SESSION_BUSY", Worthwhile,
        "Wait until the turn has ended, then call again.";
    SessionWaiting: "SESSION_BUSY", Worthwhile,
        "Answer the question with codex_check, then call again when the turn has ended.";
    ThreadLive: "SESSION_BUSY", Pointless,
        "Leave these settings out, or cancel that session first.";
    SessionNotRunning: "SESSION_NOT_RUNNING", Pointless,
        "Check its status; an idle session takes a new prompt.";
    SessionCancelled: "CANCELLED", Pointless,
        "Resume its thread with codex_session, action resume and the threadId.";
    CantFork: "THREAD_FORK_RESUME_FAILED", Pointless,
        "A thread can be forked after its first message.";
    RequestNotFound: "REQUEST_NOT_FOUND", Pointless,
        "Look at the open questions again.";
    Timeout: "TIMEOUT", Worthwhile,
        "Continue with codex-reply and the threadId; `--timeout` allows longer turns.";
    Interrupted: "INTERRUPTED", Worthwhile,
        "Continue with codex-reply and the threadId.";
    Cancelled: "CANCELLED", Worthwhile,
        "Continue with codex-reply and the threadId.";
    ShuttingDown: "SHUTTING_DOWN", Worthwhile,
        "Start codex-mcp again; if there is a threadId, continue with codex-reply.";
    HostLost: "HOST_LOST", Worthwhile,
        "codex_session and codex_threads list the work that continues; call again if yours is missing.";
    JobHostLost: "HOST_LOST", Pointless,
        "Find the job with call_jobs or call_status; call again only if the call has had no effect.";
    SessionHostLost: "HOST_LOST", Pointless,
        "codex_threads lists its thread; resume it with codex_session, action resume and the threadId.";
    TaskFiles: "TASK_FILES", Worthwhile,
        "Free disk space, or correct the permissions of the file that the message names, then call again.";
    TooManyTasks: "TOO_MANY_TASKS", Worthwhile,
        "Cancel tasks whose results are not needed, or wait until some have ended, then call again.";
    UsageLimit: "USAGE_LIMIT", Worthwhile,
        "Wait until the limit is reset; the message says when, if Codex knows.";
    RateLimited: "RATE_LIMITED", Worthwhile,
        "Wait a minute, then continue with codex-reply.";
    Overloaded: "OVERLOADED", Worthwhile,
        "Wait a moment, then call again.";
    Unauthorized: "UNAUTHORIZED", Pointless,
        "Log in with `codex login`, or fix the API key of your model provider, then call again.";
    ContextWindow: "CONTEXT_WINDOW", Pointless,
        "Begin a new thread with the codex tool and include the relevant context.";
    ModelNotFound: "MODEL_NOT_FOUND", Pointless,
        "Name another model, or leave the model to Codex's config.";
    Sandbox: "SANDBOX", Pointless,
        "Run `codex-mcp doctor`, or choose another sandbox if you accept the risk.";
    Connection: "CONNECTION", Worthwhile,
        "Check the network and the model provider in Codex's config, then continue with codex-reply.";
    TurnFailed: "TURN_FAILED", Worthwhile,
        "Continue with codex-reply and the threadId.";
    Unreadable: "PROTOCOL_PARSE_ERROR", Pointless,
        "Codex may be newer than this codex-mcp; `codex-mcp doctor` reports it.";
    NoTeam: "NO_TEAM", Pointless,
        "Create the team in Claude Code. Name it with --team, ATM_TEAM, or `team` in the configuration.";
    UnknownRecipient: "UNKNOWN_RECIPIENT", Pointless,
        "Name a member of the team, or agent@team for one of another team.";
    MessageTooLong: "INVALID_ARGUMENT", Pointless,
        "Put the long text into a file, and name the file in the message.";
    TeamFiles: "TEAM_FILES", Worthwhile,
        "See the log on stderr.";
    JobStoreAway: "JOB_STORE", Worthwhile,
        "Call again in a moment.";
    JobStore: "JOB_STORE", Pointless,
        "`codex-mcp config` shows where the store is; --store or CODEX_MCP_STORE names another.";
    JobUnclear: "JOB_STORE", Pointless,
        "Look at the job with call_status; call again only if the call has had no effect.";
    JobNotFound: "JOB_NOT_FOUND", Pointless,
        "call_jobs lists the jobs.";
    CouldNotRun: "COULD_NOT_RUN", Pointless,
        "Correct the problem that the message names, then call codex_run again.";
    WorkerLost: "WORKER_LOST", Worthwhile,
        "Call codex_run again, with thread_id if there is one.";
    JobEnded: "JOB_ENDED", Pointless,
        "Look at the job with call_status.";
    Internal: "INTERNAL", Worthwhile,
        "Call again. See the log on stderr.";
}

impl Code {
    /// The name of the code in the tools of the npm package @leo000001/codex-mcp, which has fewer
    /// codes. `OUT_OF_BOUNDS`, `DIRECTORY_REPLACED` and `HOST_LOST` are ours; the relay of a host
    /// answers the calls of every tool with the last of them.
    pub(super) fn name_for_sessions(self) -> &'static str {
        match self {
            Self::CodexNotFound | Self::AppServerStartFailed => "APP_SERVER_START_FAILED",
            Self::ThreadNotFound | Self::ThreadInUse | Self::CantFork => {
                "THREAD_FORK_RESUME_FAILED"
            }
            Self::CodexSilent | Self::Timeout => "TIMEOUT",
            Self::Cancelled | Self::Interrupted | Self::SessionCancelled | Self::ShuttingDown => {
                "CANCELLED"
            }
            Self::SessionBusy | Self::SessionWaiting | Self::ThreadLive | Self::TooManySessions => {
                "SESSION_BUSY"
            }
            Self::CodexRefused => "INVALID_ARGUMENT",
            Self::InvalidArgument
            | Self::OutOfBounds
            | Self::DirectoryReplaced
            | Self::SessionNotFound
            | Self::SessionNotRunning
            | Self::RequestNotFound
            | Self::HostLost
            | Self::JobHostLost
            | Self::SessionHostLost
            | Self::Unreadable => self.row().name,
            _ => "INTERNAL",
        }
    }

    /// The hint in the tools of the npm package @leo000001/codex-mcp.
    pub(super) fn hint_for_sessions(self) -> &'static str {
        match self {
            Self::CodexDied => "Call again: Codex is started again and the thread resumed.",
            Self::Cancelled => "The session continues; poll it with codex_check.",
            Self::Interrupted => "Give it another prompt with codex_reply.",
            Self::ShuttingDown => {
                "Start codex-mcp again, then resume the thread with codex_session, action resume."
            }
            _ => self.row().hint,
        }
    }
}
