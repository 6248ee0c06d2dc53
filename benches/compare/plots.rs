//! The curves as SVG.
//!
//! Owns axes and colours. Draws what `sweeps` measured and nothing else; fails where a file can't be written.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::prelude::*;

use super::figures::Figure;
use super::sweeps::{Curve, Sweeps};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;

const SIZE: (u32, u32) = (900, 560);

/// Colours that a reader who does not tell red from green tells apart (after Okabe and Ito).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
    RGBColor(148, 103, 189),
];

/// A line of a plot: its name, and where it goes through.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    fn of(curve: &Curve, name: String, value: impl Fn(&Figure) -> Option<f64>) -> Self {
        let points = curve.points.iter().filter_map(|(place, figure)| Some((f64::from(*place), value(figure)?)));
        // A logarithmic axis has no zero.
        Self { name, points: points.filter(|(_, value)| *value > 0.0).collect() }
    }
}

/// Draws all plots into a folder and returns their names.
pub fn draw(sweeps: &Sweeps, folder: &Path) -> Vec<&'static str> {
    let throughput = |curves: &[Curve]| -> Vec<Line> {
        curves.iter().map(|curve| Line::of(curve, curve.name.into(), |figure| Some(figure.per_second))).collect()
    };
    let p99 = |curves: &[Curve]| -> Vec<Line> {
        curves.iter().map(|curve| Line::of(curve, curve.name.into(), |figure| figure.p99_ms)).collect()
    };
    let over_rate = sweeps.over_rate.iter().flat_map(|curve| {
        [Line::of(curve, "p50".into(), |figure| figure.p50_ms), Line::of(curve, "p99".into(), |figure| figure.p99_ms)]
    });
    let connections = "connections (pgbench: clients)";
    let plots = [
        (
            "throughput-over-connections.svg",
            "Throughput over connections",
            [connections, "commands/s"],
            throughput(&sweeps.over_connections),
        ),
        ("p99-over-connections.svg", "p99 over connections", [connections, "ms"], p99(&sweeps.over_connections)),
        (
            "throughput-over-window.svg",
            "NDJSON, 8 connections: throughput over lines in flight",
            ["lines in flight on each connection", "commands/s"],
            throughput(&sweeps.over_window),
        ),
        (
            "latency-over-rate.svg",
            "Spread, open loop: latency over the rate that is offered",
            ["commands/s offered", "ms from when each was due"],
            over_rate.collect(),
        ),
    ];
    plots
        .into_iter()
        .map(|(file, title, axes, lines)| {
            let path = folder.join(file);
            let area = SVGBackend::new(&path, SIZE).into_drawing_area();
            plot(&area, title, axes, &lines);
            area.present().unwrap();
            file
        })
        .collect()
}

/// Least and most of some numbers, with a little room.
fn range(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    assert!(least > 0.0 && least <= most, "a plot needs points");
    least / 1.25..most * 1.25
}

fn plot(area: &Area<'_>, title: &str, [x_words, y_words]: [&str; 2], lines: &[Line]) {
    area.fill(&WHITE).unwrap();
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let mut chart: Chart<'_, '_> = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(76)
        .build_cartesian_2d(
            range(points().map(|point| point.0)).log_scale(),
            range(points().map(|point| point.1)).log_scale(),
        )
        .unwrap();
    chart
        .configure_mesh()
        .x_desc(x_words)
        .y_desc(y_words)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .light_line_style(RGBColor(240, 240, 240))
        .draw()
        .unwrap();
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let style = ShapeStyle::from(*colour).stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style))
            .unwrap()
            .label(line.name.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, style.filled()))).unwrap();
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()
        .unwrap();
}

fn number(value: f64) -> String {
    let whole = value.round() as u64;
    if whole >= 1_000 {
        format!("{},{:03}", whole / 1_000, whole % 1_000)
    } else if value >= 10.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}
