//! What comes to the door malformed is refused by name, all of it at once, and hurts nobody.

use std::collections::BTreeSet;

use leasehold::api::proto as pb;
use leasehold::api::server::SERVICES;
use pb::admin_service_client::AdminServiceClient;
use pb::complete_request::Outcome;
use pb::{ErrorClass, TaskState};
use prost_types::Duration;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;

use crate::town::{Answer, Lease, QUEUE, Spec, Town, failed, succeeded, task_ref};

const NUL: &str = "a\0b";
const NEGATIVE: Duration = Duration { seconds: -1, nanos: 0 };

/// The fields that a refusal names.
#[track_caller]
fn bad_fields<T>(answer: Answer<T>) -> BTreeSet<String> {
    fields_of(answer.refused_as(Code::InvalidArgument, "INVALID_FIELD").status)
}

#[track_caller]
fn fields_of(status: Status) -> BTreeSet<String> {
    let bad = status.get_details_bad_request().unwrap_or_else(|| panic!("no BadRequest: {status:?}"));
    bad.field_violations.into_iter().map(|violation| violation.field).collect()
}

fn fields<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

/// The server serves, and has logged no fault of its own.
async fn unharmed(town: &Town) {
    town.submit("m-9").await;
    town.worker("w1").claim_one().await.complete().await.applied();
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 1, "something that was refused left a task");
    town.audit().await;
}

async fn refused_spec(town: &Town, change: impl FnOnce(&mut pb::TaskSpec)) -> BTreeSet<String> {
    bad_fields(town.spec("bad").with(change).try_submit().await)
}

#[tokio::test]
async fn nul_and_overlong_ids_are_refused_by_the_name_of_their_field() {
    let town = Town::start().await;
    let long = "x".repeat(257);
    for bad in [NUL, &long] {
        let named = refused_spec(&town, |spec| {
            spec.queue = bad.into();
            spec.task_id = bad.into();
            spec.kind = bad.into();
            spec.content_type = bad.into();
            spec.target = bad.into();
            spec.event_id = bad.into();
            spec.fairness_key = bad.into();
            spec.ordering_key = bad.into();
            spec.subjects = vec![pb::Subject { id: bad.into(), version: 1, raise_floor: false }];
        });
        let all =
            ["queue", "task_id", "kind", "content_type", "target", "event_id", "fairness_key", "ordering_key", "subjects[0].id"];
        assert_eq!(named.await, all.map(|name| format!("spec.{name}")).into(), "{} bytes", bad.len());
        let claim = pb::ClaimRequest { queue: bad.into(), worker_id: bad.into(), request_id: bad.into(), ..Default::default() };
        let refused = Answer::from(town.worker("w1").client().claim(claim).await);
        assert_eq!(bad_fields(refused), fields(["queue", "worker_id", "request_id"]));
        assert_eq!(bad_fields(town.look_up(bad).await), fields(["task.task_id"]));
        assert_eq!(bad_fields(town.cancel(bad).await), fields(["task.task_id"]));
    }
    // One byte less is an id like any other, and bytes are counted, not characters.
    let longest = "ü".repeat(128);
    town.spec(&longest).key(&longest).share(&longest).submit().await;
    town.worker("w1").claim_one().await.complete().await.applied();
    assert_eq!(refused_spec(&town, |spec| spec.task_id = format!("{longest}x")).await, fields(["spec.task_id"]));
    town.execute("DELETE FROM tasks; ").await;
    town.execute("DELETE FROM ended").await;
    town.execute("DELETE FROM payloads").await;
    town.execute("DELETE FROM events").await;
    unharmed(&town).await;
}

#[tokio::test]
async fn negative_and_impossible_durations_are_refused_by_the_name_of_their_field() {
    let town = Town::start().await;
    for bad in [
        NEGATIVE,
        Duration { seconds: 0, nanos: -1 },
        Duration { seconds: i64::MAX, nanos: 0 },
        Duration { seconds: 1, nanos: i32::MAX },
    ] {
        let named = refused_spec(&town, |spec| {
            spec.start = Some(pb::task_spec::Start::StartDelay(bad));
            spec.end = Some(pb::task_spec::End::Ttl(bad));
            spec.lease_duration = Some(bad);
            spec.retry = Some(pb::RetryPolicy { initial_backoff: Some(bad), max_backoff: Some(bad), ..Default::default() });
        });
        let all = ["start_delay", "ttl", "lease_duration", "retry.initial_backoff", "retry.max_backoff"];
        assert_eq!(named.await, all.map(|name| format!("spec.{name}")).into(), "{bad:?}");
        let claim = pb::ClaimRequest {
            wait: Some(bad),
            lease_duration: Some(bad),
            queue: QUEUE.into(),
            worker_id: "w".into(),
            ..Default::default()
        };
        let refused = Answer::from(town.worker("w1").client().claim(claim).await);
        assert_eq!(bad_fields(refused), fields(["wait", "lease_duration"]), "{bad:?}");
    }
    unharmed(&town).await;
}

