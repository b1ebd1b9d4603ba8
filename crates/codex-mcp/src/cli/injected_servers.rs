//! The tools and MCP servers that we give to Codex, according to the configuration: tools for
//! threads, and MCP servers for a Codex that is not driven through its app-server.

use std::env;
use std::sync::Arc;

use agent_team::{MailClient, Member};
use codex_engine::injected_server::{ExecutablePathError, Server};
use image_request::logic::contract;
use image_request::logic::picture::SizeLimit;
use job_queue::call_settings::ThreadMail;
use job_queue::worker::{JobTools, MailAccess};
use mcp_server::{Approval, OwnThreadTools};
use settings::{Config, EyesSettings, Origin, Source};
use supervise::search_path::CEILINGS;

use super::services::Identity;

/// The name of the MCP server for mail.
const TEAM: &str = "codex_mcp_team";

/// The tools of a member's threads: pictures, and mail if the member has a team.
pub(super) fn member_tools(config: &Config, identity: &Identity) -> Arc<OwnThreadTools> {
    let tools = picture_tools(config);
    let mail_client = identity.services.mail_client.clone();
    Arc::new(match mail_client.filter(|_| config.team_tools.value) {
        Some(mail_client) => tools.with_mail(mail_client, approval(config)),
        None => tools,
    })
}

/// The tools of a job's threads: pictures, and the mail of its submitter if the configuration
/// allows it.
pub(super) fn job_tools(config: &Config) -> JobTools {
    let pictures = picture_tools(config);
    let audit_limit = config.retention.audit_bytes.value;
    JobTools::new(move |mail| {
        let tools = pictures.clone();
        let Some(MailAccess { member, atm_home }) = mail else {
            return Arc::new(tools);
        };
        match MailClient::of(member, atm_home, audit_limit) {
            Ok(Some(mail_client)) => Arc::new(tools.with_mail(mail_client, Approval::Beforehand)),
            Ok(None) => Arc::new(tools),
            Err(error) => {
                tracing::warn!("Codex gets no mail tools: {error}");
                Arc::new(tools)
            }
        }
    })
}

/// Whether jobs get the mail of their submitters. They do not if a repository has chosen the
/// member: each call would need an approval, and there is nobody to approve a job's calls.
pub(super) fn job_mail(config: &Config) -> ThreadMail {
    match (config.team_tools.value, approval(config)) {
        (true, Approval::Beforehand) => ThreadMail::Given,
        _ => ThreadMail::Withheld,
    }
}

fn picture_tools(config: &Config) -> OwnThreadTools {
    let tools = OwnThreadTools::default();
    match config.eyes.request_image.value {
        true => tools.with_pictures(config.eyes.max_image_bytes.value),
        false => tools,
    }
}

/// The approval that calls of mail tools need: none, as they can do no more than the member itself,
/// unless a repository has chosen the member; then each call needs one.
fn approval(config: &Config) -> Approval {
    match config.identity_origin {
        Origin::User => Approval::Beforehand,
        Origin::Repository => Approval::EachCall,
    }
}

/// The servers for `codex mcp-server`: mail if the member has a team, and pictures if they are
/// enabled.
pub(super) fn proxy_servers(config: &Config, identity: &Identity) -> Vec<Server> {
    let mail = config.team_tools.value && identity.services.mail_client.is_some();
    let mail = mail.then(|| team(config, &identity.member)).flatten();
    let asked_for = config.eyes.request_image.source != Source::Default;
    let pictures = asked_for && config.eyes.request_image.value;
    let pictures = pictures.then(|| pictures_for(&config.eyes)).flatten();
    pictures.into_iter().chain(mail).collect()
}

/// The mail server. Its arguments fix the owner of the mail.
fn team(config: &Config, member: &Member) -> Option<Server> {
    let args = [
        "team-tools",
        "--identity",
        &member.identity.to_string(),
        "--team",
        &member.team.as_ref()?.to_string(),
        "--atm-home",
        config.atm_home.to_str()?,
        "--max-audit-bytes",
        &config.retention.audit_bytes.value.to_string(),
    ];
    let server = new_server(TEAM, &args).map(|server| match approval(config) {
        Approval::Beforehand => server,
        Approval::EachCall => server.without_preapproval(),
    });
    or_warn(server, "mail tools")
}

fn pictures_for(settings: &EyesSettings) -> Option<Server> {
    let limit = settings.max_image_bytes.value;
    or_warn(pictures(limit, &["--answer", "picture"]), contract::TOOL)
}

/// The tool `request_image`, with these arguments beside the limit. It is approved beforehand, as
/// it only reads, and only the repository.
///
/// # Errors
///
/// [`ExecutablePathError`].
pub(super) fn pictures(limit: SizeLimit, args: &[&str]) -> Result<Server, ExecutablePathError> {
    let most = limit.bytes().to_string();
    let args = [&["eyes-mcp", "--max-image-bytes", &most], args].concat();
    let server = new_server(contract::SERVER, &args)?.with_root_argument();
    // The server must find the same repositories as this process.
    Ok(match env::var(CEILINGS) {
        Ok(ceilings) => server.with_variable(CEILINGS, ceilings),
        Err(_) => server,
    })
}

fn new_server(name: &'static str, args: &[&str]) -> Result<Server, ExecutablePathError> {
    Server::new(name, args.iter().map(|&arg| arg.to_owned()).collect())
}

fn or_warn(server: Result<Server, ExecutablePathError>, what: &str) -> Option<Server> {
    server
        .inspect_err(|error| tracing::warn!("Codex gets no {what}: {error}"))
        .ok()
}
