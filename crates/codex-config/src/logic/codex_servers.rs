//! Servers in the configuration of an MCP client, such as Codex itself, that hand work to Codex.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The name of this program.
pub const OWN_NAME: &str = "codex-mcp";

/// The name of its package for npm.
pub const OWN_PACKAGE: &str = "codex-mcp";

/// The package whose sessions `serve --api sessions` offers.
const NPM_PACKAGE: &str = "@leo000001/codex-mcp";

/// A server in a client's configuration that hands work to Codex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Kind {
    /// This program.
    #[strum(serialize = "codex-mcp")]
    Ours,
    /// `codex mcp-server`, which Codex 0.154 removed.
    #[strum(serialize = "codex mcp-server")]
    McpServer,
    /// The npm package @leo000001/codex-mcp, which has a program of the same name as ours.
    #[strum(serialize = "the npm package @leo000001/codex-mcp")]
    NpmPackage,
}

/// Finds the file that the first word of a command line names, by its path or by its name on PATH,
/// with all symbolic links followed; `None` if there is none.
pub type RealPath<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

impl Kind {
    /// Recognises a server by its command line, and by the file that it starts: the program of the
    /// npm package has our name.
    #[must_use]
    pub fn of(command_line: &[String], real_path: RealPath<'_>) -> Option<Self> {
        let (first, args) = command_line.split_first()?;
        let program = Path::new(first).file_stem()?.to_str()?;
        let has = |word: &str| args.iter().any(|arg| arg == word);
        let runs_script = ["node", "bun", "deno"].contains(&program);
        // The program, or the script that Node runs.
        let is_in_package = |name: &str| {
            let directory = format!("/{name}/");
            let mut words = command_line.iter().take(if runs_script { 2 } else { 1 });
            let real = (program == OWN_NAME).then(|| real_path(first)).flatten();
            let leads_there = |real: PathBuf| real.to_string_lossy().contains(&directory);
            words.any(|word| word.contains(&directory)) || real.is_some_and(leads_there)
        };
        let is_own_script = || {
            let script = args
                .first()
                .and_then(|script| Path::new(script).file_stem());
            runs_script && script == Some(OWN_NAME.as_ref())
        };
        let package = run_package(program, args);
        match verb(args) {
            _ if package == Some(NPM_PACKAGE) => Some(Self::NpmPackage),
            _ if is_in_package(NPM_PACKAGE) => Some(Self::NpmPackage),
            _ if package == Some("@openai/codex") && has("mcp-server") => Some(Self::McpServer),
            _ if program == "codex" && has("mcp-server") => Some(Self::McpServer),
            // The name of the command before it was `mcp-server`.
            Some("mcp") if program == "codex" && args.len() == 1 => Some(Self::McpServer),
            _ if package == Some(OWN_PACKAGE) && serves(command_line) => Some(Self::Ours),
            _ if is_own_script() && serves(command_line) => Some(Self::Ours),
            None if program == OWN_NAME => Some(Self::Ours),
            _ if program == OWN_NAME && has("serve") => Some(Self::Ours),
            _ => None,
        }
    }
}

/// Whether a command line that runs our package starts the server: it has the verb `serve`, or none.
fn serves(command_line: &[String]) -> bool {
    let args = own_args(command_line);
    args.iter().any(|arg| arg == "serve") || verb(&args).is_none()
}

/// The first argument that is no option, nor the value of one that may stand before a verb.
fn verb(args: &[String]) -> Option<&str> {
    let mut args = args.iter().map(String::as_str);
    loop {
        match args.next()? {
            "-C" | "--color" => args.next()?,
            option if option.starts_with('-') => continue,
            verb => return Some(verb),
        };
    }
}

/// The package that npx or one of its relatives runs.
fn run_package<'a>(program: &str, args: &'a [String]) -> Option<&'a str> {
    let mut needs_verb = match program {
        "npx" | "bunx" | "pnpx" => false,
        "npm" | "pnpm" | "yarn" | "bun" => true,
        _ => return None,
    };
    let mut args = args.iter().map(String::as_str);
    loop {
        match args.next()? {
            "-p" | "--package" => return args.next().map(without_version),
            "exec" | "dlx" | "x" if needs_verb => needs_verb = false,
            arg if arg.starts_with('-') => {
                if let Some(package) = arg.strip_prefix("--package=") {
                    return Some(without_version(package));
                }
            }
            _ if needs_verb => return None,
            package => return Some(without_version(package)),
        }
    }
}

/// The name of a package without its version.
#[must_use]
pub fn without_version(package: &str) -> &str {
    let name = package
        .rsplit_once('@')
        .filter(|(name, _)| !name.is_empty());
    name.map_or(package, |(name, _)| name)
}

