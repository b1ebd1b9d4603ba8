//! The report as text.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use common::output::Output;
use common::text::wrapped;

use super::report::{Check, Finding, Report, Status};

/// Writes the report for people, in colours.
///
/// At a terminal with so many columns, long lines are wrapped; `None` is no terminal.
///
/// # Errors
///
/// Those of `out`.
pub fn as_text(
    report: &Report,
    columns: Option<usize>,
    out: &mut Output<impl Write>,
) -> io::Result<()> {
    // Some terminals have no size.
    let columns = columns.map(|columns| columns.max(NARROWEST));
    for finding in &report.findings {
        write_finding(finding, columns, out)?;
    }
    writeln!(out)?;
    writeln!(out, "{}", verdict(report))
}

/// The narrowest terminal that lines are wrapped for, in characters.
const NARROWEST: usize = 80;

/// The width of the longest status and of the gap before the name.
const STATUS_WIDTH: usize = Status::Problem.name().len() + 2;

/// The width of the longest name and of the gap before the message.
const NAME_WIDTH: usize = Check::PrivateGit.name().len() + 2;

fn write_finding(
    finding: &Finding,
    columns: Option<usize>,
    out: &mut Output<impl Write>,
) -> io::Result<()> {
    let style = style(finding.status);
    let status = finding.status.name();
    let name = finding.check.name();
    let gap = STATUS_WIDTH.saturating_sub(status.len());
    out.styled(style, status)?;
    let indent = STATUS_WIDTH + NAME_WIDTH;
    let hint = finding.hint.as_ref().map(|hint| format!("To do: {hint}"));
    let lines = finding
        .message
        .trim_end()
        .split('\n')
        .chain(hint.as_deref());
    let lines = lines.flat_map(|line| match columns {
        Some(columns) => wrapped(line, columns.saturating_sub(indent)),
        None => vec![line.to_owned()],
    });
    write!(out, "{:gap$}{name:NAME_WIDTH$}", "")?;
    for (number, line) in lines.enumerate() {
        match number {
            0 => writeln!(out, "{line}")?,
            _ => writeln!(out, "{:indent$}{line}", "")?,
        }
    }
    Ok(())
}

fn style(status: Status) -> Style {
    match status {
        Status::Ok => AnsiColor::Green.on_default(),
        Status::Note => AnsiColor::Cyan.on_default(),
        Status::Warning => AnsiColor::Yellow.on_default().bold(),
        Status::Problem => AnsiColor::Red.on_default().bold(),
    }
}

fn verdict(report: &Report) -> String {
    match report.count(Status::Problem) {
        0 => "Codex can work here.".to_owned(),
        1 => "Codex cannot work here before the problem is solved.".to_owned(),
        problems => format!("Codex cannot work here before the {problems} problems are solved."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::output::Colours;

    fn report() -> Report {
        Report {
            findings: vec![
                Finding::ok(Check::Version, "0.169.0").with_value("0.169.0"),
                Finding::problem(Check::AppServer, "no answer", "Try again."),
                Finding::note(Check::Gh, "not installed").with_hint("Install it."),
            ],
        }
    }

    #[test]
    fn long_lines_are_wrapped_only_at_a_terminal() {
        let report = Report {
            findings: vec![
                Finding::ok(Check::Settings, ""),
                Finding::problem(
                    Check::Codex,
                    "word ".repeat(30),
                    "Do this and that. ".repeat(9),
                ),
            ],
        };
        let shown = |columns| {
            let mut out = Output::new(Vec::new(), Colours::Off);
            as_text(&report, columns, &mut out).unwrap();
            String::from_utf8(out.into_inner()).unwrap()
        };
        let longest = |text: &str| text.lines().map(str::len).max();
        assert!(longest(&shown(Some(80))) <= Some(80), "{}", shown(Some(80)));
        assert_eq!(shown(Some(0)), shown(Some(80)));
        assert_eq!(shown(None).lines().count(), 5);
        let hanging = format!("\n{:22}word", "");
        assert!(shown(Some(80)).contains(&hanging), "{}", shown(Some(80)));
    }

    #[test]
    fn text_is_aligned_with_and_without_colours() {
        let mut coloured = Output::new(Vec::new(), Colours::On);
        as_text(&report(), None, &mut coloured).unwrap();
        assert!(
            String::from_utf8(coloured.into_inner())
                .unwrap()
                .contains("\u{1b}[1m\u{1b}[31mproblem")
        );

        let mut plain = Output::new(Vec::new(), Colours::Off);
        as_text(&report(), None, &mut plain).unwrap();
        insta::assert_snapshot!(String::from_utf8(plain.into_inner()).unwrap());
    }

    #[test]
    fn json_matches_its_documentation() {
        let json = serde_json::to_string_pretty(&report()).unwrap() + "\n";
        insta::assert_snapshot!(json.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }
}
