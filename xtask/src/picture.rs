//! The picture of the demo in docs/: what `codex-mcp demo` prints, as an SVG.

use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroU16;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use vt100::{Cell, Color, Parser, Screen};

use crate::tool::Tool;
use crate::workspace::Workspace;
use crate::{installs, provision};

/// The picture, relative to the workspace.
const PICTURE: &str = "docs/demo.svg";

/// The part of the demo that is shown: its headings begin so.
const FIRST: &str = "5. ";
const NEXT: &str = "6. ";

/// The size of the terminal. The demo prints fewer rows than that.
const COLUMNS: NonZeroU16 = NonZeroU16::new(100).unwrap();
const ROWS: NonZeroU16 = NonZeroU16::new(500).unwrap();

/// The measures of a cell and of the margin, in pixels.
const WIDTH: f32 = 8.4;
const HEIGHT: u16 = 19;
const MARGIN: u16 = 16;

const BACKGROUND: &str = "#0d1117";
const FOREGROUND: &str = "#d1d7e0";

/// The colours of a terminal, from black to bright white.
const PALETTE: [&str; 16] = [
    "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
    "#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff",
];

/// What `cargo xtask picture` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// The codex-mcp to run. Default: the debug build, which is brought up to date
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

/// Runs the demo in a home of its own and draws a part of it.
///
/// # Errors
/// When the demo fails, or prints something else than expected.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let program = match &options.program {
        Some(program) => std::path::absolute(program)?,
        None => {
            Tool::cargo(["build", "--package", "codex-mcp"]).run(workspace.root())?;
            workspace.target().join("debug/codex-mcp")
        }
    };
    let home = workspace.target().join("picture");
    installs::remove(&home)?;
    let shown = demo(&program, &provision::newest_codex(workspace)?, &home)?;
    let mut terminal = Parser::new(ROWS, COLUMNS, 0);
    terminal.process(shown.replace('\n', "\r\n").as_bytes());
    let picture = draw(terminal.screen())?;
    let path = workspace.root().join(PICTURE);
    fs::write(&path, picture).with_context(|| format!("cannot write {PICTURE}"))?;
    installs::remove(&home)?;
    println!("{PICTURE} is written");
    Ok(())
}

/// The output of the demo, with its home as `~`.
fn demo(program: &Path, codex: &Path, home: &Path) -> anyhow::Result<String> {
    let bin = home.join("bin");
    fs::create_dir_all(&bin)?;
    symlink(codex, bin.join("codex"))?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("not UTF-8");
    let path = std::env::var("PATH").context("PATH")?;
    let (program, home) = (text(program)?, text(home)?);
    let shown = Tool::new(&program, ["demo", "--color", "always"])
        .env("HOME", home.as_str())
        .env("CODEX_HOME", format!("{home}/.codex"))
        .env("XDG_STATE_HOME", format!("{home}/.local/state"))
        .env("XDG_CACHE_HOME", format!("{home}/.cache"))
        .env("XDG_CONFIG_HOME", format!("{home}/.config"))
        .env("PATH", format!("{home}/bin:{path}"))
        .capture(Path::new(&home))?;
    Ok(shown.replace(&home, "~"))
}

/// The rows from one heading up to the next, as SVG.
fn draw(screen: &Screen) -> anyhow::Result<String> {
    let texts: Vec<String> = screen.rows(0, COLUMNS.get()).collect();
    let row_of = |heading: &str| texts.iter().position(|text| text.starts_with(heading));
    let first = row_of(FIRST).context("the demo has no such part")?;
    let next = row_of(NEXT).context("the demo has no next part")?;
    let is_blank = |text: &&String| text.trim().is_empty();
    let part = texts.get(first..next).unwrap_or_default();
    let blank = part.iter().rev().take_while(is_blank).count();
    let count = u16::try_from(part.len() - blank)?;
    ensure!(count > 0, "the part of the demo is empty");
    let (width, height) = (
        x(COLUMNS.get()) + f32::from(MARGIN),
        y(count) + f32::from(MARGIN),
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"A run of codex-mcp in a \
         terminal\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" \
         font-size=\"14\" fill=\"{FOREGROUND}\" xml:space=\"preserve\">\n"
    );
    for row in 0..count {
        draw_row(screen, u16::try_from(first)? + row, row, &mut svg)?;
    }
    svg.push_str("</g>\n</svg>\n");
    Ok(svg)
}

