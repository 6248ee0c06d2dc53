//! Load on a running server: many commands, timed, counted and checked.
//!
//! Owns the words: what is sent ([`Mix`], [`LoadOptions`]) and what came of it ([`LoadReport`]). Each answer is checked: an
//! applied command must be new, a repeat must get the bytes of the first answer. An error of the server is counted and no
//! failure of the load. Fails with [`LoadError`] where the load can't begin.

mod mix;
mod post;
mod server;
mod stream;
mod tally;
mod timetable;

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

pub use mix::Mix;
pub use server::{InvalidLoadTarget, LoadServer};
pub use tally::LoadReport;

use mix::Generator;
use tally::Tally;
use timetable::Timetable;

/// How a server is loaded.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// What is sent.
    pub mix: Mix,
    /// Over how many cases, at least 1. They are opened anew for each run.
    pub cases: usize,
    /// How many connections send at once, at least 1.
    pub connections: usize,
    /// Lines in flight on each connection, as one NDJSON stream; `None`: one POST after another.
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
    server: LoadServer,
    generator: Generator,
    timetable: Timetable,
    tally: Tally,
}

/// Opens the cases, loads the server, and returns what was seen. `observe` is called about ten times a second with the number
/// of answers so far. Must be called on a thread with a `LocalSet` or inside an actix system.
///
/// # Errors
/// [`LoadError`].
pub async fn load(
    server: &LoadServer,
    options: &LoadOptions,
    mut observe: impl FnMut(u64),
) -> Result<LoadReport, LoadError> {
    let generator = Generator::new(options.mix, options.cases.max(1));
    prepare(server, &generator).await?;
    let timetable = Timetable::new(Instant::now(), options.rate, options.warm_up, options.duration);
    let shared = Rc::new(Shared { server: server.clone(), generator, timetable, tally: Tally::default() });
    let mut connections = JoinSet::new();
    for _ in 0..options.connections.max(1) {
        let shared = shared.clone();
        match options.stream_window {
            None => connections.spawn_local(post::run(shared)),
            Some(window) => connections.spawn_local(stream::run(shared, window.max(1))),
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

/// Opens every case, and sends the commands whose outcomes a mix repeats.
async fn prepare(server: &LoadServer, generator: &Generator) -> Result<(), LoadError> {
    let mut stream = stream::LineStream::open(server, stream::PREPARE_WINDOW).await.map_err(LoadError::Unreachable)?;
    for planned in generator.opens().chain(generator.first_sendings()) {
        if stream.is_full() {
            settle_one(&mut stream, generator).await?;
        }
        stream.send(generator, planned, Instant::now()).await;
    }
    while !stream.is_empty() {
        settle_one(&mut stream, generator).await?;
    }
    Ok(())
}

async fn settle_one(stream: &mut stream::LineStream, generator: &Generator) -> Result<(), LoadError> {
    let (planned, _, answer) = stream.answer().await.map_err(LoadError::Unreachable)?;
    if !matches!(answer.status, 200 | 201) || answer.replayed {
        return Err(LoadError::Refused(answer.code()));
    }
    generator.note_outcome(&planned, answer.body);
    Ok(())
}
