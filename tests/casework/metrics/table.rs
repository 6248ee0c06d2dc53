//! Where metrics are served, and the README's table of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::new_note;
use super::scrape::Scrape;
use crate::case_62::Desk;
use crate::support::database::{TestDatabase, block_on};
use crate::support::http::HttpClient;
use crate::support::process::crate_root;
use crate::support::server::ServerOptions;
use crate::support::wait::eventually_some;

/// The README's table: by name, the type and the labels.
fn readme_table() -> BTreeMap<String, (String, String)> {
    let readme = std::fs::read_to_string(crate_root().join("README.md")).unwrap();
    let mut table = BTreeMap::new();
    for row in readme.lines().filter(|line| line.starts_with("| `casework_")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("four cells: {row}") };
        assert!(!meaning.is_empty(), "{row}");
        let before = table.insert(name.replace('`', ""), (kind.to_owned(), labels.replace('`', "")));
        assert!(before.is_none(), "{name} comes twice");
    }
    table
}

#[test]
fn the_readme_names_every_metric_with_its_type_and_labels() {
    let database = TestDatabase::sqlite();
    let scrape = block_on(async {
        let desk = Desk::open(&database);
        // A histogram by command and outcome is there once it has something to show.
        desk.review("62").await;
        new_note(&desk, "62").await.expect_status(200);
        Scrape::of(&desk.client).await
    });
    let shown: BTreeMap<String, (String, String)> = scrape
        .types
        .iter()
        .map(|(name, kind)| {
            let labels: Vec<&str> = scrape.labels(name).into_iter().collect();
            (name.clone(), (kind.clone(), labels.join(", ")))
        })
        .collect();
    assert_eq!(readme_table(), shown);
}

/// Every name that the README's examples ask for is one of the table's.
#[test]
fn the_queries_of_the_readme_name_metrics_that_exist() {
    let readme = std::fs::read_to_string(crate_root().join("README.md")).unwrap();
    let queries: Vec<&str> = readme.split("```promql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!queries.is_empty());
    let table = readme_table();
    let words = queries.iter().flat_map(|query| query.split(|c: char| !(c.is_ascii_lowercase() || c == '_')));
    let names: Vec<&str> = words.filter(|word| word.starts_with("casework_")).collect();
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        assert!(table.contains_key(of_histogram.unwrap_or(name)), "{name}");
    }
}

#[test]
fn metrics_have_a_listener_of_their_own_where_one_is_asked_for() {
    let database = TestDatabase::sqlite();
    block_on(async {
        let desk = Desk::open(&database);
        // No token, as a scraper has none; and nothing is cached.
        let answer = desk.client.get("/metrics", None).await.expect_status(200);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        drop(desk);

        let desk = Desk::open_with(&database, |options| options.argument("--metrics-listen=127.0.0.1:0"));
        let url = eventually_some(Duration::from_secs(60), "the server says where its metrics are", || {
            let log = desk.server.log();
            let (_, rest) = log.split_once("metrics at ")?;
            Some(rest.split_once("/metrics\n")?.0.to_owned())
        });
        let of_metrics = HttpClient::new(&url);
        let scrape = Scrape::of(&of_metrics).await;
        assert!(scrape.has("casework_build_info", &[]));
        desk.client.get("/metrics", None).await.expect_problem(404, "not-found");
        desk.client.get("/healthz", None).await.expect_status(200);
        for path in ["/", "/healthz", "/v1/cases", "/v1/cases/62"] {
            of_metrics.get(path, Some(&desk.tokens.clerk)).await.expect_problem(404, "not-found");
        }

        let taken = url.strip_prefix("http://").unwrap();
        let refused = ServerOptions::new(database.url()).argument(format!("--metrics-listen={taken}"));
        let refused = refused.start_refused(Duration::from_secs(30)).expect_code(1);
        assert!(refused.stderr.contains("--metrics-listen"), "{}", refused.stderr);
    });
}
