//! The contenders as servers: one handler on actix-web and the same on axum, each alone and behind its layer.
//!
//! Owns their set-up, two threads each, and the sessions without which `axum-idempotent` does nothing. Each says where it
//! listens and serves until its standard input closes, so that it can't outlive the benchmark.

use std::io::Read as _;
use std::sync::Arc;

use actix_web::dev::Service as _;
use actix_web::http::header::COOKIE;
use actix_web::{App, HttpResponse, HttpServer, web};
use axum::response::IntoResponse as _;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use casework::idempotency::{
    Idempotency, IdempotencyOptions, IdempotencyStore, MemoryBounds, MemoryStore, RedisStore, SqlStore,
};
use ruts::store::Ttl;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, Session, SessionLayer};

/// What the handler answers.
const PAYMENT: &str = r#"{"payment":"0d5b8f3e-42a1-4c61-9a52-7a1f0e6d3c01","status":"accepted","amount":{"value":"125.50","currency":"EUR"},"recorded_at":"2026-12-01T09:30:00Z"}"#;
const LOCATION: &str = "/payments/0d5b8f3e-42a1-4c61-9a52-7a1f0e6d3c01";
/// Threads that serve.
const THREADS: usize = 2;
/// In seconds: longer than any run.
const KEPT_SECONDS: i64 = 3600;

/// The handler alone.
pub fn serve_actix() {
    serve(None);
}

/// The handler behind the layer.
pub fn serve_layer(store: &str) {
    serve(Some(store));
}

async fn store_of(name: &str) -> Arc<dyn IdempotencyStore> {
    match name {
        "memory" => Arc::new(MemoryStore::new(MemoryBounds::default())),
        redis if redis.starts_with("redis:") => Arc::new(RedisStore::open(redis).unwrap()),
        url => {
            let store = SqlStore::open(&url.parse().unwrap()).unwrap();
            store.create_tables().await.unwrap();
            Arc::new(store)
        }
    }
}

fn serve(store: Option<&str>) {
    actix_web::rt::System::new().block_on(async move {
        let layer = match store {
            Some(name) => {
                let layer = Idempotency::new(store_of(name).await);
                Some(layer.principal_from(COOKIE, IdempotencyOptions::default()).unwrap())
            }
            None => None,
        };
        let payments = || web::post().to(charge);
        let server = HttpServer::new(move || {
            let app = App::new().route("/session", web::post().to(start_session));
            match &layer {
                Some(layer) => app.service(web::resource("/payments").wrap(layer.clone()).route(payments())),
                // A wrapper that does nothing: both apps have the same shape.
                None => app
                    .service(web::resource("/payments").wrap_fn(|request, next| next.call(request)).route(payments())),
            }
        });
        let server = server.workers(THREADS).tcp_nodelay(true).disable_signals().bind("127.0.0.1:0").unwrap();
        eprintln!("listening on http://{} ", server.addrs()[0]);
        let running = actix_web::rt::spawn(server.run());
        actix_web::rt::task::spawn_blocking(wait_for_end).await.unwrap();
        running.abort();
        std::process::exit(0);
    });
}

async fn charge(_body: web::Bytes) -> HttpResponse {
    HttpResponse::Created().insert_header(("location", LOCATION)).content_type("application/json").body(PAYMENT)
}

async fn start_session() -> HttpResponse {
    // As long as the other one's.
    let cookie = format!("session={}", uuid::Uuid::new_v4().simple());
    HttpResponse::Ok().insert_header(("set-cookie", cookie)).finish()
}

/// The handler alone, on axum.
pub fn serve_axum() {
    let session = axum::routing::post(|| async { [("set-cookie", "session=0d5b8f3e42a14c619a527a1f0e6d3c01")] });
    serve_router(
        axum::Router::new().route("/payments", axum::routing::post(charge_on_axum)).route("/session", session),
    );
}

/// The handler behind `axum-idempotent`: its own store in memory, the key as it came (which leaves out the fingerprint).
pub fn serve_axum_idempotent() {
    let store = Arc::new(MokaStore::builder().build());
    let options = IdempotentOptions::default().use_idempotency_key_header(Some("idempotency-key"), true);
    let cookies = CookieOptions::build().name("session").max_age(KEPT_SECONDS.unsigned_abs()).path("/");
    let app = axum::Router::new()
        .route("/payments", axum::routing::post(charge_on_axum))
        .layer(IdempotentLayer::<MokaStore>::new(options.expire_after(KEPT_SECONDS)))
        .route("/session", axum::routing::post(start_session_on_axum))
        .layer(SessionLayer::new(store).with_cookie_options(cookies))
        .layer(tower_cookies::CookieManagerLayer::new());
    serve_router(app);
}

async fn start_session_on_axum(session: Session<MokaStore>) {
    session.set("user", &"47".to_owned(), Ttl::new(KEPT_SECONDS).unwrap(), None).await.unwrap();
}

async fn charge_on_axum(_body: axum::body::Bytes) -> axum::response::Response {
    let headers = [("location", LOCATION), ("content-type", "application/json")];
    (axum::http::StatusCode::CREATED, headers, PAYMENT).into_response()
}

fn serve_router(app: axum::Router) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().unwrap();
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        eprintln!("listening on http://{} ", listener.local_addr().unwrap());
        let listener = axum::serve::ListenerExt::tap_io(listener, |socket: &mut tokio::net::TcpStream| {
            socket.set_nodelay(true).unwrap();
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        tokio::task::spawn_blocking(wait_for_end).await.unwrap();
        std::process::exit(0);
    });
}

fn wait_for_end() {
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
