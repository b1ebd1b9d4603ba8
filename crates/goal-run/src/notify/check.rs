//! Checks of notifiers, as far as possible without delivering anything.

use std::path::{Path, PathBuf};

use agent_team::logic::{Address, TeamName};
use agent_team::mail::{MailError, MailStore};
use supervise::spawn;

use super::desktop;
use super::tls::{self, NoCertificates};
use super::web::{self, BadToken};
use crate::logic::names::CommandLine;
use crate::logic::notifier::Notifier;
use crate::logic::web_address::WebAddress;
use crate::{Caller, programs};

/// Why a notifier can't work.
#[derive(Debug, thiserror::Error)]
#[error("{} {notifier} cannot work: {why}", caller.notify())]
pub struct UnusableNotifier {
    /// The notifier.
    pub notifier: Box<Notifier>,
    /// The reason.
    #[source]
    pub why: Box<UnusableReason>,
    /// The caller, for how the message names the option.
    pub caller: Caller,
}

/// Why a notifier can't work.
#[derive(Debug, thiserror::Error)]
pub enum UnusableReason {
    /// Its program does not exist.
    #[error("there is no program {}; install it, or write its path", .0.display())]
    Program(PathBuf),
    /// The program of the desktop is missing.
    #[error(
        "there is no program {}; install {}",
        desktop::PROGRAM,
        desktop::PACKAGE
    )]
    NoDesktop,
    /// No server can prove who it is.
    #[error(transparent)]
    Certificates(#[from] NoCertificates),
    /// The token for ntfy is invalid.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// Mail needs a home directory.
    #[error("neither ATM_HOME nor HOME is set to an absolute path")]
    NoHome,
    /// The mail names no team, and the sender is in none.
    #[error("you are in no team: write mail:AGENT@TEAM, or name yours with --team")]
    NoTeam,
    /// The team or the agent cannot be found.
    #[error(transparent)]
    Mail(#[from] MailError),
}

/// The surroundings in which notifiers are checked.
#[derive(Debug, Clone)]
pub struct NotifierCheck {
    /// The team of the sender.
    pub team: Option<TeamName>,
    /// The home directory with the teams.
    pub atm_home: PathBuf,
    /// The directory in which commands are run.
    pub directory: PathBuf,
}

impl NotifierCheck {
    /// Checks each notifier. Blocks for some milliseconds. No server is asked: others in an IRC
    /// channel would notice, and a name may take seconds to resolve.
    ///
    /// # Errors
    ///
    /// [`UnusableNotifier`]: the first that cannot work.
    pub fn check(&self, notifiers: &[Notifier]) -> Result<(), UnusableNotifier> {
        for notifier in notifiers {
            let checked = match notifier {
                Notifier::Mail(address) => self.check_mail(address),
                Notifier::Command(command) => check_command(command, &self.directory),
                Notifier::Irc(_) => Ok(()),
                Notifier::Desktop => self.check_desktop(),
                Notifier::Webhook(address) => check_web(address),
                Notifier::Ntfy(address) => web::check_token()
                    .map_err(UnusableReason::from)
                    .and_then(|()| check_web(address)),
            };
            checked.map_err(|why| UnusableNotifier {
                notifier: Box::new(notifier.clone()),
                why: Box::new(why),
                caller: Caller::default(),
            })?;
        }
        Ok(())
    }

    fn check_desktop(&self) -> Result<(), UnusableReason> {
        match programs::is_on_path(desktop::PROGRAM, &self.directory) {
            true => Ok(()),
            false => Err(UnusableReason::NoDesktop),
        }
    }

    fn check_mail(&self, address: &Address) -> Result<(), UnusableReason> {
        if !self.atm_home.is_absolute() {
            return Err(UnusableReason::NoHome);
        }
        let team = address.team.as_ref().or(self.team.as_ref());
        let team = team.ok_or(UnusableReason::NoTeam)?;
        Ok(MailStore::new(&self.atm_home).check(&address.agent, team)?)
    }
}

fn check_web(address: &WebAddress) -> Result<(), UnusableReason> {
    if address.is_encrypted() {
        tls::trusted_certificates()?;
    }
    Ok(())
}

fn check_command(command: &CommandLine, directory: &Path) -> Result<(), UnusableReason> {
    match programs::missing(command, directory, &[], spawn::Lookup::Protected) {
        None => Ok(()),
        Some(program) => Err(UnusableReason::Program(program)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(home: &Path) -> NotifierCheck {
        NotifierCheck {
            team: None,
            atm_home: home.to_owned(),
            directory: home.to_owned(),
        }
    }

    #[test]
    fn unusable_notifiers_are_found() {
        let home = tempfile::tempdir().unwrap();
        let team = home.path().join(".claude/teams/builders");
        std::fs::create_dir_all(&team).unwrap();
        let roster = r#"{ "name": "builders", "members": [{ "name": "lead" }] }"#;
        std::fs::write(team.join("config.json"), roster).unwrap();
        let check = |notifier: &str| {
            let checked = lookup(home.path()).check(&[notifier.parse().unwrap()]);
            checked.map_err(|error| error.to_string())
        };
        for usable in [
            "mail:lead@builders",
            "command:true",
            "irc://nowhere.invalid/x",
            "webhook:http://127.0.0.1:1/x",
            "ntfy:http://127.0.0.1:1/x",
        ] {
            assert_eq!(check(usable), Ok(()), "{usable}");
        }
        for (unusable, why) in [
            ("mail:lead", "you are in no team"),
            ("mail:lead@nobodies", "nobodies"),
            ("mail:nobody@builders", "nobody"),
            (
                "command:no-such-program",
                "there is no program no-such-program",
            ),
        ] {
            let error = check(unusable).unwrap_err();
            assert!(error.starts_with(&format!("notify: {unusable}")), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }
}
