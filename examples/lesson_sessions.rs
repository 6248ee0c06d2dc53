//! A service that creates lesson sessions under ids that its clients make, behind the semaphore lock.
//!
//! `POST /lesson_sessions` with `{"uuid": "...", "course": "...", "minutes": 45}` makes one session and one study time, however
//! often and however many at once it is sent: 201 created, 204 already there, 202 when another request is at it (then
//! nothing was done, and nobody knows yet whether that one will succeed: ask again), 400 and 422 for what is no session, 503
//! when the lock's store or the database is away. `GET /counters` says how often each came.
//!
//! The lock keeps duplicates from racing; the unique constraint decides. Run it with `--lock none` to see the same rows, and
//! the violations that the lock would have kept away:
//!
//! ```text
//! cargo run --release --example lesson_sessions -- --database sqlite:lessons.db --lock memory
//! ```
//!
//! Owns HTTP and the lock; `lesson_sessions/sessions.rs` owns the rows.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::{App, HttpResponse, HttpServer, web};
use casework::lock::{
    DEFAULT_NAMESPACE, LockOutcome, LockStore, MemoryLockStore, RedisLockStore, SemaphoreLock, SqlLockStore,
};
use casework::store::{DatabaseUrl, SideTables, StoreError};
use clap::Parser;
use serde_json::{Value, json};

#[path = "lesson_sessions/sessions.rs"]
mod sessions;

use sessions::{Created, LessonSession, Refused, Sessions};

/// How long the lock stays shut when this process dies. Many times what creating takes, and renewed if that is not enough.
const LEASE_TTL: Duration = Duration::from_secs(10);
/// In seconds: when to ask again. Creating takes milliseconds; the header knows whole seconds.
const RETRY_AFTER_SECONDS: &str = "1";

/// Create lesson sessions once, behind a semaphore lock.
#[derive(Debug, Parser)]
#[command(name = "lesson_sessions")]
struct Arguments {
    /// Address and port; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8081")]
    listen: String,
    /// sqlite:PATH or postgres://USER@HOST/NAME
    #[arg(long, default_value = "sqlite:lesson_sessions.db")]
    database: DatabaseUrl,
    /// Where the lock is kept: memory (one process), sql (the same database), redis://HOST:PORT, or none
    #[arg(long, default_value = "memory")]
    lock: String,
    /// Threads that serve HTTP
    #[arg(long, default_value_t = 2)]
    workers: usize,
}

/// What all workers share. Made once: a lock in memory that each worker made for itself would lock nothing.
struct Service {
    sessions: Sessions,
    lock: Option<SemaphoreLock>,
    counters: Counters,
}

/// Answers by what they say, and what the constraint had to say.
#[derive(Default)]
struct Counters {
    created: AtomicU64,
    already_there: AtomicU64,
    skipped: AtomicU64,
    invalid: AtomicU64,
    unavailable: AtomicU64,
    unique_violations: AtomicU64,
}

fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let arguments = Arguments::parse();
    let sessions = Sessions::open(&arguments.database).await?;
    let lock = lock_store(&arguments).await?.map(SemaphoreLock::new);
    let service = web::Data::new(Service { sessions, lock, counters: Counters::default() });
    let server = HttpServer::new(move || {
        App::new()
            .app_data(service.clone())
            .route("/lesson_sessions", web::post().to(create))
            .route("/counters", web::get().to(counters))
    });
    let server = server.workers(arguments.workers).bind(&arguments.listen)?;
    for address in server.addrs() {
        tracing::info!("listening on http://{address} with the lock `{}`", lock_kind(&arguments.lock));
    }
    Ok(server.run().await?)
}

/// The store that `--lock` names.
async fn lock_store(arguments: &Arguments) -> Result<Option<Arc<dyn LockStore>>, Box<dyn Error>> {
    Ok(Some(match arguments.lock.as_str() {
        "none" => return Ok(None),
        "memory" => Arc::new(MemoryLockStore::default()),
        "sql" => {
            let store = SqlLockStore::new(SideTables::open(&arguments.database)?);
            store.create_tables().await?;
            Arc::new(store)
        }
        url => Arc::new(RedisLockStore::open(url)?),
    }))
}

