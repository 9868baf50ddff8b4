//! What processes have used, as Linux tells it. Elsewhere nothing is told.

use std::fs;

/// The unit of /proc's times: Linux promises it to programs, whatever the kernel counts in.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of work.
struct Used {
    own: f64,
    /// Of children that have ended.
    children: f64,
}

/// The parent and what it has used.
fn look(pid: u32) -> Option<(u32, Used)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    let used = |user: usize| Some((ticks(user)? + ticks(user + 1)?) / TICKS_PER_SECOND);
    Some((fields.get(1)?.parse().ok()?, Used { own: used(11)?, children: used(13)? }))
}

/// All threads of a process.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    Some(look(pid)?.1.own)
}

/// The children of a process that live.
pub fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten();
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|child| look(*child).is_some_and(|(parent, _)| parent == pid)).collect()
}

/// A process, its children, and those that it has outlived.
pub fn family_cpu_seconds(pid: u32) -> Option<f64> {
    let used = look(pid)?.1;
    let living = children(pid).into_iter().filter_map(cpu_seconds);
    Some(used.own + used.children + living.sum::<f64>())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_used_at_least_what_its_head_has() {
        let pid = std::process::id();
        let (head, family) = (cpu_seconds(pid).unwrap(), family_cpu_seconds(pid).unwrap());
        assert!(head >= 0.0 && family >= head, "{head} {family}");
    }
}
