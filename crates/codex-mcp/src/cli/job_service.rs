//! The job service of the configured store.

use agent_team::Member;
use agent_team::audit::Audit;
use job_queue::machine;
use job_queue::service::Jobs;
use job_queue::submitter::{StoreScope, Submitter};
use job_queue::worker::start::Starter;
use safe_files::state_file::FileError;
use settings::Config;

use super::injected_servers;

/// The service through which a program submits jobs for a member. Its store is opened at the first
/// use. `unaudited` is told the reason if the jobs cannot be recorded in the audit.
pub(super) fn job_service(
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
        mail: injected_servers::job_mail(config),
        host: machine::name(),
        codex: config.chosen_codex(),
        codex_home: config.codex_home.clone(),
        defaults: config.threads.clone(),
        bounds: config.bounds(),
        directory: config.directory.clone(),
        scope: StoreScope::of(store),
    };
    let jobs = Jobs::new(
        config.jobs.store.clone(),
        config.jobs.access(),
        starter,
        submitter,
    );
    match Audit::open(&config.atm_home, member) {
        Ok(mut audit) => {
            audit.rotate_at(config.retention.audit_bytes.value);
            jobs.with_audit(audit)
        }
        Err(error) => {
            unaudited(error);
            jobs
        }
    }
}
