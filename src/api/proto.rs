//! The generated code of `proto/leasehold/v1`, and the descriptors that reflection serves.

#![allow(clippy::all, clippy::pedantic, clippy::allow_attributes_without_reason, missing_docs, reason = "generated")]

tonic::include_proto!("leasehold.v1");

/// All of the contract's files and what they import, without comments.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/leasehold.v1.bin"));
