use std::time::Duration;

use serde_json::json;

use super::World;
use crate::flags::Flags;
use crate::source::Source;

#[test]
fn repository_does_not_choose_who_is_notified() {
    let text = "[plugins.codex-mcp]\nnotify = [\"command:evil\"]\nnotify_on = [\"ends\"]\n\
                answer_by_mail = true\nstall_timeout_secs = 1\n";
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
    let keys = [
        "notify",
        "notify_on",
        "answer_by_mail",
        "stall_timeout_secs",
    ];
    assert_eq!(told.collect::<Vec<_>>(), keys);
    assert_eq!(config.alerts.notify_on.source, Source::Default);
    assert!(!config.alerts.answer_by_mail.value);
    // The control: the user may.
    let text = "[plugins.codex-mcp]\nanswer_by_mail = true\n";
    let config = World::new().user(text).load(Flags::default()).unwrap();
    assert!(config.alerts.answer_by_mail.value);
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
        (
            "notify = [\"webhook:http://hooks.example/s3cret\"]",
            "http:// is for a server on this machine",
        ),
        (
            "notify = \"desktop\"",
            "`notify`: it must be a list in brackets, as in [\"…\"]",
        ),
        (
            "notify_on = [\"ends\", \"starts\"]",
            "`notify_on`: element 2 must be one of `asks`, `stalls`, `ends`",
        ),
        (
            "stall_timeout_secs = 5m",
            "`stall_timeout_secs`: a text needs quotes, and so does a time with a unit",
        ),
        ("stall_timeout_secs = 0", "it must be between 1s and 1d"),
    ] {
        let world = World::new().user(&format!("[plugins.codex-mcp]\n{line}\n"));
        let error = world.load(Flags::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn address_of_webhook_is_kept_and_not_shown() {
    let text = "[plugins.codex-mcp]\nnotify = [\"webhook:https://hooks.example/s3cret\"]\n\
                notify_on = [\"ends\"]\n";
    let flags = Flags {
        allow_commands: Some(false),
        ..Flags::default()
    };
    let config = World::new().user(text).load(flags).unwrap();
    let notifiers = config.alerts.notifiers();
    assert_eq!(
        notifiers[0].secret(),
        "webhook:https://hooks.example/s3cret"
    );
    let shown = crate::show::as_json(&config);
    assert_eq!(
        shown["notify"]["value"],
        json!(["webhook:https://hooks.example/…"])
    );
    assert_eq!(shown["notify_on"]["value"], json!(["ends"]));
    assert_eq!(config.warnings, []);
}
