//! What operators of a town set, and what the database says of it.

use leasehold::api::proto as pb;
use pb::admin_service_client::AdminServiceClient;
use tonic::transport::Channel;

use super::{Answer, QUEUE, Town};

impl Town {
    pub fn admin(&self) -> AdminServiceClient<Channel> {
        self.admin_at(0)
    }

    pub fn admin_at(&self, server: usize) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.server(server).channel())
    }

    /// Sets these fields of the town's queue.
    pub async fn put_queue(&self, change: impl FnOnce(&mut pb::Queue)) -> pb::Queue {
        let mut queue = pb::Queue { name: QUEUE.into(), ..pb::Queue::default() };
        change(&mut queue);
        let request = pb::PutQueueRequest { queue: Some(queue), clear_fields: Vec::new(), reason: "a test".into() };
        Answer::from(self.admin().put_queue(request).await).ok().queue.expect("an answer has a queue")
    }

    /// Sets fields of one of its shares back to their defaults, and then these.
    pub async fn try_put_share(
        &self, key: &str, clear: &[&str], change: impl FnOnce(&mut pb::Share),
    ) -> Answer<pb::PutShareResponse> {
        let mut share = pb::Share { queue: QUEUE.into(), fairness_key: key.into(), ..pb::Share::default() };
        change(&mut share);
        let clear_fields = clear.iter().map(|name| (*name).to_owned()).collect();
        self.admin().put_share(pb::PutShareRequest { share: Some(share), clear_fields, reason: "a test".into() }).await.into()
    }

    /// Sets fields of a share; makes the queue if it isn't there.
    pub async fn put_share(&self, key: &str, change: impl FnOnce(&mut pb::Share)) -> pb::Share {
        self.execute(format!("INSERT INTO queues (name) VALUES ('{QUEUE}') ON CONFLICT DO NOTHING")).await;
        self.try_put_share(key, &[], change).await.ok().share.expect("an answer has a share")
    }

    /// So many tasks in a share, named `share/number`.
    pub async fn backlog(&self, share: &str, count: usize) {
        for part in (0..count).collect::<Vec<_>>().chunks(500) {
            let specs = part.iter().map(|number| self.spec(&format!("{share}/{number}")).share(share));
            for answer in self.submit_batch(specs.collect(), false).await.ok() {
                answer.ok();
            }
        }
    }

    /// Makes every commit of a lease late by up to so many milliseconds, and impossible where more of the queue or the share is leased
    /// then than its cap allows, as the database sees it at that moment.
    pub async fn judge_caps_at_late_commits(&self, milliseconds: u32) {
        self.execute(format!(
            "CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 PERFORM pg_sleep(random() * {milliseconds} / 1000.0);
                 IF (SELECT count(*) FROM live WHERE queue_id = NEW.queue_id AND state = 'LEASED')
                     > (SELECT max_in_flight FROM queues WHERE queue_id = NEW.queue_id) THEN RAISE 'the queue is over its cap'; END IF;
                 IF (SELECT count(*) FROM live WHERE queue_id = NEW.queue_id AND share_id = NEW.share_id AND state = 'LEASED')
                     > (SELECT max_in_flight FROM shares WHERE queue_id = NEW.queue_id AND share_id = NEW.share_id)
                 THEN RAISE 'a share is over its cap'; END IF;
                 RETURN NULL;
             END $$"
        ))
        .await;
        self.execute(
            "CREATE CONSTRAINT TRIGGER judge AFTER UPDATE ON live DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
             WHEN (NEW.state = 'LEASED' AND OLD.state <> 'LEASED') EXECUTE FUNCTION judge()",
        )
        .await;
    }

    /// Whether a share is passed by until a place of it comes free or its rate has room.
    pub async fn parked(&self, share: &str) -> bool {
        self.sql(format!("SELECT parked FROM shares WHERE fairness_key = '{share}'")).await
    }

    /// The shares of all leases so far with the tasks' costs, in the order of their tokens.
    pub async fn dispatches(&self) -> Vec<(String, i32)> {
        let query = "SELECT t.fairness_key, t.cost FROM events e JOIN tasks t USING (queue_id, uid) WHERE e.kind = 'LEASED' ORDER BY e.token";
        sqlx::query_as(query).fetch_all(self.database()).await.expect("the log can be read")
    }
}
