//! Reading a workflow from TOML.
//!
//! Owns what a good file is: known keys, known and reachable statuses, no action twice, no name of a built-in command.
//! Fails with [`WorkflowError`], which names the line and the reason. Never reads a file: the text comes in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use toml::Spanned;

use super::command::is_built_in;
use super::ids::{CommandName, InvalidId, Status, WorkflowName};
use super::workflow::{Action, Requirement, WhoMay, Workflow};

/// Why a workflow file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct WorkflowError {
    /// The line, counted from 1.
    pub line: usize,
    /// A sentence that says what to change.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    initial: Spanned<String>,
    #[serde(default)]
    closed: Vec<Spanned<String>>,
    #[serde(default)]
    action: Vec<Spanned<FileAction>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAction {
    name: Spanned<String>,
    from: Vec<Spanned<String>>,
    to: Spanned<String>,
    by: WhoMay,
    reason: Requirement,
    revision: Requirement,
}

struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn fail<T>(&self, offset: usize, reason: impl Into<String>) -> Result<T, WorkflowError> {
        let before = self.0.as_bytes().get(..offset).unwrap_or(self.0.as_bytes());
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Err(WorkflowError { line, reason: reason.into() })
    }

    fn name<T>(&self, text: &Spanned<String>, parse: fn(&str) -> Result<T, InvalidId>) -> Result<T, WorkflowError> {
        match parse(text.get_ref()) {
            Ok(name) => Ok(name),
            Err(error) => self.fail(text.span().start, format!("`{}`: {error}", text.get_ref())),
        }
    }
}

impl Workflow {
    /// Reads a workflow.
    ///
    /// # Errors
    /// [`WorkflowError`] with the line: unknown or missing key, a bad name, an unknown or unreachable status, an action
    /// twice, an action named like a built-in command, no action at all.
    pub fn parse(text: &str) -> Result<Self, WorkflowError> {
        let lines = Lines(text);
        let file: File = match toml::from_str(text) {
            Ok(file) => file,
            Err(error) => return lines.fail(error.span().map_or(0, |span| span.start), error.message()),
        };
        let name = lines.name(&file.name, WorkflowName::parse)?;
        let initial = lines.name(&file.initial, Status::parse)?;
        if file.action.is_empty() {
            return lines.fail(0, "the workflow has no [[action]]; add at least one");
        }
        let mut actions = HashMap::new();
        let mut allowed: HashMap<Status, Vec<CommandName>> = HashMap::new();
        for entry in &file.action {
            let action = read_action(&lines, entry.get_ref())?;
            for status in &entry.get_ref().from {
                allowed.entry(Status::from_stored(status.get_ref().as_str())).or_default().push(action.name.clone());
            }
            let at = entry.get_ref().name.span().start;
            if let Some(twice) = actions.insert(action.name.clone(), action) {
                return lines.fail(at, format!("the action `{}` stands twice; remove one", twice.name));
            }
        }
        check_states(&lines, &file, &initial, &actions)?;
        let closed = file.closed.iter().map(|status| Status::from_stored(status.get_ref().as_str())).collect();
        let digest = digest(&file);
        Ok(Self { name, initial, closed, actions, allowed, text: Arc::from(text), digest })
    }
}

fn read_action(lines: &Lines<'_>, file: &FileAction) -> Result<Action, WorkflowError> {
    let name = lines.name(&file.name, CommandName::parse)?;
    if is_built_in(name.as_str()) {
        let reason = format!("`{name}` is a built-in command; give the action another name");
        return lines.fail(file.name.span().start, reason);
    }
    let mut from = HashSet::new();
    for status in &file.from {
        if !from.insert(lines.name(status, Status::parse)?) {
            return lines
                .fail(status.span().start, format!("the status `{}` stands twice in `from`", status.get_ref()));
        }
    }
    if from.is_empty() {
        return lines.fail(file.name.span().start, format!("the action `{name}` has an empty `from`; name a status"));
    }
    let to = lines.name(&file.to, Status::parse)?;
    Ok(Action { name, from, to, by: file.by, reason: file.reason, revision: file.revision })
}

