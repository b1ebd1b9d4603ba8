//! Checks whether Codex can work here, and suggests remedies.
//!
//! Three steps that know little of each other: [`gather`] looks at the machine
//! and puts down plain [`Facts`], [`judge`] makes a [`Report`] of them
//! without looking at anything, and [`as_text`] writes it; as JSON it is its own serialization.
//!
//! # The JSON
//!
//! One object. Fields and checks may be added; those here stay.
//!
//! ```json
//! {
//!   "codex_mcp": "0.1.0",
//!   "works": false,
//!   "checks": [
//!     {"name": "version", "status": "ok", "message": "0.169.0", "value": "0.169.0"},
//!     {"name": "login", "status": "problem", "message": "not logged in",
//!      "hint": "Run `codex login`."}
//!   ]
//! }
//! ```
//!
//! - `codex_mcp`: our own version.
//! - `works`: `false` if any check found a problem; the exit code is 1 then.
//! - `checks`: one for each [`Check`], always all of them and in this order; of `settings` and
//!   `private-git` one for each finding.
//!   - `name`: see the table.
//!   - `status`: `ok`; `note` (needs no action, or could not be checked);
//!     `warning` (some work will fail); `problem` (no work can be done).
//!   - `message`: the finding in words, which may change.
//!   - `value`: the finding for programs, only where the table has one and it
//!     is known.
//!   - `hint`: what to do, with every `problem` and `warning`.
//!
//! | name | about | value |
//! | --- | --- | --- |
//! | `codex-mcp` | this copy of it | `{"commit", "channel", "program", "update"}`: the commit it was built from or `null`, how it was installed (`npm`, `npx`, `homebrew`, `debian`, `cargo`, `installer`, `checkout`, `container` or `unknown`), its path, and in words how to update it |
//! | `settings` | our own settings | |
//! | `codex` | which Codex is run | `{"chosen", "native", "source"}`: paths, and in words where the choice came from |
//! | `version` | its version | the version |
//! | `commands` | what it can do | `{"app-server", "exec", "mcp-server"}`: each `true`, `false` or `null` if unknown |
//! | `app-server` | whether it answers `initialize` | `{"milliseconds"}`: how long that took |
//! | `login` | whether it may use its model provider | |
//! | `limits` | how much of the account's usage limits is used | `{"windows": [{"usedPercent", "windowMinutes", "resetsAt"}], "usedUpUntil", "models": [{"name", "windows"}]}` |
//! | `codex-home` | CODEX_HOME | the path |
//! | `config` | `config.toml` in it | of Codex's whole configuration, those of `model`, `model_provider`, `sandbox_mode`, `approval_policy` and `profile` that are set, as text |
//! | `sandbox` | whether a command runs in Codex's sandbox | |
//! | `git` | git | its version |
//! | `gh` | GitHub's program | its version |
//! | `private-git` | git directories of runs that commit | `{"path", "repository", "state"}`: paths, and `in-use`, `interrupted`, `kept` or `unreadable` |
//! | `state-dir` | the program's state directory, which Codex must not be able to write | its path |
//! | `store` | the job store | its path, or its URL without the password |

pub(crate) mod brief;
mod facts;
mod gather;
mod judge;
mod render;
mod report;
mod settings;

pub use facts::Facts;
pub use gather::gather;
pub use judge::judge;
pub use render::as_text;
pub use report::{Check, Finding, Report, Status};
