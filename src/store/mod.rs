//! The only SQL. One statement a file in `sql/`, checked at compile time; the functions here say in which transaction each runs.
//!
//! What is deliberately not here: decisions (`domain`), batching and answers (`engine`), and any clock but `app_now()`.

mod claim;
mod columns;
mod dispatch;
mod doctor;
mod error;
mod hints;
mod idle;
mod instants;
mod keys;
mod log;
mod migrate;
mod pool;
mod queues;
mod read;
mod receipts;
mod repairs;
mod retention;
mod rooms;
mod rows;
mod shares;
mod stalls;
mod stats;
mod stuck;
mod subjects;
mod submit;
mod transition;
mod write;

pub use claim::{Outlook, barrier, claimed_before, in_front, lock_claims, outlook, pick, restamp};
pub use columns::Place;
pub use dispatch::{
    Charge, Dispatch, Field, Found, Head, Spot, Stretch, ahead, charge, field, heads, lock_dispatch, lock_picks, rest_shares,
    suspects,
};
pub use doctor::{Examination, Findings, RULES, Rule};
pub use error::StoreError;
pub use hints::{Ear, Heard, Openings, drop_partitions, ensure_partitions, tell_others};
pub use idle::{IdlePage, idle_keys, idle_shares, remove_keys, remove_shares};
pub use keys::{HeldKey, KeyPlaces, find_keys, held_keys, key_places, lock_keys, make_keys};
pub use log::{
    AttemptAt, Kept, LogRow, SnapshotPage, log_attempts, log_end, log_holders, log_kept, log_of_queue, log_of_task, log_read,
    log_task_end, snapshot_page,
};
pub use migrate::{MigrateError, check_schema, create_database, migrate};
pub use pool::{Db, Pools, Tx, ping};
pub use queues::{Draw, Moment, Policies, QueueRow, create_queue, find_queue, lock_gate, moment, page_of_queues, write_policy};
pub use read::{
    DueLook, DueTask, KeyHead, ListFilter, ahead_in_share, events_of_tasks, events_page, key_head, key_hold, late_revisions, list,
    list_untold, log_tails, look_at_due, payloads_of, repairs_of, results_of,
};
pub use receipts::{NewReceipt, receipts_of, write_receipts};
pub use repairs::{
    By, KeyPlace, RepairFilter, RepairPage, lock_repair, repair_actions, repairs_page, repairs_to_replay, write_repair,
};
pub use retention::{Keeping, Walk, erase_page, forget_page, forgetful_queues, take_retention};
pub use rooms::{Bounded, Room, count_unfinished, forget_rooms, lock_door, lock_rooms, write_rooms};
pub use rows::{EndedRow, LiveRow, SpecRow};
pub use shares::{SharePolicyRow, allowances, create_share, find_share, page_of_shares, write_share};
pub use stalls::{note_stall, words_of};
pub use stats::{Count, LiveCount, Recent, ShareRow};
pub use stuck::{end_stuck, lock_stuck, stuck_key};
pub use subjects::{FloorMap, effected, floors, lock_gates, plan_walk, stale_page, stale_running, take_walk, write_floors};
pub use submit::{AcceptedTask, NewTask, NewTasksShare, insert_accepted, insert_tasks, shares_for};
pub use transition::{ended_by_uid, held_by_others, live_by_uid, lock_live, lock_tasks, specs_by_id, specs_by_uid, specs_in_full};
pub use write::{Changes, wake_shares};
