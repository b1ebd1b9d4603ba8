//! What Codex is given of ours, as the configuration wants it: tools for threads, and MCP
//! servers for a Codex that is not driven by its app-server.

use std::env;
use std::sync::Arc;

use agent_team::{MailClient, Member};
use codex_engine::own_mcp_server::{NoServer, Server};
use image_request::logic::contract;
use image_request::logic::picture::SizeLimit;
use job_queue::call_settings::ThreadMail;
use job_queue::worker::{MailOf, ToolsOfJobs};
use mcp_server::{Approval, OurTools};
use settings::{Config, EyesSettings, Origin, Source};
use supervise::ceilings::CEILINGS;

use super::services::Identity;

/// The name of the MCP server that has the mail.
const TEAM: &str = "codex_mcp_team";

/// The tools of a member's threads: pictures, and the mail where there is some.
pub(super) fn tools_of_a_member(config: &Config, identity: &Identity) -> Arc<OurTools> {
    let tools = pictures_if_wanted(config);
    let mail_client = identity.services.mail_client.clone();
    Arc::new(match mail_client.filter(|_| config.team_tools.value) {
        Some(mail_client) => tools.with_mail(mail_client, approval(config)),
        None => tools,
    })
}

/// The tools of a job's threads: pictures, and the mail of who has submitted it, where
/// that is given.
pub(super) fn tools_of_jobs(config: &Config) -> ToolsOfJobs {
    let pictures = pictures_if_wanted(config);
    ToolsOfJobs::new(move |mail| {
        let tools = pictures.clone();
        let Some(MailOf { member, atm_home }) = mail else {
            return Arc::new(tools);
        };
        match MailClient::of(member, atm_home) {
            Ok(Some(mail_client)) => Arc::new(tools.with_mail(mail_client, Approval::Beforehand)),
            Ok(None) => Arc::new(tools),
            Err(error) => {
                tracing::warn!("Codex gets no mail tools: {error}");
                Arc::new(tools)
            }
        }
    })
}

/// Whether jobs get the mail of who submits them: nobody is there to approve each call, as
/// is needed for a member whom a repository has chosen.
pub(super) fn mail_of_jobs(config: &Config) -> ThreadMail {
    match (config.team_tools.value, approval(config)) {
        (true, Approval::Beforehand) => ThreadMail::Given,
        _ => ThreadMail::Withheld,
    }
}

fn pictures_if_wanted(config: &Config) -> OurTools {
    let tools = OurTools::default();
    match config.eyes.request_image.value {
        true => tools.with_pictures(config.eyes.max_image_bytes.value),
        false => tools,
    }
}

/// Calls of mail need no approval: they can do no more than the member itself. Where a
/// repository has chosen the member, each does.
fn approval(config: &Config) -> Approval {
    match config.identity_origin {
        Origin::User => Approval::Beforehand,
        Origin::Repository => Approval::EachCall,
    }
}

/// The servers for `codex mcp-server`: the mail where there is some, and pictures if they
/// are asked for. Without either, it gets none.
pub(super) fn of_the_proxy(config: &Config, identity: &Identity) -> Vec<Server> {
    let mail = config.team_tools.value && identity.services.mail_client.is_some();
    let mail = mail.then(|| team(config, &identity.member)).flatten();
    let asked_for = config.eyes.request_image.source != Source::Default;
    let pictures = asked_for && config.eyes.request_image.value;
    let pictures = pictures.then(|| pictures_for(&config.eyes)).flatten();
    pictures.into_iter().chain(mail).collect()
}

/// Whose mail it is, is said by how the server is started.
fn team(config: &Config, member: &Member) -> Option<Server> {
    let args = [
        "team-tools",
        "--identity",
        &member.identity.to_string(),
        "--team",
        &member.team.as_ref()?.to_string(),
        "--atm-home",
        config.atm_home.to_str()?,
    ];
    let server = made(TEAM, &args).map(|server| match approval(config) {
        Approval::Beforehand => server,
        Approval::EachCall => server.asking_first(),
    });
    told_if_not(server, "mail tools")
}

fn pictures_for(settings: &EyesSettings) -> Option<Server> {
    let limit = settings.max_image_bytes.value;
    told_if_not(pictures(limit, &["--answer", "picture"]), contract::TOOL)
}

/// The tool `request_image`, with these arguments beside the limit. It is approved
/// beforehand: it only reads, and no more than the repository.
///
/// # Errors
///
/// [`NoServer`].
pub(super) fn pictures(limit: SizeLimit, args: &[&str]) -> Result<Server, NoServer> {
    let most = limit.bytes().to_string();
    let args = [&["eyes-mcp", "--max-image-bytes", &most], args].concat();
    let server = made(contract::SERVER, &args)?.told_the_directory();
    // What is a repository to us is one to it.
    Ok(match env::var(CEILINGS) {
        Ok(ceilings) => server.with_variable(CEILINGS, ceilings),
        Err(_) => server,
    })
}

fn made(name: &'static str, args: &[&str]) -> Result<Server, NoServer> {
    Server::new(name, args.iter().map(|&arg| arg.to_owned()).collect())
}

fn told_if_not(server: Result<Server, NoServer>, what: &str) -> Option<Server> {
    server
        .inspect_err(|error| tracing::warn!("Codex gets no {what}: {error}"))
        .ok()
}
