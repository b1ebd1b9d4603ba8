//! The options of the verbs, for docs/.

use std::collections::BTreeSet;

use clap::{Arg, Command};
use testkit::docs::{check, code_list, table};

#[test]
fn options_in_docs_match_the_code() {
    check("command-line.md", [("options", options())]);
}

/// A table with the purpose of each verb, and its options.
fn options() -> String {
    let program = super::shown();
    let global = options_of(&program);
    let mut sections = vec![format!("### All verbs\n\n{global}")];
    for verb in program.get_subcommands() {
        add(verb, "codex-mcp", &mut sections);
    }
    sections.join("\n\n")
}

fn add(verb: &Command, above: &str, sections: &mut Vec<String>) {
    let name = format!("{above} {}", verb.get_name());
    let about = verb.get_long_about().or(verb.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let about = about.trim_end_matches('.');
    let options = match verb.get_arguments().next() {
        Some(_) => format!("\n\n{}", options_of(verb)),
        None => String::new(),
    };
    sections.push(format!("### `{name}`\n\n{about}.{options}"));
    for verb in verb.get_subcommands() {
        add(verb, &name, sections);
    }
}

fn options_of(verb: &Command) -> String {
    let shown = verb.get_arguments().filter(|arg| !arg.is_hide_set());
    let rows = shown.map(|arg| [written(arg), default(arg), meaning(arg)]);
    table(["option", "default", "meaning"], rows)
}

/// An option as it is written, with its short form and its value.
fn written(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let names = arg.get_value_names().unwrap_or_default();
    let value = names.iter().map(|name| name.as_str());
    let value: Vec<&str> = value.collect();
    let value = match arg.get_num_args().map(|number| number.min_values()) {
        Some(0) => format!("[{}]", value.join(" ")),
        _ => value.join(" "),
    };
    let value = if takes_value { value } else { String::new() };
    if arg.is_positional() {
        return format!("`{value}`");
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    let long = arg.get_long().into_iter().chain(aliases);
    let long = long.map(|long| format!("--{long}"));
    let mut forms: Vec<String> = short.into_iter().chain(long).collect();
    if let (Some(last), false) = (forms.last_mut(), value.is_empty()) {
        last.push_str(&format!(" {value}"));
    }
    code_list(forms.iter().map(String::as_str))
}

fn default(arg: &Arg) -> String {
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let values = arg.get_default_values().iter();
    let values: Vec<&str> = values.filter_map(|value| value.to_str()).collect();
    code_list(values)
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let help = match help.ends_with('.') {
        true => help,
        false => format!("{help}."),
    };
    if !arg.get_action().takes_values() {
        return help;
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(about) => format!("`{}`: {about}", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    match values.as_slice() {
        [] => help,
        values => format!("{help} Values: {}.", values.join("; ")),
    }
}

#[test]
fn every_option_on_the_page_of_settings_exists() {
    let program = super::command_tree();
    let verbs = program.get_subcommands();
    let options: BTreeSet<&str> = verbs
        .flat_map(Command::get_arguments)
        .filter_map(Arg::get_long)
        .collect();
    let page = include_str!("../../../../docs/configuration.md");
    let written = page
        .split('`')
        .filter_map(|code| code.strip_prefix("--"))
        .filter_map(|option| option.split_whitespace().next());
    let written: BTreeSet<&str> = written.collect();

    assert!(written.contains("sandbox"), "{written:?}");
    let unknown: Vec<_> = written.difference(&options).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// A paragraph is wrapped to the width of the terminal if it is a single line. Tables and examples,
/// whose lines begin with a space, are not wrapped.
#[test]
fn help_can_be_read_in_80_columns() {
    fn look(verb: &Command) {
        let footer = verb.get_after_help().map(ToString::to_string);
        let footer = footer.unwrap_or_default();
        let lines: Vec<&str> = footer.lines().collect();
        for line in &lines {
            let fits = !line.starts_with(' ') || line.chars().count() <= 80;
            assert!(fits, "{}: {line}", verb.get_name());
        }
        let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
        for two in lines.windows(2) {
            let is_broken = is_text(two[0]) && is_text(two[1]) && !two[0].ends_with(':');
            assert!(!is_broken, "{}: {two:?}", verb.get_name());
        }
        verb.get_subcommands().for_each(look);
    }
    look(&super::command_tree());
}
