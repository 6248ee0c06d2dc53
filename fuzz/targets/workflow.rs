//! Any text as a workflow file: one that is taken is taken again from what is stored, and can be looked up everywhere.
#![no_main]

use casework::domain::Workflow;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let workflow = match Workflow::parse(text) {
        Ok(workflow) => workflow,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let stored = Workflow::parse(workflow.text()).expect("what is stored can be read");
    assert_eq!(stored.digest(), workflow.digest());
    assert_eq!(stored.name(), workflow.name());
    for name in workflow.allowed_from(workflow.initial()) {
        assert!(workflow.action(name).is_some(), "what is allowed is an action");
    }
});
