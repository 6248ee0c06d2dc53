//! The server of a guard: sockets, workers, probes, and the way down.
//!
//! Owns the order of a shutdown: readiness turns 503 and new requests under a key are refused at once; what runs under
//! one is answered and its answer stored, also where its client has hung up; then nothing new is let in, and the rest is
//! answered to the end of its bodies; then the sockets close. Never restarts anything by itself.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::header::CACHE_CONTROL;
use actix_web::{App, HttpResponse, HttpServer, web};
use tokio::signal::unix::{SignalKind, signal};

use super::forward::{Upstream, forward};
use super::health::Health;
use super::routes::{Guard, GuardSetupError};
use crate::metrics::TEXT_MEDIA_TYPE;

/// How long an idle connection of a client is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a client may take to send the head of a request.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the guard goes on to answer after the signal at least, so that whoever asks learns that it goes away.
const DRAIN_NOTICE: Duration = Duration::from_millis(500);
/// How long the last answers may take to leave, in whole seconds.
const CLOSE_SECONDS_MAX: u64 = 2;
/// The probes, below the health path.
const LIVE: &str = "/healthz";
const READY: &str = "/readyz";

/// How a guard runs.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Threads that carry requests. Too few bound throughput; more than cores gain nothing.
    pub workers: usize,
    /// How long requests that run may take to end after the signal. Those that take longer are cut off, and their keys wait
    /// for the end of their leases.
    pub drain_timeout: Duration,
}

/// Where a guard is reached.
#[derive(Debug)]
pub struct Listeners {
    /// For clients.
    pub main: TcpListener,
    /// For `/metrics`; `None`: they are not shown.
    pub metrics: Option<TcpListener>,
}

/// Whether what follows the health path is a probe: nothing else below it is the guard's.
pub(super) fn is_probe(rest: &str) -> bool {
    matches!(rest, LIVE | READY)
}

/// Serves until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// What the system says about the sockets, the signals or the threads.
pub async fn serve(listeners: Listeners, guard: Guard, options: ServerOptions) -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let metrics = listeners.metrics.map(|listener| metrics_server(listener, guard.clone())).transpose()?;
    let metrics_handle = metrics.as_ref().map(Server::handle);
    metrics.map(actix_web::rt::spawn);
    // Said here, where it is a sentence and not a panic of a worker.
    Upstream::new(guard.0.upstream.clone(), guard.0.counts.clone())
        .map_err(|error| io::Error::other(GuardSetupError::Client(error.to_string())))?;
    let server = main_server(listeners.main, guard.clone(), options.workers)?;
    let handle = server.handle();
    let mut running = actix_web::rt::spawn(server);
    tokio::select! {
        ended = &mut running => return ended.unwrap_or_else(|error| Err(io::Error::other(error))),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("shutting down: new requests under a key are refused, those that run are answered");
    let drained = tokio::time::timeout(options.drain_timeout, guard.drain());
    let (drained, ()) = tokio::join!(drained, tokio::time::sleep(DRAIN_NOTICE));
    if drained.is_err() {
        tracing::warn!("some requests still run; they are cut off, and their keys wait for the end of their leases");
    }
    handle.stop(true).await;
    if let Some(metrics) = metrics_handle {
        metrics.stop(false).await;
    }
    running.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn main_server(listener: TcpListener, guard: Guard, workers: usize) -> io::Result<Server> {
    let server = HttpServer::new(move || {
        let upstream = Upstream::new(guard.0.upstream.clone(), guard.0.counts.clone());
        let upstream = upstream.expect("one like it was made before the workers were started");
        let (health_path, ready_guard) = (&guard.0.health_path, guard.clone());
        App::new()
            .app_data(web::Data::new(upstream))
            .wrap(guard.clone())
            .route(&format!("{health_path}{LIVE}"), web::get().to(async || Health::live()))
            .route(
                &format!("{health_path}{READY}"),
                web::get().to(move || {
                    let guard = ready_guard.clone();
                    async move { guard.0.health.ready().await }
                }),
            )
            .default_service(web::to(forward))
    });
    let server = server
        .workers(workers)
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(REQUEST_HEAD_TIMEOUT)
        .tcp_nodelay(true)
        .shutdown_timeout(CLOSE_SECONDS_MAX)
        .disable_signals()
        .listen(listener)?
        .run();
    Ok(server)
}

fn metrics_server(listener: TcpListener, guard: Guard) -> io::Result<Server> {
    let server = HttpServer::new(move || {
        let guard = guard.clone();
        let expose = move || {
            let text = guard.metrics_text();
            async move {
                HttpResponse::Ok().content_type(TEXT_MEDIA_TYPE).insert_header((CACHE_CONTROL, "no-store")).body(text)
            }
        };
        App::new().route("/metrics", web::get().to(expose))
    });
    let server = server.workers(1).keep_alive(KEEP_ALIVE).client_request_timeout(REQUEST_HEAD_TIMEOUT);
    Ok(server.shutdown_timeout(CLOSE_SECONDS_MAX).disable_signals().listen(listener)?.run())
}