/// The arguments of this program in a command line that starts it.
#[must_use]
pub fn own_args(command_line: &[String]) -> Vec<String> {
    let is_own = |word: &&String| {
        without_version(word) == OWN_PACKAGE
            || Path::new(word).file_stem() == Some(OWN_NAME.as_ref())
    };
    // After `--package codex-mcp`, the name comes twice.
    let args = command_line
        .iter()
        .skip_while(|word| !is_own(word))
        .skip_while(is_own);
    let args: Vec<String> = args.cloned().collect();
    match args.is_empty() {
        // Alone on a pipe, it serves.
        true => vec!["serve".to_owned()],
        false => args,
    }
}

/// The command line of a server in a client's configuration: `command` is a word with `args`, a
/// list, or (in older files of Zed) a table; Goose has `cmd`.
#[must_use]
pub fn command_line(server: &Value) -> Vec<String> {
    let words = |value: Option<&Value>| -> Vec<String> {
        let words = value.and_then(Value::as_array).into_iter().flatten();
        words
            .filter_map(|word| Some(word.as_str()?.to_owned()))
            .collect()
    };
    let args = words(server.get("args"));
    match server.get("command").or_else(|| server.get("cmd")) {
        Some(Value::String(program)) => [vec![program.clone()], args].concat(),
        Some(list @ Value::Array(_)) => words(Some(list)),
        Some(Value::Object(table)) => {
            let program = table.get("path").and_then(Value::as_str);
            let program = program.map(str::to_owned).into_iter().collect();
            [program, words(table.get("args"))].concat()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The kind of a server with this entry.
    fn kind(server: &Value) -> Option<Kind> {
        Kind::of(&command_line(server), &|_| None)
    }

    #[test]
    fn servers_are_recognised_by_their_command_lines() {
        let lines: [(Option<Kind>, &[&str]); 4] = [
            (
                Some(Kind::McpServer),
                &[
                    "codex mcp-server",
                    "/usr/bin/codex -c model=x mcp-server",
                    "npx -y @openai/codex@0.150 mcp-server",
                    "codex mcp",
                ],
            ),
            (
                Some(Kind::NpmPackage),
                &[
                    "npx -y @leo000001/codex-mcp",
                    "npx -y @leo000001/codex-mcp@latest",
                    "npx --package=@leo000001/codex-mcp codex-mcp",
                    "node /x/node_modules/@leo000001/codex-mcp/dist/index.js",
                ],
            ),
            (
                None,
                &[
                    "npx -y codex-mcp-other",
                    "npx -y @x/server-filesystem docs codex-mcp",
                    "npm run --workspace codex-mcp docs",
                    "node /x/codex-mcp/bin/codex-mcp.js eyes-mcp",
                    "node serve",
                    "server-files /src/@leo000001/codex-mcp/docs",
                    "uvx server-git /home/me/codex-mcp",
                    "my-codex-mcp serve",
                    "codex mcp list",
                    "codex-mcp eyes-mcp",
                    "npx -y codex-mcp eyes-mcp",
                    "npx -y -p codex-mcp codex-eyes-mcp",
                    "codex exec",
                ],
            ),
            (
                Some(Kind::Ours),
                &[
                    "pnpm dlx codex-mcp serve",
                    "/opt/codex-mcp serve --api sessions",
                    "codex-mcp",
                    "codex-mcp -C /repo --color never",
                    "npx -y codex-mcp -C /repo",
                    "node /x/codex-mcp/bin/codex-mcp.js serve",
                    "codex-mcp --codex-bin /codex serve",
                    "npx -y codex-mcp@0.1.0 serve",
                    "npx -y -p codex-mcp codex-mcp",
                ],
            ),
        ];
        for (expected, lines) in lines {
            for line in lines {
                let words: Vec<&str> = line.split(' ').collect();
                let server = json!({ "command": words[0], "args": words[1..] });
                assert_eq!(kind(&server), expected, "{line}");
            }
        }
    }

    #[test]
    fn command_line_is_found_in_each_form_of_an_entry() {
        for (server, expected) in [
            (
                json!({ "command": ["codex", "mcp-server"] }),
                Some(Kind::McpServer),
            ),
            (
                json!({ "command": { "path": "codex", "args": ["mcp-server"] } }),
                Some(Kind::McpServer),
            ),
            (
                json!({ "cmd": "codex", "args": ["mcp-server"] }),
                Some(Kind::McpServer),
            ),
            (json!({ "url": "https://example.com" }), None),
            (json!(null), None),
            (json!({ "command": "codex-mcp" }), Some(Kind::Ours)),
        ] {
            assert_eq!(kind(&server), expected, "{server}");
        }
    }

    #[test]
    fn program_of_the_npm_package_is_recognised_behind_its_link() {
        let scripts = ["@leo000001/codex-mcp/dist", "codex-mcp/bin"];
        let kinds = scripts.map(|script| {
            let script = format!("/usr/lib/node_modules/{script}/index.js");
            let line = ["/usr/bin/codex-mcp".to_owned()];
            let leads_to = |first: &str| (first == line[0]).then(|| PathBuf::from(&script));
            Kind::of(&line, &leads_to)
        });
        assert_eq!(kinds, [Some(Kind::NpmPackage), Some(Kind::Ours)]);
    }
}
