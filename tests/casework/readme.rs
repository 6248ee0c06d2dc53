//! The README's commands exist: what it tells a newcomer to paste is what is tested.

use crate::support::process::crate_root;

/// The two commands that are all the set-up there is.
const PROMISED: &[&str] = &["cargo run --release -- serve --demo", "./ci/test"];

#[test]
fn readme_has_the_two_commands_of_the_first_screen() {
    let commands = readme_commands();
    for promised in PROMISED {
        assert!(
            commands.iter().any(|command| command == promised),
            "README.md has no ```sh block with the line {promised:?}; it has {commands:#?}"
        );
    }
}

#[test]
fn sh_blocks_are_cut_into_whole_commands() {
    let markdown = "a\n```sh\n# why\none \\\n  --two\n\n$ three\n```\n```text\nno\n```\n  ```sh\n  four <<E\n  ```\n";
    assert_eq!(sh_commands(markdown), ["one --two", "three", "four <<E"]);
}

/// All commands of the README's `sh` blocks, in order.
fn readme_commands() -> Vec<String> {
    let path = crate_root().join("README.md");
    let readme =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{} can't be read: {error}", path.display()));
    sh_commands(&readme)
}

/// Commands in fenced blocks marked `sh`: continued lines joined, comments, blanks and prompts left out.
fn sh_commands(markdown: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut open: Option<bool> = None;
    let mut continued = String::new();
    for line in markdown.lines().map(str::trim) {
        if let Some(mark) = line.strip_prefix("```") {
            open = match open {
                Some(_) => None,
                None => Some(mark.trim() == "sh"),
            };
            continue;
        }
        if open != Some(true) {
            continue;
        }
        if let Some(begun) = line.strip_suffix('\\') {
            continued.push_str(begun.trim());
            continued.push(' ');
            continue;
        }
        let command = std::mem::take(&mut continued) + line;
        let command = command.strip_prefix("$ ").unwrap_or(&command);
        if !command.is_empty() && !command.starts_with('#') {
            commands.push(command.to_owned());
        }
    }
    commands
}