#[tokio::test]
async fn unknown_values_of_enums_are_refused_by_the_name_of_their_field() {
    let town = Town::start().await;
    let view = pb::GetTaskRequest {
        task: Some(task_ref("m-9")),
        view: 99,
        wait_until: Some(pb::WaitUntil { states: vec![1, 99, 0], timeout: None }),
    };
    let refused = Answer::from(town.tasks().get_task(view).await);
    assert_eq!(bad_fields(refused), fields(["view", "wait_until.states[1]", "wait_until.states[2]"]));
    let filter = pb::TaskFilter { queue: QUEUE.into(), states: vec![-1], ..Default::default() };
    let list = pb::ListTasksRequest { filter: Some(filter), page_size: -1, page_token: String::new() };
    assert_eq!(bad_fields(Answer::from(town.tasks().list_tasks(list).await)), fields(["filter.states[0]", "page_size"]));
    unharmed(&town).await;
}

#[tokio::test]
async fn a_payload_one_byte_too_large_is_refused_with_the_limit_and_the_largest_one_is_kept() {
    let town = Town::with_servers_told(1, &["--payload-limit", "1048576"]).await;
    let largest = vec![0_u8; 1024 * 1024];
    let refused = town
        .spec("large")
        .payload(&[&largest[..], b"x"].concat())
        .try_submit()
        .await
        .refused_as(Code::InvalidArgument, "TOO_LARGE");
    assert_eq!(refused.number("limit"), 1024 * 1024);
    assert_eq!(fields_of(refused.status), fields(["spec.payload"]));
    town.spec("m-9").payload(&largest).submit().await;
    let lease = town.worker("w1").claim_one().await;
    assert_eq!(lease.task().spec.as_ref().unwrap().payload, largest);
    lease.complete().await.applied();
    town.audit().await;
}

/// Refused, each for another reason that the door sees.
fn malformed(lease: &Lease) -> Vec<(pb::CompleteRequest, &'static str)> {
    let reference = || lease.lease.lease_ref.clone();
    let with = |outcome| pb::CompleteRequest { lease: reference(), outcome: Some(outcome) };
    let mut other = reference().unwrap();
    other.task_uid = "not a uuid".into();
    vec![
        (pb::CompleteRequest { lease: reference(), outcome: None }, "outcome"),
        (pb::CompleteRequest { lease: Some(other), outcome: Some(Outcome::Succeeded(succeeded())) }, "lease.task_uid"),
        (with(Outcome::Failed(pb::Failed { error_class: 99, ..failed(ErrorClass::Transient) })), "failed.error_class"),
        (with(Outcome::Failed(pb::Failed { error_class: 0, ..failed(ErrorClass::Transient) })), "failed.error_class"),
        (with(Outcome::Failed(pb::Failed { retry_after: Some(NEGATIVE), ..failed(ErrorClass::Transient) })), "failed.retry_after"),
        (with(Outcome::Failed(pb::Failed { code: String::new(), ..failed(ErrorClass::Permanent) })), "failed.code"),
        (with(Outcome::Skipped(pb::Skipped::default())), "skipped.reason"),
        (with(Outcome::Released(pb::Released { delay: Some(NEGATIVE), ..Default::default() })), "released.delay"),
        (with(Outcome::Succeeded(pb::Succeeded { receipt_ref: NUL.into(), ..succeeded() })), "succeeded.receipt_ref"),
        (with(Outcome::Succeeded(pb::Succeeded { result_size: Some(-1), ..succeeded() })), "succeeded.result_size"),
    ]
}

