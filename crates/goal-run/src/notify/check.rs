//! Whether notifiers can work, as far as that is known without telling anybody.

use std::path::{Path, PathBuf};

use agent_team::logic::{Address, TeamName};
use agent_team::mail::{MailError, Mailroom};
use supervise::spawn;

use crate::logic::names::CommandLine;
use crate::logic::notifier::Notifier;
use crate::{Caller, programs};

/// Why a notifier can't work.
#[derive(Debug, thiserror::Error)]
#[error("{} {notifier} can't work: {why}", caller.notify())]
pub struct UnusableNotifier {
    /// The notifier.
    pub notifier: Box<Notifier>,
    /// Why it can't.
    #[source]
    pub why: Box<Unusable>,
    /// Who has named it.
    pub caller: Caller,
}

/// Why a notifier can't work.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Its program is not there.
    #[error("there is no program {}; install it, or write its path", .0.display())]
    Program(PathBuf),
    /// Mail needs a home directory.
    #[error("neither ATM_HOME nor HOME is set to an absolute path")]
    NoHome,
    /// Mail without a team, by somebody in none.
    #[error("you are in no team: write mail:AGENT@TEAM, or name yours with --team")]
    NoTeam,
    /// The team or the agent can't be found.
    #[error(transparent)]
    Mail(#[from] MailError),
}

/// What notifiers are looked up with.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// The team of the sender.
    pub team: Option<TeamName>,
    /// The home directory that teams are below.
    pub atm_home: PathBuf,
    /// Where commands are run.
    pub directory: PathBuf,
}

impl Lookup {
    /// Looks each of them up. Blocks for some milliseconds. A channel of IRC is not
    /// looked for: that would be seen there.
    ///
    /// # Errors
    ///
    /// [`UnusableNotifier`]: the first that can't work.
    pub fn check(&self, notifiers: &[Notifier]) -> Result<(), UnusableNotifier> {
        for notifier in notifiers {
            let checked = match notifier {
                Notifier::Mail(address) => self.check_mail(address),
                Notifier::Command(command) => check_command(command, &self.directory),
                Notifier::Irc(_) => Ok(()),
            };
            checked.map_err(|why| UnusableNotifier {
                notifier: Box::new(notifier.clone()),
                why: Box::new(why),
                caller: Caller::default(),
            })?;
        }
        Ok(())
    }

    fn check_mail(&self, address: &Address) -> Result<(), Unusable> {
        if !self.atm_home.is_absolute() {
            return Err(Unusable::NoHome);
        }
        let team = address.team.as_ref().or(self.team.as_ref());
        let team = team.ok_or(Unusable::NoTeam)?;
        Ok(Mailroom::new(&self.atm_home).check(&address.agent, team)?)
    }
}

fn check_command(command: &CommandLine, directory: &Path) -> Result<(), Unusable> {
    match programs::missing(command, directory, &[], spawn::Lookup::Protected) {
        None => Ok(()),
        Some(program) => Err(Unusable::Program(program)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(home: &Path) -> Lookup {
        Lookup {
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
