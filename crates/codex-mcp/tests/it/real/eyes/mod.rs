//! The interactive Codex in `codex-mcp eyes`, in a real terminal.

mod ends;
mod keys;
mod markers;
mod pictures;
mod refusals;
mod shell;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_request::logic::contract::{ATTACHED, MARKER, QUEUE, SERVER, TOOL};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scripted_model::{Gate, Reply, Request, Script};
use serde_json::json;
use testkit::Tmux;
use testkit::process::Process;
use tokio::time::sleep;

use super::{Stage, on_each_release};

/// The size of the terminal in the beginning.
const COLUMNS: u16 = 100;
const ROWS: u16 = 40;

/// What Codex is told to begin with, and what the model says then.
const HELLO: &str = "Hello.";

/// What the model says once it has its picture.
const SEEN: &str = "I see it.";

/// How long something is waited for that nobody tells.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// For how long nothing may happen where nothing is to happen: four times what the
/// wrapper waits before it ends Codex.
const QUIET: Duration = Duration::from_millis(2000);

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Keys are keys, however fast they come, and nobody is asked for updates.
const CONFIG: &str = "disable_paste_burst = true\ncheck_for_update_on_startup = false\n";

/// What is typed to empty the screen.
const CLEAR: &str = "printf '\\033[2J\\033[H'";

/// What is typed to run the wrapper in the work directory. It notes how the terminal is
/// before and after.
const RUN: &str = "\
#!/bin/sh
stty -a >\"$0.before\"
$WRAPPER eyes --codex-bin \"$(dirname $0)/codex.sh\" \"$@\"
code=$?
stty -a >\"$0.after\"
exit $code
";

