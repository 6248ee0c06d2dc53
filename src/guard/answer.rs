//! The upstream's answer on its way to the client: whole where it is short, else part by part as it comes.
//!
//! Owns how much of a body is waited for. An answer to a claimed request must be whole to be kept: a body whose length is
//! announced and within the bound is read to its end, and one without a length is given a moment to end, since many services
//! send short bodies in chunks. Everything else is passed on as it comes, never more than one part in memory. Fails with
//! [`BrokenOff`]: before the head went to the client that is a problem, afterwards the connection is closed, so that the
//! client sees that the body is not whole.

use std::collections::VecDeque;
use std::time::Duration;

use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody, SizedStream};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use reqwest::Response;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};

use super::routes::Place;

/// How long an answer without a length may take to end before it is passed on in parts.
const SHORT_BODY_WAIT: Duration = Duration::from_millis(50);

/// The upstream stopped in the middle of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BrokenOff {
    #[error("the upstream ended its answer early")]
    Ended,
    #[error("the upstream stopped sending its answer")]
    TimedOut,
}

/// An answer whose head has come.
pub(super) struct Answer {
    response: Response,
    /// Parts that were read and not passed on yet.
    read: VecDeque<Bytes>,
    part_timeout: Duration,
    /// Held while parts are passed on.
    _place: Option<Place>,
}

impl Answer {
    pub(super) fn new(response: Response, part_timeout: Duration, place: Option<Place>) -> Self {
        Self { response, read: VecDeque::new(), part_timeout, _place: place }
    }

    /// The body to give to the client; `whole_max`: up to how many bytes are wanted whole, `None` for none.
    pub(super) async fn body(mut self, is_head: bool, whole_max: Option<usize>) -> Result<BoxBody, BrokenOff> {
        let length = self.response.headers().get(CONTENT_LENGTH);
        let length: Option<u64> = length.and_then(|value| value.to_str().ok()?.parse().ok());
        if is_head {
            // The length of what a GET would get.
            return Ok(length.map_or_else(|| BoxBody::new(()), |length| BoxBody::new(Announced(length))));
        }
        if matches!(self.response.status().as_u16(), 204 | 304) {
            return Ok(BoxBody::new(()));
        }
        let fits = |bytes_max: usize| length.is_some_and(|length| length <= bytes_max as u64);
        match (length, whole_max) {
            (Some(_), Some(bytes_max)) if fits(bytes_max) => self.whole().await.map(BoxBody::new),
            (Some(length), _) => Ok(BoxBody::new(SizedStream::new(length, Box::pin(self.parts())))),
            (None, Some(bytes_max)) if !self.is_event_stream() => {
                if self.ends_soon(bytes_max).await? {
                    return Ok(BoxBody::new(self.joined()));
                }
                Ok(BoxBody::new(BodyStream::new(Box::pin(self.parts()))))
            }
            (None, _) => Ok(BoxBody::new(BodyStream::new(Box::pin(self.parts())))),
        }
    }

    fn is_event_stream(&self) -> bool {
        let media_type = self.response.headers().get(CONTENT_TYPE).map(reqwest::header::HeaderValue::as_bytes);
        media_type.is_some_and(|value| value.starts_with(b"text/event-stream"))
    }

    async fn whole(mut self) -> Result<Bytes, BrokenOff> {
        while let Some(part) = self.next().await? {
            self.read.push_back(part);
        }
        Ok(self.joined())
    }

    /// Reads on for a moment, within `bytes_max`; whether that was all.
    async fn ends_soon(&mut self, bytes_max: usize) -> Result<bool, BrokenOff> {
        let until = tokio::time::Instant::now() + SHORT_BODY_WAIT;
        let mut bytes = 0;
        // Giving up a read loses nothing: a part is taken when it is there.
        while let Ok(part) = tokio::time::timeout_at(until, self.next()).await {
            let Some(part) = part? else { return Ok(true) };
            bytes += part.len();
            self.read.push_back(part);
            if bytes > bytes_max {
                break;
            }
        }
        Ok(false)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, BrokenOff> {
        match tokio::time::timeout(self.part_timeout, self.response.chunk()).await {
            Ok(part) => part.map_err(|_| BrokenOff::Ended),
            Err(_) => Err(BrokenOff::TimedOut),
        }
    }

    fn joined(mut self) -> Bytes {
        if self.read.len() == 1 {
            return self.read.pop_front().unwrap_or_default();
        }
        let mut bytes = BytesMut::with_capacity(self.read.iter().map(Bytes::len).sum());
        self.read.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.freeze()
    }

    fn parts(self) -> impl Stream<Item = Result<Bytes, BrokenOff>> {
        futures_util::stream::unfold(Some(self), |answer| async {
            let mut answer = answer?;
            if let Some(part) = answer.read.pop_front() {
                return Some((Ok(part), Some(answer)));
            }
            match answer.next().await {
                Ok(part) => Some((Ok(part?), Some(answer))),
                Err(broken_off) => Some((Err(broken_off), None)),
            }
        })
    }
}

/// No body, and the length that one would have.
struct Announced(u64);

impl MessageBody for Announced {
    type Error = BrokenOff;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.0)
    }

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Bytes, BrokenOff>>> {
        std::task::Poll::Ready(None)
    }
}
