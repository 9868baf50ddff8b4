//! What the database says at the end of a run.

use std::collections::BTreeMap;

use sqlx::FromRow;

use super::history::Micros;
use crate::town::Town;

#[derive(Clone, Debug, Default, FromRow)]
pub struct Event {
    pub id: String,
    pub position: i64,
    pub revision: i64,
    pub time: Micros,
    pub kind: String,
    /// Empty: of a first event.
    pub previous: String,
    pub state: String,
    pub attempt: i32,
    pub token: i64,
    /// How the attempt ended. Empty: none did.
    pub outcome: String,
    pub receipt: String,
}

/// Where a task stands, in `live` or in `ended`.
#[derive(Clone, Debug, Default, FromRow)]
pub struct Standing {
    pub id: String,
    pub live: bool,
    pub state: String,
    /// Of an ended one: at its end. Evidence may come later.
    pub revision: i64,
    pub position: i64,
    /// Why an ended one ended. Empty: it has no cause.
    pub cause: String,
    /// The next moment at which time alone changes a live one.
    pub due: Option<Micros>,
}

/// The limits of a queue (its `share` is empty) or of a share.
#[derive(Clone, Debug, Default, FromRow)]
pub struct Limit {
    pub queue: String,
    pub share: Option<String>,
    pub max_in_flight: Option<i32>,
    pub max_unfinished: Option<i32>,
}

#[derive(Clone, Debug, Default, FromRow)]
pub struct Repair {
    pub id: String,
    pub open: bool,
    /// Whether it holds its key.
    pub holds: bool,
    pub position: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Ids of tasks that there are.
    pub tasks: Vec<String>,
    /// In the order of their positions.
    pub events: Vec<Event>,
    pub standings: Vec<Standing>,
    pub repairs: Vec<Repair>,
    pub floors: BTreeMap<String, i64>,
    /// When they last rose.
    pub rises: BTreeMap<String, Micros>,
    pub limits: Vec<Limit>,
    pub now: Micros,
}

const EVENTS: &str = "SELECT t.task_id AS id, e.position, e.revision, (extract(epoch FROM e.time) * 1000000)::bigint AS time, e.kind,
                             coalesce(e.previous_state, '') AS previous, e.state, e.attempt, e.token,
                             coalesce(e.evidence ->> 'outcome', '') AS outcome, coalesce(e.evidence ->> 'receipt_ref', '') AS receipt
                      FROM events e JOIN tasks t USING (queue_id, uid) ORDER BY e.position";

const STANDINGS: &str = "SELECT t.task_id AS id, s.* FROM tasks t JOIN (
                             SELECT queue_id, uid, true AS live, state, revision, position, '' AS cause,
                                    (extract(epoch FROM due) * 1000000)::bigint AS due FROM live
                             UNION ALL
                             SELECT queue_id, uid, false, state, revision, position, coalesce(cause, ''), NULL FROM ended
                         ) s USING (queue_id, uid)";

const REPAIRS: &str =
    "SELECT t.task_id AS id, r.state = 'OPEN' AS open, q.on_repair = 'HOLD' AND r.key_id IS NOT NULL AS holds, r.position
                       FROM repairs r JOIN tasks t USING (queue_id, uid) JOIN queues q USING (queue_id)";

const LIMITS: &str = "SELECT name AS queue, NULL AS share, max_in_flight, max_unfinished FROM queues
                      UNION ALL
                      SELECT q.name, s.fairness_key, s.max_in_flight, s.max_unfinished FROM shares s JOIN queues q USING (queue_id)";

const FLOORS: &str =
    "SELECT subject_id, min_version, (extract(epoch FROM updated) * 1000000)::bigint FROM subjects WHERE min_version IS NOT NULL";

impl Rows {
    /// At a moment when nobody changes anything any more.
    pub async fn read(town: &Town) -> Rows {
        let at = town.database();
        let floors: Vec<(String, i64, Micros)> = sqlx::query_as(FLOORS).fetch_all(at).await.expect("subjects can be read");
        Rows {
            tasks: sqlx::query_scalar("SELECT task_id FROM tasks").fetch_all(at).await.expect("tasks can be read"),
            events: sqlx::query_as(EVENTS).fetch_all(at).await.expect("events can be read"),
            standings: sqlx::query_as(STANDINGS).fetch_all(at).await.expect("standings can be read"),
            repairs: sqlx::query_as(REPAIRS).fetch_all(at).await.expect("repairs can be read"),
            floors: floors.iter().map(|(subject, floor, _)| (subject.clone(), *floor)).collect(),
            rises: floors.into_iter().map(|(subject, _, time)| (subject, time)).collect(),
            limits: sqlx::query_as(LIMITS).fetch_all(at).await.expect("limits can be read"),
            now: town.clock.now().await,
        }
    }
}