/// Every status that is named can be reached from the initial one.
fn check_states(
    lines: &Lines<'_>,
    file: &File,
    initial: &Status,
    actions: &HashMap<CommandName, Action>,
) -> Result<(), WorkflowError> {
    let known: HashSet<&str> =
        actions.values().map(|action| action.to.as_str()).chain(std::iter::once(initial.as_str())).collect();
    let named = file.action.iter().flat_map(|entry| &entry.get_ref().from).chain(&file.closed);
    for status in named {
        if !known.contains(status.get_ref().as_str()) {
            let reason =
                format!("the status `{}` is unknown: it is neither `initial` nor any action's `to`", status.get_ref());
            return lines.fail(status.span().start, reason);
        }
    }
    let mut reached: HashSet<&str> = HashSet::from([initial.as_str()]);
    let mut frontier = vec![initial];
    while let Some(status) = frontier.pop() {
        for action in actions.values().filter(|action| action.from.contains(status)) {
            if reached.insert(action.to.as_str()) {
                frontier.push(&action.to);
            }
        }
    }
    for entry in &file.action {
        let to = &entry.get_ref().to;
        if !reached.contains(to.get_ref().as_str()) {
            let reason = format!("the status `{}` can't be reached from `{initial}`", to.get_ref());
            return lines.fail(to.span().start, reason);
        }
    }
    Ok(())
}

fn digest(file: &File) -> [u8; 32] {
    let sorted = |names: &[Spanned<String>]| {
        let mut names: Vec<&str> = names.iter().map(|name| name.get_ref().as_str()).collect();
        names.sort_unstable();
        serde_json::json!(names)
    };
    let actions: serde_json::Map<String, serde_json::Value> = file
        .action
        .iter()
        .map(|entry| {
            let action = entry.get_ref();
            let meaning = serde_json::json!({
                "from": sorted(&action.from), "to": action.to.get_ref(), "by": action.by,
                "reason": action.reason, "revision": action.revision,
            });
            (action.name.get_ref().clone(), meaning)
        })
        .collect();
    let meaning = serde_json::json!({
        "v": 1, "name": file.name.get_ref(), "initial": file.initial.get_ref(),
        "closed": sorted(&file.closed), "actions": actions,
    });
    Sha256::digest(super::canonical_json::canonical(&meaning).as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::super::workflow::PERMIT_TOML;
    use super::*;

    fn refusal(text: &str) -> (usize, String) {
        let error = Workflow::parse(text).expect_err("the file is bad");
        (error.line, error.reason)
    }

    #[test]
    fn the_built_in_workflow_is_valid_and_lists_what_is_allowed() {
        let permit = Workflow::permit();
        let allowed: Vec<&str> =
            permit.allowed_from(&Status::from_stored("in_review")).iter().map(CommandName::as_str).collect();
        assert_eq!(allowed, ["approve", "deny", "return", "amend", "withdraw"]);
        assert!(permit.is_closed(&Status::from_stored("denied")));
    }

    #[test]
    fn comments_and_white_space_do_not_change_the_digest_and_a_rule_does() {
        let permit = Workflow::permit();
        let same = Workflow::parse(&PERMIT_TOML.replace("[[action]]", "# why\n[[action]]")).expect("valid");
        assert_eq!(permit.digest(), same.digest());
        let other = Workflow::parse(&PERMIT_TOML.replacen("assignee", "anyone", 1)).expect("valid");
        assert_ne!(permit.digest(), other.digest());
    }

    #[test]
    fn a_bad_file_is_refused_with_line_and_reason() {
        let (line, reason) = refusal(&PERMIT_TOML.replace("closed =", "closes ="));
        assert!(line == 3 && reason.contains("closes"), "{line} {reason}");
        let (line, reason) = refusal(&PERMIT_TOML.replace("\"deny\"", "\"approve\""));
        assert!(line == 14 && reason.contains("twice"), "{line} {reason}");
        let (line, reason) = refusal(&PERMIT_TOML.replace("\"deny\"", "\"note\""));
        assert!(line == 14 && reason.contains("built-in"), "{line} {reason}");
        let (_, reason) = refusal(&PERMIT_TOML.replace("from = [\"returned\"]", "from = [\"retorned\"]"));
        assert!(reason.contains("unknown"), "{reason}");
        let (_, reason) = refusal(
            &PERMIT_TOML
                .replace("\"reopen\"\nfrom = [\"approved\", \"denied\"]", "\"reopen\"\nfrom = [\"lost\"]")
                .replace("to = \"withdrawn\"", "to = \"lost\"")
                .replace("from = [\"in_review\", \"returned\"]", "from = [\"lost\"]"),
        );
        assert!(reason.contains("reached") || reason.contains("unknown"), "{reason}");
        let (line, _) = refusal("name = \"a\"\ninitial = \"b\"\nx");
        assert_eq!(line, 3);
    }
}
