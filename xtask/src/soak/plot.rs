//! The plot of a run: memory of the processes above, sizes on the disk below.

use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::samples::{Measure, Series};

const SIZE: (u32, u32) = (900, 700);

/// The colours of the lines, which a reader who sees no red can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];

/// What would press all other lines to the ground, and is not ours.
const LEFT_OUT: &str = "Codex's own";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the series into a file.
///
/// # Errors
/// When there are none, or the file cannot be written.
pub(crate) fn draw(file: &Path, all: &[Series]) -> anyhow::Result<()> {
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let (above, below) = area.split_vertically(SIZE.1 / 2);
    panel(&above, all, Measure::Memory, 1024.0, "Memory (MiB)")?;
    panel(&below, all, Measure::Bytes, 1024.0, "On the disk (KiB)")?;
    area.present().map_err(failed)
}

fn panel(
    area: &Area<'_>,
    all: &[Series],
    measure: Measure,
    unit: f64,
    title: &str,
) -> anyhow::Result<()> {
    let shown = |series: &&Series| series.measure == measure && series.subject != LEFT_OUT;
    let points = || all.iter().filter(shown).flat_map(|series| &series.points);
    let minutes = points().map(|point| point.seconds / 60.0).reduce(f64::max);
    let most = points().map(|point| point.value / unit).reduce(f64::max);
    let (minutes, most) = minutes.zip(most).context("there is nothing to draw")?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..minutes.max(1.0), 0.0..(most * 1.1).max(1.0))
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc("minutes")
        .light_line_style(WHITE)
        .draw()
        .map_err(failed)?;
    for (series, colour) in all.iter().filter(shown).zip(COLOURS) {
        let line = series.points.iter();
        let line = line.map(|point| (point.seconds / 60.0, point.value / unit));
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line, style))
            .map_err(failed)?
            .label(&series.subject)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(failed)
}

/// The errors of plotters borrow the backend.
fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot cannot be drawn: {error}")
}
