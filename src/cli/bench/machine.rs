//! What was measured on. Nobody can read a number without it.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Failure;
use super::lab::{Folder, Lab};

#[derive(Serialize)]
pub struct Machine {
    leasehold: &'static str,
    /// A build without optimisations says nothing.
    optimised: bool,
    cores: usize,
    processor: String,
    postgres: String,
    /// `on`: a commit is answered when it is on disk.
    fsync: String,
    synchronous_commit: String,
    /// Median of 50 small writes, each brought to the disk, in milliseconds.
    disk_flush_ms: f64,
    /// Of the last minute, when it began and when it ended.
    load_before: Option<f64>,
    load_after: Option<f64>,
}

pub async fn describe(lab: &mut Lab<'_>, folder: &Folder) -> Result<Machine, Failure> {
    Ok(Machine {
        leasehold: env!("CARGO_PKG_VERSION"),
        optimised: !cfg!(debug_assertions),
        cores: std::thread::available_parallelism()?.get(),
        processor: processor(),
        postgres: lab.meter.setting("server_version").await?,
        fsync: lab.meter.setting("fsync").await?,
        synchronous_commit: lab.meter.setting("synchronous_commit").await?,
        disk_flush_ms: flush(folder)?.as_secs_f64() * 1e3,
        load_before: load(),
        load_after: None,
    })
}

impl Machine {
    pub fn finish(&mut self) {
        self.load_after = load();
    }

    pub fn line(&self) -> String {
        let load = |load: Option<f64>| load.map_or("?".to_owned(), |load| format!("{load:.1}"));
        let after = self.load_after.map_or(String::new(), |after| format!(" before, {after:.1} after"));
        format!(
            "leasehold {}{}; {} cores ({}); Postgres {}, fsync {}, synchronous_commit {}; a disk flush takes {:.2} ms; load average {}{after}",
            self.leasehold,
            if self.optimised { "" } else { " NOT OPTIMISED: these numbers mean nothing" },
            self.cores,
            self.processor,
            self.postgres,
            self.fsync,
            self.synchronous_commit,
            self.disk_flush_ms,
            load(self.load_before),
        )
    }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()));
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

fn flush(folder: &Folder) -> Result<Duration, Failure> {
    let path = folder.path().join("flush");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(50);
    for _ in 0..50 {
        file.rewind()?;
        let begin = Instant::now();
        file.write_all(&[0x5a; 8192])?;
        file.sync_data()?;
        times.push(begin.elapsed());
    }
    drop(std::fs::remove_file(path));
    times.sort();
    Ok(times[times.len() / 2])
}
