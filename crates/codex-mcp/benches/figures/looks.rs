//! The inspection after a turn of a run, in a repository of 50,000 files, beside the commands of
//! a person: `git status --porcelain` and `git log --oneline -5`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use goal_run::logic::criteria::Criteria;
use goal_run::logic::findings::{VerdictStatus, judge};
use goal_run::logic::snapshot::{Preexisting, Snapshot, Work};
use goal_run::look::{InspectOptions, RepoInspector};
use supervise::spawn::set_guard_executable;
use testkit::Home;

use crate::fixture::program;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// In seconds.
const TARGET: f64 = 0.3;

const DIRECTORIES: usize = 250;
const FILES_EACH: usize = 200;

/// How many files a turn changes. Half of them it commits.
const CHANGED: usize = 20;

/// Patterns that fit 2,700 files, 250, and none but what the run makes; and the rest.
const CRITERIA: [&str; 7] = [
    "files=src/d1[0-2]?/?[0-9].rs",
    "files=**/0.rs",
    "files=docs/**/*.md",
    "commits=1",
    "branch=main",
    "clean",
    "diff_within=src,docs",
];

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let fixture = RepoFixture::new();
    let criteria = CRITERIA.map(|text| text.parse().unwrap());
    let criteria = Criteria::new(criteria).unwrap();
    let means = InspectOptions {
        env: fixture.home.env(),
        ..InspectOptions::default()
    };
    let begin = Instant::now();
    let looker = RepoInspector::at(&fixture.work(), &criteria, means).await;
    let mut looker = looker.unwrap();
    let start = looker.start().await.unwrap();
    let first = begin.elapsed().as_secs_f64();
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        fixture.turn(round.into());
        if round % 2 == 0 {
            ours.push(look(&looker, &criteria, &start).await);
            direct.push(fixture.ask());
        } else {
            direct.push(fixture.ask());
            ours.push(look(&looker, &criteria, &start).await);
        }
        fixture.commit();
    }
    vec![Row {
        figure: "look and judge, 50,000 files, 20 changed",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::AtMost(TARGET),
        notes: vec![
            "direct: git status --porcelain and git log --oneline -5".to_owned(),
            format!("the first look: {}", Unit::Seconds.show(first)),
        ],
    }]
}

async fn look(looker: &RepoInspector, criteria: &Criteria, start: &Snapshot) -> f64 {
    let begin = Instant::now();
    let now = looker.now().await;
    let work = Work::default();
    let verdict = judge(criteria, start, &now, &work, Preexisting::Ignored);
    let took = begin.elapsed().as_secs_f64();
    // Some files are uncommitted, and nothing else is missing.
    assert_eq!(verdict.status(), VerdictStatus::Incomplete, "{verdict:#?}");
    assert_eq!(verdict.missing().len(), 1, "{verdict:#?}");
    took
}

/// A repository.
struct RepoFixture {
    home: Home,
}

impl RepoFixture {
    fn new() -> Self {
        set_guard_executable(&program());
        let fixture = Self {
            home: Home::new(""),
        };
        for directory in 0..DIRECTORIES {
            let path = fixture.work().join(format!("src/d{directory}"));
            fs::create_dir_all(&path).unwrap();
            for file in 0..FILES_EACH {
                let text = format!("fn in_{directory}_{file}() {{}}\n").repeat(20);
                fs::write(path.join(format!("{file}.rs")), text).unwrap();
            }
        }
        fixture.commit();
        fixture
    }

    fn work(&self) -> PathBuf {
        self.home.work()
    }

    fn turn(&self, round: usize) {
        for number in 0..CHANGED {
            let directory = (round * 7 + number * 11) % DIRECTORIES;
            let file = (round + number) % FILES_EACH;
            let path = self.work().join(format!("src/d{directory}/{file}.rs"));
            fs::write(path, format!("fn changed_{round}_{number}() {{}}\n")).unwrap();
            if number == CHANGED / 2 {
                self.make(round);
                self.commit();
            }
        }
    }

    /// The files that the patterns ask for, new in the first turn.
    fn make(&self, round: usize) {
        for path in ["docs/a/b.md", "src/d100/10.rs", "src/d0/0.rs"] {
            let path = self.work().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("made in {round}\n")).unwrap();
        }
    }

    fn commit(&self) {
        self.home.git(&["add", "--all"]);
        self.home.git(&["commit", "--quiet", "--message", "work"]);
    }

    /// The commands of a person, in seconds.
    fn ask(&self) -> f64 {
        let begin = Instant::now();
        for args in [&["status", "--porcelain"][..], &["log", "--oneline", "-5"]] {
            let asked = Command::new("git")
                .args(args)
                .current_dir(self.work())
                .envs(self.home.env())
                .output();
            assert!(asked.unwrap().status.success());
        }
        begin.elapsed().as_secs_f64()
    }
}
