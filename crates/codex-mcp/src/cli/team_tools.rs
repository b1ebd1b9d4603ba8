//! `codex-mcp team-tools`: the mail of one identity, for the threads of Codex's that
//! this program begins.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use agent_team::logic::{AgentName, TeamName};
use agent_team::{MailClient, Member};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use mcp_server::serve_team_tools;
use rmcp::transport::stdio_pipes;
use settings::RetentionSettings;

use super::shutdown::{self, Shutdown};
use super::{log, runtime};

/// The arguments alone decide whose mail it is; no later message can change it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent.
    #[arg(long, value_name = "NAME")]
    identity: AgentName,

    /// Its team.
    #[arg(long, value_name = "TEAM")]
    team: TeamName,

    /// The directory above the teams; an absolute path.
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    atm_home: PathBuf,

    /// The size at which the audit log of the agent is set aside, in bytes. A server that began before
    /// an update does not give it.
    #[arg(long, value_name = "N", default_value_t = RetentionSettings::default().audit_bytes.value)]
    max_audit_bytes: u64,
}

fn absolute(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    match path.is_absolute() {
        true => Ok(path),
        false => Err("it must be an absolute path"),
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    log::start();
    log::exit(serve(args))
}

fn serve(args: &Args) -> io::Result<ExitCode> {
    let member = Member {
        identity: args.identity.clone(),
        team: Some(args.team.clone()),
    };
    let mail_client = MailClient::of(&member, &args.atm_home, args.max_audit_bytes);
    let Some(mail_client) = mail_client.map_err(io::Error::other)? else {
        return Ok(ExitCode::SUCCESS);
    };
    runtime::block_on(async {
        let shutdown = Shutdown::on_signals(shutdown::TOOL_LIMIT);
        let closing = shutdown.closing.clone();
        serve_team_tools(mail_client, stdio_pipes(), DEFAULT_LINE_LIMIT, closing)
            .await
            .map_err(io::Error::other)?;
        Ok(shutdown.exit_code())
    })?
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn arguments_of_an_older_server_are_accepted() {
        let line = "team-tools --identity a --team t --atm-home /atm";
        let Cli { args } = Cli::try_parse_from(line.split(' ')).unwrap();
        let usual = RetentionSettings::default().audit_bytes.value;
        assert_eq!(args.max_audit_bytes, usual);
    }
}