#[tokio::test]
async fn a_lease_that_was_used_in_a_refused_call_is_as_good_as_before() {
    let town = Town::start().await;
    town.submit("m-9").await;
    let lease = town.worker("w1").reporting_effects().claim_one().await;
    let before = town.task("m-9").await;
    let mut client = town.worker("w1").client();
    for (request, field) in malformed(&lease) {
        assert_eq!(bad_fields(Answer::from(client.complete(request.clone()).await)), fields([field]));
        // Beside a good neighbour in a batch it is refused alone.
        let good = pb::CompleteRequest { lease: lease.lease.lease_ref.clone(), outcome: None };
        let results =
            client.complete_batch(pb::CompleteBatchRequest { requests: vec![good, request] }).await.unwrap().into_inner().results;
        assert_eq!(results.len(), 2);
    }
    let large = Outcome::Succeeded(pb::Succeeded { result: vec![0; 16 * 1024 + 1].into(), ..succeeded() });
    lease.report(large).await.refused_as(Code::InvalidArgument, "TOO_LARGE");
    let effect =
        pb::BeginEffectRequest { lease: lease.lease.lease_ref.clone(), effect_ref: NUL.into(), lease_duration: Some(NEGATIVE) };
    assert_eq!(bad_fields(Answer::from(client.begin_effect(effect).await)), fields(["effect_ref", "lease_duration"]));
    assert_eq!(town.task("m-9").await, before);
    lease.heartbeat().await.ok();
    lease.begin_effect("effect-1").await.applied();
    lease.complete().await.applied();
    assert_eq!(town.task("m-9").await.state(), TaskState::Completed);
    town.audit().await;
}

/// Sends an empty message to a method; every message can be sent as one that has no fields.
async fn call_empty(channel: &Channel, method: &str) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.expect("the server is there");
    let codec = ProstCodec::<(), ()>::default();
    grpc.unary(Request::new(()), PathAndQuery::try_from(method).expect("a path"), codec).await.map(drop)
}

/// `/package.Service/Method` of all the contract's methods.
fn methods() -> Vec<String> {
    use prost::Message as _;
    let contract = prost_types::FileDescriptorSet::decode(pb::DESCRIPTORS).expect("the contract's descriptors");
    let files = contract.file.iter().filter(|file| file.package() == "leasehold.v1");
    let services = files.flat_map(|file| &file.service);
    services
        .flat_map(|service| service.method.iter().map(|method| format!("/leasehold.v1.{}/{}", service.name(), method.name())))
        .collect()
}

#[tokio::test]
async fn an_empty_request_to_every_method_is_told_what_is_missing() {
    let town = Town::start().await;
    let channel = town.server(0).channel();
    let mut offered = BTreeSet::new();
    for method in methods() {
        let Err(status) = call_empty(&channel, &method).await else {
            assert!(method.ends_with("/GetServerInfo") || method.ends_with("/ListQueues"), "{method} wants nothing");
            continue;
        };
        let reason = status.get_details_error_info().expect("every error says why").reason;
        match (status.code(), reason.as_str()) {
            (Code::Unimplemented, "NOT_OFFERED") => {}
            (Code::InvalidArgument, "INVALID_FIELD") => {
                assert!(!fields_of(status).is_empty(), "{method} does not say what is missing");
                offered.insert(method);
            }
            other => panic!("{method}: {other:?}"),
        }
    }
    for method in
        ["TaskService/Submit", "TaskService/SubmitBatch", "TaskService/Cancel", "WorkerService/Claim", "WorkerService/Complete"]
    {
        assert!(offered.contains(&format!("/leasehold.v1.{method}")), "{method} is not among {offered:?}");
    }
    unharmed(&town).await;
}

async fn accepts(spec: Spec<'_>) -> bool {
    match spec.try_submit().await.0 {
        Ok(_) => true,
        Err(status) => {
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            false
        }
    }
}

