//! `casework token`: API tokens are issued, listed and revoked, beside a running server or before it starts.
//!
//! A token is shown once, when it is issued; the database keeps its SHA-256.

use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::database::{DatabaseArgs, Missing};
use super::failure::{CliError, Exit};
use super::output::{self, message};
use crate::clock;
use crate::domain::{ActorId, Timestamp};
use crate::http::{NewToken, Role};
use crate::store::TokenRecord;

/// Issue, list and revoke API tokens
#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    Issue(IssueArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Issue a token; it is shown once
#[derive(Debug, Args)]
struct IssueArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Whom the token speaks for: the actor of commands sent with it
    #[arg(long, value_name = "NAME", value_parser = ActorId::parse)]
    subject: ActorId,
    /// What it may do: one role or several
    #[arg(long = "role", required = true, num_args = 1.., value_delimiter = ',', value_parser = role_parser())]
    roles: Vec<Role>,
    /// When it ends: a number and d, h, m or s (90d); left out, it does not
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    expires: Option<Lifetime>,
    /// Print the token and what belongs to it as JSON
    #[arg(long)]
    json: bool,
}

/// List tokens, without the tokens themselves
#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// Revoke a token; servers stop taking it within 5 seconds
#[derive(Debug, Args)]
struct RevokeArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Its id, as `token issue` and `token list` show it
    id: Uuid,
}

fn role_parser() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::name)).map(|name| {
        let role = Role::ALL.into_iter().find(|role| role.name() == name);
        role.expect("the parser lets only names of roles through")
    })
}

/// How long a token lives, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lifetime(i64);

fn parse_lifetime(text: &str) -> Result<Lifetime, String> {
    let wrong = || "give a number from 1 and d, h, m or s, as in 90d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: i64 = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let count: i64 = digits.parse().map_err(|_| wrong())?;
    let micros = count.checked_mul(seconds).and_then(|seconds| seconds.checked_mul(1_000_000)).ok_or_else(wrong)?;
    if micros == 0 { Err(wrong()) } else { Ok(Lifetime(micros)) }
}

pub(super) fn run(args: TokenArgs) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        match args.command {
            TokenCommand::Issue(args) => issue(args).await,
            TokenCommand::List(args) => list(args).await,
            TokenCommand::Revoke(args) => revoke(args).await,
        }
    })
}

/// What `--json` prints of a new token, in this order.
#[derive(Serialize)]
struct Issued<'a> {
    token: &'a str,
    id: Uuid,
    subject: &'a str,
    roles: Vec<Value>,
    expires_at: Option<Timestamp>,
}

async fn issue(args: IssueArgs) -> anyhow::Result<ExitCode> {
    let database = args.database.open(Missing::Create).await?;
    let now = clock::now();
    let expires_at = args.expires.map(|lifetime| Timestamp::from_micros(now.micros().saturating_add(lifetime.0)));
    let NewToken { token, record } = NewToken::issue(args.subject, &args.roles, now, expires_at);
    let stored = record.clone();
    database.call(move |store| async move { store.token_insert(&stored).await }).await?;
    if args.json {
        output::json(&Issued {
            token: token.expose_secret(),
            id: record.id,
            subject: record.subject.as_str(),
            roles: role_names(&record),
            expires_at: record.expires_at,
        })?;
    } else {
        output::line(token.expose_secret())?;
        let end = record.expires_at.map_or_else(|| "does not expire".into(), |at| format!("expires {at}"));
        message(format_args!(
            "token {} for {} ({}) {end}; it is shown only this once",
            record.id, record.subject, record.roles
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let database = args.database.open(Missing::Refuse).await?;
    let tokens = database.call(|store| async move { store.token_list().await }).await?;
    let now = clock::now();
    if args.json {
        let tokens: Vec<_> = tokens
            .iter()
            .map(|token| {
                json!({
                    "id": token.id,
                    "subject": token.subject,
                    "roles": role_names(token),
                    "created_at": token.created_at,
                    "expires_at": token.expires_at,
                    "revoked_at": token.revoked_at,
                    "state": state(token, now),
                })
            })
            .collect();
        output::json(&tokens)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(&["id", "subject", "roles", "issued", "expires", "state"]);
    for token in &tokens {
        table.add_row([
            token.id.to_string(),
            token.subject.to_string(),
            token.roles.clone(),
            token.created_at.to_string(),
            token.expires_at.map_or_else(|| "never".into(), |at| at.to_string()),
            state(token, now).into(),
        ]);
    }
    output::line(table)?;
    Ok(ExitCode::SUCCESS)
}

async fn revoke(args: RevokeArgs) -> anyhow::Result<ExitCode> {
    let database = args.database.open(Missing::Refuse).await?;
    let id = args.id;
    if !database.call(move |store| async move { store.token_revoke(id, clock::now()).await }).await? {
        let message = format!("there is no token {id}; `casework token list` shows their ids");
        return Err(CliError::new(Exit::Failure, message).into());
    }
    message(format_args!("token {id} is revoked; servers stop taking it within 5 seconds"));
    Ok(ExitCode::SUCCESS)
}

fn role_names(token: &TokenRecord) -> Vec<Value> {
    token.roles.split(',').filter(|name| !name.is_empty()).map(Value::from).collect()
}

fn state(token: &TokenRecord, now: Timestamp) -> &'static str {
    if token.revoked_at.is_some() {
        "revoked"
    } else if token.expires_at.is_some_and(|end| end <= now) {
        "expired"
    } else {
        "active"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_a_number_and_a_unit() {
        assert_eq!(parse_lifetime("90d"), Ok(Lifetime(90 * 86_400 * 1_000_000)));
        assert_eq!(parse_lifetime("1s"), Ok(Lifetime(1_000_000)));
        for bad in ["", "d", "90", "0d", "-1d", "1.5h", "9999999999999d", "1é", "+1d"] {
            assert!(parse_lifetime(bad).is_err(), "{bad}");
        }
    }
}
