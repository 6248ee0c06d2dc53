//! The inner parts, each alone: `cargo bench --bench inner`, with a part of a name to run fewer.
//!
//! Parsing, digest, deciding and a step of the case machine (`pure`), commits of 1 to 512 commands on each database
//! (`commits`), and the memory of a case (`memory`, a count and no time). `-- --test` runs each once. PostgreSQL is private
//! to the run, or the server that `CASEWORK_TEST_POSTGRES` names. Stops at the first surprise.

#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![allow(unused_macros, reason = "the shared test tools serve the tests as well")]
#![allow(missing_docs, reason = "the shared test tools are documented where they live")]

#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "a benchmark uses a part of the tools")]
mod support;

mod commits;
mod memory;
mod pure;

use std::time::Duration;

use casework::domain::{ActorId, CaseId, Command, CommandDraft, CommandName, Members, OperationId, parse_strict};
use criterion::Criterion;

/// The body of the command that most benchmarks run.
const NOTE: &str = r#"{"reason":"All documents reviewed."}"#;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    pure::bench(&mut criterion);
    commits::bench(&mut criterion);
    criterion.final_summary();
    // Not a matter of time: criterion would have nothing to do with it.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with("--")).collect();
    if names.iter().all(|name| "memory".contains(name)) {
        memory::print(arguments.iter().any(|argument| argument == "--test"));
    }
}

/// A new command of actor 47.
fn command(case_id: &CaseId, name: &str, body: &str) -> Command {
    let serde_json::Value::Object(mut object) = parse_strict(body.as_bytes()).unwrap() else { panic!("an object") };
    let members = Members::take(&mut object, &mut Vec::new());
    Command::new(CommandDraft {
        case_id: case_id.clone(),
        operation_id: OperationId::from_uuid(uuid::Uuid::new_v4()),
        actor: ActorId::parse("47").unwrap(),
        name: CommandName::parse(name).unwrap(),
        members,
    })
    .unwrap()
}
