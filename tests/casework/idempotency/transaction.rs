//! A handler that stores its answer in the transaction of its own rows: both are there, or neither.

use casework::idempotency::{Claim, ClaimInHand, ClaimToken, Holding, IdempotencyStore, Identity, SqlStore};
use diesel::connection::SimpleConnection;
use diesel::{Connection, SqliteConnection};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};

use super::promises::{LONG, answer, fingerprint, fresh_identity};
use super::stores::sql;
use crate::support::database::TestDatabase;

/// What ends a handler's transaction.
#[derive(Debug)]
enum Ended {
    /// The handler changed its mind.
    ByHandler,
    /// Another one has run the request.
    LeaseLost,
    #[expect(dead_code, reason = "shown where a test fails")]
    Database(diesel::result::Error),
}

impl From<diesel::result::Error> for Ended {
    fn from(error: diesel::result::Error) -> Self {
        Self::Database(error)
    }
}

/// Inserts a payment and stores the answer, in one transaction; rolls back where the handler or the layer says so.
async fn pay(database: &TestDatabase, claim: &ClaimInHand, goes_well: bool) -> Result<(), Ended> {
    let insert = "INSERT INTO payments VALUES (47)";
    let judge = |held| match held {
        Holding::Lost => Err(Ended::LeaseLost),
        Holding::Held if goes_well => Ok(()),
        Holding::Held => Err(Ended::ByHandler),
    };
    if database.is_postgres() {
        let mut connection = AsyncPgConnection::establish(database.url()).await.unwrap();
        connection
            .transaction(async |connection| {
                connection.batch_execute(insert).await?;
                judge(SqlStore::complete_in_postgres(connection, claim, &answer("paid")).await?)
            })
            .await
    } else {
        let path = database.url().strip_prefix("sqlite:").unwrap();
        let mut connection = SqliteConnection::establish(path).unwrap();
        connection.immediate_transaction(|connection| {
            connection.batch_execute(insert)?;
            judge(SqlStore::complete_in_sqlite(connection, claim, &answer("paid"))?)
        })
    }
}

async fn look(store: &dyn IdempotencyStore, identity: &Identity) -> Claim {
    store.claim(identity, &fingerprint("{}"), ClaimToken::random(), LONG).await.unwrap()
}

on_both_databases! {
    /// Rolled back: no payment and no answer. Committed: both. Taken over: neither of the old owner's.
    async fn the_answer_commits_with_the_rows(database: &TestDatabase) {
        let stores = tokio::task::block_in_place(|| sql(database));
        let store = stores.first.as_ref();
        database.sql("CREATE TABLE payments (reviewer integer)");
        let payments = || database.sql("SELECT count(*) FROM payments");
        let (identity, token) = (fresh_identity(), ClaimToken::random());
        assert_eq!(store.claim(&identity, &fingerprint("{}"), token, LONG).await, Ok(Claim::Claimed));
        let claim = ClaimInHand::new(identity, fingerprint("{}"), token, LONG);
        assert!(matches!(pay(database, &claim, false).await, Err(Ended::ByHandler)));
        assert!(matches!(look(store, &identity).await, Claim::InFlight { .. }));
        assert_eq!(payments(), [["0"]]);
        assert!(pay(database, &claim, true).await.is_ok());
        assert_eq!(look(store, &identity).await, Claim::Completed(answer("paid")));
        // What the layer does afterwards changes nothing.
        let again = store.complete(&identity, &fingerprint("{}"), token, &answer("paid"), LONG).await;
        assert_eq!(again, Ok(Holding::Held));
        assert_eq!(payments(), [["1"]]);
        let late = ClaimInHand::new(identity, fingerprint("{}"), ClaimToken::random(), LONG);
        assert!(matches!(pay(database, &late, true).await, Err(Ended::LeaseLost)));
        assert_eq!(payments(), [["1"]]);
    }
}
