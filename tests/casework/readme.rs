//! The README's commands are run: what it tells a newcomer to paste is what is tested.
//!
//! Blocks marked `sh` are run from top to bottom in an empty folder, with the program that was built for the tests in
//! place of `cargo build`, a free port in place of 8080, and a database on the tests' PostgreSQL in place of the one that the
//! text names. A comment `# 201: ...` before a command is the status that it must print. The test command is not run by
//! itself: it would never end.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::cli::casework;
use crate::support::database::TestDatabase;
use crate::support::postgres_server::free_port;
use crate::support::process::crate_root;
use crate::support::server::{ServerOptions, ServerProcess};
use crate::support::wait::eventually;

/// The two commands that are all the set-up there is.
const PROMISED: [&str; 2] = ["cargo run --release -- serve --demo", "./ci/test"];
/// Where the README says that the server listens.
const LISTEN: &str = "127.0.0.1:8080";
/// Where the README says that a guard listens, and the port of the service behind it.
const GUARD_LISTEN: &str = "127.0.0.1:8081";
const SERVICE_PORT: &str = "8000";
/// The PostgreSQL that the README names.
const POSTGRES: &str = "postgres://postgres@127.0.0.1:5432/casework";

#[test]
fn readme_has_the_two_commands_of_the_first_screen() {
    let readme = readme();
    let first_screen: Vec<_> = sh_commands(&readme).into_iter().map(|command| command.line).take(2).collect();
    assert_eq!(first_screen, PROMISED);
}

#[test]
fn everything_that_can_be_pasted_works() {
    let readme = readme();
    let mut reader = Reader::new();
    for command in sh_commands(&readme) {
        reader.paste(&command);
    }
    assert!(reader.server.is_some() && reader.statuses_checked >= 10);
}

/// What the README shows of the demo is what the demo prints.
#[test]
fn the_demo_prints_what_the_readme_shows() {
    let mut server = ServerOptions::demo().start();
    let printed = server.stdout();
    let blocks = blocks(&readme(), "text");
    for line in blocks[0].lines().chain(blocks[1].lines().filter(|line| line.starts_with('#'))) {
        assert!(printed.lines().any(|of_demo| of_demo == line), "the demo does not print {line:?}: {printed}");
    }
    server.sigterm();
    assert_eq!(server.wait(Duration::from_secs(10)).code(), Some(0));
}

#[test]
fn every_option_that_the_readme_names_exists() {
    let mut known = BTreeSet::new();
    let subcommands = [
        "serve",
        "guard",
        "replay",
        "export",
        "verify",
        "check",
        "load",
        "migrate",
        "token issue",
        "token list",
        "workflow check",
    ];
    for subcommand in subcommands {
        let help = casework(subcommand.split(' ').chain(["--help"])).expect_success();
        known.extend(options(&help.stdout));
    }
    let readme = readme();
    // Those of other programs stand in commands, which are run.
    let prose = without_blocks(&readme);
    let missing: Vec<_> = options(&prose).into_iter().filter(|option| !known.contains(option)).collect();
    assert!(missing.is_empty(), "the program has no {missing:?}");
    assert!(options(&prose).len() > 10);
}

#[test]
fn the_workflow_that_the_readme_shows_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let workflows = blocks(&readme(), "toml");
    assert!(!workflows.is_empty());
    for text in workflows {
        let file = folder.path().join("workflow.toml");
        std::fs::write(&file, text).unwrap();
        let _ = casework([Path::new("workflow"), Path::new("check"), &file]).expect_success();
    }
}

#[test]
fn files_that_the_readme_links_to_exist() {
    let readme = readme();
    let links: Vec<&str> = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(!links.is_empty());
    for link in links {
        assert!(crate_root().join(link).is_file(), "{link}");
    }
}

#[test]
fn sh_blocks_are_cut_into_whole_commands() {
    let markdown = "a\n```sh\n# 201: why\none \\\n  --two\n\n$ three\n```\n```text\nno\n```\n  ```sh\n  # why\n  four <<E\n  ```\n";
    let commands: Vec<_> = sh_commands(markdown).into_iter().map(|command| (command.line, command.status)).collect();
    let expected = [("one --two", Some(201)), ("three", None), ("four <<E", None)];
    assert_eq!(commands, expected.map(|(line, status)| (line.to_owned(), status)));
}

/// Somebody who pastes one command after the other.
struct Reader {
    folder: tempfile::TempDir,
    postgres: TestDatabase,
    server: Option<ServerProcess>,
    guard: Option<ServerProcess>,
    service: Option<(Service, String)>,
    statuses_checked: u32,
}

