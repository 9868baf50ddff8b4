//! Requests that no handler ever sees, because tonic can't read them: too large as a whole, broken, or for a method that isn't
//! there. tonic answers them without details and partly under codes that say something else in this contract (RESOURCE_EXHAUSTED,
//! INTERNAL); here they are told like any other refusal.
//!
//! They are recognised by what is missing: whatever our own code refuses has details.

use http::Response;
use tonic::body::Body;
use tonic::{Code, Status};

use super::server::REQUEST_BYTES;
use super::status::status;
use crate::domain::refusal::Refusal;

const DETAILS: &str = "grpc-status-details-bin";

/// To be called with each response, of our services and others.
pub fn reword(response: Response<Body>) -> Response<Body> {
    let headers = response.headers();
    // An error that is known before the first message travels in the headers; all others in trailers.
    if !headers.contains_key(Status::GRPC_STATUS) || headers.contains_key(DETAILS) {
        return response;
    }
    let Some(told) = Status::from_header_map(headers) else { return response };
    let refusal = match told.code() {
        Code::OutOfRange | Code::ResourceExhausted => Refusal::TooLarge { path: "request".to_owned(), limit: REQUEST_BYTES },
        Code::Internal => Refusal::field("request", format!("can't be read: {}", told.message())),
        // With a text it is about an encoding, which the text and its header explain.
        Code::Unimplemented if told.message().is_empty() => Refusal::NotOffered("that method"),
        _ => return response,
    };
    status(refusal).into_http()
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt as _;

    use super::*;

    fn reworded(told: Status) -> (Code, Option<String>) {
        let response = reword(told.into_http());
        let status = Status::from_header_map(response.headers()).expect("a status");
        (status.code(), status.get_details_error_info().map(|info| info.reason))
    }

    #[test]
    fn what_tonic_refuses_by_itself_has_a_reason_of_ours() {
        for (told, code, reason) in [
            (Status::out_of_range("too large"), Code::InvalidArgument, "TOO_LARGE"),
            (Status::resource_exhausted("too large, once decompressed"), Code::InvalidArgument, "TOO_LARGE"),
            (Status::internal("invalid varint"), Code::InvalidArgument, "INVALID_FIELD"),
            (Status::unimplemented(""), Code::Unimplemented, "NOT_OFFERED"),
        ] {
            assert_eq!(reworded(told), (code, Some(reason.to_owned())));
        }
    }

    #[test]
    fn what_has_details_or_is_no_error_stays_as_it_is() {
        let bug = status(Refusal::Bug(String::new()));
        assert_eq!(reworded(bug), (Code::Internal, Some("BUG".to_owned())));
        assert_eq!(reworded(Status::not_found("of reflection")), (Code::NotFound, None));
        assert!(reword(Response::new(Body::empty())).headers().is_empty());
    }
}
