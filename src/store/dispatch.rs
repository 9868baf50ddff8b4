//! Statements of the claim transaction when several shares are awake, or something has a budget.

use std::collections::HashMap;

use sqlx::types::Json;
use uuid::Uuid;

use super::queues::rate;
use super::rows::LiveRow;
use super::shares::places;
use super::{Db, StoreError, Tx};
use crate::domain::budget::Bucket;
use crate::domain::fairness::{Allowance, Contest, Share};
use crate::domain::task::Notes;
use crate::domain::time::Timestamp;

/// A READY task as the allotment sees it.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub uid: Uuid,
    pub cost: i32,
}

/// That the queue's virtual time and bucket are locked, and what they were. What is compared under it is read afterwards.
pub struct Dispatch {
    queue_id: i32,
    virtual_time: f64,
    level: Option<(f64, Timestamp)>,
}

/// The shares that compete, as the clock stands.
pub struct Field {
    pub contest: Contest,
    /// The clock's reading that rates go by. It is older than the one that leases begin at, and no rate is exceeded for that.
    pub now: Timestamp,
    /// When the next of the shares that are out of tokens has some.
    pub wake_at: Option<Timestamp>,
}

/// A share that is charged.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    pub share: Share,
    pub parked: bool,
    pub wake_at: Option<Timestamp>,
}

/// Locks the queue's virtual time.
pub async fn lock_dispatch(tx: &mut Tx, queue_id: i32) -> Result<Dispatch, StoreError> {
    loop {
        let row = sqlx::query_file!("src/store/sql/dispatch_lock.sql", queue_id).fetch_optional(tx.connection()).await?;
        if let Some(row) = row {
            return Ok(Dispatch { queue_id, virtual_time: row.virtual_time, level: row.rate_level.zip(row.rate_at) });
        }
        sqlx::query_file!("src/store/sql/dispatch_make.sql", queue_id).execute(tx.connection()).await?;
    }
}

/// The shares that may have READY tasks, at most `limit`, and what budgets leave to them and to the queue.
pub async fn field(tx: &mut Tx, dispatch: &Dispatch, limit: i64) -> Result<Field, StoreError> {
    loop {
        let found = read_field(tx, dispatch, limit).await?;
        if found.wake_at.is_none_or(|wake_at| wake_at > found.now) {
            return Ok(found);
        }
        sqlx::query_file!("src/store/sql/dispatch_unpark.sql", dispatch.queue_id, found.now as _).execute(tx.connection()).await?;
    }
}

async fn read_field(tx: &mut Tx, dispatch: &Dispatch, limit: i64) -> Result<Field, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/dispatch_shares.sql", dispatch.queue_id, limit).fetch_all(tx.connection()).await?;
    let first = rows.first().ok_or_else(StoreError::silent)?;
    let (now, wake_at) = (first.now, first.wake_at);
    let allowance = Allowance {
        places: places(first.max_in_flight, first.leased),
        bucket: rate(first.rate_per_second, first.rate_burst).map(|rate| Bucket::at(rate, dispatch.level, now)),
    };
    let shares = rows.iter().filter_map(|r| {
        let bucket = rate(r.share_rate_per_second, r.share_rate_burst);
        let bucket = bucket.map(|rate| Bucket::at(rate, r.share_rate_level.zip(r.share_rate_at), now));
        let allowance = Allowance { places: places(r.share_max_in_flight, r.share_leased), bucket };
        Some(Share { id: r.share_id?, tag: r.tag?, weight: r.weight?, allowance })
    });
    let contest = Contest { shares: shares.collect(), virtual_time: dispatch.virtual_time, allowance };
    Ok(Field { contest, now, wake_at })
}

/// The next READY tasks of each share (its number, how many at most, and from where on in its line), and where they stand.
pub async fn heads(tx: &mut Tx, looks: &[(i32, usize, Spot)]) -> Result<HashMap<i32, Vec<(Spot, Head)>>, StoreError> {
    let shares: Vec<i32> = looks.iter().map(|(share, ..)| *share).collect();
    let depths: Vec<i64> = looks.iter().map(|(_, depth, _)| i64::try_from(*depth).unwrap_or(i64::MAX)).collect();
    let (ranks, positions): (Vec<i64>, Vec<i64>) = looks.iter().map(|(_, _, from)| *from).unzip();
    let rows = sqlx::query_file!("src/store/sql/claim_heads.sql", &shares, &depths, &ranks, &positions);
    let mut heads: HashMap<i32, Vec<(Spot, Head)>> = HashMap::with_capacity(shares.len());
    for row in rows.fetch_all(tx.connection()).await? {
        heads.entry(row.share_id).or_default().push(((row.rank, row.position), Head { uid: row.uid, cost: row.cost }));
    }
    Ok(heads)
}

/// A place in the line of a share's READY tasks: rank, then position.
pub type Spot = (i64, i64);

