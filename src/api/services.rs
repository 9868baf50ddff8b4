//! What the services share: how a call's surroundings are read, and how a verb that isn't offered yet says so.

use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use super::deadline::CallerDeadline;
use super::status::status;
use crate::domain::limits::REFERENCE_BYTES;
use crate::domain::refusal::Refusal;

/// When the answer should leave, if the caller has a deadline.
pub fn answer_by(extensions: &Extensions) -> Option<tokio::time::Instant> {
    extensions.get::<CallerDeadline>().map(|deadline| deadline.0)
}

/// The call's W3C `traceparent`. One that can't be kept is passed over: it is not worth refusing a task for.
pub fn traceparent(metadata: &MetadataMap) -> Option<String> {
    let text = metadata.get("traceparent")?.to_str().ok()?;
    (!text.is_empty() && text.len() <= REFERENCE_BYTES).then(|| text.to_owned())
}

/// The answer of a verb that this server doesn't offer yet.
pub fn not_offered(verb: &'static str) -> Status {
    status(Refusal::NotOffered(verb))
}

/// A service of which nothing is offered yet. (The whole `impl` is made here because `async_trait` must see the methods.)
macro_rules! unoffered_service {
    ($service:path, $name:ident { $($verb:ident($request:ident) -> $response:ident),+ $(,)? }) => {
        #[tonic::async_trait]
        impl $service for $name {
            $(
                async fn $verb(
                    &self,
                    _: tonic::Request<$crate::api::proto::$request>,
                ) -> Result<tonic::Response<$crate::api::proto::$response>, tonic::Status> {
                    Err($crate::api::services::not_offered(stringify!($verb)))
                }
            )+
        }
    };
}
pub(super) use unoffered_service;
