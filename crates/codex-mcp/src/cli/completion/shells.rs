//! The shells that the engine knows, with additions that its scripts need.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};

/// All shells.
pub(super) const fn all() -> Shells<'static> {
    Shells(&[&BashWithFileNames, &Elvish, &Fish, &Powershell, &Zsh])
}

/// bash, which completes file names itself if nothing is offered: it quotes them, and so also
/// offers names with special characters.
struct BashWithFileNames;

impl EnvCompleter for BashWithFileNames {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut script = Vec::new();
        Bash.write_registration(var, name, bin, completer, &mut script)?;
        let script = String::from_utf8_lossy(&script);
        let script = script.replace("-o bashdefault", "-o bashdefault -o default");
        out.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut Command,
        args: Vec<OsString>,
        here: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        Bash.write_complete(command, args, here, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_falls_back_to_its_own_file_names() {
        let mut script = Vec::new();
        let written = BashWithFileNames.write_registration("V", "p", "p", "p", &mut script);
        written.unwrap();
        let script = String::from_utf8(script).unwrap();
        let lines = script.lines().filter(|line| line.contains("complete -o"));
        let with = lines.filter(|line| line.contains("-o default ")).count();
        assert_eq!(with, 2, "{script}");
    }
}
