//! The curves: throughput and latency over connections, over lines in flight, and over the rate that is offered.
//!
//! Owns what is measured for them, one run a point. The plots draw what this returns.

use serde::Serialize;

use super::casework_runs::{Load, Serving, on_postgres, on_sqlite};
use super::contenders::{Contender, Ground};
use super::figures::Figure;
use super::pgbench::Script;

/// PostgreSQL's own bound stands below the last of them; pgbench stops before it.
const CONNECTIONS: [u32; 6] = [1, 4, 16, 64, 128, 256];
const PGBENCH_CLIENTS_MAX: u32 = 128;
const WINDOWS: [u32; 6] = [1, 4, 16, 64, 128, 256];
/// Commands a second; the first that the server falls behind is the last that is run.
const RATES: [u32; 13] = [250, 500, 1_000, 2_000, 4_000, 6_000, 8_000, 12_000, 16_000, 20_000, 28_000, 40_000, 60_000];
/// Connections of the open loop: enough for the rate to be offered whatever the server does.
const OPEN_LOOP_CONNECTIONS: u32 = 256;

/// One curve.
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    /// The contender.
    pub name: &'static str,
    /// Connections, lines in flight or commands a second, with what was measured there.
    pub points: Vec<(u32, Figure)>,
}

/// All curves.
#[derive(Debug, Default, Serialize)]
pub struct Sweeps {
    pub over_connections: Vec<Curve>,
    pub over_window: Vec<Curve>,
    pub over_rate: Vec<Curve>,
}

impl Sweeps {
    /// Measures all of them; `note` is told each figure.
    pub fn measure(ground: &Ground<'_>, note: fn(&Figure)) -> Self {
        Self {
            over_connections: over_connections(ground, note),
            over_window: over_window(ground, note),
            over_rate: over_rate(ground, note),
        }
    }
}

fn curve(
    name: &'static str,
    places: impl IntoIterator<Item = u32>,
    note: fn(&Figure),
    run: impl Fn(u32) -> Figure,
) -> Curve {
    let points = places.into_iter().map(|place| {
        let figure = run(place);
        note(&figure);
        (place, figure)
    });
    Curve { name, points: points.collect() }
}

fn over_connections(ground: &Ground<'_>, note: fn(&Figure)) -> Vec<Curve> {
    let smoke = [4, 16];
    let all = if ground.options.smoke { &smoke[..] } else { &CONNECTIONS[..] };
    let clients = || all.iter().copied().filter(|clients| *clients <= PGBENCH_CLIENTS_MAX);
    let pgbench = |contender: Contender, script, cases| {
        curve(contender.name(), clients(), note, |clients| contender.pgbench_once(ground, script, cases, clients))
    };
    let casework = |contender: Contender, mix| {
        curve(contender.name(), all.iter().copied(), note, |connections| {
            let load = Load::posts(mix, connections);
            match contender {
                Contender::Sqlite => on_sqlite(load, contender.name(), ground.round, ground.options),
                _ => on_postgres(ground.server, load, contender.name(), ground.round, ground.options),
            }
        })
    };
    vec![
        pgbench(Contender::RowLock, Script::RowLock, 10_000),
        casework(Contender::Posts, "spread"),
        pgbench(Contender::Function, Script::Function, 10_000),
        pgbench(Contender::OneCase, Script::RowLock, 1),
        casework(Contender::HotPosts, "hot"),
        curve(Contender::Bare.name(), all.iter().copied(), note, |many| Contender::Bare.bare(ground, many)),
        casework(Contender::Replay, "replay"),
        curve(Contender::SqlitePeer.name(), all.iter().copied(), note, |many| {
            Contender::SqlitePeer.sqlite_peer(ground, 1, many)
        }),
        casework(Contender::Sqlite, "spread"),
    ]
}

fn over_window(ground: &Ground<'_>, note: fn(&Figure)) -> Vec<Curve> {
    let smoke = [16, 256];
    let all = if ground.options.smoke { &smoke[..] } else { &WINDOWS[..] };
    let streams = |contender: Contender, mix| {
        curve(contender.name(), all.iter().copied(), note, |window| {
            let load = Load::streams(mix, 8, window);
            on_postgres(ground.server, load, contender.name(), ground.round, ground.options)
        })
    };
    vec![streams(Contender::Streams, "spread"), streams(Contender::HotStreams, "hot")]
}

/// All rates on one server, so that it is as warm at the last as at the first.
fn over_rate(ground: &Ground<'_>, note: fn(&Figure)) -> Vec<Curve> {
    let smoke = [100, 200];
    let all = if ground.options.smoke { &smoke[..] } else { &RATES[..] };
    let contender = Contender::OpenLoop;
    let database = ground.server.database();
    let serving = Serving::start(database.url(), &[]);
    let mut points = Vec::new();
    for rate in all {
        let load = Load { rate: Some(*rate), ..Load::posts("spread", OPEN_LOOP_CONNECTIONS) };
        let report = load.run(serving.server.url(), &serving.token, Some(database.url()), ground.options);
        let figure = load.figure(contender.name(), ground.round, &report);
        note(&figure);
        let is_saturated = figure.per_second < 0.95 * f64::from(*rate);
        points.push((*rate, figure));
        if is_saturated {
            break;
        }
    }
    vec![Curve { name: contender.name(), points }]
}
