//! What the figures were measured on, and what a run cost in processor time and write-ahead log.
//!
//! Owns the reading of `/proc`. What it can't read it calls unknown, and a figure about it is left out.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::support::postgres_server::PrivateServer;

/// The machine and the settings that matter for speed.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub memory_mib: u64,
    pub kernel: String,
    pub file_system: String,
    pub postgres: String,
    pub postgres_settings: Vec<(String, String)>,
    pub casework: &'static str,
    pub build: &'static str,
}

/// Settings of PostgreSQL that stand beside the figures.
const SETTINGS: &str = "'fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'shared_buffers', \
                        'max_wal_size', 'checkpoint_timeout', 'max_connections'";

impl Machine {
    /// Reads all of it.
    pub fn read(server: &PrivateServer) -> Self {
        let rows = server.sql(&format!(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ({SETTINGS}) ORDER BY name"
        ));
        let first_number = |text: String| text.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0_u64);
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: value_of("/proc/cpuinfo", "model name"),
            memory_mib: first_number(value_of("/proc/meminfo", "MemTotal")) / 1024,
            kernel: read("/proc/sys/kernel/osrelease"),
            // The server's folder, SQLite files and logs all lie in the temporary folder.
            file_system: file_system(&std::env::temp_dir()),
            postgres: server.sql("SHOW server_version")[0][0].clone(),
            postgres_settings: rows.iter().map(|row| (row[0].clone(), row[1].clone())).collect(),
            casework: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "NOT OPTIMISED (dev profile): figures mean nothing" } else { "release" },
        }
    }

    /// Two lines for people.
    pub fn describe(&self) -> String {
        let settings: Vec<_> = self.postgres_settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!(
            "{} cores for client, server and database together ({}), {} MiB, Linux {}, {}; build: {}\n\
             PostgreSQL {}: {}; SQLite: WAL, synchronous=FULL",
            self.cores,
            self.cpu,
            self.memory_mib,
            self.kernel,
            self.file_system,
            self.build,
            self.postgres,
            settings.join(", ")
        )
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// The value of the first line `name : value`.
fn value_of(path: &str, name: &str) -> String {
    let text = read(path);
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
}

/// The type of the file system that a folder lies on.
fn file_system(folder: &Path) -> String {
    let mounts = read("/proc/mounts");
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let over = fields.filter(|(mount, _)| folder.starts_with(mount));
    over.max_by_key(|(mount, _)| mount.len()).map_or_else(|| "unknown".into(), |(_, kind)| kind.to_owned())
}

/// Resident memory of a process, in KiB.
pub fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Processor time so far, in seconds: of a process, or of a process with all of its children.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuSeconds(pub f64);

/// Four columns of `/proc/PID/stat`: own time (user and system), and that of children which ended.
fn ticks(pid: &str) -> Option<(u32, u64, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = rest.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect();
    Some((u32::try_from(fields[0]).ok()?, fields[10] + fields[11], fields[12] + fields[13]))
}

fn ticks_per_second() -> f64 {
    static TICKS: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *TICKS.get_or_init(|| {
        let output = Command::new("getconf").arg("CLK_TCK").output().ok();
        output.and_then(|output| String::from_utf8_lossy(&output.stdout).trim().parse().ok()).unwrap_or(100.0)
    })
}

/// Processor time of one process.
pub fn process_cpu(pid: u32) -> CpuSeconds {
    CpuSeconds(ticks(&pid.to_string()).map_or(0.0, |(_, own, _)| own as f64) / ticks_per_second())
}

/// Processor time of this process's children that ended.
pub fn ended_children_cpu() -> CpuSeconds {
    CpuSeconds(ticks("self").map_or(0.0, |(_, _, children)| children as f64) / ticks_per_second())
}

/// Processor time of a PostgreSQL server: the postmaster, the backends that run, and those that ended.
pub fn postgres_cpu(postmaster: u32) -> CpuSeconds {
    let own = ticks(&postmaster.to_string()).map_or(0, |(_, own, ended)| own + ended);
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let running = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let children = running.filter_map(|pid| ticks(&pid)).filter(|(parent, ..)| *parent == postmaster);
    CpuSeconds((own + children.map(|(_, own, _)| own).sum::<u64>()) as f64 / ticks_per_second())
}
