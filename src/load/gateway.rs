//! Commands without a network: from this process straight into a gateway.
//!
//! Owns what HTTP would do besides: the body is read as strictly, and becomes a command. Fails where the preparation is
//! refused; later a refusal is counted.

use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use super::mix::{Generator, Planned};
use super::tally::LoadAnswer;
use super::{LoadError, Shared, note_prepared};
use crate::actor::{CommandGateway, Submission};
use crate::domain::{ActorId, CaseId, Command, CommandDraft, CommandName, Members, OperationId, parse_strict};
use crate::engine::Answer;

/// Commands in flight while the cases are made.
const PREPARE_WINDOW: usize = 256;
/// Who sends them.
const ACTOR: &str = "load";

/// Opens every case, and sends the commands whose outcomes a mix repeats.
pub(super) async fn prepare(gateway: &CommandGateway, generator: &Generator) -> Result<(), LoadError> {
    let commands = stream::iter(generator.opens().chain(generator.first_sendings()));
    let sent = commands.map(|planned| async move {
        let answer = send(gateway, generator, &planned).await;
        (planned, answer)
    });
    let mut answers = sent.buffered(PREPARE_WINDOW);
    while let Some((planned, answer)) = answers.next().await {
        note_prepared(generator, &planned, answer)?;
    }
    Ok(())
}

/// Sends one command after another until the run is over.
pub(super) async fn run(shared: Rc<Shared>, gateway: CommandGateway) {
    while let Some(due) = shared.timetable.next(Instant::now()) {
        shared.pacer.until(due).await;
        let planned = shared.generator.next();
        let answer = send(&gateway, &shared.generator, &planned).await;
        shared.answered(&planned, due, &answer);
    }
}

async fn send(gateway: &CommandGateway, generator: &Generator, planned: &Planned) -> LoadAnswer {
    let command = command(&generator.case_id(planned.case), planned);
    let (receipt, is_repeat) = match gateway.submit(Submission { command, recorded_at: None, lane: None }).await {
        Answer::Applied(receipt) => (receipt, false),
        Answer::Replayed(receipt) => (receipt, true),
        Answer::Rejected(rejection) => return LoadAnswer::Problem(rejection.code().into()),
        Answer::Unsettled(trouble) => return LoadAnswer::Problem(trouble.code().into()),
    };
    LoadAnswer::Outcome { body: Bytes::copy_from_slice(receipt.outcome.as_bytes()), is_repeat }
}

fn command(case_id: &str, planned: &Planned) -> Command {
    const OWN: &str = "a load's commands are made to be valid";
    let body = parse_strict(planned.body().as_bytes()).expect(OWN);
    let serde_json::Value::Object(mut object) = body else { unreachable!("{OWN}") };
    let members = Members::take(&mut object, &mut Vec::new());
    Command::new(CommandDraft {
        case_id: CaseId::parse(case_id).expect(OWN),
        operation_id: OperationId::from_uuid(planned.operation_id),
        actor: ActorId::from_stored(ACTOR),
        name: CommandName::parse(planned.command).expect(OWN),
        members,
    })
    .expect(OWN)
}
