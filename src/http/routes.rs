//! Every route of the interface, in one table.
//!
//! Owns the way from a request to its handler and from a handler's error to its problem document. Matches on the raw path,
//! decoded segment by segment, so that a case id may hold a slash. Never answers without a request id.

use std::sync::Arc;
use std::time::Instant;

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};

use super::exchange::{Exchange, ServerState, Surface};
use super::problems::{Problem, ProblemCode, REQUEST_ID_HEADER};
use super::{cases, commands, history, metrics, probes, stream, target};

/// What a route leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Command,
    Commands,
    CaseList,
    Case,
    OperationList,
    Operation,
    Health,
    Readiness,
    Metrics,
    ProblemPage,
}

/// The table. A literal segment stands before a parameter at the same place.
const ROUTES: &[(Method, &str, Endpoint)] = &[
    (Method::POST, "/v1/commands", Endpoint::Commands),
    (Method::GET, "/v1/cases", Endpoint::CaseList),
    (Method::GET, "/v1/cases/{case_id}", Endpoint::Case),
    (Method::GET, "/v1/cases/{case_id}/operations", Endpoint::OperationList),
    (Method::GET, "/v1/cases/{case_id}/operations/{operation_id}", Endpoint::Operation),
    (Method::POST, "/v1/cases/{case_id}/{command}", Endpoint::Command),
    (Method::GET, "/healthz", Endpoint::Health),
    (Method::GET, "/readyz", Endpoint::Readiness),
    (Method::GET, "/metrics", Endpoint::Metrics),
    (Method::GET, "/problems/{code}", Endpoint::ProblemPage),
];

/// Answers any request at all.
pub(super) async fn answer(request: HttpRequest, payload: web::Payload, state: web::Data<ServerState>) -> HttpResponse {
    let started = Instant::now();
    let request_id = uuid::Uuid::now_v7().to_string();
    let state = state.into_inner();
    let mut response = match dispatch(&request, payload, &request_id, &state).await {
        Ok(response) => response,
        Err(problem) => {
            state.problems.count(&problem);
            problem.response(&request_id)
        }
    };
    let id = HeaderValue::from_str(&request_id).expect("a UUID is visible ASCII");
    response.headers_mut().insert(HeaderName::from_static(REQUEST_ID_HEADER), id);
    if *state.draining.borrow() {
        // Whoever keeps the connection would send the next command to a process that goes away.
        response.head_mut().set_connection_type(actix_web::http::ConnectionType::Close);
    }
    log(&request, &response, &request_id, started);
    response
}

