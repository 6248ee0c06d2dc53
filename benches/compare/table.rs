//! The tables that are printed, as Markdown: ratios, figures, and what a command costs.
//!
//! Owns the words alone; the numbers come from `figures`.

use super::contenders::{ROWS, Row};
use super::figures::{Cost, Figure, Measure, standing};
use super::in_process;
use super::options::Options;

/// Prints all of them.
pub fn print(figures: &[Figure], options: &Options) {
    println!("rounds: {}, of {} s each; medians (least to most of the rounds)\n", options.rounds, options.seconds);
    let rows: Vec<&Row> = ROWS.iter().filter(|row| options.wants(row.name)).collect();
    if !rows.is_empty() {
        println!("| row | Casework | | against | | times | floor | reach for |");
        println!("|---|---|---|---|---|---|---|---|");
        rows.iter().for_each(|row| print_row(row, figures));
        println!();
        print_costs(&rows, figures);
    }
    in_process::print(figures);
}

fn print_row(row: &Row, figures: &[Figure]) {
    let stands = |contender| standing(figures, contender, row.measure);
    let (Some(ours), Some(theirs)) = (stands(row.casework.name()), stands(row.peer.name())) else { return };
    let digits = if row.measure == Measure::P99 { 3 } else { 0 };
    let show = |standing: &super::figures::Standing| {
        format!("{:.digits$} ({:.digits$} to {:.digits$})", standing.median, standing.least, standing.most)
    };
    let ratio = ours.median / theirs.median;
    let (bound, holds) = match row.measure {
        Measure::Throughput => (format!("at least {}", row.floor), ratio >= row.floor),
        Measure::P99 => (format!("at most {}", row.floor), ratio <= row.floor),
    };
    println!(
        "| {} | {}, {} | {} | {}, {} | {} | {ratio:.2}{} | {bound} | {} |",
        row.name,
        row.casework.words(),
        ours.variant,
        show(&ours),
        row.peer.words(),
        theirs.variant,
        show(&theirs),
        if holds { "" } else { " BELOW" },
        row.reach.map_or_else(String::new, |reach| reach.to_string()),
    );
}

/// What a command costs, in the variant that stands in the table above.
fn print_costs(rows: &[&Row], figures: &[Figure]) {
    println!("| processor time a command, µs | server | PostgreSQL | client | write-ahead log, bytes |");
    println!("|---|---|---|---|---|");
    let mut shown: Vec<&str> = Vec::new();
    for (row, contender) in rows.iter().flat_map(|row| [(row, row.peer), (row, row.casework)]) {
        let Some(standing) = standing(figures, contender.name(), row.measure) else { continue };
        if shown.contains(&contender.name()) {
            continue;
        }
        shown.push(contender.name());
        let is_it = |figure: &&Figure| figure.contender == contender.name() && figure.variant == standing.variant;
        let costs: Vec<Cost> = figures.iter().filter(is_it).filter_map(|figure| figure.cost).collect();
        if costs.is_empty() {
            continue;
        }
        let show = |of: fn(&Cost) -> Option<f64>| {
            let mut values: Vec<f64> = costs.iter().filter_map(of).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).map_or_else(String::new, |median| format!("{median:.0}"))
        };
        println!(
            "| {}, {} | {} | {} | {} | {} |",
            contender.words(),
            standing.variant,
            show(|cost| cost.server_micros),
            show(|cost| cost.database_micros),
            show(|cost| Some(cost.client_micros)),
            show(|cost| cost.wal_bytes)
        );
    }
    println!();
}
