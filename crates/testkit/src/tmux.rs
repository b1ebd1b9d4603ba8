//! A terminal in which a test types and reads: the real tmux, from the system's package.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::sleep;

use crate::Home;
use crate::process::Process;

/// How long a terminal may take to show an expected text.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The polling interval of waits: tmux does not report to others that something was drawn.
const LOOK_AGAIN: Duration = Duration::from_millis(30);

/// The shell's prompt: the number of the command, and the exit code of the one before.
const PROMPT: &str = "PS1=[\\#:$?]$ ";

/// Without line editing, the shell leaves the terminal settings as they are.
const SHELL: [&str; 5] = ["bash", "--noprofile", "--norc", "--noediting", "-i"];

/// A terminal with a shell in it, under a private tmux server. The shell has the environment of a
/// home, and starts in its work directory. All of it ends when this is dropped, and when the
/// thread that has started it ends.
#[derive(Debug)]
pub struct Tmux {
    directory: TempDir,
    server: Child,
    shell: u32,
    /// The number of the last prompt that was seen.
    prompt: u32,
}

impl Tmux {
    /// Starts a terminal of this size, and waits for the shell's prompt.
    ///
    /// # Panics
    /// If it is not installed or doesn't start.
    pub async fn start(home: &Home, columns: u16, rows: u16) -> Self {
        // Not below the target directory: the path of a socket has 107 bytes at most.
        let directory = tempfile::Builder::new()
            .prefix("tmux-")
            .tempdir_in("/tmp")
            .unwrap();
        let server = std::process::Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(["tmux", "-D", "-f", "/dev/null", "-S"])
            .arg(directory.path().join("socket"))
            .env_clear()
            .envs(home.env())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut tmux = Self {
            directory,
            server,
            shell: 0,
            prompt: 0,
        };
        tmux.begin(&home.work(), columns, rows).await;
        tmux.shell = tmux.tells("#{pane_pid}").await.parse().unwrap();
        tmux.prompt().await;
        tmux
    }

