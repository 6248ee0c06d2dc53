//! Reads source files: as text, as code without comments and literals, and which lines are tests.
//!
//! Not a parser: it knows comments, strings, characters and braces, which is enough for the rules.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::process::crate_root;

/// A file of the repository.
pub struct SourceFile {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Content.
    pub text: String,
    /// Content with comments and the insides of literals blanked; the same lines.
    code: String,
    test_lines: BTreeSet<usize>,
}

impl SourceFile {
    /// A file from its path and content.
    pub fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { blank_non_code(text) } else { String::new() };
        let test_lines =
            if is_test_file(path) { (1..=text.lines().count()).collect() } else { lines_under_cfg_test(&code) };
        Self { path: path.to_owned(), text: text.to_owned(), code, test_lines }
    }

    /// The top module that the file belongs to; `None` for `lib.rs`, `main.rs` and what is not in `src`.
    pub fn layer(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        let first = inside.split('/').next()?;
        let layer = first.strip_suffix(".rs").unwrap_or(first);
        (!matches!(layer, "lib" | "main" | "bin")).then_some(layer)
    }

    /// Lines of code, numbered from 1.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Whether a line is compiled for tests only.
    pub fn is_test_line(&self, number: usize) -> bool {
        self.test_lines.contains(&number)
    }

    /// Line and first name of each path that begins with `crate::`, those in braces too.
    pub fn crate_uses(&self) -> Vec<(usize, String)> {
        const START: &str = "crate::";
        let mut uses = Vec::new();
        for (offset, _) in self.code.match_indices(START) {
            // `$crate::` in a macro is the same; `mycrate::` is not.
            if self.code[..offset].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
                continue;
            }
            let rest = &self.code[offset + START.len()..];
            let line = 1 + self.code[..offset].matches('\n').count();
            for (name, breaks) in first_names(rest) {
                uses.push((line + breaks, name));
            }
        }
        uses
    }
}

/// The names that a path goes on with: one, or those of a group, with the line breaks before each.
fn first_names(rest: &str) -> Vec<(String, usize)> {
    let Some(group) = rest.strip_prefix('{') else {
        return vec![(name_at(rest), 0)];
    };
    let mut names = Vec::new();
    let (mut depth, mut at_start) = (0, true);
    for (offset, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            _ if at_start && !character.is_whitespace() => {
                at_start = false;
                names.push((name_at(&group[offset..]), group[..offset].matches('\n').count()));
            }
            _ => {}
        }
    }
    names
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

/// Whether `line` has `token` as a word of its own: `print!` is not in `eprint!`.
pub fn has_token(line: &str, token: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(token).any(|(offset, _)| {
        let before = token.starts_with(is_word) && line[..offset].ends_with(is_word);
        let after = token.ends_with(is_word) && line[offset + token.len()..].starts_with(is_word);
        !before && !after
    })
}

/// All `.rs` files under these folders of the repository.
pub fn rust_files(folders: &[&str]) -> Vec<SourceFile> {
    let mut files = Vec::new();
    for folder in folders {
        read_folder(&crate_root().join(folder), &mut files);
    }
    files.retain(|file| file.path.ends_with(".rs"));
    files
}

/// All text files of the repository that people write.
pub fn repository_files() -> Vec<SourceFile> {
    let mut files = Vec::new();
    read_folder(crate_root(), &mut files);
    // Cargo writes it, the registry's name in each entry.
    files.retain(|file| !file.path.ends_with("Cargo.lock"));
    files
}

fn read_folder(folder: &Path, files: &mut Vec<SourceFile>) {
    // A folder that is not there (`examples`) has no files.
    let mut entries: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().expect("the kind of a listed file is known");
        let path = entry.path();
        if kind.is_dir() {
            let name = entry.file_name();
            if name != ".git" && name != "target" && name != "node_modules" {
                read_folder(&path, files);
            }
        } else if kind.is_file()
            && path.file_name().is_some_and(|name| name != ".git")
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            let relative = path.strip_prefix(crate_root()).expect("it was found under the root");
            files.push(SourceFile::new(&relative.to_string_lossy(), &text));
        }
    }
}

/// Files that a `#[cfg(test)] mod ...;` elsewhere brings in.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

/// Blanks comments and the insides of literals; keeps line breaks, so that lines keep their numbers.
fn blank_non_code(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let end = end_of_non_code(&characters, at);
        if end == at {
            code.push(characters[at]);
            at += 1;
        } else {
            let blanked = characters[at..end].iter();
            code.extend(blanked.map(|character| if *character == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none begins there.
fn end_of_non_code(characters: &[char], at: usize) -> usize {
    let end_of_text = characters.len();
    let starts = |position: usize, text: &str| {
        text.chars().enumerate().all(|(index, character)| characters.get(position + index) == Some(&character))
    };
    if starts(at, "//") {
        let length = characters[at..].iter().position(|character| *character == '\n');
        return length.map_or(end_of_text, |length| at + length);
    }
    if starts(at, "/*") {
        let (mut depth, mut position) = (1, at + 2);
        while position < end_of_text && depth > 0 {
            let (change, step) = match () {
                () if starts(position, "/*") => (1, 2),
                () if starts(position, "*/") => (-1, 2),
                () => (0, 1),
            };
            depth += change;
            position += step;
        }
        return position;
    }
    let follows_word = at > 0 && (characters[at - 1].is_alphanumeric() || characters[at - 1] == '_');
    if !follows_word && (characters[at] == 'r' || starts(at, "br")) {
        let hashes_at = at + if characters[at] == 'b' { 2 } else { 1 };
        let hashes = characters[hashes_at..].iter().take_while(|character| **character == '#').count();
        if characters.get(hashes_at + hashes) == Some(&'"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let mut position = hashes_at + hashes + 1;
            while position < end_of_text && !starts(position, &close) {
                position += 1;
            }
            return (position + close.len()).min(end_of_text);
        }
    }
    match characters[at] {
        '"' => end_of_quoted(characters, at, '"'),
        // A character and not a lifetime: escaped, or closed right behind it.
        '\'' if characters.get(at + 1) == Some(&'\\') || characters.get(at + 2) == Some(&'\'') => {
            end_of_quoted(characters, at, '\'')
        }
        _ => at,
    }
}

fn end_of_quoted(characters: &[char], at: usize, quote: char) -> usize {
    let mut position = at + 1;
    while position < characters.len() && characters[position] != quote {
        position += if characters[position] == '\\' { 2 } else { 1 };
    }
    (position + 1).min(characters.len())
}

/// Lines of the items that `#[cfg(test)]` stands before.
fn lines_under_cfg_test(code: &str) -> BTreeSet<usize> {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut lines = BTreeSet::new();
    for (offset, _) in code.match_indices(ATTRIBUTE) {
        let mut depth = 0_usize;
        let item = &code[offset + ATTRIBUTE.len()..];
        let end = item.char_indices().find(|(_, character)| {
            match character {
                '{' | '[' | '(' => depth += 1,
                '}' | ']' | ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && matches!(character, '}' | ';')
        });
        let length = end.map_or(item.len(), |(length, _)| length);
        let first = 1 + code[..offset].matches('\n').count();
        lines.extend(first..=first + item[..length].matches('\n').count());
    }
    lines
}
