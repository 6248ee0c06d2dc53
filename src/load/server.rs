//! The server that is loaded, and one connection to it.
//!
//! Owns the address and the token, which is sent and never shown. HTTP/1.1 without TLS: a load is run beside its server.

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::http::request::Builder;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpStream;

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What was given names no server that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLoadTarget {
    /// The address is of another kind.
    #[error("a server is given as http://HOST:PORT; TLS is not spoken")]
    Address,
    /// The token can't be sent in a header.
    #[error("the token has characters that no token has; give it as `casework token issue` printed it")]
    Token,
}

/// A server and the right to use it.
#[derive(Debug, Clone)]
pub struct LoadServer {
    host: String,
    port: u16,
    path: String,
    /// The headers of every request, made once.
    host_header: HeaderValue,
    authorization: HeaderValue,
}

impl LoadServer {
    /// A server by its base URL. The token's roles must allow `open` and `note` (clerk or admin).
    ///
    /// # Errors
    /// [`InvalidLoadTarget`].
    pub fn new(url: &str, token: SecretString) -> Result<Self, InvalidLoadTarget> {
        let url = reqwest::Url::parse(url).map_err(|_| InvalidLoadTarget::Address)?;
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(InvalidLoadTarget::Address);
        };
        if url.scheme() != "http" {
            return Err(InvalidLoadTarget::Address);
        }
        let path = url.path().trim_end_matches('/').to_owned();
        let host_header = format!("{host}:{port}").try_into().map_err(|_| InvalidLoadTarget::Address)?;
        let authorization = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()));
        let mut authorization = authorization.map_err(|_| InvalidLoadTarget::Token)?;
        authorization.set_sensitive(true);
        Ok(Self { host: host.to_owned(), port, path, host_header, authorization })
    }

    /// Opens a connection for hyper. The error is a sentence.
    pub(super) async fn connect<B>(&self) -> Result<SendRequest<B>, String>
    where
        B: Body + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let socket = self.connect_socket().await?;
        // Requests are small: one buffer is cheaper to send than two.
        let handshake = http1::Builder::new().writev(false).handshake(TokioIo::new(socket));
        let (sender, connection) = handshake.await.map_err(|error| self.unreachable(&error.to_string()))?;
        // Whoever sends learns of its end.
        tokio::task::spawn_local(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Opens a connection. The error is a sentence.
    pub(super) async fn connect_socket(&self) -> Result<TcpStream, String> {
        // An IPv6 address stands in brackets in a URL, and without them here.
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let socket = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, self.port))).await;
        let socket = socket.map_err(|_| self.unreachable(&format!("no answer within {CONNECT_TIMEOUT:?}")))?;
        let socket = socket.map_err(|error| self.unreachable(&error.to_string()))?;
        socket.set_nodelay(true).map_err(|error| self.unreachable(&error.to_string()))?;
        Ok(socket)
    }

    fn unreachable(&self, why: &str) -> String {
        format!("{}:{} can't be reached: {why}", self.host, self.port)
    }

    /// Writes the head of a POST to a path below the base URL, without what is the command's own and without its end.
    pub(super) fn write_post(&self, head: &mut Vec<u8>, path: fmt::Arguments<'_>) {
        let (base, host, authorization) = (&self.path, self.host_header.as_bytes(), self.authorization.as_bytes());
        write!(head, "POST {base}{path} HTTP/1.1\r\nhost: ").expect("a Vec takes what is written");
        head.extend_from_slice(host);
        head.extend_from_slice(b"\r\nauthorization: ");
        head.extend_from_slice(authorization);
        head.extend_from_slice(b"\r\n");
    }

    /// A POST to a path below the base URL.
    pub(super) fn post(&self, path: &str) -> Builder {
        Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.path))
            .header(HOST, self.host_header.clone())
            .header(AUTHORIZATION, self.authorization.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_given_by_its_base_url() {
        let server = |url| LoadServer::new(url, SecretString::from("t")).map(|server| (server.host, server.port));
        assert_eq!(server("http://127.0.0.1:8080/").expect("valid"), ("127.0.0.1".into(), 8080));
        assert_eq!(server("http://localhost").expect("valid"), ("localhost".into(), 80));
        for bad in ["https://x.example", "localhost:8080", "ftp://x", ""] {
            assert_eq!(server(bad).expect_err("not valid"), InvalidLoadTarget::Address, "{bad}");
        }
    }
}
