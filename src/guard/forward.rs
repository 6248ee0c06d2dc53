//! One request to the upstream, and its answer back.
//!
//! Owns the client of a worker and what a failure means: an upstream that could not be connected to got nothing; one that was
//! sent the request and did not answer may have carried it out. Which of the two it was decides whether the key is given back.
//! Never sends a request twice by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use actix_web::http::header::CONTENT_LENGTH;
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use reqwest::{Body, Client, Url};

use super::answer::{Answer, BrokenOff};
use super::headers::{self, Hop};
use super::metrics::UpstreamCounts;
use super::problems::ProblemCode;
use super::routes::Place;
use super::rules::Rule;
use super::settings::{UpstreamOptions, WhenUnclear};
use crate::idempotency::{ClaimInHand, Conclusion};

/// Parts of a request's body that wait for the upstream.
const BODY_PARTS_MAX: usize = 4;

/// The upstream as one worker sees it. Its connections live on the worker's own thread.
pub(super) struct Upstream {
    client: Client,
    options: Arc<UpstreamOptions>,
    counts: Arc<UpstreamCounts>,
}

/// How many parts of a body have gone towards the upstream.
type Progress = Arc<AtomicU64>;

/// A request's body.
struct Outgoing {
    body: Body,
    parts_sent: Progress,
}

impl From<Bytes> for Outgoing {
    fn from(body: Bytes) -> Self {
        Self { body: Body::from(body), parts_sent: Progress::default() }
    }
}

/// What became of sending a request.
enum Failure {
    /// The upstream got nothing.
    NotSent,
    /// It got the request, or a part of it.
    Unanswered(BrokenOff),
}

impl Upstream {
    /// A client without connections yet.
    ///
    /// # Errors
    /// What is wrong with TLS on this machine.
    pub(super) fn new(options: Arc<UpstreamOptions>, counts: Arc<UpstreamCounts>) -> reqwest::Result<Self> {
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // What was sent and what was not must be clear: one request a connection at a time.
            .http1_only()
            .connect_timeout(options.connect_timeout)
            .pool_idle_timeout(options.keep_alive)
            .pool_max_idle_per_host(if options.keep_alive.is_zero() { 0 } else { usize::MAX })
            .build()?;
        Ok(Self { client, options, counts })
    }

    /// Where a request goes; `None`: the path has dot segments or backslashes, and which rule it falls under would depend
    /// on who reads it.
    fn url_for(&self, request: &HttpRequest) -> Option<Url> {
        let path = request.uri().path();
        let is_dots = |segment: &str| {
            let plain = segment.to_ascii_lowercase().replace("%2e", ".");
            plain == "." || plain == ".."
        };
        if path.contains('\\') || path.split('/').any(is_dots) || !path.starts_with('/') {
            return None;
        }
        let mut url = self.options.url.clone();
        let before = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{before}{path}"));
        url.set_query(request.uri().query());
        Some(url)
    }

    async fn send(
        &self,
        request: &HttpRequest,
        url: Url,
        body: Option<Outgoing>,
        rule: &Rule,
    ) -> Result<reqwest::Response, Failure> {
        let hop = Hop { client: request.peer_addr().map(|address| address.ip()), host: self.options.host };
        let method = reqwest::Method::from_bytes(request.method().as_str().as_bytes());
        let mut sent =
            self.client.request(method.unwrap_or_default(), url).headers(headers::for_upstream(request.headers(), hop));
        let mut progress = Progress::default();
        if let Some(Outgoing { body, parts_sent }) = body {
            progress = parts_sent;
            // Where the length is known the upstream is told: not all of them read chunks.
            if let Some(length) = request.headers().get(CONTENT_LENGTH).filter(|_| body.as_bytes().is_none()) {
                sent = sent.header("content-length", length.as_bytes());
            }
            sent = sent.body(body);
        }
        let mut sending = std::pin::pin!(sent.send());
        loop {
            let parts_before = progress.load(Relaxed);
            match tokio::time::timeout(rule.upstream_timeout, &mut sending).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) if error.is_connect() => return Err(Failure::NotSent),
                Ok(Err(_)) => return Err(Failure::Unanswered(BrokenOff::Ended)),
                // A long body is still on its way: the upstream's time begins behind it.
                Err(_) if progress.load(Relaxed) != parts_before => {}
                Err(_) => return Err(Failure::Unanswered(BrokenOff::TimedOut)),
            }
        }
    }

    fn failed(&self, failure: &Failure, request: &HttpRequest, rule: &Rule) -> HttpResponse {
        let Failure::Unanswered(broken_off) = failure else {
            self.counts.unavailable.fetch_add(1, Relaxed);
            tracing::warn!("the upstream can't be connected to");
            let detail = "nothing was sent to it; send the same request again in a moment, under the same key";
            return ProblemCode::UpstreamUnavailable.response(None, detail);
        };
        self.counts.unanswered.fetch_add(1, Relaxed);
        tracing::warn!(reason = %broken_off, "the upstream was sent a request and did not answer it");
        let status = (*broken_off == BrokenOff::TimedOut).then_some(504);
        let is_claimed = ClaimInHand::of(request).is_some();
        let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE);
        if is_safe || is_claimed && rule.when_unclear == WhenUnclear::Release {
            let detail = "it may have carried the request out; send the same request again, under the same key";
            return ProblemCode::UpstreamInterrupted.response(status, detail);
        }
        let detail = if is_claimed {
            "it may have carried the request out, and it is not sent again under this key; look where the service shows \
             the outcome before you send it under a new key"
        } else {
            "it may have carried the request out, and the request had no key; look where the service shows the outcome \
             before you send it again"
        };
        let mut response = ProblemCode::UpstreamUnclear.response(status, detail);
        response.extensions_mut().insert(Conclusion::Final);
        response
    }
}

