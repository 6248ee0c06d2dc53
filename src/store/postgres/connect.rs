//! Opening connections to PostgreSQL: the URL, TLS and what every session sets.
//!
//! Owns how a socket is opened and watched. Never retries: callers know what a failure means for them. A connection is
//! driven by a task on the runtime that opened it, so it is opened on the runtime that outlives its callers. Fails with
//! [`tokio_postgres::Error`], or with a sentence where the URL or the certificates are wrong.

use std::sync::Arc;
use std::time::Duration;

use diesel_async::AsyncPgConnection;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::StoreError;
use crate::store::errors::{describe, postgres_store_error};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long without an acknowledgement from the other machine, a connection counts as lost.
const TCP_SILENCE_MAX: Duration = Duration::from_secs(15);
/// How long a connection may be quiet before it is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Where the database is and how to get there.
#[derive(Clone)]
pub(in crate::store) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

/// The task that moves the bytes of a connection. Dropping it closes the socket at once.
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    /// Whether the connection has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A client of the driver: the only one that tells SQLSTATE and severity (diesel-async keeps both to itself).
pub(super) struct RawConnection {
    client: Client,
    _driver: Driver,
}

impl RawConnection {
    /// The client. Every statement sent through it is answered or fails when the connection ends.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

/// A connection that Diesel's queries run on.
pub(super) struct DieselConnection {
    connection: AsyncPgConnection,
    driver: Driver,
}

impl DieselConnection {
    /// What queries are given.
    pub(super) fn diesel(&mut self) -> &mut AsyncPgConnection {
        &mut self.connection
    }

    /// The connection and what moves its bytes, which must live as long.
    pub(super) fn into_parts(self) -> (AsyncPgConnection, Driver) {
        (self.connection, self.driver)
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }
}

impl Connector {
    /// Reads a `postgres://` URL. `sslmode=require` means TLS with a certificate that this machine trusts for the host's
    /// name; `prefer` (the default) and `disable` mean none.
    ///
    /// # Errors
    /// A sentence for the person who wrote the URL. It never repeats the URL, which may hold a password.
    pub(in crate::store) fn new(url: &str) -> Result<Self, String> {
        let mut config: Config = url.parse().map_err(|error| format!("the PostgreSQL URL can't be read: {error}"))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_SILENCE_MAX);
        }
        config.keepalives(true).keepalives_idle(KEEPALIVE_IDLE).keepalives_interval(KEEPALIVE_INTERVAL);
        config.keepalives_retries(2);
        let tls = match config.get_ssl_mode() {
            SslMode::Require => Some(MakeRustlsConnect::new(tls_config()?)),
            _ => {
                config.ssl_mode(SslMode::Disable);
                None
            }
        };
        Ok(Self { config, tls })
    }

    /// Opens a connection through the driver itself. `name` is what `pg_stat_activity` shows.
    pub(super) async fn open_raw(&self, name: &str) -> Result<RawConnection, tokio_postgres::Error> {
        let (client, driver) = self.open(name).await?;
        Ok(RawConnection { client, _driver: Driver(driver) })
    }

    /// Opens a connection for Diesel. `name` is what `pg_stat_activity` shows, `during` what it is for, in words.
    pub(super) async fn open_diesel(&self, name: &str, during: &'static str) -> Result<DieselConnection, StoreError> {
        let opened = self.open(name).await;
        let (client, driver) = opened.map_err(|error| postgres_store_error(during, &error))?;
        let driver = Driver(driver);
        let connection = AsyncPgConnection::try_from(client).await;
        let connection = connection.map_err(|error| StoreError::Unavailable { during, reason: describe(&error) })?;
        Ok(DieselConnection { connection, driver })
    }

    async fn open(&self, name: &str) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let mut config = self.config.clone();
        config.application_name(name);
        match &self.tls {
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                Ok((client, tokio::spawn(drive(connection))))
            }
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                Ok((client, tokio::spawn(drive(connection))))
            }
        }
    }
}

/// Moves the bytes of one connection until it ends. Whoever waits for an answer learns of the end by an error.
async fn drive<S>(connection: tokio_postgres::Connection<tokio_postgres::Socket, S>)
where
    S: tokio_postgres::tls::TlsStream + Unpin + Send,
{
    if let Err(error) = connection.await {
        tracing::debug!(error = %describe(&error), "a database connection ended");
    }
}

/// Certificates that this machine trusts, on ring. The provider is named here, so that it does not matter whether the
/// process installed one.
fn tls_config() -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for certificate in found.certs {
        // One certificate that can't be read must not make the others useless.
        if let Err(error) = roots.add(certificate) {
            tracing::debug!(%error, "a trusted certificate of this machine was left out");
        }
    }
    if roots.is_empty() {
        return Err(
            "sslmode=require needs trusted certificates, and this machine has none: install ca-certificates, or \
                    set SSL_CERT_FILE to the certificate of the database"
                .into(),
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS can't be set up: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
