//! The interactive Codex in `codex-mcp eyes`, in a real terminal.

mod ends;
mod keys;
mod markers;
mod no_terminal;
mod pictures;
mod refusals;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_request::logic::contract::{ATTACHED, MARKER, QUEUE, SERVER, TOOL};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scripted_model::{Gate, Reply, Request, Script};
use serde_json::json;
use testkit::process::Process;
use testkit::{Tmux, write_program};
use tokio::time::sleep;

use super::{CodexFixture, on_each_release, on_oldest_and_newest};

/// The initial size of the terminal.
const COLUMNS: u16 = 100;
const ROWS: u16 = 40;

/// The first prompt, and the model's answer to it.
const HELLO: &str = "Hello.";

/// The model's answer once it has its picture.
const SEEN: &str = "I see it.";

/// The limit of a wait.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How often a condition is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long a test waits for something that must not happen: four times the delay after which the
/// wrapper ends Codex.
const QUIET: Duration = Duration::from_millis(2000);

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Fast keys are no paste, and Codex does not check for updates.
const CONFIG: &str = "disable_paste_burst = true\ncheck_for_update_on_startup = false\n";

/// A command line that clears the screen.
const CLEAR: &str = "printf '\\033[2J\\033[H'";

/// A script that runs the wrapper and records the terminal's settings before and after.
const RUN: &str = "\
#!/bin/sh
stty -a >\"$0.before\"
$WRAPPER eyes --codex-bin \"$(dirname $0)/codex.sh\" \"$@\"
code=$?
stty -a >\"$0.after\"
exit $code
";

