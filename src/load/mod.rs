//! Load on a running server, or on a gateway in this process: many commands, timed, counted and checked.
//!
//! Owns the words: what is sent ([`Mix`], [`LoadOptions`]) and what came of it ([`LoadReport`]). Each answer is checked: an
//! applied command must be new, a repeat must get the bytes of the first answer. An error of the server is counted and no
//! failure of the load. Fails with [`LoadError`] where the load can't begin.

mod gateway;
mod mix;
mod pacer;
mod post;
mod server;
mod stream;
mod tally;
mod timetable;

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::actor::CommandGateway;

pub use mix::Mix;
pub use server::{InvalidLoadTarget, LoadServer};
pub use tally::LoadReport;

use mix::{Generator, Planned};
use pacer::Pacer;
use tally::{LoadAnswer, Tally};
use timetable::Timetable;

/// What is loaded.
#[derive(Clone)]
pub enum LoadTarget {
    /// A server, over HTTP.
    Server(LoadServer),
    /// A gateway in this process: what is left when HTTP is taken away.
    Gateway(CommandGateway),
}

/// How it is loaded.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// What is sent.
    pub mix: Mix,
    /// Over how many cases, at least 1. They are opened anew for each run.
    pub cases: usize,
    /// How many connections send at once, at least 1; in process, how many commands are in flight.
    pub connections: usize,
    /// Lines in flight on each connection, as one NDJSON stream; `None`: one POST after another. In process it means nothing.
    pub stream_window: Option<usize>,
    /// Commands a second over all connections, each timed from when it should have been sent (open loop); `None`: each
    /// connection sends as soon as it has its answer (closed loop).
    pub rate: Option<f64>,
    /// How long answers are not counted yet.
    pub warm_up: Duration,
    /// How long they are.
    pub duration: Duration,
}

/// Why a load could not begin.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The server does not do what the preparation asks.
    #[error("the cases for the load can't be made: {0}")]
    Refused(String),
}

/// What the connections share; all on one thread.
struct Shared {
    generator: Generator,
    timetable: Timetable,
    pacer: Pacer,
    tally: Tally,
}

/// Opens the cases, loads the server, and returns what was seen. `observe` is called about ten times a second with the number
/// of answers so far. Must be called on a thread with a `LocalSet` or inside an actix system.
///
/// # Errors
/// [`LoadError`].
pub async fn load(
    target: &LoadTarget,
    options: &LoadOptions,
    mut observe: impl FnMut(u64),
) -> Result<LoadReport, LoadError> {
    let generator = Generator::new(options.mix, options.cases.max(1));
    match target {
        LoadTarget::Server(server) => stream::prepare(server, &generator).await?,
        LoadTarget::Gateway(gateway) => gateway::prepare(gateway, &generator).await?,
    }
    let timetable = Timetable::new(Instant::now(), options.rate, options.warm_up, options.duration);
    let shared = Rc::new(Shared { generator, timetable, pacer: Pacer::start(), tally: Tally::default() });
    let mut connections = JoinSet::new();
    for _ in 0..options.connections.max(1) {
        let shared = shared.clone();
        match (target, options.stream_window) {
            (LoadTarget::Gateway(gateway), _) => connections.spawn_local(gateway::run(shared, gateway.clone())),
            (LoadTarget::Server(server), None) => connections.spawn_local(post::run(shared, server.clone())),
            (LoadTarget::Server(server), Some(window)) => {
                connections.spawn_local(stream::run(shared, server.clone(), window.max(1)))
            }
        };
    }
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            ended = connections.join_next() => match ended {
                None => break,
                Some(ended) => ended.expect("a connection counts what goes wrong and does not panic"),
            },
            _ = tick.tick() => observe(shared.tally.answers()),
        }
    }
    Ok(shared.tally.report(options.duration))
}

/// Takes the answer to a command of the preparation.
fn note_prepared(generator: &Generator, planned: &Planned, answer: LoadAnswer) -> Result<(), LoadError> {
    match answer {
        LoadAnswer::Outcome { body, is_repeat: false } => {
            generator.note_outcome(planned, body);
            Ok(())
        }
        LoadAnswer::Outcome { .. } => Err(LoadError::Refused("a new command is answered as a repeat".into())),
        LoadAnswer::Problem(code) => Err(LoadError::Refused(code)),
    }
}
