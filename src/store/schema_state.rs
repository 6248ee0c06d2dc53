//! How a schema stands to the binary, told from the versions of migrations alone. Pure; the stores read the versions.

use diesel::backend::Backend;
use diesel::migration::Migration;

use super::SchemaState;

/// The versions of the migrations in this binary.
///
/// # Errors
/// The words of Diesel where the embedded folder can't be read.
pub(super) fn embedded_versions<DB: Backend>(
    migrations: diesel::migration::Result<Vec<Box<dyn Migration<DB>>>>,
) -> Result<Vec<String>, String> {
    let migrations = migrations.map_err(|error| error.to_string())?;
    Ok(migrations.iter().map(|migration| migration.name().version().to_string()).collect())
}

/// A migration that the binary does not know puts the schema ahead, whatever else is missing.
pub(super) fn compare(embedded: &[String], applied: &[String]) -> SchemaState {
    if applied.iter().any(|version| !embedded.contains(version)) {
        SchemaState::Ahead
    } else if embedded.iter().any(|version| !applied.contains(version)) {
        SchemaState::Behind
    } else {
        SchemaState::Current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_that_the_binary_does_not_know_means_ahead() {
        let versions = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let embedded = versions(&["0001", "0002"]);
        assert_eq!(compare(&embedded, &[]), SchemaState::Behind);
        assert_eq!(compare(&embedded, &versions(&["0001"])), SchemaState::Behind);
        assert_eq!(compare(&embedded, &versions(&["0002", "0001"])), SchemaState::Current);
        assert_eq!(compare(&embedded, &versions(&["0001", "0003"])), SchemaState::Ahead);
    }
}
