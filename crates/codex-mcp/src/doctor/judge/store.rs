//! The job store.

use std::path::Path;

use settings::{Setting, Source};

use super::super::facts::{Directory, Store, StoreState};
use super::super::report::{Check, Finding};
use super::words::one_line;

/// A store that cannot be used is no problem for work that is no job, so it is a warning.
pub(super) fn store(store: &Store) -> Finding {
    let Setting { value, source } = &store.location;
    let shown = format!("{value} ({source})");
    let ok = |message: String| Finding::ok(Check::Store, one_line(&message));
    let warning =
        |message: String| Finding::warning(Check::Store, one_line(&message), hint(source));
    let finding = match &store.state {
        StoreState::Readable => ok(shown),
        StoreState::Empty => ok(format!(
            "{shown} has no tables yet; the first job makes them"
        )),
        StoreState::Older => ok(format!(
            "{shown} was made by an older codex-mcp, and is upgraded when it is used next"
        )),
        StoreState::Missing(Directory::Missing) if *source != Source::Default => {
            let directory = value
                .path()
                .and_then(Path::parent)
                .unwrap_or(Path::new("/"));
            warning(format!(
                "{shown} does not exist, and there is no directory {}",
                directory.display()
            ))
        }
        StoreState::Missing(Directory::Writable | Directory::MadeByProbe | Directory::Missing) => {
            ok(format!(
                "{shown} does not exist yet; the first job makes it"
            ))
        }
        StoreState::Missing(_) => warning(format!(
            "{shown} does not exist, and cannot be created: this user cannot write to its directory"
        )),
        StoreState::Failed(why) => warning(why.clone()),
        StoreState::TimedOut(after) => warning(format!(
            "{shown} did not answer within {} s",
            after.as_secs()
        )),
    };
    finding.with_value(value.to_string())
}

fn hint(source: &Source) -> String {
    let correction = match source {
        Source::Default => "name another place with `store` in your configuration".to_owned(),
        Source::File(_, file) => format!("correct `store` in {}", file.display()),
        source => format!("correct {source}"),
    };
    format!("No job can be submitted or shown until the store works. Repair it, or {correction}.")
}
