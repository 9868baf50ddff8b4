//! Messages of the contract, made by choices: good ones, of which some fields are at the edge of what they can be, or beyond.

use prost_types::FieldDescriptorProto;
use prost_types::field_descriptor_proto::{Label, Type};

use super::contract::{BYTES, Contract, FIXED64, VARINT, put_bytes, put_varint, wire_of};
use super::edges;
use super::lore::Lore;

/// Messages stand in each other no deeper than this.
const DEPTH: usize = 6;
/// One field of so many is odd.
const ODD: usize = 12;
/// What a call can't do without.
const ALWAYS: [&str; 25] = [
    "queue",
    "task_id",
    "task",
    "name",
    "spec",
    "specs",
    "lease",
    "filter",
    "reason",
    "worker_id",
    "items",
    "requests",
    "share",
    "subject_id",
    "receipt_ref",
    "receipt_kind",
    "kind",
    "code",
    "error_class",
    "actor",
    "id",
    "seconds",
    "effect_ref",
    "state",
    // Absent it means a minute.
    "timeout",
];

/// What a call may wait for: here as long as nothing, or what must be refused.
const WAITS: [&str; 2] = ["wait", "timeout"];

/// A list of bytes, read as choices. When it is used up, the choice is the first: shorter lists make plainer messages.
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl Choices<'_> {
    pub fn of(bytes: &[u8]) -> Choices<'_> {
        Choices { bytes }
    }

    /// A number from 0 to `count` − 1.
    pub fn below(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % count
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn odd(&mut self) -> bool {
        self.below(ODD) == ODD - 1
    }
}

/// A message of this type.
pub fn message(contract: &Contract, name: &str, choices: &mut Choices<'_>, lore: &Lore) -> Vec<u8> {
    Making { contract, lore }.message(name, choices, DEPTH)
}

struct Making<'a> {
    contract: &'a Contract,
    lore: &'a Lore,
}

impl Making<'_> {
    fn message(&self, name: &str, choices: &mut Choices<'_>, depth: usize) -> Vec<u8> {
        let known = self.lore.message(name, choices).filter(|_| choices.below(4) > 0);
        if let Some(known) = known {
            return known;
        }
        let message = self.contract.message(name);
        let mut out = Vec::new();
        let alternatives = |index: i32| message.field.iter().filter(move |field| group(field) == Some(index));
        let chosen: Vec<&str> = (0..message.oneof_decl.len() as i32)
            .filter(|index| alternatives(*index).count() > 0)
            .map(|index| choices.one(&alternatives(index).map(FieldDescriptorProto::name).collect::<Vec<_>>()))
            .collect();
        for field in &message.field {
            let wanted = match group(field) {
                // Beside each other only by mistake: then the last one counts.
                Some(_) => chosen.contains(&field.name()) || choices.below(40) == 39,
                None => ALWAYS.contains(&field.name()) || choices.below(3) == 2,
            };
            if wanted && (depth > 0 || field.r#type() != Type::Message) {
                let times = if field.label() == Label::Repeated { 1 + choices.below(3) } else { 1 };
                for _ in 0..times {
                    self.field(name, field, choices, depth, &mut out);
                }
            }
        }
        out
    }

    fn field(&self, of: &str, field: &FieldDescriptorProto, choices: &mut Choices<'_>, depth: usize, out: &mut Vec<u8>) {
        let (number, kind) = (field.number().unsigned_abs(), field.r#type());
        let odd = choices.odd();
        if odd && choices.below(6) == 5 {
            // A value of another kind, in its place.
            let wire = choices.one(&[VARINT, FIXED64, BYTES, 3, 4, 5, 6, 7]);
            put_varint(u64::from(number) << 3 | wire, out);
            out.extend_from_slice(&choices.one(&[vec![], vec![0], vec![3, 1, 2, 3], vec![0xff; 10], vec![8; 8]]));
            return;
        }
        match kind {
            Type::Message if WAITS.contains(&field.name()) => put_bytes(number, &choices.one(&edges::waits()), out),
            Type::Message => put_bytes(number, &self.message(field.type_name(), choices, depth - 1), out),
            Type::String => {
                let text = if odd { choices.one(&edges::texts()) } else { self.text(of, field.name(), choices).into_bytes() };
                put_bytes(number, &text, out);
            }
            Type::Bytes => {
                let sizes = if odd { [16 * 1024, 16 * 1024 + 1, 64 * 1024, 64 * 1024 + 1] } else { [0, 1, 7, 100] };
                put_bytes(number, &vec![choices.below(256) as u8; choices.one(&sizes)], out);
            }
            Type::Double => {
                let value = if odd { choices.one(&edges::DOUBLES) } else { choices.one(&[0.5, 1.0, 2.0, 10.0]) };
                put_varint(u64::from(number) << 3 | FIXED64, out);
                out.extend_from_slice(&value.to_le_bytes());
            }
            kind => {
                assert_eq!(wire_of(kind), VARINT);
                let value = if odd { choices.one(&edges::NUMBERS) } else { self.number(of, field, choices) };
                put_varint(u64::from(number) << 3 | VARINT, out);
                put_varint(value.cast_unsigned(), out);
            }
        }
    }

    /// A text that makes sense there.
    fn text(&self, of: &str, name: &str, choices: &mut Choices<'_>) -> String {
        let known = |name: &str, choices: &mut Choices<'_>| self.lore.text(name, choices).unwrap_or_default();
        match name {
            // Policies are changed in a queue of their own, else one that is paused would end all work.
            "queue" | "name" if of.ends_with(".Share") || of.ends_with(".Queue") => "other".to_owned(),
            "queue" | "name" => choices.one(&["odd", "odd", "odd", "other"]).to_owned(),
            "task_id" if choices.below(4) == 3 => known("task_id", choices),
            "task_id" | "new_task_id" => format!("t-{}", choices.below(40)),
            "uid" | "task_uid" => known("uid", choices),
            "page_token" if choices.below(2) == 0 => String::new(),
            "page_token" => known("next_page_token", choices),
            "after_cursor" => known("cursor", choices),
            "etag" if choices.below(2) == 0 => String::new(),
            "etag" => known("etag", choices),
            "worker_id" | "request_id" | "owner" | "actor" => format!("w-{}", choices.below(3)),
            "fairness_key" => choices.one(&["", "s-1", "s-2"]).to_owned(),
            "ordering_key" => choices.one(&["", "", "k-1", "k-2"]).to_owned(),
            "subject_id" | "id" => format!("m-{}", choices.below(8)),
            "clear_fields" => choices.one(&["max_in_flight", "retry.jitter", "weight", "rate_limit", "nonsense"]).to_owned(),
            _ => choices.one(&["push", "x", "d-b1"]).to_owned(),
        }
    }

    /// A number that makes sense there.
    fn number(&self, of: &str, field: &FieldDescriptorProto, choices: &mut Choices<'_>) -> i64 {
        match (field.r#type(), field.name()) {
            (Type::Enum, _) => i64::from(choices.one(self.contract.values(field.type_name()))),
            (Type::Bool, _) => choices.below(2) as i64,
            (_, "seconds") if of.ends_with("Duration") => choices.below(30) as i64,
            (_, "seconds") => choices.one(&edges::INSTANTS),
            (_, "nanos") => choices.one(&[0, 1_000, 999_999_999]),
            _ => choices.below(6) as i64,
        }
    }
}

/// The number of the oneof that a field belongs to, but for those that only say `optional`.
fn group(field: &FieldDescriptorProto) -> Option<i32> {
    field.oneof_index.filter(|_| !field.proto3_optional())
}
