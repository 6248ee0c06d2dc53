//! How a schema stands to the binary, told from the versions of migrations alone. Pure; the stores read the versions.

use diesel::backend::Backend;
use diesel::migration::Migration;

use super::SchemaState;

/// A migration in this binary.
pub(super) struct Embedded {
    /// What the database marks as run (`0001`).
    pub(super) version: String,
    /// What people are told (`0001_tables`).
    pub(super) name: String,
}

/// The migrations in this binary.
///
/// # Errors
/// The words of Diesel where the embedded folder can't be read.
pub(super) fn embedded<DB: Backend>(
    migrations: diesel::migration::Result<Vec<Box<dyn Migration<DB>>>>,
) -> Result<Vec<Embedded>, String> {
    let migrations = migrations.map_err(|error| error.to_string())?;
    let embedded = migrations.iter().map(|migration| Embedded {
        version: migration.name().version().to_string(),
        name: migration.name().to_string(),
    });
    Ok(embedded.collect())
}

/// The name of a migration; its version where the binary does not know it.
pub(super) fn name_of(embedded: &[Embedded], version: &str) -> String {
    let known = embedded.iter().find(|migration| migration.version == version);
    known.map_or(version, |migration| migration.name.as_str()).to_owned()
}

/// A migration that the binary does not know puts the schema ahead, whatever else is missing.
pub(super) fn compare(embedded: &[Embedded], applied: &[String]) -> SchemaState {
    if applied.iter().any(|version| !embedded.iter().any(|migration| migration.version == *version)) {
        SchemaState::Ahead
    } else if embedded.iter().any(|migration| !applied.contains(&migration.version)) {
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
        let embedded = |version: &str| Embedded { version: version.into(), name: format!("{version}_name") };
        let embedded = [embedded("0001"), embedded("0002")];
        assert_eq!((name_of(&embedded, "0002"), name_of(&embedded, "0003")), ("0002_name".into(), "0003".into()));
        assert_eq!(compare(&embedded, &[]), SchemaState::Behind);
        assert_eq!(compare(&embedded, &versions(&["0001"])), SchemaState::Behind);
        assert_eq!(compare(&embedded, &versions(&["0002", "0001"])), SchemaState::Current);
        assert_eq!(compare(&embedded, &versions(&["0001", "0003"])), SchemaState::Ahead);
    }
}
