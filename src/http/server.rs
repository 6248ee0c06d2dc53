//! The server: sockets, workers, and the way down.
//!
//! Owns the order of a shutdown: readiness goes to 503 and new commands are refused at once; what was admitted commits and
//! is answered; then the sockets close. It ends within ten seconds of the signal. Never restarts anything by itself.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::{App, HttpServer, web};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::auth::Authenticator;
use super::exchange::{ServerState, Surface};
use super::metrics::ProblemCounters;
use super::routes;
use crate::actor::CommandGateway;

/// How long an idle connection is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a client may take to send the head of a request.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server goes on to answer after the signal at least, so that whoever asks learns that it goes away.
const DRAIN_NOTICE: Duration = Duration::from_millis(500);
/// How long the last answers may take to leave once everything is decided, in whole seconds.
const CLOSE_SECONDS_MAX: u64 = 2;

/// How a server runs.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Threads that read requests and write answers. Too few bound throughput; more than cores gain nothing.
    pub workers: usize,
    /// How long admitted commands may take to be answered after the signal. With the time to close, below 10 s.
    pub drain_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { workers: 2, drain_timeout: Duration::from_secs(6) }
    }
}

/// Where a server is reached.
#[derive(Debug)]
pub struct Listeners {
    /// For commands and reads.
    pub main: TcpListener,
    /// For `/metrics`, which the main one then has not; `None`: the main one has it.
    pub metrics: Option<TcpListener>,
}

/// Serves until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// What the system says about the sockets, the signals or the threads.
pub async fn serve(listeners: Listeners, gateway: CommandGateway, options: ServerOptions) -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    serve_until(listeners, gateway, options, stop).await
}

/// Serves until `stop` completes, then drains. Needs an actix system around it.
///
/// # Errors
/// What the system says about the sockets or the threads.
pub async fn serve_until(
    listeners: Listeners,
    gateway: CommandGateway,
    options: ServerOptions,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let ((drain, draining), (end, ending)) = (watch::channel(false), watch::channel(false));
    let authenticator = Authenticator::new(gateway.database().clone());
    let problems = ProblemCounters::new(gateway.metrics());
    let surface = if listeners.metrics.is_some() { Surface::AllButMetrics } else { Surface::All };
    let state = ServerState { surface, gateway: gateway.clone(), problems, authenticator, draining, ending };
    let of_metrics = ServerState { surface: Surface::Metrics, ..state.clone() };
    let metrics = listeners.metrics.map(|listener| run(listener, of_metrics, 1)).transpose()?;
    let metrics_handle = metrics.as_ref().map(Server::handle);
    metrics.map(actix_web::rt::spawn);
    let server = run(listeners.main, state, options.workers)?;
    let handle = server.handle();
    let mut running = actix_web::rt::spawn(server);
    tokio::select! {
        ended = &mut running => return ended.unwrap_or_else(|error| Err(io::Error::other(error))),
        () = stop => {}
    }
    tracing::info!("shutting down: new commands are refused, admitted ones are answered");
    // The receivers are with the workers; should they be gone, there is nobody left to tell.
    let _ = drain.send(true);
    gateway.begin_drain();
    let answered = tokio::time::timeout(options.drain_timeout, gateway.drained());
    let (answered, ()) = tokio::join!(answered, tokio::time::sleep(DRAIN_NOTICE));
    if answered.is_err() {
        tracing::warn!("some admitted commands are not settled; their clients are told to send them again");
        let _ = end.send(true);
    }
    handle.stop(true).await;
    // Last, so that it shows how the shutdown goes on.
    if let Some(metrics) = metrics_handle {
        metrics.stop(false).await;
    }
    running.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// A server on one socket. It leaves signals alone and runs until it is stopped.
fn run(listener: TcpListener, state: ServerState, workers: usize) -> io::Result<Server> {
    let state = web::Data::new(state);
    let server = HttpServer::new(move || App::new().app_data(state.clone()).default_service(web::to(routes::answer)))
        .workers(workers)
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(REQUEST_HEAD_TIMEOUT)
        // Answers to lines of a stream are small and must not wait for one another.
        .tcp_nodelay(true)
        .shutdown_timeout(CLOSE_SECONDS_MAX)
        .disable_signals()
        .listen(listener)?
        .run();
    Ok(server)
}