/// Sends a request to the upstream and returns its answer, or a problem.
pub(super) async fn forward(
    request: HttpRequest,
    payload: web::Payload,
    upstream: web::Data<Upstream>,
) -> HttpResponse {
    let rule = request.extensions().get::<Arc<Rule>>().cloned().unwrap_or_default();
    let Some(url) = upstream.url_for(&request) else {
        let detail = "write it without \".\" and \"..\" segments and backslashes";
        return ProblemCode::PathInvalid.response(None, detail);
    };
    upstream.counts.sent.fetch_add(1, Relaxed);
    let is_claimed = ClaimInHand::of(&request).is_some();
    let body = if is_claimed { whole(payload).await } else { streamed(&request, payload) };
    let response = match upstream.send(&request, url, body, &rule).await {
        Ok(response) => response,
        Err(failure) => return upstream.failed(&failure, &request, &rule),
    };
    let status = StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let kept = headers::for_client(response.headers());
    let whole_max = is_claimed.then_some(rule.response_bytes_max);
    let is_head = *request.method() == Method::HEAD;
    let place = request.extensions().get::<Place>().cloned();
    match Answer::new(response, rule.upstream_timeout, place).body(is_head, whole_max).await {
        Ok(body) => {
            let mut answer = HttpResponse::build(status);
            for pair in kept {
                answer.append_header(pair);
            }
            answer
                .message_body(body)
                .unwrap_or_else(|_| HttpResponse::new(StatusCode::BAD_GATEWAY))
                .map_into_boxed_body()
        }
        Err(broken_off) => upstream.failed(&Failure::Unanswered(broken_off), &request, &rule),
    }
}

/// The body of a claimed request, which the layer has read already.
async fn whole(mut payload: web::Payload) -> Option<Outgoing> {
    let mut body = BytesMut::new();
    while let Some(Ok(part)) = payload.next().await {
        body.extend_from_slice(&part);
    }
    // Also an empty one: a POST without a length is refused by some.
    Some(Outgoing::from(body.freeze()))
}

/// The body of any other request, passed on as it comes. `None`: it has none.
fn streamed(request: &HttpRequest, mut payload: web::Payload) -> Option<Outgoing> {
    let headers = request.headers();
    if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key("transfer-encoding") {
        return None;
    }
    if headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0") {
        return Some(Outgoing::from(Bytes::new()));
    }
    // The payload belongs to this thread; what it holds may go to another one.
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(BODY_PARTS_MAX);
    let parts_sent = Progress::default();
    let progress = parts_sent.clone();
    actix_web::rt::spawn(async move {
        while let Some(part) = payload.next().await {
            let part = part.map_err(std::io::Error::other);
            let is_over = part.is_err();
            if sender.send(part).await.is_err() || is_over {
                break;
            }
            progress.fetch_add(1, Relaxed);
        }
    });
    let body = Body::wrap_stream(futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|part| (part, receiver))
    }));
    Some(Outgoing { body, parts_sent })
}

/// How long a probe of the upstream may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the upstream can be connected to.
pub(super) async fn can_be_reached(options: &UpstreamOptions) -> bool {
    let place = options.place();
    tokio::time::timeout(PROBE_TIMEOUT, tokio::net::TcpStream::connect(place)).await.is_ok_and(|found| found.is_ok())
}
