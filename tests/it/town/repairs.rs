//! What people of a town do with tasks that can't go on.

use leasehold::api::proto as pb;
use pb::repair_service_client::RepairServiceClient;
use pb::resolve_repair_request::Resolution;
use pb::{ErrorClass, TaskState};
use tonic::transport::Channel;

use super::{Answer, QUEUE, Spec, Town, task_ref};

/// Who acts in these tests, and why.
pub const ACTOR: &str = "ann";
pub const REASON: &str = "the provider was down";

impl Town {
    pub fn repairs(&self) -> RepairServiceClient<Channel> {
        self.repairs_at(0)
    }

    pub fn repairs_at(&self, server: usize) -> RepairServiceClient<Channel> {
        RepairServiceClient::new(self.server(server).channel())
    }

    /// A task of this spec that a worker said will never succeed. Nothing else may be READY.
    pub async fn broken(&self, spec: Spec<'_>) -> pb::Task {
        let id = spec.spec.task_id.clone();
        spec.submit().await;
        let lease = self.worker("w1").claim_one().await;
        assert_eq!(lease.id(), id);
        let task = lease.fail(ErrorClass::Permanent).await.applied().task.unwrap();
        assert_eq!(task.state(), TaskState::RepairRequired);
        task
    }

    pub async fn look_up_repair(&self, id: &str) -> Answer<pb::GetRepairResponse> {
        self.repairs().get_repair(pb::GetRepairRequest { task: Some(task_ref(id)) }).await.into()
    }

    /// The repair as it stands, with its attempts.
    pub async fn repair(&self, id: &str) -> pb::Repair {
        self.look_up_repair(id).await.ok().repair.expect("an answer has a repair")
    }

    /// The ids of the queue's repairs that this asks for, in the order of the list.
    pub async fn list_repairs(&self, asked: pb::ListRepairsRequest) -> Vec<String> {
        let filter = pb::TaskFilter { queue: QUEUE.into(), ..asked.filter.clone().unwrap_or_default() };
        let page = self.repairs().list_repairs(pb::ListRepairsRequest { filter: Some(filter), ..asked }).await;
        Answer::from(page).ok().repairs.iter().map(|repair| id_of_repair(repair).to_owned()).collect()
    }

    pub async fn assign(&self, id: &str, owner: &str, next_action: &str) -> Answer<pb::AssignRepairResponse> {
        let request = pb::AssignRepairRequest {
            task: Some(task_ref(id)),
            owner: Some(owner.into()),
            next_action: Some(next_action.into()),
            reason: REASON.into(),
            actor: ACTOR.into(),
        };
        self.repairs().assign_repair(request).await.into()
    }

    pub async fn resolve_at(&self, server: usize, id: &str, resolution: Resolution) -> Answer<pb::ResolveRepairResponse> {
        let request = pb::ResolveRepairRequest {
            task: Some(task_ref(id)),
            resolution: Some(resolution),
            reason: REASON.into(),
            actor: ACTOR.into(),
        };
        self.repairs_at(server).resolve_repair(request).await.into()
    }

    pub async fn replay(&self, id: &str) -> Answer<pb::ResolveRepairResponse> {
        self.replay_as(id, pb::Replay::default()).await
    }

    pub async fn replay_as(&self, id: &str, replay: pb::Replay) -> Answer<pb::ResolveRepairResponse> {
        self.resolve_at(0, id, Resolution::Replay(replay)).await
    }

    pub async fn discard(&self, id: &str) -> Answer<pb::ResolveRepairResponse> {
        self.resolve_at(0, id, Resolution::Discard(pb::Discard {})).await
    }

    pub async fn confirm(&self, id: &str, receipt_ref: &str) -> Answer<pb::ResolveRepairResponse> {
        self.resolve_at(0, id, Resolution::Confirm(pb::Confirm { receipt_ref: receipt_ref.into() })).await
    }

    /// Replays what this asks for.
    pub async fn replay_all(&self, asked: pb::ReplayRepairsRequest) -> pb::ReplayRepairsResponse {
        let filter = pb::TaskFilter { queue: QUEUE.into(), ..asked.filter.clone().unwrap_or_default() };
        let (reason, actor) = (REASON.into(), ACTOR.into());
        let request = pb::ReplayRepairsRequest { filter: Some(filter), reason, actor, ..asked };
        Answer::from(self.repairs().replay_repairs(request).await).ok()
    }
}

pub fn id_of_repair(repair: &pb::Repair) -> &str {
    &repair.task.as_ref().expect("a repair names its task").task_id
}

/// The new task of a replay.
#[track_caller]
pub fn replayed(answer: Answer<pb::ResolveRepairResponse>) -> pb::Task {
    answer.ok().replayed_task.expect("a replay has a new task")
}
