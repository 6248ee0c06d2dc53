//! `casework serve --demo`: a temporary database, case 62, and commands to paste.
//!
//! Owns the story: real commands through the gateway bring case 62 to revision 5, in review, assigned to reviewers 47 and
//! 81. The database goes with the process. Never touches a database that was there before.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use uuid::Uuid;

use super::output::message;
use crate::actor::{CommandGateway, Submission};
use crate::clock;
use crate::domain::{ActorId, CaseId, Command, CommandDraft, CommandName, Members, OperationId};
use crate::engine::Answer;
use crate::http::{NewToken, Role};
use crate::store::DatabaseUrl;

/// A folder of our own for the database; removed on drop.
pub(super) struct DemoDatabase {
    folder: PathBuf,
}

impl DemoDatabase {
    /// Makes the folder, for this user alone.
    pub(super) fn create() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("casework-demo-{}", Uuid::new_v4()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("can't make a temporary folder at {}", folder.display()))?;
        Ok(Self { folder })
    }

    pub(super) fn url(&self) -> DatabaseUrl {
        DatabaseUrl::Sqlite(self.folder.join("casework.db"))
    }
}

impl Drop for DemoDatabase {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            message(format_args!("the demo's folder {} can't be removed: {error}", self.folder.display()));
        }
    }
}

/// The tokens that the demo prints.
pub(super) struct DemoTokens {
    clerk: SecretString,
    reviewer_47: SecretString,
    reviewer_81: SecretString,
}

/// Brings case 62 to revision 5 and issues the tokens.
pub(super) async fn fill(gateway: &CommandGateway) -> anyhow::Result<DemoTokens> {
    let story = [
        ("clerk", "open", json!({ "payload": { "subject": "roof terrace" } })),
        ("clerk", "assign", json!({ "payload": { "assignee": "47" } })),
        ("clerk", "assign", json!({ "payload": { "assignee": "81" } })),
        ("47", "return", json!({ "expected_revision": 0, "reason": "The site plan is missing." })),
        ("clerk", "resubmit", json!({ "expected_revision": 1, "reason": "Site plan added." })),
        ("81", "return", json!({ "expected_revision": 2, "reason": "The site plan is not to scale." })),
        ("clerk", "resubmit", json!({ "expected_revision": 3, "reason": "Site plan drawn to scale." })),
        ("clerk", "amend", json!({ "expected_revision": 4, "reason": "The terrace is 2 m narrower." })),
    ];
    for (actor, name, members) in story {
        let command = command(actor, name, members)?;
        match gateway.submit(Submission { command, recorded_at: None, lane: None }).await {
            Answer::Applied(_) => {}
            other => anyhow::bail!("the demo's {name} was not applied: {other:?}"),
        }
    }
    Ok(DemoTokens {
        clerk: issue(gateway, "clerk", Role::Clerk).await?,
        reviewer_47: issue(gateway, "47", Role::Reviewer).await?,
        reviewer_81: issue(gateway, "81", Role::Reviewer).await?,
    })
}

fn command(actor: &str, name: &str, members: Value) -> anyhow::Result<Command> {
    let Value::Object(mut members) = members else { anyhow::bail!("the demo's {name} has no members") };
    let mut errors = Vec::new();
    let members = Members::take(&mut members, &mut errors);
    Ok(Command::new(CommandDraft {
        case_id: CaseId::parse("62")?,
        operation_id: OperationId::from_uuid(Uuid::new_v4()),
        actor: ActorId::parse(actor)?,
        name: CommandName::parse(name)?,
        members,
    })?)
}

async fn issue(gateway: &CommandGateway, subject: &str, role: Role) -> anyhow::Result<SecretString> {
    let NewToken { token, record } = NewToken::issue(ActorId::parse(subject)?, &[role], clock::now(), None);
    gateway.database().call(move |store| async move { store.token_insert(&record).await }).await?;
    Ok(token)
}

/// What the demo prints: who is who, and commands that a shell runs as they stand.
pub(super) fn text(address: SocketAddr, tokens: &DemoTokens) -> String {
    let case = format!("http://{address}/v1/cases/62");
    let token = tokens.reviewer_47.expose_secret();
    let [stale, applied, again] = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    let approve = |revision: u32, reason: &str, id: Uuid| {
        format!(
            "curl -sS -i -w '\\n' -X POST {case}/approve \\\n  -H 'Authorization: Bearer {token}' \\\n  \
             -H 'Idempotency-Key: {id}' \\\n  -H 'Content-Type: application/json' \\\n  \
             -d '{{\"expected_revision\":{revision},\"reason\":\"{reason}\"}}'"
        )
    };
    let read = |path: &str| format!("curl -sS -i -w '\\n' {case}{path} \\\n  -H 'Authorization: Bearer {token}'");
    let reviewed = "All documents reviewed.";
    let steps = [
        (
            "Reviewer 47 approves what an old page showed, revision 4: 412, nothing is recorded.",
            approve(4, reviewed, stale),
        ),
        ("At revision 5, which is the current one: 200, and case 62 is approved.", approve(5, reviewed, applied)),
        (
            "The same again, as after a lost answer: 200 with Idempotent-Replay: true, byte for byte the same outcome.",
            approve(5, reviewed, applied),
        ),
        (
            "Another reason under the same operation id: 409 operation-conflict.",
            approve(5, "Approved with conditions.", applied),
        ),
        ("Approving once more under a new id: 409 illegal-transition.", approve(5, reviewed, again)),
        ("The outcome, by its operation id.", read(&format!("/operations/{applied}"))),
        ("The case as it stands now.", read("")),
    ];
    let mut text = format!(
        "Casework demo: case 62 is in review at revision 5, assigned to reviewers 47 and 81.\n\
         Its database is temporary and goes when the server stops (Ctrl-C).\n\n\
         Tokens:\n  reviewer 47  {token}\n  reviewer 81  {}\n  clerk        {}\n\n\
         Paste these into another terminal, one after the other:\n",
        tokens.reviewer_81.expose_secret(),
        tokens.clerk.expose_secret(),
    );
    for (i, (what, command)) in steps.iter().enumerate() {
        write!(text, "\n# {}. {what}\n{command}\n", i + 1).expect("a String takes every text");
    }
    text
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_its_handle() {
        let database = DemoDatabase::create().unwrap();
        let folder = database.folder.clone();
        assert!(folder.is_dir());
        drop(database);
        assert!(!folder.exists());
    }

    #[test]
    fn what_is_printed_can_be_pasted() {
        let secret = |text: &str| SecretString::from(text);
        let tokens = DemoTokens { clerk: secret("c"), reviewer_47: secret("r47"), reviewer_81: secret("r81") };
        let text = text("127.0.0.1:8080".parse().unwrap(), &tokens);
        let commands: Vec<&str> = text.split("\n\n").filter(|part| part.contains("curl ")).collect();
        assert_eq!(commands.len(), 7);
        for command in commands {
            assert_eq!(command.matches('\'').count() % 2, 0, "{command}");
            assert!(command.contains("-H 'Authorization: Bearer r47'"));
        }
    }
}
