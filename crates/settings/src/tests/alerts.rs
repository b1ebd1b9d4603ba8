use std::time::Duration;

use super::World;
use crate::flags::Flags;
use crate::source::Source;

#[test]
fn repository_does_not_choose_who_is_notified() {
    let text = "[plugins.codex-mcp]\nnotify = [\"command:evil\"]\nstall_timeout_secs = 1\n";
    let config = World::new()
        .repository(text)
        .load(Flags::default())
        .unwrap();
    assert!(config.alerts.notify.is_none());
    assert_eq!(config.alerts.stall_timeout.source, Source::Default);
    let told = config
        .warnings
        .iter()
        .map(|warning| warning.message.split(' ').next().unwrap());
    assert_eq!(told.collect::<Vec<_>>(), ["notify", "stall_timeout_secs"]);
}

#[test]
fn bound_on_commands_removes_command_notifiers() {
    let text = "[plugins.codex-mcp]\nnotify = [\"command:say hi\", \"mail:lead@t\"]\n\
                stall_timeout_secs = 5\n";
    let world = World::new().user(text);
    let config = world.load(Flags::default()).unwrap();
    assert_eq!(config.alerts.notifiers().len(), 2);
    assert_eq!(config.alerts.stall_timeout.value, Duration::from_secs(5));
    assert_eq!(config.warnings, []);
    let flags = Flags {
        allow_commands: Some(false),
        ..Flags::default()
    };
    let config = world.load(flags).unwrap();
    assert_eq!(config.alerts.notifiers(), ["mail:lead@t".parse().unwrap()]);
    let [warning] = config.warnings.as_slice() else {
        panic!("{:?}", config.warnings);
    };
    let left_out = "command:say hi is left out, as allow_commands (--no-commands) forbids";
    assert!(warning.message.contains(left_out), "{}", warning.message);
}

#[test]
fn invalid_settings_of_alerts_are_refused() {
    for (line, why) in [
        ("notify = [\"sms:1\"]", "is not a notifier"),
        ("stall_timeout_secs = 0", "it must be between 1s and 1day"),
    ] {
        let world = World::new().user(&format!("[plugins.codex-mcp]\n{line}\n"));
        let error = world.load(Flags::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
