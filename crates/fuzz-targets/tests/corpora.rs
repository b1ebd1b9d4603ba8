//! Runs the corpus of each target: what was found once is not to come back.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed test panics, and a test reads files of the repository"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, panic};

use fuzz_targets::{TARGETS, Target, find};

/// The most files of a corpus, and the longest of them, in bytes.
const FILES: usize = 64;
const LENGTH: usize = 8 * 1024;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn inputs(target: &Target) -> Vec<PathBuf> {
    let entries = fs::read_dir(corpora().join(target.name)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn corpus_of_each_target_passes() {
    let mut failed = Vec::new();
    for target in TARGETS {
        for path in inputs(target) {
            let data = fs::read(&path).unwrap();
            if panic::catch_unwind(|| (target.run)(&data)).is_err() {
                failed.push(format!("{} {}", target.name, path.display()));
            }
        }
    }
    assert_eq!(failed, Vec::<String>::new());
}

#[test]
fn corpora_are_small_and_belong_to_targets() {
    for target in TARGETS {
        let inputs = inputs(target);
        assert!((1..=FILES).contains(&inputs.len()), "{}", target.name);
        for path in inputs {
            let length = fs::read(&path).unwrap().len();
            assert!(length <= LENGTH, "{}: {length} bytes", path.display());
        }
    }
    for entry in fs::read_dir(corpora()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(find(&name).is_some(), "{name} is no target");
    }
}

#[test]
fn targets_have_distinct_names_in_order() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    let sorted: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names, sorted.into_iter().collect::<Vec<_>>());
}

#[test]
fn empty_input_passes() {
    for target in TARGETS {
        (target.run)(b"");
    }
}
