//! The store of jobs, as the configuration wants it.

use agent_team::Member;
use agent_team::audit::Audit;
use job_queue::host;
use job_queue::order::{Reach, Submitter};
use job_queue::service::Jobs;
use job_queue::worker::start::Starter;
use safe_files::state_file::FileError;
use settings::Config;

use super::own_servers;

/// The jobs that a program hands over for a member. It is opened when it is used first.
/// `unaudited` is told why they are not written into the audit, where that is so.
pub(super) fn jobs_of(
    config: &Config,
    member: &Member,
    program: &str,
    unaudited: impl FnOnce(FileError),
) -> Jobs {
    let store = &config.jobs.store.value;
    let codex = config.chosen_codex().map(|(path, _)| path);
    let starter = Starter::new(store.clone(), &config.jobs.state, codex);
    let submitter = Submitter {
        program: program.to_owned(),
        identity: Some(member.identity.clone()),
        team: member.team.clone(),
        atm_home: config.atm_home.clone(),
        mail: own_servers::mail_of_jobs(config),
        host: host::name(),
        codex: config.chosen_codex(),
        codex_home: config.codex_home.clone(),
        defaults: config.threads.clone(),
        bounds: config.bounds(),
        reach: Reach::of(store),
    };
    let jobs = Jobs::new(store.clone(), config.jobs.access(), starter, submitter);
    match Audit::open(&config.atm_home, member) {
        Ok(audit) => jobs.with_audit(audit),
        Err(error) => {
            unaudited(error);
            jobs
        }
    }
}