/// What the wrapper runs. It notes that it was started, how, and how many processes of
/// the home there are then.
const CODEX: &str = "\
#!/bin/sh
count() { echo $#; }
running=$(count $(grep -lsz \"^HOME=$HOME\\$\" /proc/[0-9]*/environ))
echo \"$1 $2 $running\" >>\"$0.starts\"
";

/// How Codex was started.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Start {
    /// Its first two arguments.
    args: String,
    /// How many processes there were, of which the same are always there.
    running: String,
}

/// A terminal beside a home, a model and a release of Codex.
struct Eyes {
    stage: Stage,
    tmux: Tmux,
}

impl Eyes {
    async fn new(release: &str, script: Script) -> Self {
        Self::with_config(release, script, "").await
    }

    /// With more lines for `config.toml`.
    async fn with_config(release: &str, script: Script, config: &str) -> Self {
        let config = format!("{CONFIG}{config}");
        let stage = Stage::with_config(release, script, &config).await;
        let trusted = stage.home.work();
        let file = stage.home.codex_home().join("config.toml");
        let config = fs::read_to_string(&file).unwrap();
        let trusted = trusted.display();
        let trust = format!("[projects.\"{trusted}\"]\ntrust_level = \"trusted\"");
        fs::write(file, format!("{config}\n{trust}\n")).unwrap();
        let run = RUN.replace("$WRAPPER", env!("CARGO_BIN_EXE_codex-mcp"));
        program(&stage.home.root().join("eyes.sh"), &run);
        let tmux = Tmux::start(&stage.home, COLUMNS, ROWS).await;
        let eyes = Self { stage, tmux };
        eyes.codex_is("exec $NATIVE \"$@\"");
        eyes
    }

    /// Has the wrapper run this in the shell; `$NATIVE` is Codex.
    fn codex_is(&self, line: &str) {
        let native = testkit::codex::native_binary(&self.stage.release);
        let line = line.replace("$NATIVE", &native.display().to_string());
        program(&self.beside("codex.sh"), &format!("{CODEX}{line}\n"));
    }

    /// A file that is not in the work directory, but beside it.
    fn beside(&self, name: &str) -> PathBuf {
        self.stage.home.root().join(name)
    }

    /// Waits until there is such a file beside the work directory.
    async fn made(&self, name: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.beside(name).exists() {
            assert!(Instant::now() < until, "{name} is not made");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Types the command line that runs the wrapper.
    async fn run(&self, args: &str) {
        self.tmux.enters(&format!("../eyes.sh {args}")).await;
    }

    /// Runs the wrapper, and waits until something can be sent to Codex: 0.153.4 leaves
    /// unsent what is entered while it starts, and in the moment in which a turn ends.
    async fn begin(&self) {
        self.run(HELLO).await;
        self.tmux.shows(&format!("• {HELLO}")).await;
        let conversations = self.stage.home.codex_home().join("sessions");
        let until = Instant::now() + PATIENCE;
        while !texts(&conversations).contains("\"task_complete\"") {
            assert!(Instant::now() < until, "{}", texts(&conversations));
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Sends Codex a prompt, and waits for what is shown then.
    async fn prompt(&self, prompt: &str, shown: &str) -> String {
        self.tmux.enters(prompt).await;
        self.tmux.shows(shown).await
    }

    /// How Codex was started so far.
    fn starts(&self) -> Vec<Start> {
        let noted = fs::read_to_string(self.beside("codex.sh.starts")).unwrap_or_default();
        let start = |line: &str| {
            let (args, running) = line.rsplit_once(' ').unwrap();
            Start {
                args: args.to_owned(),
                running: running.to_owned(),
            }
        };
        noted.lines().map(start).collect()
    }

    /// Whether Codex goes on as it is: it was started this often, and stays.
    async fn stays_started(&self, times: usize) {
        sleep(QUIET).await;
        let starts = self.starts();
        assert_eq!(starts.len(), times, "{starts:?}");
    }

    /// Puts a picture into the work directory, and returns what the model gets of it.
    fn picture(&self, name: &str) -> String {
        let bytes = picture(name);
        fs::write(self.stage.file(name), &bytes).unwrap();
        format!("data:image/png;base64,{}", STANDARD.encode(bytes))
    }

    /// The requests with this prompt.
    fn asked(&self, prompt: &str) -> Vec<Request> {
        let mut requests = self.stage.model.requests();
        requests.retain(|request| request.prompt() == prompt);
        requests
    }

    /// The last request whose prompt has this in it.
    fn asked_with(&self, words: &str) -> Request {
        let requests = self.stage.model.requests().into_iter();
        let mut requests = requests.filter(|request| request.prompt().contains(words));
        requests.next_back().unwrap()
    }

    /// Waits for the process whose command line has this in it.
    async fn process(&self, command: &str) -> Pid {
        let has_it = |process: &Process| process.command.contains(command);
        self.process_such(command, has_it).await
    }

    async fn process_such(&self, what: &str, such: impl Fn(&Process) -> bool) -> Pid {
        let until = Instant::now() + PATIENCE;
        loop {
            let processes = self.tmux.others(&self.stage.home);
            if let Some(process) = processes.iter().find(|process| such(process)) {
                return Pid::from_raw(process.pid.try_into().unwrap());
            }
            assert!(Instant::now() < until, "no {what}: {processes:?}");
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn wrapper(&self) -> Pid {
        self.process("codex-mcp eyes --codex-bin").await
    }

    async fn signal(&self, signal: Signal) {
        kill(self.wrapper().await, signal).unwrap();
    }

    /// Waits until the wrapper has left, and looks at what it has left behind: nothing,
    /// and the terminal as it was. Returns the exit code.
    async fn left(&mut self) -> u8 {
        let code = self.tmux.prompt().await;
        assert_eq!(self.tmux.others(&self.stage.home), []);
        let stty = |when: &str| fs::read_to_string(self.beside(when)).unwrap();
        assert_eq!(stty("eyes.sh.after"), stty("eyes.sh.before"));
        self.assert_plain().await;
        code
    }

    /// Ends the wrapper where that is not what a test is about.
    async fn end(&mut self) {
        self.signal(Signal::SIGTERM).await;
        assert_eq!(self.left().await, 143);
    }

    /// That nothing is on in the terminal that was off in the beginning.
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

/// A picture unlike those of other names: nobody reads on after its end.
fn picture(name: &str) -> Vec<u8> {
    let mut bytes = STANDARD.decode(PIXEL).unwrap();
    bytes.extend(name.as_bytes());
    bytes
}

/// All that is in the files of a directory, at whatever depth.
fn texts(directory: &Path) -> String {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let text = |path: PathBuf| match path.is_dir() {
        true => texts(&path),
        false => fs::read_to_string(path).unwrap(),
    };
    entries.map(|entry| text(entry.path())).collect()
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// Asks for a picture.
fn request(path: &str) -> Reply {
    Reply::mcp(SERVER, TOOL, json!({"path": path}))
}

/// A model that answers to what Codex begins with.
fn polite() -> Script {
    Script::new().on(HELLO, [Reply::say(HELLO)])
}

/// A model that looks at `a.png` when it is told to look.
fn looks() -> Script {
    Script::new()
        .on("look", [request("./a.png"), Reply::say(MARKER)])
        .on(ATTACHED, [Reply::say(SEEN)])
}

/// Asks for one picture after the other, so many; the first one when it is told to look.
fn looks_at(pictures: usize) -> Script {
    Script::by(
        move |request| match (request.images().len(), request.round()) {
            (seen, _) if seen == pictures => Reply::say(SEEN),
            (seen, 0) => self::request(&format!("./{seen}.png")),
            _ => Reply::say(MARKER),
        },
    )
}