/// The script that the wrapper runs as Codex. It records each start with its arguments and the
/// number of processes of the home.
const CODEX: &str = "\
#!/bin/sh
count() { echo $#; }
running=$(count $(grep -lsz \"^HOME=$HOME\\$\" /proc/[0-9]*/environ))
echo \"$1 $2 $running\" >>\"$0.starts\"
";

/// A start of Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CodexStart {
    /// The first two arguments.
    args: String,
    /// The number of processes of the home, which must be the same at each start.
    running: String,
}

/// A terminal, and a home with a model and a release of Codex.
struct Eyes {
    stage: CodexFixture,
    tmux: Tmux,
}

impl Eyes {
    async fn new(release: &str, script: Script) -> Self {
        Self::with_config(release, script, "").await
    }

    /// The same with more lines for `config.toml`.
    async fn with_config(release: &str, script: Script, config: &str) -> Self {
        let config = format!("{CONFIG}{config}");
        let stage = CodexFixture::with_config(release, script, &config).await;
        let trusted = stage.home.work();
        let file = stage.home.codex_home().join("config.toml");
        let config = fs::read_to_string(&file).unwrap();
        let trusted = trusted.display();
        let trust = format!("[projects.\"{trusted}\"]\ntrust_level = \"trusted\"");
        fs::write(file, format!("{config}\n{trust}\n")).unwrap();
        let run = RUN.replace("$WRAPPER", env!("CARGO_BIN_EXE_codex-mcp"));
        write_program(&stage.home.root().join("eyes.sh"), &run);
        let tmux = Tmux::start(&stage.home, COLUMNS, ROWS).await;
        let eyes = Self { stage, tmux };
        eyes.set_codex("exec $NATIVE \"$@\"");
        eyes
    }

    /// Sets the shell line that the wrapper runs as Codex; `$NATIVE` is the real one.
    fn set_codex(&self, line: &str) {
        let native = testkit::codex::native_binary(&self.stage.release);
        let line = line.replace("$NATIVE", &native.display().to_string());
        write_program(&self.beside("codex.sh"), &format!("{CODEX}{line}\n"));
    }

    /// A file beside the work directory.
    fn beside(&self, name: &str) -> PathBuf {
        self.stage.home.root().join(name)
    }

    /// Waits for a file beside the work directory.
    async fn wait_for_file(&self, name: &str) {
        let until = Instant::now() + TIME_LIMIT;
        while !self.beside(name).exists() {
            assert!(Instant::now() < until, "{name} does not exist");
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Types the command line that runs the wrapper.
    async fn run(&self, args: &str) {
        self.tmux.enters(&format!("../eyes.sh {args}")).await;
    }

    /// Runs the wrapper, and waits until Codex accepts a prompt: 0.153.4 does not send a prompt
    /// that is entered during its start or in the moment in which a turn ends.
    async fn begin(&self) {
        self.run(HELLO).await;
        self.tmux.shows(&format!("• {HELLO}")).await;
        let conversations = self.stage.home.codex_home().join("sessions");
        let until = Instant::now() + TIME_LIMIT;
        while !texts(&conversations).contains("\"task_complete\"") {
            assert!(Instant::now() < until, "{}", texts(&conversations));
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends a prompt, and waits until the screen shows `shown`.
    async fn prompt(&self, prompt: &str, shown: &str) -> String {
        self.tmux.enters(prompt).await;
        self.tmux.shows(shown).await
    }

    /// The starts of Codex so far.
    fn starts(&self) -> Vec<CodexStart> {
        let noted = fs::read_to_string(self.beside("codex.sh.starts")).unwrap_or_default();
        let start = |line: &str| {
            let (args, running) = line.rsplit_once(' ').unwrap();
            CodexStart {
                args: args.to_owned(),
                running: running.to_owned(),
            }
        };
        noted.lines().map(start).collect()
    }

    /// Checks that Codex was started `times` times and is not started again. No event shows that
    /// the wrapper has decided against a start, so this waits for a fixed time.
    async fn assert_started(&self, times: usize) {
        sleep(QUIET).await;
        let starts = self.starts();
        assert_eq!(starts.len(), times, "{starts:?}");
    }

    /// Writes a picture to the work directory; returns the data URL that the model gets.
    fn picture(&self, name: &str) -> String {
        let bytes = picture(name);
        fs::write(self.stage.file(name), &bytes).unwrap();
        format!("data:image/png;base64,{}", STANDARD.encode(bytes))
    }

    /// The model requests with this prompt.
    fn requests_with_prompt(&self, prompt: &str) -> Vec<Request> {
        let mut requests = self.stage.model.requests();
        requests.retain(|request| request.prompt() == prompt);
        requests
    }

    /// The last model request whose prompt contains `words`.
    fn last_request_with(&self, words: &str) -> Request {
        let requests = self.stage.model.requests().into_iter();
        let mut requests = requests.filter(|request| request.prompt().contains(words));
        requests.next_back().unwrap()
    }

    /// Waits for the process whose command line contains `command`.
    async fn process(&self, command: &str) -> Pid {
        let has_it = |process: &Process| process.command.contains(command);
        self.wait_for_process(command, has_it).await
    }

    async fn wait_for_process(&self, what: &str, such: impl Fn(&Process) -> bool) -> Pid {
        let until = Instant::now() + TIME_LIMIT;
        loop {
            let processes = self.tmux.others(&self.stage.home);
            if let Some(process) = processes.iter().find(|process| such(process)) {
                return Pid::from_raw(process.pid.try_into().unwrap());
            }
            assert!(Instant::now() < until, "no {what}: {processes:?}");
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn wrapper(&self) -> Pid {
        self.process("codex-mcp eyes --codex-bin").await
    }

    async fn signal(&self, signal: Signal) {
        kill(self.wrapper().await, signal).unwrap();
    }

    /// Waits until the wrapper has exited; checks that it left no processes and the terminal as it
    /// was; returns the exit code.
    async fn wait_for_exit(&mut self) -> u8 {
        let code = self.tmux.prompt().await;
        assert_eq!(self.tmux.others(&self.stage.home), []);
        let stty = |when: &str| fs::read_to_string(self.beside(when)).unwrap();
        assert_eq!(stty("eyes.sh.after"), stty("eyes.sh.before"));
        self.assert_plain().await;
        code
    }

    /// Ends the wrapper at the end of a test.
    async fn end(&mut self) {
        self.signal(Signal::SIGTERM).await;
        assert_eq!(self.wait_for_exit().await, 143);
    }

    /// Checks that the terminal has its initial modes.
    async fn assert_plain(&mut self) {
        let flags = "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_flag} \
                     #{keypad_cursor_flag} #{origin_flag} #{insert_flag} #{wrap_flag} \
                     #{scroll_region_upper}";
        assert_eq!(self.tmux.tells(flags).await, "0 1 0 0 0 0 0 1 0");
        self.tmux.enters(&format!("{CLEAR}; cat -v")).await;
        let empty = |screen: &str| screen.trim().is_empty();
        self.tmux.shows_such("nothing", empty).await;
        self.tmux.pastes("pasted").await;
        self.tmux.presses(&["Up", "Enter"]).await;
        let echoed = |screen: &str| screen.trim_end().lines().count() == 2;
        let seen = self.tmux.shows_such("an echo", echoed).await;
        assert_eq!(seen.trim_end(), "pasted^[[A\npasted^[[A");
        assert_eq!(self.tmux.coloured().await.trim_end(), seen.trim_end());
        self.tmux.presses(&["C-d"]).await;
        assert_eq!(self.tmux.prompt().await, 0);
    }
}

/// A picture that differs for each name: the name follows the end of the PNG, where no one reads.
fn picture(name: &str) -> Vec<u8> {
    let mut bytes = STANDARD.decode(PIXEL).unwrap();
    bytes.extend(name.as_bytes());
    bytes
}

/// The texts of all files below a directory. One that is removed meanwhile counts as empty.
pub(super) fn texts(directory: &Path) -> String {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let text = |path: PathBuf| match path.is_dir() {
        true => texts(&path),
        false => fs::read_to_string(path).unwrap_or_default(),
    };
    entries.map(|entry| text(entry.path())).collect()
}

/// A model's request for a picture.
fn request(path: &str) -> Reply {
    Reply::mcp(SERVER, TOOL, json!({"path": path}))
}

/// A model that answers the first prompt.
fn greeting_model() -> Script {
    Script::new().on(HELLO, [Reply::say(HELLO)])
}

/// A model that requests `a.png` when the prompt is "look".
fn looking_model() -> Script {
    Script::new()
        .on("look", [request("./a.png"), Reply::say(MARKER)])
        .on(ATTACHED, [Reply::say(SEEN)])
}

/// A model that requests this number of pictures, one after the other.
fn model_looking_at(pictures: usize) -> Script {
    Script::by(
        move |request| match (request.images().len(), request.round()) {
            (seen, _) if seen == pictures => Reply::say(SEEN),
            (seen, 0) => self::request(&format!("./{seen}.png")),
            _ => Reply::say(MARKER),
        },
    )
}