fn x(column: u16) -> f32 {
    f32::from(MARGIN) + f32::from(column) * WIDTH
}

fn y(row: u16) -> f32 {
    f32::from(MARGIN) + f32::from(row) * f32::from(HEIGHT)
}

/// A row, each run of cells in one style as a text of its own: its length is given, so
/// that the columns hold whatever the font.
fn draw_row(screen: &Screen, from: u16, to: u16, svg: &mut String) -> anyhow::Result<()> {
    let cells = |column| screen.cell(from, column);
    let mut column = 0;
    while let Some(first) = cells(column) {
        let look = CellStyle::of(first);
        let same = |column: &u16| cells(*column).is_some_and(|cell| CellStyle::of(cell) == look);
        let run: Vec<u16> = (column..).take_while(same).collect();
        let begin = column;
        column += u16::try_from(run.len())?;
        let text = run.iter().filter_map(|column| cells(*column));
        let text: String = text
            .map(|cell| {
                if cell.has_contents() {
                    cell.contents()
                } else {
                    " "
                }
            })
            .collect();
        let shown = text.trim_end();
        let indent = shown.len() - shown.trim_start().len();
        let shown = shown.trim_start();
        if shown.is_empty() {
            continue;
        }
        let length = f32::from(u16::try_from(shown.chars().count())?) * WIDTH;
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\"{}>{}</text>",
            x(begin + u16::try_from(indent)?),
            y(to) + f32::from(HEIGHT) * 0.75,
            look.attributes(),
            escaped(shown)
        )?;
    }
    Ok(())
}

/// The style of a cell, as far as the demo uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CellStyle {
    colour: Color,
    is_bold: bool,
    is_dim: bool,
}

impl CellStyle {
    fn of(cell: &Cell) -> Self {
        Self {
            colour: cell.fgcolor(),
            is_bold: cell.bold(),
            is_dim: cell.dim(),
        }
    }

    fn attributes(self) -> String {
        let fill = match self.colour {
            Color::Default => None,
            Color::Idx(number) => PALETTE
                .get(usize::from(number))
                .map(|&name| name.to_owned()),
            Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
        };
        let fill = fill
            .map(|fill| format!(" fill=\"{fill}\""))
            .unwrap_or_default();
        let bold = if self.is_bold {
            " font-weight=\"bold\""
        } else {
            ""
        };
        let dim = if self.is_dim { " opacity=\"0.65\"" } else { "" };
        format!("{fill}{bold}{dim}")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    fn drawn(text: &str) -> anyhow::Result<String> {
        let mut terminal = Parser::new(ROWS, COLUMNS, 0);
        terminal.process(text.as_bytes());
        draw(terminal.screen())
    }

    #[test]
    fn chosen_part_is_drawn_with_its_colours() {
        let svg =
            drawn("4. a\r\n\x1b[1;36m5. b\x1b[0m\r\n  <c> \x1b[2md\x1b[0m\r\n\r\n6. e").unwrap();
        let texts: Vec<&str> = svg
            .lines()
            .filter(|line| line.starts_with("<text"))
            .collect();
        assert_eq!(
            texts,
            [
                "<text x=\"16.0\" y=\"30.2\" textLength=\"33.6\" fill=\"#39c5cf\" \
                 font-weight=\"bold\">5. b</text>",
                "<text x=\"32.8\" y=\"49.2\" textLength=\"25.2\">&lt;c&gt;</text>",
                "<text x=\"66.4\" y=\"49.2\" textLength=\"8.4\" opacity=\"0.65\">d</text>",
            ]
        );
    }

    #[test]
    fn missing_part_is_an_error() {
        assert!(drawn("4. a\r\n6. e").is_err());
    }
}
