//! A limit on everything. `AdminService.GetServerInfo` shows them; nothing else repeats them.

use std::time::Duration;

/// Ids and keys (queue, task id, worker, fairness key, …), in bytes.
pub const ID_BYTES: usize = 256;
pub const LABELS: usize = 16;
pub const LABEL_KEY_BYTES: usize = 64;
pub const LABEL_VALUE_BYTES: usize = 256;
pub const SUBJECTS: usize = 8;
/// What a payload may be unless the server is told otherwise, and the most it can be told.
pub const PAYLOAD_BYTES: usize = 64 * 1024;
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
pub const RESULT_BYTES: usize = 16 * 1024;
/// A progress note, in bytes; longer ones are cut.
pub const NOTE_BYTES: usize = 256;
/// Longer error messages, reasons and notes are cut here, not refused.
pub const MESSAGE_BYTES: usize = 4 * 1024;
/// References (effect, receipt, result), digests, codes and trace contexts, in bytes.
pub const REFERENCE_BYTES: usize = 1024;
pub const SUBMIT_BATCH: usize = 1_000;
pub const COMPLETE_BATCH: usize = 1_000;
pub const HEARTBEAT_BATCH: usize = 1_000;
pub const CLAIM_TASKS: i32 = 500;
/// A Claim's answer, encoded. Less than the 4 MiB that many clients refuse to exceed.
pub const CLAIM_BYTES: usize = 3_584 * 1024;
pub const WAIT: Duration = Duration::from_secs(60);
/// Watches open at once on one server, unless it is told otherwise.
pub const WATCHERS: usize = 20_000;
/// How often an idle watch carries a bookmark.
pub const BOOKMARK_MIN: Duration = Duration::from_secs(1);
pub const BOOKMARK_MAX: Duration = Duration::from_secs(60);
pub const BOOKMARK_DEFAULT: Duration = Duration::from_secs(15);
pub const LEASE_MIN: Duration = Duration::from_secs(1);
pub const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);
pub const DEADLINE: Duration = Duration::from_secs(366 * 86_400);
/// The head start of one step of priority, and the time that a retry must leave before its task's deadline.
pub const PRIORITY_STEP: Duration = Duration::from_secs(24 * 3600);
pub const DEADLINE_MARGIN: Duration = Duration::from_secs(24 * 3600);
/// Names in one `clear_fields`.
pub const CLEAR_FIELDS: usize = 64;
pub const PAGE: i32 = 1_000;
pub const PAGE_DEFAULT: i32 = 100;
/// Over how long GetStats takes rates and timings.
pub const WINDOW_MIN: Duration = Duration::from_secs(1);
pub const WINDOW_MAX: Duration = Duration::from_secs(3600);
pub const WINDOW_DEFAULT: Duration = Duration::from_secs(60);
pub const COST: i32 = 1_000;
pub const PRIORITY: i32 = 10;
/// A share's weight.
pub const WEIGHT_MIN: f64 = 0.01;
pub const WEIGHT_MAX: f64 = 1_000.0;
/// The largest `max_in_flight` and `max_unfinished`, and the largest rate (per second) and burst.
pub const IN_FLIGHT: u32 = 1_000_000;
pub const UNFINISHED: u32 = 1_000_000_000;
pub const RATE: u32 = 1_000_000;
pub const ATTEMPTS: i32 = 10_000;
/// The longest wait after a first attempt, and after any.
pub const BACKOFF_INITIAL: Duration = Duration::from_secs(24 * 3600);
pub const BACKOFF: Duration = Duration::from_secs(7 * 86_400);
/// The growth of a backoff from one attempt to the next: 1 to this.
pub const MULTIPLIER: f64 = 100.0;
/// Releases of one task that are not charged; later ones are.
pub const RELEASES_UNCHARGED: i32 = 20;
/// Late reports kept per attempt; more are refused just the same, but leave no evidence.
pub const LATE_REPORTS: usize = 8;
/// Receipts kept per task; more are refused.
pub const RECEIPTS: usize = 100;
/// Tasks in one CancelTasks.
pub const BULK: i32 = 1_000;
/// Unknown attempts told with a lease, the latest ones; and what one of them may take in the answer, in bytes.
pub const UNKNOWN_ATTEMPTS: usize = 20;
pub const ATTEMPT_BYTES: usize = 8 * 1024;
/// Attempts of each kind, and actions, that a look at a repair shows: the latest.
pub const REPAIR_ATTEMPTS: usize = 20;
pub const REPAIR_ACTIONS: i64 = 100;
/// Repairs that one call replays, and over how long it may spread the starts of the new tasks.
pub const REPLAYS: i32 = 1_000;
pub const REPLAYS_DEFAULT: i32 = 100;
pub const SPREAD: Duration = Duration::from_secs(30 * 86_400);
/// How long payloads and results, and everything else, may be kept by a retention that is told.
pub const RETENTION: Duration = Duration::from_secs(366 * 86_400);
pub const EVIDENCE_RETENTION: Duration = Duration::from_secs(3_653 * 86_400);
/// The share of a lease after which a worker should have sent its next heartbeat.
pub const HEARTBEATS_PER_LEASE: u32 = 3;
/// Items in one transaction.
pub const BATCH: usize = 500;

const _: () = assert!(LEASE_MIN.as_millis() >= 3 * 300, "a worker must have two chances to renew its lease");
const _: () =
    assert!(PAYLOAD_BYTES <= PAYLOAD_BYTES_MAX && PAYLOAD_BYTES_MAX < CLAIM_BYTES, "one task always fits into one answer");
const _: () = assert!(BACKOFF_INITIAL.as_secs() <= BACKOFF.as_secs(), "a first wait is never longer than the longest");
const _: () = assert!(
    UNKNOWN_ATTEMPTS * ATTEMPT_BYTES + PAYLOAD_BYTES_MAX < CLAIM_BYTES,
    "a task with many doubts still fits into one answer"
);
const _: () = assert!(CLAIM_TASKS as usize <= BATCH, "one Claim fits into one transaction");
