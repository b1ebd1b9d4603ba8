//! Tests of the files that only the forge reads: `.github`.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::path::Path;

use saphyr_parser::Parser;

#[test]
fn files_of_the_forge_are_yaml() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github");
    let mut count = 0;
    for directory in ["workflows", "ISSUE_TEMPLATE"] {
        for entry in fs::read_dir(top.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            for event in Parser::new_from_str(&text) {
                assert!(event.is_ok(), "{}: {event:?}", path.display());
            }
            count += 1;
        }
    }
    assert!(count >= 5, "{count}");
}