    async fn begin(&self, directory: &Path, columns: u16, rows: u16) {
        let [columns, rows] = [columns, rows].map(|number| number.to_string());
        let setting = ["set-option", "-g", "default-terminal", "tmux-256color"];
        let session = ["new-session", "-d", "-x", &columns, "-y", &rows];
        let place = ["-c", directory.to_str().unwrap(), "-e", PROMPT];
        let begin = [&setting[..], &[";"], &session, &place, &SHELL].concat();
        let until = Instant::now() + TIMEOUT;
        while let Err(error) = self.ask(&begin).await {
            assert!(Instant::now() < until, "tmux does not start: {error}");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Types a text, letter by letter.
    ///
    /// # Panics
    /// If the terminal has gone.
    pub async fn types(&self, text: &str) {
        self.does(&["send-keys", "-l", "--", &literal(text)]).await;
    }

    /// Presses keys, by tmux's names: `Enter`, `Up`, `C-c`.
    ///
    /// # Panics
    /// If the terminal has gone.
    pub async fn presses(&self, keys: &[&str]) {
        self.does(&[&["send-keys", "--"], keys].concat()).await;
    }

    /// Types a line.
    ///
    /// # Panics
    /// If the terminal has gone.
    pub async fn enters(&self, line: &str) {
        let line = literal(line);
        let enter = [";", "send-keys", "Enter"];
        self.does(&[&["send-keys", "-l", "--", &line], &enter[..]].concat())
            .await;
    }

    /// Pastes a text, bracketed if the program in the terminal has asked for that.
    ///
    /// # Panics
    /// If the terminal has gone.
    pub async fn pastes(&self, text: &str) {
        let text = literal(text);
        let paste = [";", "paste-buffer", "-p", "-d"];
        self.does(&[&["set-buffer", "--", &text], &paste[..]].concat())
            .await;
    }

    /// Resizes the terminal.
    ///
    /// # Panics
    /// If the terminal has gone.
    pub async fn resizes(&self, columns: u16, rows: u16) {
        let [columns, rows] = [columns, rows].map(|number| number.to_string());
        self.does(&["resize-window", "-x", &columns, "-y", &rows])
            .await;
    }

    /// The text on the screen.
    ///
    /// # Panics
    /// If the terminal has gone.
    pub async fn screen(&self) -> String {
        self.does(&["capture-pane", "-p"]).await
    }

    /// The screen with its colour sequences.
    ///
    /// # Panics
    /// If the terminal has gone.
    pub async fn coloured(&self) -> String {
        self.does(&["capture-pane", "-p", "-e"]).await
    }

    /// A property of the terminal: a tmux format, see tmux(1).
    ///
    /// # Panics
    /// If the terminal has gone.
    pub async fn tells(&self, format: &str) -> String {
        let told = self.does(&["display-message", "-p", format]).await;
        told.trim_end().to_owned()
    }

    /// Waits until the screen shows this text, and returns the screen.
    ///
    /// # Panics
    /// If that takes too long.
    pub async fn shows(&self, words: &str) -> String {
        let shown = |screen: &str| screen.contains(words);
        self.shows_such(&format!("{words:?}"), shown).await
    }

    /// Waits until the screen satisfies a condition, and returns it.
    ///
    /// # Panics
    /// If that takes too long.
    pub async fn shows_such(&self, what: &str, such: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + TIMEOUT;
        loop {
            let screen = self.screen().await;
            if such(&screen) {
                return screen;
            }
            assert!(Instant::now() < until, "it does not show {what}:\n{screen}");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits for the shell's next prompt at the bottom, and returns the exit code of the command.
    ///
    /// # Panics
    /// If that takes too long.
    pub async fn prompt(&mut self) -> u8 {
        let last = self.prompt;
        let next = |screen: &str| prompt_below(screen).filter(|(number, _)| *number > last);
        let what = format!("the prompt after the one numbered {last}");
        let screen = self
            .shows_such(&what, |screen| next(screen).is_some())
            .await;
        let (number, code) = next(&screen).unwrap();
        self.prompt = number;
        code
    }

    /// The processes of a home, without those of this terminal.
    #[must_use]
    pub fn others(&self, home: &Home) -> Vec<Process> {
        let own = [self.server.id(), self.shell];
        let mut others = home.processes();
        others.retain(|process| !own.contains(&process.pid));
        others
    }

    async fn does(&self, command: &[&str]) -> String {
        let answer = self.ask(command).await;
        answer.unwrap_or_else(|error| panic!("tmux {command:?}: {error}"))
    }

    /// Sends a command to the running tmux server.
    async fn ask(&self, command: &[&str]) -> Result<String, String> {
        let asked = Command::new("tmux")
            .args(["-u", "-N", "-S"])
            .arg(self.directory.path().join("socket"))
            .args(command)
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        match asked.status.success() {
            true => Ok(text(asked.stdout)),
            false => Err(text(asked.stderr)),
        }
    }
}

/// Escapes an argument: tmux takes a `;` at its end as a separator.
fn literal(text: &str) -> String {
    match text.strip_suffix(';') {
        Some(before) => format!("{before}\\;"),
        None => text.to_owned(),
    }
}

/// The prompt in the last row that is not empty.
fn prompt_below(screen: &str) -> Option<(u32, u8)> {
    let last = screen.trim_end().lines().last()?;
    let inner = last.strip_prefix('[')?.strip_suffix("]$")?;
    let (number, code) = inner.split_once(':')?;
    Some((number.parse().ok()?, code.parse().ok()?))
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::wait_until_gone;
    use crate::wait::wait_for;

    #[tokio::test]
    async fn tmux_shows_typed_text_and_exit_codes() {
        let home = Home::new("");
        let mut tmux = Tmux::start(&home, 60, 10).await;
        tmux.enters("test -e README.md && echo \"$CODEX_HOME\"; false")
            .await;
        assert_eq!(tmux.prompt().await, 1);
        let directory = home.codex_home().display().to_string();
        assert!(tmux.screen().await.replace('\n', "").contains(&directory));
        tmux.enters("printf '\\033[31mred\\033[m\\n'; stty size;")
            .await;
        assert_eq!(tmux.prompt().await, 0);
        assert!(tmux.coloured().await.contains("\u{1b}[31mred"));
        assert!(tmux.screen().await.contains("10 60"));
        tmux.resizes(40, 20).await;
        tmux.enters("stty size; cat").await;
        tmux.shows("20 40").await;
        let command = |process: &Process| process.command == "cat";
        wait_for("the process of cat", async || {
            tmux.others(&home).iter().any(command).then_some(())
        })
        .await;
        tmux.presses(&["C-c"]).await;
        assert_eq!(tmux.prompt().await, 130);
        assert_eq!(tmux.others(&home), []);
        assert_eq!(tmux.tells("#{alternate_on}#{cursor_flag}").await, "01");
    }

    #[tokio::test]
    async fn tmux_ends_with_its_processes() {
        let home = Home::new("");
        let tmux = Tmux::start(&home, 60, 10).await;
        let own = [tmux.server.id(), tmux.shell];
        drop(tmux);
        assert_eq!(wait_until_gone(&own, TIMEOUT).await, []);
    }
}
