//! Known vulnerabilities of the dependencies, by cargo-deny or cargo-audit if one of them and its
//! database are available.

use anyhow::bail;
use serde_json::Value;

use crate::tool::Tool;
use crate::workspace::Workspace;

/// The result of the check.
#[derive(Debug, PartialEq, Eq)]
enum Audit {
    /// Each vulnerability in a line.
    Checked(Vec<String>),
    /// Nothing could be checked, for this reason.
    Skipped(String),
}

/// Checks the dependencies against the advisory database. A missing tool or database is printed,
/// and is no failure.
///
/// # Errors
/// When a dependency has a known vulnerability.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let root = workspace.root();
    // cargo-audit needs Cargo.lock and its database alone.
    let (tool, audit) = if Tool::cargo(["audit", "--version"]).succeeds(root) {
        let (stdout, stderr) = Tool::cargo(["audit", "--json"]).outputs(root)?;
        ("cargo-audit", of_audit(&stdout, &stderr))
    } else if Tool::cargo(["deny", "--version"]).succeeds(root) {
        let deny = ["deny", "--format", "json", "check", "advisories"];
        let (_, stderr) = Tool::cargo(deny).outputs(root)?;
        ("cargo-deny", of_deny(&stderr))
    } else {
        println!("advisories left out: neither cargo-audit nor cargo-deny is installed");
        return Ok(());
    };
    match audit {
        Audit::Skipped(why) => println!("advisories left out: {tool} cannot check them: {why}"),
        Audit::Checked(found) if found.is_empty() => println!("no known vulnerability"),
        Audit::Checked(found) => bail!("known vulnerabilities:\n{}", found.join("\n")),
    }
    Ok(())
}

/// cargo-deny prints a JSON value in each line, the last a summary if it has checked.
fn of_deny(stderr: &str) -> Audit {
    let lines: Vec<Value> = stderr
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let is = |line: &Value, kind: &str| line.get("type") == Some(&kind.into());
    let message = |line: &Value| {
        let message = line.pointer("/fields/message").and_then(Value::as_str);
        message.unwrap_or("?").trim().replace('\n', " ")
    };
    if !lines.iter().any(|line| is(line, "summary")) {
        let last = lines.iter().rfind(|line| is(line, "log"));
        return Audit::Skipped(last.map_or_else(|| "it says nothing".to_owned(), message));
    }
    let is_error = |line: &&Value| {
        is(line, "diagnostic") && line.pointer("/fields/severity") == Some(&"error".into())
    };
    Audit::Checked(lines.iter().filter(is_error).map(message).collect())
}

/// cargo-audit prints its report, or complains that it has no database.
fn of_audit(stdout: &str, stderr: &str) -> Audit {
    let report: Option<Value> = serde_json::from_str(stdout).ok();
    let Some(list) = report.as_ref().and_then(|report| {
        let vulnerabilities = report.get("vulnerabilities")?;
        vulnerabilities.get("list")?.as_array()
    }) else {
        let last = stderr.lines().rfind(|line| !line.trim().is_empty());
        return Audit::Skipped(last.unwrap_or("it says nothing").trim().to_owned());
    };
    let text = |found: &Value, pointer: &str| {
        let value = found.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or("?").to_owned()
    };
    let lines = list.iter().map(|found| {
        format!(
            "{} in {} {}: {}",
            text(found, "/advisory/id"),
            text(found, "/package/name"),
            text(found, "/package/version"),
            text(found, "/advisory/title"),
        )
    });
    Audit::Checked(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_report_names_each_vulnerability() {
        let report = r#"{"vulnerabilities": {"found": true, "count": 1, "list": [
            {"advisory": {"id": "RUSTSEC-2020-0001", "title": "It overflows"},
             "package": {"name": "x", "version": "0.1.0"}}]}}"#;
        let line = "RUSTSEC-2020-0001 in x 0.1.0: It overflows".to_owned();
        assert_eq!(of_audit(report, ""), Audit::Checked(vec![line]));
        let none = r#"{"vulnerabilities": {"found": false, "count": 0, "list": []}}"#;
        assert_eq!(of_audit(none, "warning: x"), Audit::Checked(Vec::new()));
    }

    #[test]
    fn audit_without_a_report_has_no_database() {
        let complaint = "    Fetching advisory database\nerror: couldn't fetch\n\n";
        let expected = Audit::Skipped("error: couldn't fetch".to_owned());
        assert_eq!(of_audit("", complaint), expected);
    }

    #[test]
    fn deny_report_without_a_summary_is_left_out() {
        let log = r#"{"fields":{"level":"ERROR","message":"failed to fetch\nit"},"type":"log"}"#;
        assert_eq!(
            of_deny(log),
            Audit::Skipped("failed to fetch it".to_owned())
        );
        let found = r#"{"fields":{"message":"It overflows","severity":"error"},"type":"diagnostic"}
{"fields":{"advisories":{"errors":1}},"type":"summary"}"#;
        assert_eq!(
            of_deny(found),
            Audit::Checked(vec!["It overflows".to_owned()])
        );
    }
}