/// A part of a share's line: what stands there from `from` on, before `end`. Looked at are at most `span` tasks, and at most `depth` good
/// ones are told.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub share_id: i32,
    pub from: Spot,
    pub end: Spot,
    pub span: usize,
    pub depth: usize,
}

/// What was found in a stretch.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The next tasks that are neither overdue nor stale, and where they stand.
    pub heads: Vec<(Spot, Head)>,
    /// Where the last task that was looked at stands; absent: there is none in the stretch.
    pub last: Option<Spot>,
    /// There may be more behind it.
    pub more: bool,
}

/// The next tasks in each stretch that are neither overdue nor stale. The gate must be held, so that no floor rises meanwhile.
pub async fn ahead(tx: &mut Tx, queue_id: i32, stretches: &[Stretch]) -> Result<Vec<Found>, StoreError> {
    let whole = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    macro_rules! column {
        ($stretch:ident => $value:expr) => {
            stretches.iter().map(|$stretch| $value).collect::<Vec<_>>()
        };
    }
    let rows = sqlx::query_file!(
        "src/store/sql/claim_ahead.sql",
        queue_id,
        &column!(s => s.share_id),
        &column!(s => s.from.0),
        &column!(s => s.from.1),
        &column!(s => s.end.0),
        &column!(s => s.end.1),
        &column!(s => whole(s.span)),
        &column!(s => whole(s.depth)),
    );
    let mut found = vec![Found::default(); stretches.len()];
    for row in rows.fetch_all(tx.connection()).await? {
        let place = usize::try_from(row.ord - 1).unwrap_or_default();
        let (Some(of), Some(stretch)) = (found.get_mut(place), stretches.get(place)) else { continue };
        let spot = (row.rank, row.position);
        match row.seen {
            None => of.heads.push((spot, Head { uid: row.uid, cost: row.cost })),
            Some(seen) => (of.last, of.more) = (Some(spot), seen >= whole(stretch.span)),
        }
    }
    Ok(found)
}

/// The next READY tasks of the first `shares` shares of a queue, `depth` of each, by name only.
pub async fn suspects(db: &Db, queue_id: i32, shares: i64, depth: i64) -> Result<Vec<Uuid>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/claim_suspects.sql", queue_id, shares, depth).fetch_all(db.reads()).await?;
    Ok(rows.into_iter().map(|row| row.uid).collect())
}

/// Locks those of the picks that are still READY and that nobody else holds.
pub async fn lock_picks(tx: &mut Tx, queue_id: i32, uids: &[Uuid]) -> Result<Vec<LiveRow>, StoreError> {
    let queues = vec![queue_id; uids.len()];
    Ok(sqlx::query_file_as!(LiveRow, "src/store/sql/claim_lock_picks.sql", &queues, uids).fetch_all(tx.connection()).await?)
}

/// Writes what the shares and the queue have left, and the queue's virtual time.
pub async fn charge(tx: &mut Tx, dispatch: &Dispatch, field: &Field, charges: &[Charge]) -> Result<(), StoreError> {
    let now = field.now;
    let level = |allowance: &Allowance| allowance.bucket.map(|bucket| bucket.level());
    let queue_level = level(&field.contest.allowance);
    let levels: Vec<Option<f64>> = charges.iter().map(|charge| level(&charge.share.allowance)).collect();
    sqlx::query_file!(
        "src/store/sql/dispatch_charge.sql",
        dispatch.queue_id,
        field.contest.virtual_time,
        queue_level,
        queue_level.map(|_| now) as _,
        &charges.iter().map(|charge| charge.share.id).collect::<Vec<_>>(),
        &charges.iter().map(|charge| charge.share.tag).collect::<Vec<_>>(),
        &levels as _,
        &levels.iter().map(|level| level.map(|_| now)).collect::<Vec<_>>() as _,
        &charges.iter().map(|charge| charge.parked).collect::<Vec<_>>(),
        &charges.iter().map(|charge| charge.wake_at).collect::<Vec<_>>() as _,
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Puts those of the `empty` shares to sleep that have no READY task, and parks those of the `full` ones that are at their cap. Passed
/// over: those that somebody is waking, or of which somebody is ending a lease.
pub async fn rest_shares(tx: &mut Tx, empty: &[i32], full: &[i32]) -> Result<(), StoreError> {
    if empty.is_empty() && full.is_empty() {
        return Ok(());
    }
    let both = [empty, full].concat();
    let rows = sqlx::query_file!("src/store/sql/shares_sleepy.sql", &both).fetch_all(tx.connection()).await?;
    let held: Vec<i32> = rows.into_iter().map(|row| row.share_id).collect();
    let of = |shares: &[i32]| held.iter().copied().filter(|id| shares.contains(id)).collect::<Vec<i32>>();
    let (empty, full) = (of(empty), of(full));
    if !empty.is_empty() {
        sqlx::query_file!("src/store/sql/shares_sleep.sql", &empty).execute(tx.connection()).await?;
    }
    if !full.is_empty() {
        sqlx::query_file!("src/store/sql/shares_park.sql", &full).execute(tx.connection()).await?;
    }
    Ok(())
}
