//! The workflows that this process knows, and the one that a new case gets by default.
//!
//! Owns the rule that a name means one workflow for ever: what is configured is stored at first use, and a file that differs
//! under a stored name is refused. A workflow that another process stored is fetched when it is met. Never forgets one.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use crate::domain::{CommandName, Workflow, WorkflowName};
use crate::store::{Database, StoreError, StoredWorkflow};

/// Why the configured workflows can't be used with this database.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowConflict {
    /// Another workflow is stored under the name.
    #[error(
        "the workflow `{0}` differs from the one that the database holds under this name; give the new one another name, \
         `{0}-2`"
    )]
    Differs(WorkflowName),
    /// A file has the name of the built-in workflow and another content: a start without the file could not go on.
    #[error("the workflow `{0}` is built in and differs from the given one; give the given one another name, `{0}-2`")]
    BuiltIn(WorkflowName),
    /// Two files have one name.
    #[error("the workflow `{0}` is given twice; leave one out")]
    Twice(WorkflowName),
    /// The default names no known workflow.
    #[error("the default workflow `{0}` is neither built in, nor given, nor stored")]
    UnknownDefault(WorkflowName),
    /// What the database holds under a name can't be read by this binary.
    #[error("the stored workflow `{0}` can't be read: {1}")]
    Unreadable(WorkflowName, String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A cheap, cloneable handle.
#[derive(Clone)]
pub struct WorkflowRegistry {
    known: Arc<RwLock<HashMap<WorkflowName, Arc<Workflow>>>>,
    default: Arc<Workflow>,
    database: Database,
}

impl WorkflowRegistry {
    /// Stores the given workflows (and `permit`), loads all stored ones and picks the default: `default`, else the single
    /// given one, else `permit`.
    ///
    /// # Errors
    /// [`WorkflowConflict`].
    pub async fn open(
        database: Database,
        given: Vec<Arc<Workflow>>,
        default: Option<WorkflowName>,
    ) -> Result<Self, WorkflowConflict> {
        let default = default.or_else(|| match given.as_slice() {
            [single] => Some(single.name().clone()),
            _ => None,
        });
        let mut known = HashMap::new();
        let permit = Workflow::permit();
        let permit_given = given.iter().any(|workflow| workflow.name() == permit.name());
        if given.iter().any(|workflow| workflow.contradicts_built_in()) {
            return Err(WorkflowConflict::BuiltIn(permit.name().clone()));
        }
        for workflow in given.into_iter().chain((!permit_given).then_some(permit)) {
            let stored = store_workflow(&database, &workflow).await?;
            if stored.digest != *workflow.digest() {
                return Err(WorkflowConflict::Differs(workflow.name().clone()));
            }
            if known.insert(workflow.name().clone(), workflow.clone()).is_some() {
                return Err(WorkflowConflict::Twice(workflow.name().clone()));
            }
        }
        for stored in database.call(|store| async move { store.workflow_list().await }).await? {
            if !known.contains_key(&stored.name) {
                known.insert(stored.name.clone(), parse_stored(&stored)?);
            }
        }
        let default_name = default.unwrap_or_else(|| WorkflowName::from_stored("permit"));
        let Some(default) = known.get(&default_name).cloned() else {
            return Err(WorkflowConflict::UnknownDefault(default_name));
        };
        Ok(Self { known: Arc::new(RwLock::new(known)), default, database })
    }

    /// The workflow of an `open` that names none.
    pub fn default_workflow(&self) -> &Arc<Workflow> {
        &self.default
    }

    /// A workflow that this process has met.
    pub fn get(&self, name: &WorkflowName) -> Option<Arc<Workflow>> {
        self.known.read().expect("no holder of this lock panics").get(name).cloned()
    }

    /// Whether a workflow that this process has met has an action of this name.
    pub fn has_action(&self, name: &CommandName) -> bool {
        let known = self.known.read().expect("no holder of this lock panics");
        known.values().any(|workflow| workflow.action(name).is_some())
    }

    /// A workflow by name; asks the database for one that this process has not met. `None`: there is none.
    ///
    /// # Errors
    /// [`WorkflowConflict::Store`] and [`WorkflowConflict::Unreadable`].
    pub async fn find(&self, name: &WorkflowName) -> Result<Option<Arc<Workflow>>, WorkflowConflict> {
        if let Some(workflow) = self.get(name) {
            return Ok(Some(workflow));
        }
        for stored in self.database.call(|store| async move { store.workflow_list().await }).await? {
            if self.get(&stored.name).is_none() {
                let workflow = parse_stored(&stored)?;
                self.known.write().expect("no holder of this lock panics").insert(stored.name, workflow);
            }
        }
        Ok(self.get(name))
    }
}

async fn store_workflow(database: &Database, workflow: &Workflow) -> Result<StoredWorkflow, StoreError> {
    let row =
        StoredWorkflow { name: workflow.name().clone(), digest: *workflow.digest(), text: workflow.text().clone() };
    database.call(move |store| async move { store.workflow_insert(&row).await }).await
}

fn parse_stored(stored: &StoredWorkflow) -> Result<Arc<Workflow>, WorkflowConflict> {
    Workflow::parse(&stored.text)
        .map(Arc::new)
        .map_err(|error| WorkflowConflict::Unreadable(stored.name.clone(), error.to_string()))
}