/// A service of the README's own; ended when dropped.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Reader {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("casework-readme-").tempdir().unwrap();
        Self {
            folder,
            postgres: TestDatabase::postgres(),
            server: None,
            guard: None,
            service: None,
            statuses_checked: 0,
        }
    }

    fn database_url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("casework.db").display())
    }

    #[track_caller]
    fn paste(&mut self, command: &ReadmeCommand) {
        let line = command.line.as_str();
        if line == PROMISED[0] || line == "cargo build --release" || line.starts_with("export PATH=") {
            // The demo has a test of its own; the rest is what built this test.
        } else if let Some(script) = line.strip_prefix("./").filter(|script| script.starts_with("ci/")) {
            let metadata = std::fs::metadata(crate_root().join(script)).unwrap();
            assert!(metadata.permissions().mode() & 0o111 != 0, "{script} can't be run");
        } else if let Some(arguments) = line.strip_prefix("casework serve") {
            let options = ServerOptions::new(&self.database_url());
            self.server = Some(arguments.split_whitespace().fold(options, ServerOptions::argument).start());
        } else if line.starts_with("python3 -c ") {
            self.start_service(line);
        } else if line.starts_with("casework guard") {
            let (_, port) = self.service.as_ref().expect("the README starts the service first");
            let store = format!("sqlite:{}", self.folder.path().join("guard.db").display());
            assert!(line.contains("--store sqlite:guard.db") && line.contains(GUARD_LISTEN), "{line}");
            let upstream = format!("http://127.0.0.1:{port}");
            assert!(line.contains(&upstream.replace(port.as_str(), SERVICE_PORT)), "{line}");
            self.guard = Some(ServerOptions::guard(&upstream, &store).start());
        } else {
            self.run(command);
        }
    }

    /// The service that the guard stands before, on a free port.
    #[track_caller]
    fn start_service(&mut self, line: &str) {
        let port = free_port().to_string();
        let command = format!("exec {}", line.replace(SERVICE_PORT, &port));
        let child = Command::new("bash").args(["-c", &command]).stderr(Stdio::null()).spawn().unwrap();
        let service = Service(child);
        eventually(Duration::from_secs(30), "the service to listen", || {
            TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
        });
        self.service = Some((service, port));
    }

    #[track_caller]
    fn run(&mut self, command: &ReadmeCommand) {
        let mut line = command.line.replace(POSTGRES, self.postgres.url());
        if let Some(server) = &self.server {
            line = line.replace(LISTEN, &server.address().to_string());
        }
        if let Some(guard) = &self.guard {
            line = line.replace(GUARD_LISTEN, &guard.address().to_string());
        }
        assert!(!line.contains(LISTEN) && !line.contains(GUARD_LISTEN), "no server was started before {line}");
        let program = Path::new(env!("CARGO_BIN_EXE_casework"));
        let path = std::env::var_os("PATH").unwrap();
        let folders = std::iter::once(program.parent().unwrap().to_owned()).chain(std::env::split_paths(&path));
        let output = Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", &line])
            .current_dir(self.folder.path())
            .env("PATH", std::env::join_paths(folders).unwrap())
            .env("NO_PROXY", "*")
            .env_remove("CASEWORK_DATABASE_URL")
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{line}\n{stdout}{}", String::from_utf8_lossy(&output.stderr));
        if let Some(expected) = command.status {
            let status = stdout.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).map(str::to_owned);
            assert_eq!(status, Some(expected.to_string()), "{line}\n{stdout}");
            self.statuses_checked += 1;
        }
    }
}

/// A command and the status that its comment announces.
#[derive(Debug)]
struct ReadmeCommand {
    line: String,
    status: Option<u16>,
}

fn readme() -> String {
    let path = crate_root().join("README.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{} can't be read: {error}", path.display()))
}

/// Commands in fenced blocks marked `sh`: continued lines joined, prompts left out.
fn sh_commands(markdown: &str) -> Vec<ReadmeCommand> {
    let mut commands = Vec::new();
    for block in blocks(markdown, "sh") {
        let (mut continued, mut status) = (String::new(), None);
        for line in block.lines().map(str::trim) {
            if let Some(begun) = line.strip_suffix('\\') {
                continued.push_str(begun.trim());
                continued.push(' ');
            } else if let Some(comment) = line.strip_prefix('#') {
                status = comment.trim().split(':').next().and_then(|word| word.parse().ok());
            } else if !line.is_empty() {
                let command = std::mem::take(&mut continued) + line;
                let line = command.strip_prefix("$ ").unwrap_or(&command).to_owned();
                commands.push(ReadmeCommand { line, status: status.take() });
            }
        }
    }
    commands
}

/// The texts of the fenced blocks with this mark.
fn blocks(markdown: &str, wanted: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in markdown.lines() {
        if let Some(mark) = line.trim().strip_prefix("```") {
            open = match open.take() {
                Some((is_wanted, text)) => {
                    found.extend(is_wanted.then_some(text));
                    None
                }
                None => Some((mark.trim() == wanted, String::new())),
            };
        } else if let Some((_, text)) = &mut open {
            text.push_str(line);
            text.push('\n');
        }
    }
    found
}

/// What stands outside of fenced blocks.
fn without_blocks(markdown: &str) -> String {
    markdown.split("```").step_by(2).collect()
}

/// All words that look like `--option`.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !(character.is_ascii_lowercase() || character == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 3).map(str::to_owned).collect()
}
