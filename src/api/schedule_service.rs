//! ScheduleService: nothing of it is offered yet.

use super::proto::schedule_service_server::ScheduleService;
use super::services::unoffered_service;

pub struct Schedules;

unoffered_service!(ScheduleService, Schedules {
    put_schedule(PutScheduleRequest) -> PutScheduleResponse,
    get_schedule(GetScheduleRequest) -> GetScheduleResponse,
    list_schedules(ListSchedulesRequest) -> ListSchedulesResponse,
    delete_schedule(DeleteScheduleRequest) -> DeleteScheduleResponse,
    trigger_schedule(TriggerScheduleRequest) -> TriggerScheduleResponse,
    backfill_schedule(BackfillScheduleRequest) -> BackfillScheduleResponse,
    preview_schedule(PreviewScheduleRequest) -> PreviewScheduleResponse,
    list_fires(ListFiresRequest) -> ListFiresResponse,
});