#[tokio::test]
async fn the_limits_that_a_server_tells_are_those_of_its_door() {
    let town = Town::with_servers_told(1, &["--payload-limit", "1000"]).await;
    let info = AdminServiceClient::new(town.server(0).channel()).get_server_info(pb::GetServerInfoRequest {}).await;
    let limits = info.unwrap().into_inner().limits.unwrap();
    let size = |limit: i32, more: usize| usize::try_from(limit).unwrap() + more;
    let text = |limit: i32, more: usize| "x".repeat(size(limit, more));
    for (more, good) in [(0, true), (1, false)] {
        let extra = i32::try_from(more).unwrap();
        let one = |name: &str| town.spec(&format!("{name}-{more}"));
        assert_eq!(accepts(town.spec(&format!("{:x<1$}", more, size(limits.id_max_bytes, more)))).await, good, "id");
        assert_eq!(accepts(one("payload").payload(&vec![0; size(limits.payload_max_bytes, more)])).await, good, "payload");
        assert_eq!(accepts(one("key").label(&text(limits.label_key_max_bytes, more), "v")).await, good, "label key");
        assert_eq!(accepts(one("value").label("k", &text(limits.label_value_max_bytes, more))).await, good, "label value");
        let labels = |spec: &mut pb::TaskSpec| {
            spec.labels.extend((0..size(limits.labels_max_count, more)).map(|i| (format!("k{i}"), String::new())))
        };
        assert_eq!(accepts(one("labels").with(labels)).await, good, "labels");
        let subject = |i: usize| pb::Subject { id: format!("s{i}"), version: 1, raise_floor: false };
        let subjects = (0..size(limits.subjects_max_count, more)).map(subject).collect();
        assert_eq!(accepts(one("subjects").with(|spec| spec.subjects = subjects)).await, good, "subjects");
        assert_eq!(accepts(one("high").priority(limits.priority_max + extra)).await, good, "priority");
        assert_eq!(accepts(one("low").priority(limits.priority_min - extra)).await, good, "priority");
        assert_eq!(
            accepts(one("cost").with(|spec| spec.cost = Some(limits.cost_max + u32::try_from(more).unwrap()))).await,
            good,
            "cost"
        );
        let lease = |seconds: i64| Some(Duration { seconds, nanos: 0 });
        let (longest, shortest) =
            (limits.lease_max.unwrap().seconds + i64::from(extra), limits.lease_min.unwrap().seconds - i64::from(extra));
        assert_eq!(accepts(one("long").with(|spec| spec.lease_duration = lease(longest))).await, good, "longest lease");
        assert_eq!(accepts(one("short").with(|spec| spec.lease_duration = lease(shortest))).await, good, "shortest lease");
        assert_eq!(accepts(one("attempts").retry(limits.attempts_max + extra, std::time::Duration::ZERO)).await, good, "attempts");
        let batch = (0..size(limits.submit_batch_max_count, more)).map(|i| town.spec(&format!("b-{i}"))).collect();
        assert_eq!(town.submit_batch(batch, false).await.0.is_ok(), good, "batch");
        assert_eq!(town.worker("w1").try_claim(limits.claim_max_tasks + extra).await.0.is_ok(), good, "claim");
        let claim = pb::ClaimRequest { queue: "empty".into(), worker_id: text(limits.id_max_bytes, more), ..Default::default() };
        assert_eq!(town.worker("w1").client().claim(claim).await.is_ok(), good, "worker id");
    }
    town.audit().await;
}

#[tokio::test]
async fn health_is_told_per_service_and_of_no_others() {
    let town = Town::start().await;
    assert_eq!(SERVICES.len(), 6);
    for service in SERVICES {
        assert_eq!(town.server(0).health(service).await.unwrap(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(town.server(0).health("leasehold.v1.Nothing").await.unwrap_err().code(), Code::NotFound);
}

/// The services that reflection lists, in the words of one of its versions.
macro_rules! listed_by {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(MessageRequest::ListServices(String::new())) };
        let answers = ServerReflectionClient::new($channel).server_reflection_info(tokio_stream::once(request)).await;
        match answers.unwrap().into_inner().message().await.unwrap().unwrap().message_response {
            Some(MessageResponse::ListServicesResponse(list)) => {
                list.service.into_iter().map(|service| service.name).collect::<BTreeSet<_>>()
            }
            other => panic!("{other:?}"),
        }
    }};
}

#[tokio::test]
async fn both_versions_of_reflection_list_all_services() {
    let town = Town::start().await;
    let v1 = listed_by!(v1, town.server(0).channel());
    let v1alpha = listed_by!(v1alpha, town.server(0).channel());
    for service in SERVICES.into_iter().filter(|name| !name.is_empty()).chain(["grpc.health.v1.Health"]) {
        assert!(v1.contains(service), "{service} is not among {v1:?}");
        assert!(v1alpha.contains(service), "{service} is not among {v1alpha:?}");
    }
}
