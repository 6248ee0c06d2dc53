//! `/problems/{code}`: what a problem means and what to do about it, for the person who follows its `type`.
//!
//! Owns the prose. The facts (status, title, `retryable`, `reuse_key`) come from the one table in `problems`.

use super::problems::ProblemCode;

impl ProblemCode {
    /// What has happened, and what to do next.
    fn explanation(self) -> (&'static str, &'static str) {
        match self {
            Self::MalformedJson => (
                "The body (or the line of a stream) is not JSON, has the same member twice in one object, holds half of a \
                 surrogate pair, or is nested deeper than 64 levels. Such a text could be read in two ways, so it is not read \
                 at all.",
                "Let a JSON library write the body. The detail names the place.",
            ),
            Self::OperationIdMissing => (
                "A command needs an id that its sender makes, so that sending it twice changes the case once.",
                "Make a UUID for each new command and send it as `Idempotency-Key` (in a stream: `operation_id`). Keep it for \
                 every repeat of the same command.",
            ),
            Self::OperationIdInvalid => (
                "The operation id is not a UUID of 36 characters with hyphens, it is the nil UUID, or more than one was sent.",
                "Send exactly one UUID, bare or in double quotes.",
            ),
            Self::Unauthenticated => (
                "The request carries no token, or one that is unknown, expired or revoked.",
                "Send `Authorization: Bearer TOKEN`. `casework token issue` makes a token. A command that is repeated with a \
                 new token keeps its operation id.",
            ),
            Self::Forbidden => (
                "The token is valid, but its roles do not cover this request: `clerk` may open, assign, unassign and note; \
                 `reviewer` may take the actions of a workflow and note; `admin` may do all of that; only `proxy` may name \
                 another actor.",
                "Use a token with the role, or have one issued.",
            ),
            Self::NotAssigned => (
                "The action is for those who are assigned to the case, and this actor was not when it was decided.",
                "Have the actor assigned, then send the command again. A rejection is not remembered, so the same operation id \
                 will do.",
            ),
            Self::NotFound => (
                "No route has this path. A slash inside a case id must be written as %2F.",
                "Compare the path with the documentation.",
            ),
            Self::CaseNotFound => ("There is no case with this id.", "Check the id, or send `open` first."),
            Self::OperationNotFound => (
                "No operation with this id is recorded for the case, and none is on its way in this process.",
                "If its answer was lost, send the command again, unchanged and under the same operation id.",
            ),
            Self::MethodNotAllowed => {
                ("The path exists, but not with this method.", "Use one of the methods that the header `Allow` names.")
            }
            Self::RequestTimeout => (
                "The body of the request did not arrive whole within 30 seconds. Nothing was recorded.",
                "Send the request again, under the same operation id.",
            ),
            Self::IllegalTransition => (
                "The case's workflow does not allow the command in its present status. The answer names the status, the \
                 revision and what is allowed.",
                "Read the case again and decide on what it says now.",
            ),
            Self::OperationConflict => (
                "The operation id is taken: another command, or another actor's, was recorded under it for this case.",
                "Make a new id for a new command. To repeat a command, send it exactly as the first time.",
            ),
            Self::CaseExists => (
                "A case with this id was opened before, by another operation.",
                "Go on with the case, or choose another id.",
            ),
            Self::OutcomeExpired => (
                "The command was applied, long ago: its outcome is older than the retention horizon and was pruned.",
                "Do not send it again. The case's history still shows that it was applied.",
            ),
            Self::StaleRevision => (
                "The command was decided on a revision that is no longer the current one. `current_revision` names that.",
                "Read the case, decide again, and send a new command under a new operation id.",
            ),
            Self::TooLarge => (
                "A body, and a line of a stream, may have 65,536 bytes at most.",
                "Send less: keep large documents elsewhere and refer to them.",
            ),
            Self::UnsupportedMediaType => (
                "Commands are read as `application/json`, streams as `application/x-ndjson`, both without content encoding.",
                "Set `Content-Type` accordingly.",
            ),
            Self::InvalidCommand => (
                "The request can be read, but something in it is not allowed: an unknown member, a blank reason, a number out \
                 of range, a missing revision, an unknown command. `errors` names each fault with a JSON pointer.",
                "Correct what is named and send it as a new command, under a new operation id.",
            ),
            Self::Internal => (
                "The server met something that must not be. Nothing was recorded by this attempt.",
                "Tell the operators the `request_id`. The same command may be sent again under the same operation id.",
            ),
            Self::Overloaded => (
                "More commands wait than the server takes on. Nothing was recorded.",
                "Wait as `Retry-After` says, then send it again under the same operation id.",
            ),
            Self::Draining => (
                "The process is shutting down and takes no new commands. Nothing was recorded.",
                "Send it again under the same operation id, to another process or after the restart.",
            ),
            Self::Contention => (
                "Other writers changed or held the case for as long as the command could wait. Nothing was recorded.",
                "Wait as `Retry-After` says, then send it again under the same operation id.",
            ),
            Self::Unavailable => (
                "The database is away, or a commit got no clear answer. A command may have been applied or not.",
                "Wait as `Retry-After` says, then send it again, unchanged and under the same operation id: it is applied \
                 once, and the answer will say how it ended.",
            ),
        }
    }

    /// The page.
    pub(super) fn page(self) -> String {
        let facts = self.facts();
        let (meaning, advice) = self.explanation();
        let retry = match (facts.retryable, facts.reuse_key) {
            (true, true) => "The same request may succeed unchanged; keep the operation id.",
            (true, false) => "The same request may succeed unchanged, under a new operation id.",
            (false, true) => "The same request will not succeed; once it is put right, keep the operation id.",
            (false, false) => {
                "As long as nothing else changes, the same request is refused again; a changed command takes a new operation \
                 id."
            }
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{code}: {title}</title>\n\
             <style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem}}</style>\n\
             </head>\n<body>\n<main>\n<p><code>{status} {code}</code></p>\n<h1>{title}</h1>\n\
             <p>{meaning}</p>\n<h2>What to do</h2>\n<p>{advice}</p>\n<p>{retry}</p>\n</main>\n</body>\n</html>\n",
            code = facts.code,
            status = facts.status,
            title = facts.title,
            meaning = code_marks(meaning),
            advice = code_marks(advice),
        )
    }
}

/// Turns `x` in backticks into a code element. The texts are our own and hold no markup.
fn code_marks(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 32);
    for (i, part) in text.split('`').enumerate() {
        if i > 0 {
            html.push_str(if i % 2 == 1 { "<code>" } else { "</code>" });
        }
        html.push_str(part);
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_whole_and_names_its_code() {
        for code in ProblemCode::ALL {
            let page = code.page();
            assert!(page.contains(code.facts().code) && page.ends_with("</html>\n"));
            assert_eq!(page.matches("<code>").count(), page.matches("</code>").count(), "{page}");
            assert!(!page.contains('`'));
        }
    }
}
