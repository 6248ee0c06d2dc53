//! What two promises cost: the key of operation ids, and the outbox row.
//!
//! Owns the schemas that leave one of them out, on throw-away databases. They are here to be measured: without the key an
//! operation could be recorded twice, without the row nothing would be delivered.

use super::casework_runs::{Load, on_database};
use super::contenders::Ground;
use super::figures::Figure;
use super::support::cli::casework;

/// For `--only`.
pub const NAME: &str = "costs";

struct Schema {
    contender: &'static str,
    /// What is changed in a migrated database.
    change: &'static str,
}

const SCHEMAS: [Schema; 3] = [
    Schema { contender: "the schema as it is", change: "SELECT 1" },
    Schema {
        contender: "without the key of operation ids",
        change: "ALTER TABLE operations DROP CONSTRAINT operations_pkey",
    },
    Schema {
        // The statement stays the same; the row is dropped where it would be stored.
        contender: "without outbox rows",
        change: "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
                 CREATE TRIGGER leave_out BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION leave_out()",
    },
];

/// Bytes that the tables and indexes of a database take, for each operation.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Stored {
    contender: &'static str,
    bytes: u64,
}

/// One run of each.
pub fn measure(ground: &Ground<'_>, note: fn(&Figure)) -> (Vec<Figure>, Vec<Stored>) {
    SCHEMAS
        .iter()
        .map(|schema| {
            let database = ground.server.database();
            casework(["migrate", "--database", database.url()]).expect_success();
            database.sql(schema.change);
            let load = Load::posts("spread", 128);
            let figure = on_database(ground.server, &database, load, schema.contender, ground.round, ground.options);
            note(&figure);
            let sizes = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c \
                         WHERE c.relname IN ('operations', 'outbox') AND c.relkind = 'r'";
            let all: u64 = database.sql(sizes)[0][0].parse().unwrap();
            let operations = figure.cost.expect("spread leaves operations").commands.max(1);
            (figure, Stored { contender: schema.contender, bytes: all / operations })
        })
        .unzip()
}

/// Prints the table.
pub fn print(figures: &[Figure], stored: &[Stored]) {
    let median = |contender: &str, of: &dyn Fn(&Figure) -> f64| {
        let mut values: Vec<f64> = figures.iter().filter(|figure| figure.contender == contender).map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let cost = |figure: &Figure| figure.cost.expect("spread leaves operations");
    if stored.is_empty() {
        return;
    }
    println!(
        "| schema | commands/s | PostgreSQL, µs a command | write-ahead log, bytes a command | stored, bytes a command |"
    );
    println!("|---|---|---|---|---|");
    for schema in &SCHEMAS {
        let Some(per_second) = median(schema.contender, &|figure| figure.per_second) else { continue };
        let micros = median(schema.contender, &|figure| cost(figure).database_micros.unwrap_or(0.0)).unwrap_or(0.0);
        let wal = median(schema.contender, &|figure| cost(figure).wal_bytes.unwrap_or(0.0)).unwrap_or(0.0);
        let bytes = stored.iter().find(|stored| stored.contender == schema.contender).map_or(0, |stored| stored.bytes);
        println!("| {} | {per_second:.0} | {micros:.1} | {wal:.0} | {bytes} |", schema.contender);
    }
    println!();
}
