//! The wrapper of the interactive Codex: the latency that it adds to a key, and the throughput of
//! a flood, beside the same program without it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use testkit::{Home, write_program};

use crate::fixture::program as ours;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// How much longer a key may take, in seconds.
const ADDED: f64 = 0.001;

/// How much longer a flood may take: 0.8 times its throughput.
const SLOWER: f64 = 1.25;

/// How many keys are pressed in a round.
const KEYS: usize = 500;

/// Between two keys.
const PAUSE: Duration = Duration::from_micros(500);

/// How much a program prints, in bytes.
const FLOOD: usize = 50_000_000;

/// How often the flood is printed in the larger test, which exceeds the wrapper's buffer: 200 MB.
const MORE: usize = 4;

/// Prints files, and writes down how many nanoseconds that took.
fn floods(times: usize) -> String {
    format!(
        "stty raw
begin=$(date +%s%N)
cat{}
end=$(date +%s%N)
echo $((end - begin)) > took
exec sleep 60",
        " flood".repeat(times)
    )
}

/// Lines as Codex prints them: coloured, each erased to its end.
const LINE: &str = "\x1b[2m•\x1b[0m Ran \x1b[1mcargo test\x1b[0m in \x1b[36mcrates/core\x1b[39m: 48 passed\x1b[K\r\n";

pub(crate) fn measure(rounds: u16) -> Vec<Row> {
    let fixture = EyesFixture::new();
    vec![fixture.keys(rounds), fixture.floods(rounds)]
}

/// Which side is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    ServeClient,
    Direct,
    /// Through `script`, a wrapper that does nothing but pass on.
    Script,
}

impl Side {
    /// The command line of a program.
    fn line(self, program: &Path) -> Vec<String> {
        let program = program.to_str().unwrap().to_owned();
        match self {
            Self::Direct => vec![program],
            Self::ServeClient => {
                let ours = ours().to_str().unwrap().to_owned();
                let args = ["eyes", "--codex-bin"].map(str::to_owned);
                [ours].into_iter().chain(args).chain([program]).collect()
            }
            Self::Script => {
                let args = ["script", "-q", "-c", &program, "/dev/null"];
                args.map(str::to_owned).into()
            }
        }
    }
}

struct EyesFixture {
    home: Home,
}

impl EyesFixture {
    fn new() -> Self {
        let fixture = Self {
            home: Home::new(""),
        };
        let lines = LINE.repeat(FLOOD / LINE.len());
        fs::write(fixture.home.work().join("flood"), lines).unwrap();
        fixture
    }

    /// A program that answers each key with itself.
    fn keys(&self, rounds: u16) -> Row {
        let program = self.program("echo", "stty raw -echo; printf READY; exec cat");
        let (mut ours, mut direct) = (Vec::new(), Vec::new());
        let mut wrapped = Running::start(self, Side::ServeClient, &program);
        let mut bare = Running::start(self, Side::Direct, &program);
        for running in [&mut wrapped, &mut bare] {
            running.until("READY");
        }
        for _ in 0..rounds {
            ours.push(wrapped.slowest_keys());
            direct.push(bare.slowest_keys());
        }
        Row {
            figure: "a key and its echo, the 99th of 100",
            unit: Unit::Seconds,
            ours: Summary::of(ours),
            direct: Some(Summary::of(direct)),
            target: Target::AddedAtMost(ADDED),
            notes: vec![format!(
                "{KEYS} keys a round; direct: the program by itself"
            )],
        }
    }

