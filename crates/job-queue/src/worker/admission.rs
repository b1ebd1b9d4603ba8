//! Decides whether this machine may run a job. Settings that name programs or lift the sandbox are
//! taken only from jobs that this machine has submitted.

use common::json::as_word;
use common::text::one_line;
use goal_run::spec::{Approve, RunSpec};
use settings::store_access::OthersJobs;

use super::Options;
use crate::run::spec::StoredRun;
use crate::store::{Job, Origin, Request};

/// The sandbox mode without a sandbox.
const NO_SANDBOX: &str = "danger-full-access";

/// The limit of a part in a message, in bytes.
const PART: usize = 200;

/// Why a job is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The job has no valid signature of this machine.
    #[error(
        "nothing of this job was run: it is not signed with the key of this machine. Somebody else \
         has written its row or changed it, or the key, {key}, was replaced since. Submit it \
         again on this machine; only jobs_of_others = \"run\" in {} has this machine run the jobs of \
         others",
        settings::user_file().display()
    )]
    NotSigned {
        /// The file of the key.
        key: String,
    },
    /// The job has parts that are not taken from others.
    #[error(
        "nothing of this job of {owner} was run: it is not signed with the key of this machine, and \
         has {}, which this machine takes only from its own jobs. Leave that out, or submit the job \
         on this machine", parts.join(", ")
    )]
    Parts {
        /// The owner that the job names.
        owner: String,
        /// The refused parts, in words.
        parts: Vec<String>,
    },
}

/// Refuses a job that may not run here.
pub(super) fn check(job: &Job, options: &Options) -> Result<(), Refusal> {
    if job.origin == Origin::ThisMachine {
        return Ok(());
    }
    if options.others != OthersJobs::Run {
        return Err(Refusal::NotSigned {
            key: options.state.join("host.key").display().to_string(),
        });
    }
    let mut parts = of_request(&job.request);
    if let Some(Ok(stored)) = StoredRun::of(&job.request) {
        parts.extend(of_run(&stored.spec));
    }
    if parts.is_empty() {
        return Ok(());
    }
    let owner = &job.summary.owner;
    let owner = owner.name.as_ref().or(owner.role.as_ref());
    Err(Refusal::Parts {
        owner: owner.map_or("somebody unknown", String::as_str).to_owned(),
        parts,
    })
}

fn of_request(request: &Request) -> Vec<String> {
    let mut parts = Vec::new();
    if request.sandbox.as_deref() == Some(NO_SANDBOX) {
        parts.push(format!("the sandbox {NO_SANDBOX}"));
    }
    if let Some(profile) = &request.profile {
        parts.push(format!("the profile {}", shown(profile)));
    }
    if request.settings.is_some() {
        parts.push("settings of the call".to_owned());
    }
    parts
}

/// A part for a message: shortened and quoted, as it may be any text.
fn shown(part: &impl ToString) -> String {
    format!("{:?}", one_line(&part.to_string(), PART))
}

fn of_run(spec: &RunSpec) -> Vec<String> {
    let commands = spec
        .criteria
        .iter()
        .filter(|criterion| criterion.runs_program())
        .map(|criterion| format!("the exit criterion {}", shown(criterion)));
    let mut parts: Vec<String> = commands.collect();
    let notifiers = spec.notify.iter();
    parts.extend(notifiers.map(|one| format!("the notifier {}", shown(one))));
    if spec.approve == Approve::Always {
        parts.push("approve = always".to_owned());
    }
    if spec.settings.profile.is_some() {
        parts.push("a profile".to_owned());
    }
    let thread = &spec.settings.thread;
    if !thread.config.is_empty() {
        parts.push("settings of Codex's config.toml".to_owned());
    }
    let sandbox = thread.sandbox.and_then(as_word);
    if sandbox.as_deref() == Some(NO_SANDBOX) {
        parts.push(format!("the sandbox {NO_SANDBOX}"));
    }
    parts
}