async fn dispatch(
    request: &HttpRequest,
    payload: web::Payload,
    request_id: &str,
    state: &Arc<ServerState>,
) -> Result<HttpResponse, Problem> {
    let not_found = |detail: &str| Problem::new(ProblemCode::NotFound, detail);
    let segments = target::segments(request.uri().path())
        .ok_or_else(|| not_found("the path is not percent-encoded UTF-8, so nothing is at it"))?;
    let (endpoint, parameters) = find(state.surface, request.method(), &segments)?;
    let exchange =
        Exchange { request: request.clone(), parameters, request_id: request_id.to_owned(), state: state.clone() };
    match endpoint {
        Endpoint::Command => commands::run(&exchange, payload).await,
        Endpoint::Commands => stream::run(&exchange, payload).await,
        Endpoint::CaseList => cases::list(&exchange).await,
        Endpoint::Case => cases::fetch(&exchange).await,
        Endpoint::OperationList => history::list(&exchange).await,
        Endpoint::Operation => history::fetch(&exchange).await,
        Endpoint::Health => Ok(probes::health()),
        Endpoint::Readiness => probes::readiness(&exchange).await,
        Endpoint::Metrics => Ok(metrics::expose(&exchange).await),
        Endpoint::ProblemPage => match ProblemCode::from_code(&exchange.parameters[0]) {
            Some(code) => Ok(HttpResponse::Ok()
                .content_type("text/html; charset=utf-8")
                .insert_header((header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"))
                .body(code.page())),
            None => Err(not_found("there is no problem with this code")),
        },
    }
}

impl Surface {
    fn serves(self, endpoint: Endpoint) -> bool {
        match self {
            Self::All => true,
            Self::AllButMetrics => endpoint != Endpoint::Metrics,
            Self::Metrics => endpoint == Endpoint::Metrics,
        }
    }
}

/// The route of a path; HEAD goes where GET does.
fn find(surface: Surface, method: &Method, segments: &[String]) -> Result<(Endpoint, Vec<String>), Problem> {
    let asked = if method == Method::HEAD { &Method::GET } else { method };
    let mut allow: Vec<&str> = Vec::new();
    for (method, pattern, endpoint) in ROUTES.iter().filter(|(.., endpoint)| surface.serves(*endpoint)) {
        let Some(parameters) = match_pattern(pattern, segments) else { continue };
        if method == asked {
            return Ok((*endpoint, parameters));
        }
        allow.push(method.as_str());
        if method == Method::GET {
            allow.push("HEAD");
        }
    }
    if allow.is_empty() {
        return Err(Problem::new(ProblemCode::NotFound, "there is no such path; a slash inside an id is written %2F"));
    }
    Err(Problem::method_not_allowed(allow.join(", ")))
}

fn match_pattern(pattern: &str, segments: &[String]) -> Option<Vec<String>> {
    let mut parameters = Vec::new();
    let mut rest = segments.iter();
    for expected in pattern.split('/').skip(1) {
        let segment = rest.next()?;
        if expected.starts_with('{') {
            if segment.is_empty() {
                return None;
            }
            parameters.push(segment.clone());
        } else if segment != expected {
            return None;
        }
    }
    rest.next().is_none().then_some(parameters)
}

/// One sentence a request; a failure of ours stands in the log once, with its cause, where it was met.
fn log(request: &HttpRequest, response: &HttpResponse, request_id: &str, started: Instant) {
    let (method, path, status) = (request.method(), request.uri().path(), response.status().as_u16());
    let micros = started.elapsed().as_micros();
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(request.id = request_id, "{method} {path} was answered with 500");
    } else {
        tracing::debug!(request.id = request_id, "{method} {path} was answered with {status} after {micros} µs");
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn route(method: Method, path: &str) -> Result<(Endpoint, Vec<String>), (u16, String)> {
        route_on(Surface::All, method, path)
    }

    fn route_on(surface: Surface, method: Method, path: &str) -> Result<(Endpoint, Vec<String>), (u16, String)> {
        find(surface, &method, &target::segments(path).unwrap()).map_err(|problem| {
            let response = problem.response("r");
            let allow = response.headers().get(header::ALLOW);
            (response.status().as_u16(), allow.map_or("", |value| value.to_str().unwrap()).to_owned())
        })
    }

    #[test]
    fn a_case_id_may_hold_a_slash_and_a_space() {
        let (endpoint, parameters) = route(Method::POST, "/v1/cases/a%2Fb%20c/approve").unwrap();
        assert_eq!(
            (endpoint, parameters.as_slice()),
            (Endpoint::Command, &["a/b c".to_owned(), "approve".to_owned()][..])
        );
        assert_eq!(route(Method::POST, "/v1/cases/a/b/approve").unwrap_err(), (404, String::new()));
    }

    #[test]
    fn a_command_may_be_called_operations() {
        assert_eq!(route(Method::POST, "/v1/cases/62/operations").unwrap().0, Endpoint::Command);
        assert_eq!(route(Method::GET, "/v1/cases/62/operations").unwrap().0, Endpoint::OperationList);
        assert_eq!(route(Method::HEAD, "/v1/cases/62/operations").unwrap().0, Endpoint::OperationList);
    }

    #[test]
    fn a_wrong_method_is_told_the_right_ones() {
        for (method, path, allow) in [
            (Method::GET, "/v1/cases/62/approve", "POST"),
            (Method::DELETE, "/v1/cases/62", "GET, HEAD"),
            (Method::PUT, "/v1/cases/62/operations", "GET, HEAD, POST"),
            (Method::GET, "/v1/commands", "POST"),
            (Method::POST, "/healthz", "GET, HEAD"),
        ] {
            assert_eq!(route(method, path).unwrap_err(), (405, allow.to_owned()), "{path}");
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_not_found() {
        for path in
            ["/", "/v1", "/v1/cases/", "/v1/cases//approve", "/v1/cases/62/", "/v1/outbox", "/healthz/", "//healthz"]
        {
            assert_eq!(route(Method::GET, path).unwrap_err().0, 404, "{path}");
        }
    }

    #[test]
    fn metrics_are_on_one_listener_alone() {
        for (surface, of_metrics, of_health) in
            [(Surface::All, true, true), (Surface::AllButMetrics, false, true), (Surface::Metrics, true, false)]
        {
            assert_eq!(route_on(surface, Method::GET, "/metrics").is_ok(), of_metrics, "{surface:?}");
            assert_eq!(route_on(surface, Method::GET, "/healthz").is_ok(), of_health, "{surface:?}");
        }
        assert_eq!(route_on(Surface::AllButMetrics, Method::POST, "/metrics").unwrap_err(), (404, String::new()));
    }
}
