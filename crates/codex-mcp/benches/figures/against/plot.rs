//! The plot of the servers: bars as an SVG.

use std::fmt::Write as _;

use super::rounds::{CROWD, Figures, Measured, SESSIONS};
use super::side::Side;
use crate::table::Unit;

/// The measures in pixels: of the plot, of the names, of a panel, of its longest bar and of a line.
const WIDTH: usize = 1000;
const NAMES: usize = 290;
const PANEL: usize = 236;
const LONGEST: f64 = 150.0;
const LINE: usize = 26;
const TOP: usize = 48;

const OURS: &str = "#0969da";
const OTHERS: &str = "#afb8c1";

/// A panel: what it shows, in which unit, and the value of a server.
type Panel = (String, Unit, fn(&Figures) -> Option<f64>);

/// Draws those servers that were measured.
pub(super) fn draw(sides: &[Side], measured: &[Measured<Figures>]) -> String {
    let pairs = sides.iter().zip(measured);
    let rows: Vec<(&Side, &Figures)> = pairs
        .filter_map(|(side, measured)| Some((side, measured.as_ref().ok()?)))
        .collect();
    let height = TOP + LINE * rows.len() + 12;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (number, (side, _)) in rows.iter().enumerate() {
        let name = side.title.replace(['*', '`'], "");
        let weight = if number == 0 { "bold" } else { "normal" };
        text(&mut svg, 12, TOP + LINE * number + 16, weight, &name);
    }
    for (number, panel) in panels().iter().enumerate() {
        bars(&mut svg, NAMES + PANEL * number, panel, &rows);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panels() -> [Panel; 3] {
    let sessions = SESSIONS[1];
    [
        ("a later call".to_owned(), Unit::Seconds, |figures| {
            Some(figures.later_call.median)
        }),
        (format!("{CROWD} calls at once"), Unit::Seconds, |figures| {
            Some(figures.crowd.median)
        }),
        (
            format!("memory of {sessions} sessions"),
            Unit::Bytes,
            |figures| Some(figures.memory[1].as_ref().ok()?.at_work.median),
        ),
    ]
}

fn bars(svg: &mut String, left: usize, panel: &Panel, rows: &[(&Side, &Figures)]) {
    let (title, unit, value) = panel;
    text(svg, left, 26, "bold", title);
    let values: Vec<Option<f64>> = rows.iter().map(|(_, figures)| value(figures)).collect();
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    for (number, value) in values.into_iter().enumerate() {
        let top = TOP + LINE * number;
        let Some(value) = value else {
            text(svg, left, top + 16, "normal", "–");
            continue;
        };
        let long = (value / most * LONGEST).max(1.0);
        let colour = if number == 0 { OURS } else { OTHERS };
        writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{}\" width=\"{long:.0}\" height=\"18\" rx=\"2\" fill=\"{colour}\"/>",
            top + 2
        )
        .unwrap();
        let after = format!("{:.0}", long + 6.0).parse::<usize>().unwrap();
        text(svg, left + after, top + 16, "normal", &unit.show(value));
    }
}

fn text(svg: &mut String, left: usize, baseline: usize, weight: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(
        svg,
        "<text x=\"{left}\" y=\"{baseline}\" font-weight=\"{weight}\" fill=\"#1f2328\">{text}</text>"
    )
    .unwrap();
}
