//! The rules of a guard: which requests need a key, whose they are, and how long answers are kept.
//!
//! Owns the form of a rules file (TOML: `[[route]]` tables of which the first that matches counts, and a `[default]` table)
//! and the defaults. Unknown keys are refused. Fails with [`InvalidRules`], which has the line where the file has one.

use std::fmt;
use std::time::Duration;

use actix_web::http::header::HeaderName;
use actix_web::http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::headers::is_of_one_connection;
use super::settings::{KeyRule, PathPattern, PrincipalRule, Time, WhenUnclear};
use crate::idempotency::{IdempotencyOptions, WhenUnavailable};

/// What a rule may let into memory for one request or answer.
const BYTES_MAX: usize = 64 << 20;
/// Methods of a route that names none.
const METHODS: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// A rules file can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRules(String);

/// How requests of one route are treated. Every field has a default, and a name in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// `key`. Default: optional, so that clients that know nothing of keys go on as before.
    pub key: KeyRule,
    /// `principal`. Default: `Authorization`.
    pub principal: PrincipalRule,
    /// `response_lifetime`: how long an answer is kept. Default: 30 minutes.
    pub response_lifetime: Duration,
    /// `claim_lease`: how long a guard that died keeps its key. Default: 30 s.
    pub claim_lease: Duration,
    /// `request_bytes_max`: the longest body under a key; over it 413. Default: 1 MiB.
    pub request_bytes_max: usize,
    /// `response_bytes_max`: the longest body that is kept; over it status and headers are. Default: 64 KiB.
    pub response_bytes_max: usize,
    /// `in_flight`: the status for a repeat while the first runs, 202 or 409. Default: 202.
    pub in_flight_status: u16,
    /// `in_flight_wait`: how long such a repeat waits first. Default: not at all.
    pub in_flight_wait: Duration,
    /// `mismatch`: the status for another request under a key, 409 or 422. Default: 409.
    pub mismatch_status: u16,
    /// `kept_headers`: headers that a repeat gets beside those that are always kept. Default: none.
    pub kept_headers: Vec<HeaderName>,
    /// `final_statuses`: statuses of the upstream that end an operation beside the usual ones. Default: none.
    pub final_statuses: Vec<u16>,
    /// `upstream_timeout`: how long the upstream may take to begin its answer, and between two parts of it. Default: 60 s.
    pub upstream_timeout: Duration,
    /// `when_unavailable`: what happens while the store is away. Default: the request is refused.
    pub when_unavailable: WhenUnavailable,
    /// `when_unclear`: what becomes of a key whose request was sent and not answered. Default: kept.
    pub when_unclear: WhenUnclear,
}

impl Default for Rule {
    fn default() -> Self {
        let layer = IdempotencyOptions::default();
        Self {
            key: KeyRule::Optional,
            principal: PrincipalRule::Header(actix_web::http::header::AUTHORIZATION),
            response_lifetime: layer.response_lifetime,
            claim_lease: layer.claim_lease,
            request_bytes_max: layer.request_bytes_max,
            response_bytes_max: layer.response_bytes_max,
            in_flight_status: layer.in_flight_status,
            in_flight_wait: layer.in_flight_wait,
            mismatch_status: layer.mismatch_status,
            kept_headers: layer.kept_headers,
            final_statuses: Vec::new(),
            upstream_timeout: Duration::from_secs(60),
            when_unavailable: layer.when_unavailable,
            when_unclear: WhenUnclear::Keep,
        }
    }
}

/// Which requests a rule is for.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) path: PathPattern,
    pub(super) methods: Vec<Method>,
    pub(super) rule: Rule,
}

/// All rules of a guard.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub(super) default: Rule,
    pub(super) routes: Vec<Route>,
}

/// Which rule a request falls under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    /// Its place among the routes; their number for the default.
    pub(super) index: usize,
    /// Whether keys mean something for this method.
    pub(super) has_key: bool,
}

