//! One connection that sends one POST after another.
//!
//! Owns its connection and opens a new one when it is lost. A command without an answer is counted and not repeated: a load
//! measures, it does not settle.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use super::Shared;
use super::mix::Planned;
use super::server::LoadServer;
use super::tally::LoadAnswer;

/// How long an answer may take: well above a command's own deadline.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a connection was lost or refused.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");

type Connection = SendRequest<Full<Bytes>>;

/// Sends until the run is over.
pub(super) async fn run(shared: Rc<Shared>, server: LoadServer) {
    let mut connection: Option<Connection> = None;
    while let Some(due) = shared.timetable.next(Instant::now()) {
        shared.pacer.until(due).await;
        let planned = shared.generator.next();
        let exchanged =
            tokio::time::timeout(ANSWER_TIMEOUT, exchange(&shared, &server, &mut connection, &planned)).await;
        match exchanged.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIMEOUT:?}"))) {
            Ok(answer) => shared.answered(&planned, due, &answer),
            Err(why) => {
                connection = None;
                shared.unanswered(1, &why);
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        }
    }
}

async fn exchange(
    shared: &Shared,
    server: &LoadServer,
    connection: &mut Option<Connection>,
    planned: &Planned,
) -> Result<LoadAnswer, String> {
    let sender = match connection {
        Some(sender) => sender,
        None => connection.insert(server.connect().await?),
    };
    let lost = |error: hyper::Error| format!("the connection was lost: {error}");
    let path = format!("/v1/cases/{}/{}", shared.generator.case_id(planned.case), planned.command);
    let request = server
        .post(&path)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(IDEMPOTENCY_KEY, planned.operation_id.to_string())
        .body(Full::new(Bytes::from_static(planned.body().as_bytes())))
        .expect("the path and the headers are made of letters and digits");
    sender.ready().await.map_err(lost)?;
    let response = sender.send_request(request).await.map_err(lost)?;
    let replayed = response.headers().get(&IDEMPOTENT_REPLAY).is_some_and(|value| value == "true");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(lost)?.to_bytes();
    Ok(LoadAnswer::from_http(status, replayed, body))
}
