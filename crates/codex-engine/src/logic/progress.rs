//! The current step of Codex, in the words of progress notifications, results and the
//! terminal's progress line.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The words for the time in which the model works and no step runs.
pub const THINKING: &str = "thinking";

/// The current step of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentStep {
    /// The number of steps reported so far. It never falls, and does not change when a step ends.
    pub number: u64,
    /// A description: one line without hidden characters, of at most about 200 bytes.
    /// Empty before the first step.
    pub words: String,
    /// How long the step has been running.
    pub took: Duration,
}

impl fmt::Display for CurrentStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&timed(&self.words, self.took))
    }
}

/// A step with its time so far: `running cargo test, 12 s`.
#[must_use]
pub fn timed(words: &str, took: Duration) -> String {
    let seconds = took.as_secs();
    match seconds {
        0..60 => format!("{words}, {seconds} s"),
        60..3600 => format!("{words}, {} min {:02} s", seconds / 60, seconds % 60),
        _ => format!(
            "{words}, {} h {:02} min",
            seconds / 3600,
            seconds % 3600 / 60
        ),
    }
}

/// A command line without the shell that Codex runs it in.
#[must_use]
pub fn without_shell(command: &str) -> String {
    match shlex::split(command).as_deref() {
        Some([program, flag, script]) if is_shell(program) && (flag == "-lc" || flag == "-c") => {
            script.clone()
        }
        _ => command.to_owned(),
    }
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next();
    name.is_some_and(|name| ["sh", "bash", "zsh", "dash", "ksh", "ash", "fish"].contains(&name))
}

/// The most running steps that are tracked. Codex has a handful at a time.
const OPEN_LIMIT: usize = 256;

/// The running steps of a turn, with the times `T` at which they began.
#[derive(Debug, Clone)]
pub struct Activity<T> {
    number: u64,
    words: String,
    since: T,
    /// The steps whose end Codex reports, oldest first.
    open: Vec<OpenStep<T>>,
}

#[derive(Debug, Clone)]
struct OpenStep<T> {
    id: String,
    words: String,
    since: T,
}

impl<T: Copy> Activity<T> {
    /// Creates an activity without a step.
    #[must_use]
    pub fn new(now: T) -> Self {
        Self {
            number: 0,
            words: String::new(),
            since: now,
            open: Vec::new(),
        }
    }

    /// How many steps were reported.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The current step, without its time.
    #[must_use]
    pub fn words(&self) -> &str {
        &self.words
    }

    /// When the current step began.
    #[must_use]
    pub fn since(&self) -> T {
        self.since
    }

    /// Begins a turn, and forgets the steps of the previous one.
    pub fn turn_begins(&mut self, now: T) {
        self.open.clear();
        self.switch("starting the turn".to_owned(), now);
    }

    /// Begins to wait for the steps of a turn that another process has begun.
    pub fn takeover_begins(&mut self, now: T) {
        self.switch("being taken over".to_owned(), now);
    }

    /// Reports a step whose end Codex does not report.
    pub fn report(&mut self, words: String, now: T) {
        self.count();
        self.switch(words, now);
    }

    /// Begins a step; without an `id`, its end is not tracked.
    pub fn begin(&mut self, id: &str, words: String, now: T) {
        if words == THINKING && self.words == THINKING {
            return;
        }
        if !id.is_empty() && self.open.len() < OPEN_LIMIT {
            self.open.push(OpenStep {
                id: id.to_owned(),
                words: words.clone(),
                since: now,
            });
        }
        self.report(words, now);
    }

    /// Ends a step.
    pub fn end(&mut self, id: &str, now: T) {
        self.open.retain(|open| open.id != id);
        self.resume(now);
    }

    /// Returns to the newest running step; without one, to the model's work.
    pub fn resume(&mut self, now: T) {
        match self.open.last() {
            Some(open) => {
                self.words.clone_from(&open.words);
                self.since = open.since;
            }
            None if self.words == THINKING => {}
            None => self.switch(THINKING.to_owned(), now),
        }
    }

    /// Counts a step that does not change the current one.
    pub fn count(&mut self) {
        self.number += 1;
    }

    fn switch(&mut self, words: String, now: T) {
        self.words = words;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_formatted_with_its_time() {
        let told = |seconds| timed("running cargo test", Duration::from_secs(seconds));
        assert_eq!(told(0), "running cargo test, 0 s");
        assert_eq!(told(12), "running cargo test, 12 s");
        assert_eq!(told(125), "running cargo test, 2 min 05 s");
        assert_eq!(told(3_725), "running cargo test, 1 h 02 min");
    }

    #[test]
    fn ended_step_gives_way_to_the_newest_open_one() {
        let mut activity = Activity::new(0);
        let mut shown = |act: &dyn Fn(&mut Activity<u64>)| {
            act(&mut activity);
            (
                activity.number(),
                activity.words().to_owned(),
                activity.since(),
            )
        };
        let expected = |number, words: &str, since| (number, words.to_owned(), since);
        let seen = shown(&|activity| activity.turn_begins(1));
        assert_eq!(seen, expected(0, "starting the turn", 1));
        let seen = shown(&|activity| activity.resume(2));
        assert_eq!(seen, expected(0, "thinking", 2));
        // The model is still thinking.
        let seen = shown(&|activity| activity.begin("", THINKING.to_owned(), 3));
        assert_eq!(seen, expected(0, "thinking", 2));
        let seen = shown(&|activity| activity.begin("a", "running a".to_owned(), 4));
        assert_eq!(seen, expected(1, "running a", 4));
        shown(&|activity| activity.begin("b", "running b".to_owned(), 5));
        let seen = shown(&|activity| activity.end("b", 6));
        assert_eq!(seen, expected(2, "running a", 4));
        let seen = shown(&|activity| activity.end("a", 7));
        assert_eq!(seen, expected(2, "thinking", 7));
        shown(&|activity| activity.begin("c", "running c".to_owned(), 8));
        shown(&|activity| activity.turn_begins(9));
        let seen = shown(&|activity| activity.resume(10));
        assert_eq!(seen, expected(3, "thinking", 10));
        let seen = shown(&|activity| activity.takeover_begins(11));
        assert_eq!(seen, expected(3, "being taken over", 11));
    }

    #[test]
    fn shell_around_a_command_is_left_out() {
        for (command, bare) in [
            ("/bin/bash -lc 'cargo test'", "cargo test"),
            ("sh -c \"a 'b'\"", "a 'b'"),
            ("cargo test", "cargo test"),
            ("python3 -c 'import os'", "python3 -c 'import os'"),
            ("./deploy.sh -c prod", "./deploy.sh -c prod"),
            ("a 'b", "a 'b"),
        ] {
            assert_eq!(without_shell(command), bare);
        }
    }
}
