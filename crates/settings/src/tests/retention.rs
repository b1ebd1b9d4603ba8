use std::time::Duration;

use super::World;
use crate::flags::Flags;
use crate::source::Source;

fn set(world: World, lines: &str) -> World {
    world.user(&format!("[plugins.codex-mcp]\n{lines}\n"))
}

#[test]
fn retention_has_defaults_and_the_user_changes_it() {
    let usual = World::new().load(Flags::default()).unwrap().retention;
    assert_eq!(usual.jobs.value, Duration::from_secs(90 * 86_400));
    assert_eq!(usual.log_bytes.value, 1 << 20);
    assert_eq!(usual.audit_bytes.source, Source::Default);

    let lines = "keep_jobs_secs = \"7d\"\nkeep_tasks_secs = 60\n\
        max_audit_bytes = 16384\nmax_log_bytes = 1073741824";
    let world = set(World::new(), lines);
    let kept = world.load(Flags::default()).unwrap().retention;
    assert_eq!(kept.jobs.value, Duration::from_secs(7 * 86_400));
    assert_eq!(kept.tasks.value, Duration::from_secs(60));
    assert_eq!(
        (kept.audit_bytes.value, kept.log_bytes.value),
        (16_384, 1 << 30)
    );
}

#[test]
fn retention_out_of_range_is_refused() {
    for line in [
        "keep_jobs_secs = 59",
        "keep_tasks_secs = 0",
        "max_audit_bytes = 16383",
        "max_log_bytes = 1073741825",
    ] {
        let world = set(World::new(), line);
        let error = world.load(Flags::default()).unwrap_err().to_string();
        let key = line.split(' ').next().unwrap();
        assert!(
            error.starts_with(key) && error.contains("must be"),
            "{error}"
        );
        let is_time = key.starts_with("keep_");
        assert_eq!(error.ends_with("between 1m and 36525d"), is_time, "{error}");
    }
}

#[test]
fn repository_cannot_have_records_removed() {
    let world = World::new().repository("[plugins.codex-mcp]\nkeep_jobs_secs = 60\n");
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.retention.jobs.source, Source::Default);
    let warned = config.warnings.iter().map(ToString::to_string);
    assert!(warned.collect::<String>().contains("keep_jobs_secs"));
}
