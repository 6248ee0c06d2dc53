//! A service that is no part of Casework, behind the layer: it counts how often it ran.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderName;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::ServerHandle, web};
use bytes::Bytes;
use casework::idempotency::{Idempotency, IdempotencyOptions, IdempotencyStore};
use futures_util::StreamExt;

/// How often each path was run.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<HashMap<String, u64>>>);

impl Runs {
    /// One more run; returns which it is.
    pub fn add(&self, path: &str) -> u64 {
        let mut runs = self.0.lock().unwrap();
        let count = runs.entry(path.to_owned()).or_default();
        *count += 1;
        *count
    }

    pub fn of(&self, path: &str) -> u64 {
        self.0.lock().unwrap().get(path).copied().unwrap_or(0)
    }
}

/// A running service. It is stopped when the handle is dropped.
pub struct Service {
    address: SocketAddr,
    handle: ServerHandle,
    thread: Option<std::thread::JoinHandle<()>>,
    pub layer: Idempotency,
    pub runs: Runs,
}

impl Service {
    /// Starts it with four workers, the principal in `x-user`.
    pub fn start(store: Arc<dyn IdempotencyStore>, options: IdempotencyOptions) -> Self {
        Self::start_with(store, options, Runs::default())
    }

    /// The same with counts that another process shares.
    pub fn start_with(store: Arc<dyn IdempotencyStore>, options: IdempotencyOptions, runs: Runs) -> Self {
        let user = HeaderName::from_static("x-user");
        let layer = Idempotency::new(store).principal_from(user, options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let (layer_of_app, runs_of_app) = (layer.clone(), runs.clone());
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = HttpServer::new(move || {
                    App::new()
                        .app_data(web::Data::new(runs_of_app.clone()))
                        // More than the layer lets through: what is refused, it refuses.
                        .app_data(web::PayloadConfig::new(2 << 20))
                        .app_data(web::JsonConfig::default().limit(2 << 20))
                        .wrap(layer_of_app.clone())
                        .route("/routed/{name}", web::post().to(handle))
                        .route("/as/json", web::post().to(echo_json))
                        .route("/as/payload", web::post().to(echo_payload))
                        .default_service(web::to(handle))
                });
                let server = server.workers(4).disable_signals().listen(listener).unwrap().run();
                sender.send(server.handle()).unwrap();
                server.await.unwrap();
            });
        });
        Self { address, handle: receiver.recv().unwrap(), thread: Some(thread), layer, runs }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stops it, as SIGTERM would, and waits for its end.
    pub fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(self.handle.stop(true));
            thread.join().unwrap();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads its body as JSON.
async fn echo_json(body: web::Json<serde_json::Value>) -> HttpResponse {
    HttpResponse::Ok().json(body.into_inner())
}

/// Reads its body as it comes, as a reader of forms does.
async fn echo_payload(mut body: web::Payload) -> Result<HttpResponse, actix_web::Error> {
    let mut read = Vec::new();
    while let Some(chunk) = body.next().await {
        read.extend_from_slice(&chunk?);
    }
    Ok(HttpResponse::Ok().body(read))
}

/// Waits until a path was run so often.
async fn until(runs: &Runs, path: &str, count: u64) {
    crate::support::wait::eventually_async(Duration::from_secs(30), path, || async { runs.of(path) >= count }).await;
}

/// What the path says: `/created`, `/late/CODE/NAME` (the first run goes on until there is a second one, and ends with the code;
/// the second until somebody runs `/go/NAME`), `/slow/MILLISECONDS`, `/status/CODE`, `/then/CODE` (that code first, 200 afterwards),
/// `/error`, `/panic`, `/bytes/COUNT`, `/stream`, `/echo`, `/thread`.
async fn handle(request: HttpRequest, runs: web::Data<Runs>, body: Bytes) -> Result<HttpResponse, actix_web::Error> {
    let path = request.path().to_owned();
    let run = runs.add(&path);
    let (kind, argument) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let status = |code: &str| StatusCode::from_u16(code.parse().unwrap()).unwrap();
    Ok(match kind {
        "created" => HttpResponse::Created()
            .insert_header(("location", format!("/things/{run}")))
            .insert_header(("etag", format!("\"{run}\"")))
            .insert_header(("set-cookie", "session=47"))
            .json(serde_json::json!({ "run": run })),
        "slow" => {
            tokio::time::sleep(Duration::from_millis(argument.parse().unwrap())).await;
            HttpResponse::Created().json(serde_json::json!({ "run": run }))
        }
        "late" if run == 1 => {
            until(&runs, &path, 2).await;
            HttpResponse::build(status(&argument[..3])).body("of the first owner")
        }
        "late" => {
            until(&runs, &format!("/go/{}", &argument[4..]), 1).await;
            HttpResponse::Created().body("of the second owner")
        }
        "status" => HttpResponse::build(status(argument)).finish(),
        "then" if run == 1 => HttpResponse::build(status(argument)).body("first"),
        "error" => return Err(actix_web::error::ErrorBadRequest("a raised error")),
        "panic" => panic!("a handler that panics, on purpose"),
        "bytes" => HttpResponse::Ok().body(vec![b'x'; argument.parse().unwrap()]),
        "stream" => {
            let chunks = futures_util::stream::iter(0..5).then(|i| async move {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Ok::<_, actix_web::Error>(Bytes::from(format!("chunk {i}\n")))
            });
            // The first part comes at once.
            let start = futures_util::stream::iter([Ok(Bytes::from_static(b"start\n"))]);
            HttpResponse::Ok().streaming(start.chain(chunks))
        }
        "echo" => HttpResponse::Ok().body(body),
        "thread" => HttpResponse::Ok().body(std::thread::current().name().unwrap_or_default().to_owned()),
        _ => HttpResponse::Ok().json(serde_json::json!({ "run": run })),
    })
}

/// A client with connections of its own.
pub fn client() -> reqwest::Client {
    // Somebody else of this process may have named a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Sends a POST on a connection of its own and returns status, headers of interest and body.
pub async fn post(service: &Service, path: &str, key: &str, body: &str) -> Got {
    send(service, reqwest::Method::POST, path, &[("idempotency-key", key), ("x-user", "47")], body).await
}

/// The same with everything to choose.
pub async fn send(service: &Service, method: reqwest::Method, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
    // A client of its own: a new connection, which may reach another worker.
    let mut request = client().request(method, service.url(path)).body(body.to_owned());
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, reqwest::header::HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Got { status, headers, body: response.bytes().await.unwrap() }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Got {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Bytes,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replay") == Some("true")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    pub fn expect_problem(&self, status: u16, code: &str) -> serde_json::Value {
        assert_eq!((self.status, self.header("content-type")), (status, Some("application/problem+json")), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        problem
    }
}
