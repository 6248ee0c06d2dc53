//! The HTTP side of the peers that have one: the same requests as Casework takes, read as strictly, on actix-web with the
//! same settings.
//!
//! Owns sockets and parsing. What a command comes to is a [`Backend`]'s. Serves until its standard input closes, so that it
//! can't outlive the comparison. Knows only what a load sends: anything else gets a bare status.

use std::future::Future;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use bytes::Bytes;
use casework::command_log::{LineRules, StreamLineReader, parse_line};
use casework::domain::{ActorId, CaseId, Command, CommandDraft, CommandName, Members, OperationId, parse_strict};
use futures_util::StreamExt as _;

/// Who sends the commands of a load.
const SUBJECT: &str = "load";

/// What stands behind the HTTP side.
pub trait Backend: Send + Sync + 'static {
    /// The outcome of a command that was sent by POST, and whether it is said to be a repeat; `None`: it failed.
    fn post(&self, draft: CommandDraft) -> impl Future<Output = Option<(String, bool)>>;

    /// The outcome of a line.
    fn line(&self, command: Command) -> impl Future<Output = Option<String>>;
}

/// Serves a backend on a free port and says which.
pub fn serve<B: Backend>(backend: B) {
    let backend: web::Data<B> = Arc::new(backend).into();
    actix_web::rt::System::new().block_on(async move {
        let server = HttpServer::new(move || {
            App::new()
                .app_data(backend.clone())
                .service(web::resource("/v1/commands").route(web::post().to(stream::<B>)))
                .service(web::resource("/v1/cases/{case_id}/{command}").route(web::post().to(post::<B>)))
        })
        // As `casework serve` has it.
        .workers(2)
        .keep_alive(Duration::from_secs(75))
        .tcp_nodelay(true)
        .disable_signals()
        .bind("127.0.0.1:0")
        .unwrap();
        eprintln!("listening on http://{} ", server.addrs()[0]);
        let running = actix_web::rt::spawn(server.run());
        let input_closed = actix_web::rt::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        input_closed.await.unwrap().unwrap();
        running.abort();
        std::process::exit(0);
    });
}

fn is_authorized(headers: &HeaderMap) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"Bearer "))
}

/// Reads a request as strictly as Casework does.
fn read(request: &HttpRequest, path: &(String, String), body: &[u8]) -> Option<CommandDraft> {
    if !is_authorized(request.headers()) {
        return None;
    }
    let key = request.headers().get("idempotency-key")?.to_str().ok()?;
    let serde_json::Value::Object(mut object) = parse_strict(body).ok()? else { return None };
    let mut errors = Vec::new();
    let members = Members::take(&mut object, &mut errors);
    (errors.is_empty() && object.is_empty()).then_some(())?;
    Some(CommandDraft {
        case_id: CaseId::parse(&path.0).ok()?,
        operation_id: OperationId::parse_key(key).ok()?,
        actor: ActorId::from_stored(SUBJECT),
        name: CommandName::parse(&path.1).ok()?,
        members,
    })
}

async fn post<B: Backend>(
    request: HttpRequest,
    path: web::Path<(String, String)>,
    body: Bytes,
    backend: web::Data<B>,
) -> HttpResponse {
    let Some(draft) = read(&request, &path, &body) else { return HttpResponse::BadRequest().finish() };
    let Some((outcome, is_repeat)) = backend.post(draft).await else {
        return HttpResponse::ServiceUnavailable().finish();
    };
    let mut response = HttpResponse::Ok();
    response.content_type("application/json");
    if is_repeat {
        response.insert_header(("idempotent-replay", "true"));
    }
    response.body(outcome)
}

/// With this a load opens its cases: one line after another.
async fn stream<B: Backend>(request: HttpRequest, payload: web::Payload, backend: web::Data<B>) -> HttpResponse {
    if !is_authorized(request.headers()) {
        return HttpResponse::Unauthorized().finish();
    }
    let answers =
        futures_util::stream::unfold((StreamLineReader::new(payload), backend), |(mut lines, backend)| async {
            let line = lines.next().await?;
            let subject = ActorId::from_stored(SUBJECT);
            let rules = LineRules { default_actor: Some(&subject), recorded: false };
            let command = parse_line(&line.text?, rules).ok()?.command;
            let status = if command.name().as_str() == "open" { 201 } else { 200 };
            let outcome = backend.line(command).await?;
            let answer = format!("{{\"line\":{},\"status\":{status},\"outcome\":{outcome}}}\n", line.number);
            Some((Ok::<_, std::io::Error>(Bytes::from(answer)), (lines, backend)))
        });
    HttpResponse::Ok().content_type("application/x-ndjson").streaming(answers.boxed_local())
}
