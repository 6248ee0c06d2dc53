//! `serve --demo`: what it prints can be pasted, and answers as it says.

use std::process::Command;

use super::SOON;
use crate::support::server::ServerOptions;

/// Runs what stands under heading `number` in a shell, as a person does.
fn paste(printed: &str, number: usize) -> (u16, String, String) {
    let heading = format!("\n# {number}. ");
    let (_, rest) = printed.split_once(&heading).unwrap_or_else(|| panic!("no {heading:?} in {printed}"));
    let block = rest.split("\n\n").next().unwrap();
    let output = Command::new("bash").arg("-c").arg(format!("# {block}")).output().unwrap();
    assert!(output.status.success(), "{block}: {}", String::from_utf8_lossy(&output.stderr));
    let answer = String::from_utf8(output.stdout).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.trim_end().to_owned())
}

#[test]
fn the_printed_commands_tell_the_whole_story() {
    let mut server = ServerOptions::demo().start();
    let printed = server.stdout();
    let (status, _, body) = paste(&printed, 1);
    assert_eq!(status, 412);
    assert!(body.contains("\"stale-revision\"") && body.contains("\"current_revision\":5"), "{body}");
    let (status, head, outcome) = paste(&printed, 2);
    assert_eq!(status, 200);
    assert!(!head.contains("idempotent-replay"));
    let (status, head, replay) = paste(&printed, 3);
    assert_eq!(status, 200);
    assert!(head.contains("idempotent-replay: true"));
    assert_eq!(replay, outcome);
    let (status, _, body) = paste(&printed, 4);
    assert_eq!(status, 409);
    assert!(body.contains("\"operation-conflict\""), "{body}");
    let (status, _, body) = paste(&printed, 5);
    assert_eq!(status, 409);
    assert!(body.contains("\"illegal-transition\""), "{body}");
    let (status, _, body) = paste(&printed, 6);
    assert_eq!((status, body), (200, outcome));
    let (status, head, body) = paste(&printed, 7);
    assert_eq!(status, 200);
    assert!(head.contains("etag: \"6.9\"") && body.contains("\"status\":\"approved\""), "{head} {body}");

    let folder = |pid| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).find(|path| path.ends_with("casework.db"))
    };
    let file = folder(server.pid()).unwrap();
    assert!(file.is_file());
    server.sigterm();
    assert_eq!(server.wait(SOON).code(), Some(0));
    assert!(!file.parent().unwrap().exists(), "the demo's folder goes with it");
}
