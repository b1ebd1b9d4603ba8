//! The measurements, written line by line: `seconds,subject,measure,value`.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, interval};

use crate::real::CodexFixture;
use crate::real::kill_storm::report;

/// The file to write.
const FILE: &str = "CODEX_MCP_TEST_SAMPLES";

/// The time between two samples.
const EVERY: Duration = Duration::from_secs(5);

/// How many samples are between two lines of progress.
const REPORTED: u64 = 12;

/// What a file of the audit and a log may have, in bytes: their limit of 16 KiB and the last line, and
/// for a log what is written in the 10 s until it is looked at again.
const AUDIT_FILE: u64 = (16 + 8) << 10;
const LOG_FILE: u64 = (16 + 16) << 10;

/// The audit of an identity has a current file and five older ones, a log has one older one.
const AUDIT_FILES: u64 = 6;
const LOG_FILES: u64 = 2;

/// The processes that are measured.
pub(super) struct Processes(Vec<(&'static str, u32)>);

/// A value of one moment.
struct Sample {
    subject: &'static str,
    measure: &'static str,
    value: u64,
}

impl Processes {
    pub(super) fn new(all: impl IntoIterator<Item = (&'static str, u32)>) -> Self {
        Self(all.into_iter().collect())
    }

    fn samples(&self) -> Vec<Sample> {
        let all = self.0.iter();
        let samples = all.flat_map(|(subject, pid)| {
            let measured = measures(*pid).unwrap_or_else(|| panic!("the {subject} has ended"));
            measured.map(|(measure, value)| Sample {
                subject,
                measure,
                value,
            })
        });
        samples.collect()
    }
}

/// What a process has of each; `None` if it has ended.
fn measures(pid: u32) -> Option<[(&'static str, u64); 4]> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(process.join("status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let files = fs::read_dir(process.join("fd")).ok()?.count();
    Some([
        // Heap and stacks. Pages of the program's file come and go as the system likes.
        ("memory", number("RssAnon:")?),
        ("resident", number("VmRSS:")?),
        ("files", files.try_into().ok()?),
        ("threads", number("Threads:")?),
    ])
}

/// The sizes of what is stored, in bytes.
fn sizes(stage: &CodexFixture) -> Vec<Sample> {
    let state = stage.home.state_home().join("codex-mcp");
    let agents = stage.home.atm_home().join(".config/atm/codex-sessions");
    let is = |words: &'static [&str]| {
        move |path: &Path| {
            let path = path.to_string_lossy();
            words.iter().any(|word| path.contains(word))
        }
    };
    let (jobs, tasks, logs) = (is(&["/jobs.db"]), is(&["/tasks/"]), is(&[".log"]));
    let audit = is(&["/audit.jsonl"]);
    let bytes = |directory: &Path, fits: &dyn Fn(&Path) -> bool| {
        let all = files(directory).into_iter();
        all.filter(|(path, _)| fits(path))
            .map(|(_, bytes)| bytes)
            .sum()
    };
    let sample = |subject, value| Sample {
        subject,
        measure: "bytes",
        value,
    };
    vec![
        sample("jobs", bytes(&state, &jobs)),
        sample("tasks", bytes(&state, &tasks)),
        sample("logs", bytes(&state, &logs)),
        sample(
            "rest of the state",
            bytes(&state, &|path| !jobs(path) && !tasks(path) && !logs(path)),
        ),
        sample("audit", bytes(&agents, &audit)),
        sample("registry", bytes(&agents, &|path| !audit(path))),
        sample(
            "mail",
            bytes(&stage.home.atm_home().join(".claude"), &|_| true),
        ),
        sample("Codex's own", bytes(&stage.home.codex_home(), &|_| true)),
    ]
}

/// The limits of what is bounded by its size, for the identities and processes that there are.
fn limits(stage: &CodexFixture) -> [Sample; 2] {
    let count = |directory: PathBuf, name: &str| {
        let found = files(&directory).into_iter();
        let found = found.filter(|(path, _)| path.to_string_lossy().ends_with(name));
        u64::try_from(found.count()).unwrap()
    };
    let limit = |subject, value| Sample {
        subject,
        measure: "limit",
        value,
    };
    let audits = count(stage.home.atm_home(), "/audit.jsonl");
    let logs = count(stage.home.state_home(), ".log");
    [
        limit("audit", audits * AUDIT_FILES * AUDIT_FILE),
        limit("logs", logs * LOG_FILES * LOG_FILE),
    ]
}

/// All files below a directory, with their sizes. Some may vanish meanwhile.
fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(about) if about.is_dir() => found.extend(files(&entry.path())),
            Ok(about) if about.is_file() => found.push((entry.path(), about.len())),
            Ok(_) | Err(_) => {}
        }
    }
    found
}

/// Takes samples until then.
pub(super) async fn sample_until(over: Instant, stage: &CodexFixture, processes: &Processes) {
    let file = std::env::var_os(FILE).map(PathBuf::from);
    let file = file.unwrap_or_else(|| stage.file("samples.csv"));
    let mut file = File::create(file).unwrap();
    writeln!(file, "seconds,subject,measure,value").unwrap();
    let begin = Instant::now();
    let mut ticks = interval(EVERY);
    let mut number = 0;
    while Instant::now() < over {
        ticks.tick().await;
        let seconds = begin.elapsed().as_secs_f64();
        let samples = processes.samples();
        if number % REPORTED == 0 {
            progress(seconds, &samples);
        }
        write(&mut file, seconds, &samples);
        write(&mut file, seconds, &sizes(stage));
        number += 1;
    }
    write(&mut file, begin.elapsed().as_secs_f64(), &limits(stage));
}

fn write(file: &mut File, seconds: f64, samples: &[Sample]) {
    for Sample {
        subject,
        measure,
        value,
    } in samples
    {
        writeln!(file, "{seconds:.1},{subject},{measure},{value}").unwrap();
    }
}

fn progress(seconds: f64, samples: &[Sample]) {
    let memory = samples.iter().filter(|sample| sample.measure == "memory");
    let memory: Vec<String> = memory
        .map(|sample| format!("{} {} KiB", sample.subject, sample.value))
        .collect();
    report(&format!("{seconds:5.0} s: {}", memory.join(", ")));
}
