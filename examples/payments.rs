//! A service that charges payments behind the idempotency layer: however often a payment is sent under one
//! `Idempotency-Key`, and however many at once, it is charged once, and everybody gets the same answer.
//!
//! `POST /payments` with `{"amount": "125.50", "currency": "EUR", "debtor": "47"}` answers 201 and where the payment is;
//! `POST /statements?megabytes=N` streams that much, which the layer keeps without its body; `GET /charges` says how often
//! a payment was charged, and `GET /metrics` what the layer did, for Prometheus. Callers say who they are in
//! `Authorization`; the layer keeps the keys of one apart from those of another. Ctrl-C waits for what is running.
//!
//! ```text
//! cargo run --release --example payments -- --store redis://127.0.0.1:6379
//! curl -i http://127.0.0.1:8082/payments -H 'Authorization: Bearer 47' -H 'Content-Type: application/json' \
//!   -H 'Idempotency-Key: 0d5b8f3e-42a1-4c61-9a52-7a1f0e6d3c01' -d '{"amount":"125.50","currency":"EUR","debtor":"47"}'
//! ```
//!
//! Owns HTTP and a count in memory in the place of a bank. A store that is away is the layer's to answer for: 503, and
//! nothing is charged.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use actix_web::{App, HttpResponse, HttpServer, web};
use bytes::Bytes;
use casework::idempotency::{
    Idempotency, IdempotencyOptions, IdempotencyStore, MemoryBounds, MemoryStore, RedisStore, SqlStore,
};
use clap::Parser;
use prometheus::{Encoder as _, Registry, TextEncoder};
use serde::{Deserialize, Serialize};

/// Charge payments once, behind the idempotency layer.
#[derive(Debug, Parser)]
#[command(name = "payments")]
struct Arguments {
    /// Address and port; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8082")]
    listen: String,
    /// Where answers are kept: memory (one process), redis://HOST:PORT, sqlite:PATH or postgres://USER@HOST/NAME
    #[arg(long, default_value = "memory")]
    store: String,
    /// Threads that serve HTTP
    #[arg(long, default_value_t = 2)]
    workers: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payment {
    amount: String,
    currency: String,
    debtor: String,
}

#[derive(Debug, Deserialize)]
struct Statement {
    megabytes: u32,
}

/// What all workers share.
#[derive(Default)]
struct Service {
    charges: AtomicU64,
    registry: Registry,
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let arguments = Arguments::parse();
    // Once a process: a memory store that each worker made for itself would know its own requests alone.
    let layer = Idempotency::new(store(&arguments.store).await?);
    let layer = layer.principal_from(AUTHORIZATION, IdempotencyOptions::default())?;
    let service = web::Data::new(Service::default());
    layer.register(&service.registry, "payments")?;
    let (layer_of_app, service_of_app) = (layer.clone(), service.clone());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(service_of_app.clone())
            .wrap(layer_of_app.clone())
            .route("/payments", web::post().to(charge))
            .route("/statements", web::post().to(statement))
            .route("/charges", web::get().to(charges))
            .route("/metrics", web::get().to(metrics))
    });
    let server = server.workers(arguments.workers).disable_signals().bind(&arguments.listen)?;
    for address in server.addrs() {
        tracing::info!("listening on http://{address} with the store `{}`", kind(&arguments.store));
    }
    let server = server.run();
    let handle = server.handle();
    let running = actix_web::rt::spawn(server);
    tokio::signal::ctrl_c().await?;
    // Also for requests whose client has hung up, for which the server itself would not wait.
    layer.drain().await;
    handle.stop(true).await;
    Ok(running.await??)
}

/// The store that `--store` names.
async fn store(name: &str) -> Result<Arc<dyn IdempotencyStore>, Box<dyn Error>> {
    Ok(match name {
        "memory" => Arc::new(MemoryStore::new(MemoryBounds::default())),
        url if url.starts_with("redis") => Arc::new(RedisStore::open(url)?),
        url => {
            let store = SqlStore::open(&url.parse()?)?;
            store.create_tables().await?;
            Arc::new(store)
        }
    })
}

/// Without the address, which may hold a password.
fn kind(store: &str) -> &str {
    store.split(':').next().unwrap_or(store)
}

async fn charge(service: web::Data<Service>, payment: web::Json<Payment>) -> HttpResponse {
    let number = service.charges.fetch_add(1, Ordering::SeqCst) + 1;
    let body = serde_json::json!({"payment": number, "charged": payment.into_inner()});
    HttpResponse::Created().insert_header((LOCATION, format!("/payments/{number}"))).json(body)
}

/// Made part by part while it is sent: at no time is the whole of it anywhere.
async fn statement(asked: web::Query<Statement>) -> HttpResponse {
    let parts = (0..asked.megabytes).map(|_| Ok::<_, actix_web::Error>(Bytes::from(vec![b'.'; 1 << 20])));
    HttpResponse::Ok().content_type("text/plain").streaming(futures_util::stream::iter(parts))
}

async fn charges(service: web::Data<Service>) -> HttpResponse {
    HttpResponse::Ok().json(serde_json::json!({"charges": service.charges.load(Ordering::SeqCst)}))
}

async fn metrics(service: web::Data<Service>) -> HttpResponse {
    let (encoder, mut text) = (TextEncoder::new(), Vec::new());
    encoder.encode(&service.registry.gather(), &mut text).expect("a Vec takes what is written");
    HttpResponse::Ok().insert_header((CONTENT_TYPE, encoder.format_type())).body(text)
}
