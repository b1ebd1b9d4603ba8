//! The command that continues the thread of a run.

use std::path::Path;

use codex_protocol::codex::{SandboxMode, ThreadId};
use common::json::as_word;
use goal_run::logic::machine::{Limits, RawLimits};

use super::args::Args;

/// The prompt of the pasted command: the thread already contains the task.
const CONTINUE_PROMPT: &str = "Go on with the task.";

/// The purpose of the next run in the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To meet the remaining criteria.
    Remaining,
    /// A new task, which the command reads from stdin.
    NewTask,
}

impl Args {
    /// The command that continues this run's thread, quoted for a shell.
    pub(super) fn resume_command(
        &self,
        repo: &Path,
        thread: &ThreadId,
        sandbox: Option<SandboxMode>,
        purpose: Purpose,
    ) -> String {
        let mut words = vec!["codex-mcp".to_owned(), "run".to_owned()];
        let mut add = |flag: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        };
        let path = |path: &Path| Some(path.display().to_string());
        add("--cwd", path(repo));
        add("--thread", Some(thread.to_string()));
        add("--sandbox", sandbox.and_then(as_word));
        add("--model", self.model.clone());
        add("--effort", self.effort.and_then(as_word));
        add("--profile", self.profile.as_ref().map(ToString::to_string));
        add("--approve", self.approve.and_then(as_word));
        add("--codex-bin", self.codex_bin.as_deref().and_then(path));
        add("--role", self.role.as_ref().map(ToString::to_string));
        if purpose == Purpose::Remaining {
            for (flag, value) in self.set_limits() {
                add(flag, Some(value));
            }
            for notifier in &self.notify {
                add("--notify", Some(notifier.to_string()));
            }
            for criterion in &self.until {
                add("--until", Some(criterion.to_string()));
            }
        }
        words.push(match purpose {
            Purpose::Remaining => CONTINUE_PROMPT.to_owned(),
            Purpose::NewTask => "-".to_owned(),
        });
        // No argument contains a NUL, so quoting cannot fail.
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
    }

    /// The limits that differ from the defaults.
    fn set_limits(&self) -> Vec<(&'static str, String)> {
        let usual = RawLimits::from(Limits::default());
        let millis = |time: std::time::Duration| goal_run::logic::machine::milliseconds(time);
        let time = |time| {
            humantime::format_duration(time)
                .to_string()
                .replace(' ', "")
        };
        let mut set = Vec::new();
        if usual.max_turns != Some(self.max_turns) {
            set.push(("--max-turns", self.max_turns.to_string()));
        }
        if usual.turn_timeout_ms != Some(millis(self.turn_timeout)) {
            set.push(("--turn-timeout", time(self.turn_timeout)));
        }
        if usual.total_timeout_ms != Some(millis(self.total_timeout)) {
            set.push(("--total-timeout", time(self.total_timeout)));
        }
        if usual.stall_after != Some(self.stall_after) {
            set.push(("--stall-after", self.stall_after.to_string()));
        }
        if let Some(tokens) = self.max_tokens {
            set.push(("--max-tokens", tokens.to_string()));
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(words: &[String]) -> Args {
        let words = words.iter().map(String::as_str);
        Command::try_parse_from(["run"].into_iter().chain(words))
            .unwrap_or_else(|error| panic!("{error}"))
            .args
    }

    fn resumed(words: &[&str], purpose: Purpose) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let thread = ThreadId::parse("0199a213-81c0-7800-8aa1-bbab2a035a53").unwrap();
        let repo = Path::new("/home/me/it's mine");
        let args = parsed(&words);
        let command = args.resume_command(repo, &thread, args.sandbox, purpose);
        let words = shlex::split(&command).unwrap();
        assert_eq!(words[..2], ["codex-mcp", "run"]);
        assert_eq!(words[3], "/home/me/it's mine");
        words[2..].to_vec()
    }

    #[test]
    fn resume_command_repeats_the_options() {
        let words = [
            "--until",
            "command=sh -c 'test \"$x\"'",
            "--until",
            "files=*.md",
            "--sandbox",
            "workspace-write",
            "--turn-timeout",
            "90s",
            "--max-tokens",
            "1000",
            "--notify",
            "command:tee told",
            "Do it",
        ];
        let resumed = resumed(&words, Purpose::Remaining);
        let (first, again) = (
            parsed(&words.map(str::to_owned)).spec().unwrap(),
            parsed(&resumed).spec().unwrap(),
        );
        assert_eq!(again.criteria, first.criteria);
        assert_eq!(again.limits, first.limits);
        assert_eq!(again.settings, first.settings);
        assert_eq!(again.notify, first.notify);
        assert!(parsed(&resumed).thread.is_some());
        assert_eq!(again.task, CONTINUE_PROMPT);
    }

    #[test]
    fn resume_command_of_a_completed_run_reads_the_task() {
        let words = ["--until", "pr", "--model", "m", "Do it"];
        let resumed = resumed(&words, Purpose::NewTask);
        assert_eq!(resumed.last().unwrap(), "-");
        assert!(!resumed.contains(&"--until".to_owned()));
        assert!(resumed.contains(&"m".to_owned()));
    }
}