/// Without the address of a Redis, which may hold a password.
fn lock_kind(lock: &str) -> &str {
    lock.split(':').next().unwrap_or(lock)
}

async fn create(service: web::Data<Service>, body: web::Bytes) -> HttpResponse {
    let counters = &service.counters;
    let session = match LessonSession::parse(&body) {
        Ok(session) => session,
        Err(refused) => {
            add_one(&counters.invalid);
            return refused_answer(refused);
        }
    };
    let Some(lock) = &service.lock else {
        return answer(&service, &session, service.sessions.create(&session).await);
    };
    let key = format!("lesson_session:{}", session.uuid);
    let work = |_| service.sessions.create(&session);
    match lock.with_semaphore_lock(&key, LEASE_TTL, DEFAULT_NAMESPACE, work).await {
        Ok(LockOutcome::Locked(created)) => {
            if matches!(created, Ok(Created::UniqueViolation)) {
                lock.violation(&key);
            }
            answer(&service, &session, created)
        }
        // The lock has logged it. Whoever holds it may yet roll back: never 204.
        Ok(LockOutcome::Skipped) => {
            add_one(&counters.skipped);
            HttpResponse::Accepted().insert_header((RETRY_AFTER, RETRY_AFTER_SECONDS)).finish()
        }
        Err(error) => unavailable(&service, &error),
    }
}

/// What became of the transaction.
fn answer(service: &Service, session: &LessonSession, created: Result<Created, StoreError>) -> HttpResponse {
    let counters = &service.counters;
    match created {
        Ok(Created::New) => {
            add_one(&counters.created);
            HttpResponse::Created().json(session)
        }
        Ok(Created::AlreadyThere) => {
            add_one(&counters.already_there);
            HttpResponse::NoContent().finish()
        }
        // The other one has committed, or the constraint would have let this one pass.
        Ok(Created::UniqueViolation) => {
            add_one(&counters.unique_violations);
            add_one(&counters.already_there);
            HttpResponse::NoContent().finish()
        }
        Err(error) => unavailable(service, &error),
    }
}

/// Nothing is known to have been done; the same request again is safe.
fn unavailable(service: &Service, error: &dyn Error) -> HttpResponse {
    add_one(&service.counters.unavailable);
    tracing::warn!(%error, "a lesson session could not be created");
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut answer = problem(status, "unavailable", "The service can't create sessions now; send it again.", json!([]));
    answer.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS.parse().expect("a number is a header"));
    answer
}

fn refused_answer(refused: Refused) -> HttpResponse {
    match refused {
        Refused::NoJson(words) => problem(StatusCode::BAD_REQUEST, "malformed-json", &words, json!([])),
        Refused::NoSession(errors) => {
            let detail = "This is no lesson session; nothing was stored.";
            problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-lesson-session", detail, json!(errors))
        }
    }
}

/// A problem document (RFC 9457).
fn problem(status: StatusCode, code: &str, detail: &str, errors: Value) -> HttpResponse {
    let title = status.canonical_reason().unwrap_or_default();
    let body = json!({
        "type": format!("/problems/{code}"), "code": code, "title": title, "status": status.as_u16(), "detail": detail,
        "errors": errors,
    });
    HttpResponse::build(status).insert_header((CONTENT_TYPE, "application/problem+json")).body(body.to_string())
}

async fn counters(service: web::Data<Service>) -> HttpResponse {
    let counters = &service.counters;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    HttpResponse::Ok().json(json!({
        "created": read(&counters.created),
        "already_there": read(&counters.already_there),
        "skipped": read(&counters.skipped),
        "invalid": read(&counters.invalid),
        "unavailable": read(&counters.unavailable),
        "unique_violations": read(&counters.unique_violations),
        "lock": service.lock.as_ref().map(SemaphoreLock::counts),
    }))
}