    /// In tmux, as a terminal takes time to process its input.
    fn floods(&self, rounds: u16) -> Row {
        let program = self.program("flood", &floods(1));
        let more = self.program("more", &floods(MORE));
        let (mut ours, mut direct) = (Vec::new(), Vec::new());
        let (mut into_nothing, mut by_script) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let mut sides = [Side::ServeClient, Side::Direct, Side::Script];
            sides.rotate_left(usize::from(round % 3));
            for side in sides {
                let took = || self.took(&program, side);
                match side {
                    Side::ServeClient => {
                        ours.push(self.in_tmux(&program, side, round));
                        into_nothing.push(took());
                    }
                    Side::Direct => direct.push(self.in_tmux(&program, side, round)),
                    Side::Script => by_script.push(took()),
                }
            }
        }
        let bare = (0..rounds).map(|_| self.took(&program, Side::Direct));
        let [nothing, script, bare] = [into_nothing, by_script, bare.collect()]
            .map(|all| Unit::Seconds.show(Summary::of(all).median));
        let [more, more_bare] = [Side::ServeClient, Side::Direct]
            .map(|side| Unit::Seconds.show(self.in_tmux(&more, side, rounds)));
        Row {
            figure: "50 MB of coloured lines in tmux",
            unit: Unit::Seconds,
            ours: Summary::of(ours),
            direct: Some(Summary::of(direct)),
            target: Target::RatioAtMost(SLOWER),
            notes: vec![
                "as the program that prints them sees it".to_owned(),
                format!("200 MB, which are more than is put aside: {more}, direct {more_bare}"),
                format!(
                    "into a reader that does nothing: {nothing}, direct {bare}, through script(1) {script}"
                ),
            ],
        }
    }

    /// How long a flood takes in a window of tmux, in seconds.
    fn in_tmux(&self, program: &Path, side: Side, round: u16) -> f64 {
        // The server of the round before may still be there.
        let socket = self.home.tmp().join(format!("tmux-{side:?}-{round}"));
        let tmux = |args: &[&str]| {
            let done = self
                .home
                .command("tmux")
                .arg("-S")
                .arg(&socket)
                .args(["-f", "/dev/null"])
                .args(args)
                .status();
            assert!(done.unwrap().success());
        };
        let line = shlex::try_join(side.line(program).iter().map(String::as_str)).unwrap();
        tmux(&["new-session", "-d", "-x", "120", "-y", "40", &line]);
        let took = self.recorded_time();
        tmux(&["kill-server"]);
        took
    }

    /// How long a flood takes into a reader that does nothing, in seconds.
    fn took(&self, program: &Path, side: Side) -> f64 {
        let running = Running::start(self, side, program);
        let mut terminal = running.terminal.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while terminal.read(&mut buffer).is_ok_and(|read| read > 0) {}
        });
        let took = self.recorded_time();
        drop(running);
        reader.join().unwrap();
        took
    }

    /// The time that the program has recorded, in seconds.
    fn recorded_time(&self) -> f64 {
        let path = self.home.work().join("took");
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            assert!(Instant::now() < deadline, "the flood does not end");
            let text = fs::read_to_string(&path).unwrap_or_default();
            if let Some(nanos) = text.strip_suffix('\n') {
                fs::remove_file(&path).unwrap();
                return nanos.parse::<f64>().unwrap() / 1e9;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A program in place of Codex, which doesn't care for Codex's arguments.
    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.home.root().join(name);
        write_program(&path, &format!("#!/bin/sh\n{script}\n"));
        path
    }
}

/// A program in a terminal.
struct Running {
    child: Child,
    terminal: File,
}

impl Running {
    fn start(fixture: &EyesFixture, side: Side, program: &Path) -> Self {
        let size = Winsize {
            ws_row: 40,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(Some(&size), None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let line = side.line(program);
        let child = fixture
            .home
            .command(&line[0])
            .args(&line[1..])
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self {
            child,
            terminal: pty.master.into(),
        }
    }

    fn until(&mut self, words: &str) {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(words.as_bytes()) {
            self.terminal.read_exact(&mut byte).unwrap();
            seen.push(byte[0]);
        }
    }

    /// The 99th percentile of key latencies, in seconds.
    fn slowest_keys(&mut self) -> f64 {
        let mut took: Vec<f64> = (0..KEYS).map(|key| self.key(key)).collect();
        took.sort_by(f64::total_cmp);
        took[KEYS * 99 / 100]
    }

    fn key(&mut self, number: usize) -> f64 {
        std::thread::sleep(PAUSE);
        let key = [b'a' + u8::try_from(number % 26).unwrap()];
        let mut echo = [0];
        let begin = Instant::now();
        self.terminal.write_all(&key).unwrap();
        self.terminal.read_exact(&mut echo).unwrap();
        let took = begin.elapsed().as_secs_f64();
        assert_eq!(echo, key);
        took
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program ends when its terminal does; and it is our own child.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
