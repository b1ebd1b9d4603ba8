//! Outputs of git, and files of git directories.
//!
//! Input: a byte that chooses the command, and its output.

use git_probe::parsers;
use git_probe::written;

/// Tests one input.
pub fn run(data: &[u8]) {
    let Some((choice, output)) = data.split_first() else {
        return;
    };
    match choice % 8 {
        0 => settings(output),
        1 => status(output),
        2 => trees(output),
        3 => index(output),
        4 => refs(output),
        5 => paths(output),
        6 => tracking(output),
        _ => drop(
            String::from_utf8_lossy(output)
                .lines()
                .map(parsers::commit)
                .count(),
        ),
    }
}

/// Settings that are written as git writes them read the same.
fn settings(output: &[u8]) {
    let read = parsers::settings(output);
    let mut again = Vec::new();
    for setting in &read {
        again.extend(if setting.is_of_repository {
            &b"local\0"[..]
        } else {
            b"global\0"
        });
        again.extend(&setting.key);
        if let Some(value) = &setting.value {
            again.push(b'\n');
            again.extend(value);
        }
        again.push(0);
        assert!(!setting.key.contains(&b'\n'));
    }
    assert_eq!(parsers::settings(&again), read);
}

fn status(output: &[u8]) {
    let state = parsers::status(output);
    let records = output.iter().filter(|byte| **byte == 0).count();
    assert!(state.dirty.len() <= records);
    assert!(state.dirty.keys().all(|path| !path.contains('\0')));
    // A record that is cut off counts for nothing.
    let end = output
        .iter()
        .rposition(|byte| *byte == 0)
        .map_or(0, |end| end + 1);
    assert_eq!(parsers::status(&output[..end]), state);
    let longer = [&output[..end], b"? cut"].concat();
    assert_eq!(parsers::status(&longer), state);
    let unchanged = state.changed_until(&state, &std::collections::BTreeMap::new());
    assert!(unchanged.is_empty());
}

fn trees(output: &[u8]) {
    for bytes in [20, 32] {
        let Some(trees) = parsers::trees(output, bytes) else {
            continue;
        };
        for (_, entries) in &trees {
            assert!(entries * (bytes + 2) <= output.len());
        }
        // All of it is read, or nothing.
        assert_eq!(parsers::trees(&[output, b"x"].concat(), bytes), None);
    }
}

fn index(output: &[u8]) {
    let entries = parsers::index_entries(output);
    let mut again = Vec::new();
    for (path, stages) in &entries {
        for stage in stages {
            again.extend([stage, &b"\t"[..], path, b"\0"].concat());
        }
    }
    assert_eq!(parsers::index_entries(&again), entries);
    let submodules = parsers::submodules(output);
    assert!(submodules.len() <= entries.values().map(Vec::len).sum());
}

fn refs(output: &[u8]) {
    let text = String::from_utf8_lossy(output);
    for line in text.lines() {
        if let Some((name, id)) = parsers::reference(line) {
            assert_eq!(line, format!("{id} {name}"));
            assert!(matches!(id.len(), 40 | 64));
            // It is a path below the directory of the refs, and an argument.
            assert!(!name.split('/').any(|part| matches!(part, "" | "." | "..")));
            assert!(!name.contains(char::is_control));
        }
    }
}

fn paths(output: &[u8]) {
    for directory in parsers::directories(output) {
        assert!(!directory.as_os_str().is_empty());
    }
    let text = written(output);
    match std::str::from_utf8(output) {
        Ok(same) => assert_eq!(text, same),
        Err(_) => assert!(text.contains("\\x")),
    }
}

fn tracking(output: &[u8]) {
    let text = String::from_utf8_lossy(output);
    if let Some((refspec, name)) = text.split_once('\n') {
        drop(parsers::tracked_ref(refspec, name));
    }
}
