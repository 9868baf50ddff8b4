//! The ceiling: a hundred tasks per statement and a transaction per statement, written by hand on the same schema. Nothing is
//! judged, repeated or told to anybody; so no service on this schema can be faster. Also fills the naive subject's queues.

use tokio::task::JoinSet;
use uuid::Uuid;

use super::Failure;
use super::measure::Step;
use super::naive::{EVIDENCE, Naive, Place, digest};
use super::scenarios::{BATCH, FILL, PAYLOAD, task_name};

const FILLERS: usize = 4;

async fn submit(naive: &Naive, client: usize, place: Place, count: usize) -> Result<(), Failure> {
    let uids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
    let statement = sqlx::query(include_str!("sql/ceiling_submit.sql"))
        .bind(place.queue_id)
        .bind(place.share_id)
        .bind(&uids)
        .bind(uids.iter().map(|_| task_name()).collect::<Vec<_>>())
        .bind(uids.iter().map(|uid| digest(*uid)).collect::<Vec<_>>())
        .bind(vec![PAYLOAD; count]);
    statement.execute(&mut *naive.connection(client).await).await?;
    Ok(())
}

/// Submits, claims and completes [`BATCH`] tasks.
pub async fn batch(naive: &Naive, client: usize, place: Place) -> Result<Step, Failure> {
    submit(naive, client, place, BATCH).await?;
    let claim = sqlx::query_as(include_str!("sql/ceiling_claim.sql"))
        .bind(place.queue_id)
        .bind(place.share_id)
        .bind(i64::try_from(BATCH)?)
        .bind(format!("w{client}"))
        .bind(Uuid::now_v7());
    let leased: Vec<(Uuid, i64)> = claim.fetch_all(&mut *naive.connection(client).await).await?;
    if leased.is_empty() {
        return Ok(Step::Dry);
    }
    let (uids, tokens): (Vec<Uuid>, Vec<i64>) = leased.into_iter().unzip();
    let complete =
        sqlx::query(include_str!("sql/ceiling_complete.sql")).bind(place.queue_id).bind(&uids).bind(&tokens).bind(EVIDENCE);
    let ended = complete.execute(&mut *naive.connection(client).await).await?.rows_affected();
    if ended == uids.len() as u64 {
        Ok(Step::Done(u32::try_from(ended)?))
    } else {
        Err("not all of a batch could be completed".into())
    }
}

/// Puts tasks into a queue, not measured.
pub async fn fill(naive: &Naive, place: Place, count: usize) -> Result<(), Failure> {
    let mut fillers = JoinSet::new();
    for client in 0..FILLERS {
        let naive = naive.clone();
        fillers.spawn(async move {
            for _ in 0..count.div_ceil(FILL * FILLERS) {
                submit(&naive, client, place, FILL).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(filled) = fillers.join_next().await {
        filled??;
    }
    Ok(())
}