impl Rules {
    /// Reads a rules file.
    ///
    /// # Errors
    /// [`InvalidRules`].
    pub fn parse(text: &str) -> Result<Self, InvalidRules> {
        let file: File = toml::from_str(text).map_err(|error| InvalidRules(error.to_string()))?;
        if file.default.path.is_some() || file.default.methods.is_some() {
            return Err(InvalidRules("[default] is for all other paths and methods: it names none".into()));
        }
        let default =
            file.default.over(&Rule::default()).map_err(|found| InvalidRules(format!("[default]: {found}")))?;
        let mut routes: Vec<Route> = Vec::new();
        for (number, entry) in (1..).zip(file.route) {
            let wrong = |found: String| InvalidRules(format!("route {number}: {found}"));
            let path = entry.path.clone().ok_or_else(|| wrong("it needs a `path`".into()))?;
            let methods = entry.methods.as_ref().map_or_else(|| Ok(METHODS.to_vec()), |names| methods(names));
            let methods = methods.map_err(wrong)?;
            let rule = entry.over(&default).map_err(wrong)?;
            routes.push(Route { path, methods, rule });
        }
        Ok(Self { default, routes })
    }

    /// Which rule a request falls under; `path` as it was sent. A client that writes letters of a path as percent signs
    /// meets the same rule.
    pub(super) fn find(&self, method: &Method, path: &str) -> Match {
        let path = percent_decode_str(path).decode_utf8_lossy();
        let is_for = |route: &Route| route.methods.contains(method) && route.path.matches(&path);
        match self.routes.iter().position(is_for) {
            Some(index) => Match { index, has_key: self.routes[index].rule.key != KeyRule::Off },
            None => {
                let has_key = METHODS.contains(method) && self.default.key != KeyRule::Off;
                Match { index: self.routes.len(), has_key }
            }
        }
    }

    /// All rules with the methods that they are for: the routes', then the default.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, &[Method], &Rule)> {
        let routes = self.routes.iter().map(|route| (route.path.to_string(), route.methods.as_slice(), &route.rule));
        routes.chain(std::iter::once(("default".to_owned(), METHODS.as_slice(), &self.default)))
    }
}

/// The effective rules, as a rules file that says everything.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_route = |route: &Route| Entry {
            path: Some(route.path.clone()),
            methods: Some(route.methods.iter().map(|method| method.as_str().to_owned()).collect()),
            ..Entry::of(&route.rule)
        };
        let file = File { default: Entry::of(&self.default), route: self.routes.iter().map(of_route).collect() };
        f.write_str(toml::to_string(&file).map_err(|_| fmt::Error)?.trim_end())
    }
}

impl Rule {
    /// The settings of the layer that keeps this rule, for these methods.
    pub(super) fn options(&self, namespace: &str, methods: &[Method]) -> IdempotencyOptions {
        let options = IdempotencyOptions {
            methods: methods.to_vec(),
            key_required: self.key == KeyRule::Required,
            namespace: namespace.to_owned(),
            response_lifetime: self.response_lifetime,
            claim_lease: self.claim_lease,
            request_bytes_max: self.request_bytes_max,
            response_bytes_max: self.response_bytes_max,
            in_flight_status: self.in_flight_status,
            in_flight_wait: self.in_flight_wait,
            mismatch_status: self.mismatch_status,
            kept_headers: self.kept_headers.clone(),
            when_unavailable: self.when_unavailable,
            ..IdempotencyOptions::default()
        };
        let (usual, also) = (options.is_final.clone(), self.final_statuses.clone());
        options.with_final(move |status: StatusCode| usual(status) || also.contains(&status.as_u16()))
    }
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    default: Entry,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    route: Vec<Entry>,
}

/// One table of the file: what it says, and nothing where it says nothing.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: Option<PathPattern>,
    methods: Option<Vec<String>>,
    key: Option<KeyRule>,
    principal: Option<PrincipalRule>,
    response_lifetime: Option<Time>,
    claim_lease: Option<Time>,
    request_bytes_max: Option<usize>,
    response_bytes_max: Option<usize>,
    in_flight: Option<u16>,
    in_flight_wait: Option<Time>,
    mismatch: Option<u16>,
    kept_headers: Option<Vec<String>>,
    final_statuses: Option<Vec<u16>>,
    upstream_timeout: Option<Time>,
    when_unavailable: Option<Unavailable>,
    when_unclear: Option<WhenUnclear>,
}

/// [`WhenUnavailable`] as it is written.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Unavailable {
    Refuse,
    RunUnprotected,
}

