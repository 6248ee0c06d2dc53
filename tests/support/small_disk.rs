//! A disk of a few megabytes that can be filled: a `tmpfs` of its own.
//!
//! Mounting needs root. Where it can't be had, [`SmallDisk::mount`] says `NOT RUN` (see [`say_not_run`]). The disk goes when its handle is dropped or the test's process ends, however that comes (see the reaper of
//! [`postgres_server`](super::postgres_server)).

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::not_run::say_not_run;

/// A small disk.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
    reaper: Child,
}

impl SmallDisk {
    /// Mounts a disk of so many MiB; `None` after saying loudly that it can't be had.
    ///
    /// # Panics
    /// When there is no place for its folder.
    #[must_use]
    #[track_caller]
    pub fn mount(size_mib: u64) -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("casework-disk-").tempdir_in("/tmp");
        let folder = folder.expect("a temporary folder can be made").keep();
        let size = format!("size={size_mib}m,mode=0777");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&folder).output();
        let why = match mounted {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            let _ = std::fs::remove_dir(&folder);
            let why = why.trim();
            say_not_run(format_args!("fills a disk, and a small one can't be mounted (as root it can): {why}"));
            return None;
        }
        let reaper = start_reaper(&folder);
        Some(Self { folder, reaper })
    }

    /// Where it is mounted. Everyone may write there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fills it to the last byte; returns how many bytes that took.
    ///
    /// # Panics
    /// When writing fails for another reason than a full disk.
    pub fn fill(&self) -> u64 {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.folder.join("filler"))
            .expect("a file can be made");
        let mut written = 0;
        for piece in [vec![0; 1 << 20], vec![0; 1 << 12], vec![0; 1]] {
            loop {
                match file.write(&piece) {
                    Ok(length) => written += length as u64,
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => panic!("the small disk can't be filled: {error}"),
                }
            }
        }
        written
    }

    /// Takes away what filled it.
    ///
    /// # Panics
    /// When it was not filled.
    pub fn free(&self) {
        std::fs::remove_file(self.folder.join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.reaper.stdin.take());
        let _ = self.reaper.wait();
    }
}

/// Takes the disk away once our end of its standard input closes.
fn start_reaper(folder: &Path) -> Child {
    Command::new("sh")
        .args(["-c", r#"read -r _; umount -l "$1"; rmdir "$1""#, "casework-test-reaper"])
        .arg(folder)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("every system with tests has sh")
}
