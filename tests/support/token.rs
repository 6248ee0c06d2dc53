//! API tokens, issued as an operator does: by the command line, beside a running server or before it starts.

use super::cli::casework;

/// A token as `casework token issue --json` shows it, once.
#[derive(Debug, Clone)]
pub struct IssuedToken {
    /// What goes behind `Authorization: Bearer`.
    pub token: String,
    /// What `token revoke` takes.
    pub id: String,
    /// Whose token it is: the actor of the commands sent with it.
    pub subject: String,
}

/// Issues a token for `subject` with `roles` in the database at `database_url`.
///
/// # Panics
/// When the command fails or prints something else than promised.
#[must_use]
#[track_caller]
pub fn issue_token(database_url: &str, subject: &str, roles: &[&str]) -> IssuedToken {
    issue_token_with(database_url, subject, roles, &[])
}

/// The same with further arguments, `["--expires", "1s"]` say.
///
/// # Panics
/// When the command fails or prints something else than promised.
#[must_use]
#[track_caller]
pub fn issue_token_with(database_url: &str, subject: &str, roles: &[&str], further_arguments: &[&str]) -> IssuedToken {
    let mut arguments = vec!["token", "issue", "--database", database_url];
    arguments.extend(["--subject", subject]);
    arguments.push("--role");
    arguments.extend(roles);
    arguments.push("--json");
    arguments.extend(further_arguments);
    let printed = casework(arguments).expect_success().json();
    let text = |member: &str| {
        printed[member]
            .as_str()
            .map_or_else(|| panic!("no text member {member:?} in what token issue printed: {printed}"), str::to_owned)
    };
    assert_eq!(text("subject"), subject, "the token names its subject");
    IssuedToken {
        token: text("token"),
        // Shown as text or as a number: either way it goes back to `token revoke` as it stands.
        id: match &printed["id"] {
            serde_json::Value::String(id) => id.clone(),
            other => other.to_string(),
        },
        subject: subject.to_owned(),
    }
}
