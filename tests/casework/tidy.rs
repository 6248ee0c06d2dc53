//! Reads the source tree and keeps what no compiler checks: the direction of the layers, the head of each file,
//! its length, banned calls, and that the project speaks of itself alone.
//!
//! Each finding names the file, the line and what to do instead. An exception is a line in a list here, with
//! its reason; a list entry that excuses nothing any more is a finding too.

mod rules;
mod source;

use std::collections::BTreeSet;

use rules::{BANNED_CALLS, BANNED_EVERYWHERE, LAYERS, LINES_MAX, LINES_MAX_EXCUSED, LONG_FILES, SERVING_ALL};
use source::{SourceFile, repository_files, rust_files};

/// Fails with all findings, one a line.
#[track_caller]
fn check(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_owns() {
    let findings: Vec<_> = rust_files(&["src", "tests", "benches", "examples"])
        .iter()
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| {
            let path = &file.path;
            format!("{path}:1: open the file with `//!`: what it owns, what it never does, how it fails")
        })
        .collect();
    check(&findings);
}

#[test]
fn no_file_grows_past_reading() {
    let mut findings = Vec::new();
    let mut excused = BTreeSet::new();
    for file in rust_files(&["src", "tests", "benches", "examples"]) {
        let lines = file.text.lines().count();
        let excuse = LONG_FILES.iter().find(|(path, _)| *path == file.path);
        let most = if excuse.is_some() { LINES_MAX_EXCUSED } else { LINES_MAX };
        if lines > most {
            let path = &file.path;
            findings.push(format!("{path}:{lines}: {lines} lines, at most {most}: split it by what its parts own"));
        }
        if lines > LINES_MAX {
            excused.extend(excuse.map(|(path, _)| *path));
        }
    }
    for (path, _) in LONG_FILES {
        if !excused.contains(path) {
            findings.push(format!(
                "tests/casework/tidy/rules.rs: {path} needs no excuse for its length: take it off the list"
            ));
        }
    }
    check(&findings);
}

#[test]
fn layers_look_only_to_their_left() {
    let mut findings = Vec::new();
    for file in rust_files(&["src"]) {
        // The crate's root sees everything: it is where the parts come together.
        let Some(own) = file.layer() else { continue };
        for (line, used) in file.crate_uses() {
            if !rules::may_use(own, &used) {
                findings.push(format!(
                    "{}:{line}: `{own}` uses `crate::{used}`, which is not to its left in {LAYERS:?}: \
                     take it as an argument or behind a trait of `{own}`, or move the code to `{used}`",
                    file.path
                ));
            }
        }
    }
    check(&findings);
}

#[test]
fn every_module_has_its_place_among_the_layers() {
    let findings: Vec<_> = rust_files(&["src"])
        .iter()
        .filter_map(|file| Some((file, file.layer()?)))
        .filter(|(_, layer)| rules::rank(layer).is_none() && !SERVING_ALL.contains(layer))
        .map(|(file, layer)| {
            let path = &file.path;
            format!("{path}:1: the module `{layer}` has no place in LAYERS of tests/casework/tidy/rules.rs")
        })
        .collect();
    check(&findings);
}

#[test]
fn banned_calls_stay_out() {
    let mut findings = Vec::new();
    for file in rust_files(&["src"]) {
        for (number, line) in file.code_lines() {
            for call in BANNED_CALLS {
                let excused = call.allowed.iter().any(|(path, _)| file.path.starts_with(path));
                let in_test = call.allowed_in_tests && file.is_test_line(number);
                if !excused && !in_test && source::has_token(line, call.token) {
                    findings.push(format!("{}:{number}: `{}`: {}", file.path, call.token, call.instead));
                }
            }
        }
    }
    check(&findings);
}

#[test]
fn the_project_speaks_of_itself_alone() {
    let mut findings = Vec::new();
    for file in repository_files() {
        for (index, line) in file.text.lines().enumerate() {
            for (parts, instead) in BANNED_EVERYWHERE {
                if line.contains(&parts.concat()) {
                    findings.push(format!("{}:{}: `{}`: {instead}", file.path, index + 1, parts.concat()));
                }
            }
        }
    }
    check(&findings);
}

#[test]
fn migrations_have_the_same_names_in_both_databases() {
    let root = crate::support::process::crate_root().join("migrations");
    let mut findings = Vec::new();
    let mut names = Vec::new();
    for database in ["postgres", "sqlite"] {
        let folder = root.join(database);
        let mut found = BTreeSet::new();
        for entry in
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{} can't be read: {error}", folder.display()))
        {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            for script in ["up.sql", "down.sql"] {
                let text = std::fs::read_to_string(entry.path().join(script)).unwrap_or_default();
                if text.trim().is_empty() {
                    findings.push(format!(
                        "migrations/{database}/{name}/{script}:1: missing or empty: a migration goes both ways"
                    ));
                }
            }
            found.insert(name);
        }
        names.push((database, found));
    }
    let (first, second) = (&names[0], &names[1]);
    for (has, lacks) in [(first, second), (second, first)] {
        for name in has.1.difference(&lacks.1) {
            findings.push(format!(
                "migrations/{}/{name}:1: migrations/{} has none of that name: give both the same",
                has.0, lacks.0
            ));
        }
    }
    assert!(!first.1.is_empty(), "there is no migration");
    check(&findings);
}

/// The checks above find nothing in a clean tree; this one shows that they can find something.
#[test]
fn the_reader_of_source_sees_code_and_not_its_comments() {
    let file = SourceFile::new(
        "src/store/example.rs",
        concat!(
            "//! Example. crate::http in prose, x.unwrap() too.\n",
            "use crate::{domain::CaseId, actor::{self, Gateway}, outbox};\n",
            "fn f<'a>(x: &'a str) -> char { '\"' } /* crate::cli /* nested */ */\n",
            "const T: &str = \"crate::cli \\\" .unwrap()\"; const R: &str = r#\"a\"b crate::http\"#;\n",
            "fn g() { h().unwrap(); crate::engine::k(); }\n",
            "#[cfg(test)]\n",
            "mod tests {\n",
            "    fn h() { g().unwrap(); }\n",
            "}\n",
            "fn unsafe_name() { std::thread::sleep(d) }\n",
        ),
    );
    assert_eq!(file.layer(), Some("store"));
    let uses: Vec<_> = file.crate_uses();
    let uses: Vec<_> = uses.iter().map(|(line, used)| (*line, used.as_str())).collect();
    assert_eq!(uses, [(2, "domain"), (2, "actor"), (2, "outbox"), (5, "engine")]);
    assert!(rules::may_use("store", "engine") && !rules::may_use("store", "actor"));
    assert!(!rules::may_use("outbox", "lock"), "side by side, they do not know each other");
    assert!(rules::may_use("store", "clock") && !rules::may_use("engine", "clock"));
    assert!(rules::may_use("config", "domain") && !rules::may_use("config", "store"));

    let lines_with = |token: &str| -> Vec<usize> {
        file.code_lines().filter(|(_, line)| source::has_token(line, token)).map(|(number, _)| number).collect()
    };
    assert_eq!(lines_with(".unwrap()"), [5, 8]);
    assert_eq!(lines_with("thread::sleep"), [10]);
    assert_eq!(lines_with("unsafe"), [0_usize; 0]);
    assert!(file.is_test_line(8) && !file.is_test_line(5) && !file.is_test_line(10));
}