impl Entry {
    fn of(rule: &Rule) -> Self {
        let when_unavailable = match rule.when_unavailable {
            WhenUnavailable::Refuse => Unavailable::Refuse,
            WhenUnavailable::RunUnprotected => Unavailable::RunUnprotected,
        };
        Self {
            path: None,
            methods: None,
            key: Some(rule.key),
            principal: Some(rule.principal.clone()),
            response_lifetime: Some(Time(rule.response_lifetime)),
            claim_lease: Some(Time(rule.claim_lease)),
            request_bytes_max: Some(rule.request_bytes_max),
            response_bytes_max: Some(rule.response_bytes_max),
            in_flight: Some(rule.in_flight_status),
            in_flight_wait: Some(Time(rule.in_flight_wait)),
            mismatch: Some(rule.mismatch_status),
            kept_headers: Some(rule.kept_headers.iter().map(|name| name.as_str().to_owned()).collect()),
            final_statuses: Some(rule.final_statuses.clone()),
            upstream_timeout: Some(Time(rule.upstream_timeout)),
            when_unavailable: Some(when_unavailable),
            when_unclear: Some(rule.when_unclear),
        }
    }

    /// What this table says, and `base` where it says nothing.
    fn over(self, base: &Rule) -> Result<Rule, String> {
        let time = |given: Option<Time>, base| given.map_or(base, |time: Time| time.0);
        let when_unavailable = self.when_unavailable.map_or(base.when_unavailable, |said| match said {
            Unavailable::Refuse => WhenUnavailable::Refuse,
            Unavailable::RunUnprotected => WhenUnavailable::RunUnprotected,
        });
        let kept_headers = self.kept_headers.map_or_else(|| Ok(base.kept_headers.clone()), |names| headers(&names))?;
        let rule = Rule {
            key: self.key.unwrap_or(base.key),
            principal: self.principal.unwrap_or_else(|| base.principal.clone()),
            response_lifetime: time(self.response_lifetime, base.response_lifetime),
            claim_lease: time(self.claim_lease, base.claim_lease),
            request_bytes_max: self.request_bytes_max.unwrap_or(base.request_bytes_max),
            response_bytes_max: self.response_bytes_max.unwrap_or(base.response_bytes_max),
            in_flight_status: self.in_flight.unwrap_or(base.in_flight_status),
            in_flight_wait: time(self.in_flight_wait, base.in_flight_wait),
            mismatch_status: self.mismatch.unwrap_or(base.mismatch_status),
            kept_headers,
            final_statuses: self.final_statuses.unwrap_or_else(|| base.final_statuses.clone()),
            upstream_timeout: time(self.upstream_timeout, base.upstream_timeout),
            when_unavailable,
            when_unclear: self.when_unclear.unwrap_or(base.when_unclear),
        };
        rule.check()?;
        Ok(rule)
    }
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        self.options("", &METHODS).check().map_err(|error| error.to_string())?;
        if self.request_bytes_max > BYTES_MAX || self.response_bytes_max > BYTES_MAX {
            return Err(format!("bodies of at most {BYTES_MAX} bytes (64 MiB) can be held in memory"));
        }
        if self.upstream_timeout.is_zero() {
            return Err("`upstream_timeout` must be longer than nothing; 60s is usual".into());
        }
        match self.final_statuses.iter().find(|status| !(200..=599).contains(*status)) {
            Some(status) => Err(format!("{status} in `final_statuses` is no final status: they are 200 to 599")),
            None => Ok(()),
        }
    }
}

fn methods(names: &[String]) -> Result<Vec<Method>, String> {
    if names.is_empty() {
        return Err("`methods` is empty: leave it out for POST, PUT, PATCH and DELETE".into());
    }
    let method = |name: &String| {
        let method = Method::from_bytes(name.as_bytes()).ok().filter(|_| *name == name.to_ascii_uppercase());
        method.ok_or_else(|| format!("{name:?} is no method: write it in capitals, as in \"POST\""))
    };
    names.iter().map(method).collect()
}

fn headers(names: &[String]) -> Result<Vec<HeaderName>, String> {
    let name = |name: &String| {
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| format!("{name:?} is no name of a header"))?;
        if parsed == "set-cookie" {
            return Err("`set-cookie` in `kept_headers` would hand one client's session to whoever repeats".to_owned());
        }
        if is_of_one_connection(parsed.as_str()) || parsed == "content-length" {
            return Err(format!("{parsed:?} in `kept_headers` belongs to one exchange and can't be given again"));
        }
        Ok(parsed)
    };
    names.iter().map(name).collect()
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
