//! Calls as bytes: any body to any method, and what came back, whatever it is.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body as _, Frame};
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower::{Service as _, ServiceExt as _};

use super::contract::Contract;
use super::lore::Lore;

/// Nobody waits here for more than a few seconds: no call asks to.
const HANG: Duration = Duration::from_secs(40);
/// What a stream that goes on is read for.
const SHOWN: usize = 5;
const QUIET: Duration = Duration::from_millis(50);
/// Many clients refuse answers that are larger.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

#[derive(Clone)]
pub struct Call {
    /// `TaskService/Submit`.
    pub method: String,
    /// The body as it goes out: a frame with a message, or anything else.
    pub body: Vec<u8>,
}

impl Call {
    /// With this message in a frame.
    pub fn new(method: &str, message: &[u8]) -> Call {
        let length = u32::try_from(message.len()).expect("messages are small");
        Call { method: method.to_owned(), body: [&[0][..], &length.to_be_bytes(), message].concat() }
    }

    /// As `tests/data/odd/` keeps it.
    pub fn written(&self) -> String {
        let mut text = format!("{}\n", self.method);
        for line in self.body.chunks(64) {
            line.iter().for_each(|byte| write!(text, "{byte:02x}").expect("a text can be written to"));
            text.push('\n');
        }
        text
    }

    /// The first line that is no comment is the method, the rest is the body.
    pub fn parse(text: &str) -> Call {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let method = lines.next().expect("a method").trim().to_owned();
        let digits: Vec<u8> = lines.flat_map(str::bytes).filter(u8::is_ascii_hexdigit).collect();
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("it was looked at") as u8;
        Call { method, body: digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect() }
    }

    /// Sends it, and judges the answer. An error says what is wrong with it, and how to keep the call.
    pub async fn judged(&self, channel: &Channel, contract: &Contract, lore: &mut Lore) -> Result<Option<Code>, String> {
        self.answered(channel, contract, lore).await.map_err(|why| format!("{why}\nthe call was\n{}", self.written()))
    }

    async fn answered(&self, channel: &Channel, contract: &Contract, lore: &mut Lore) -> Result<Option<Code>, String> {
        let mut answer = self.sent(channel).await?;
        // A row that somebody else holds is a reason to say so once.
        if answer.1.as_ref().is_some_and(|status| status.code() == Code::Unavailable) {
            answer = self.sent(channel).await?;
        }
        let (body, status) = answer;
        let mut rest = &body[..];
        let mut messages = 0;
        while let Some((head, after)) = rest.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let Some((message, left)) = after.split_at_checked(length) else { break };
            contract.check(&contract.method(&self.method).output, message, lore)?;
            (rest, messages) = (left, messages + 1);
        }
        let watches = self.method.ends_with("/Watch");
        match &status {
            _ if body.len() > ANSWER_BYTES && !watches => Err(format!("an answer of {} bytes", body.len())),
            None if watches => Ok(None),
            None => Err("an answer without a status".to_owned()),
            Some(_) if !rest.is_empty() => Err(format!("an answer that ends with {} bytes of a message", rest.len())),
            Some(status) if status.code() == Code::Ok => {
                if messages == 1 || watches {
                    Ok(None)
                } else {
                    Err(format!("{messages} messages and no error"))
                }
            }
            Some(status) => proper(status).map(|()| Some(status.code())),
        }
    }

    /// The whole body, and the status if there was one.
    async fn sent(&self, channel: &Channel) -> Result<(Vec<u8>, Option<Status>), String> {
        let uri = format!("http://leasehold/leasehold.v1.{}", self.method);
        let request = Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        let request = request.body(Body::new(Once(Some(self.body.clone().into())))).expect("a request");
        let answer = async {
            let mut channel = channel.clone();
            let ready = channel.ready().await.map_err(|error| format!("no connection: {error:?}"))?;
            ready.call(request).await.map_err(|error| format!("no answer: {error:?}"))
        };
        let answer = tokio::time::timeout(HANG, answer).await.map_err(|_| "no answer within its time".to_owned())??;
        let (head, mut body) = answer.into_parts();
        if head.status != 200 {
            return Err(format!("HTTP says {}", head.status));
        }
        if let Some(status) = Status::from_header_map(&head.headers) {
            return Ok((Vec::new(), Some(status)));
        }
        let patience = if self.method.ends_with("/Watch") { QUIET } else { HANG };
        let (mut read, mut frames) = (Vec::new(), 0);
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            let frame = match tokio::time::timeout(patience, frame).await {
                Ok(Some(frame)) => frame.map_err(|error| format!("the answer broke off: {error:?}"))?,
                Ok(None) => return Ok((read, None)),
                Err(_) if patience == QUIET => return Ok((read, None)),
                Err(_) => return Err("an answer that does not end".to_owned()),
            };
            match frame.into_data() {
                Ok(data) => read.extend_from_slice(&data),
                Err(frame) => {
                    let trailers: HeaderMap = frame.into_trailers().unwrap_or_default();
                    return Ok((read, Status::from_header_map(&trailers)));
                }
            }
            frames += 1;
            if patience == QUIET && frames == SHOWN {
                return Ok((read, None));
            }
        }
    }
}

/// Whether it is an error of the contract, and none of the server's own.
fn proper(status: &Status) -> Result<(), String> {
    let named = || format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::Internal | Code::Unknown | Code::DataLoss | Code::Cancelled | Code::Unavailable | Code::DeadlineExceeded => {
            Err(format!("refused with {}", named()))
        }
        _ => match status.get_error_details().error_info() {
            Some(info) if info.domain == "leasehold" && !info.reason.is_empty() => Ok(()),
            _ => Err(format!("no reason in {}", named())),
        },
    }
}

/// A body of one piece.
struct Once(Option<Bytes>);

impl http_body::Body for Once {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}
