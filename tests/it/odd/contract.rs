//! The contract as its descriptors tell it: which methods there are, and whether bytes are a message of it.

use std::collections::{BTreeMap, HashMap};

use leasehold::api::proto::DESCRIPTORS;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use super::lore::Lore;

pub const VARINT: u64 = 0;
pub const FIXED64: u64 = 1;
pub const BYTES: u64 = 2;
pub const FIXED32: u64 = 5;

/// The status that an item of a batch carries.
const STATUS: &str = ".google.rpc.Status";
const INTERNAL: u64 = tonic::Code::Internal as u64;

pub struct Method {
    /// `TaskService/Submit`.
    pub name: String,
    pub input: String,
    pub output: String,
}

pub struct Contract {
    pub methods: Vec<Method>,
    messages: HashMap<String, DescriptorProto>,
    enums: HashMap<String, Vec<i32>>,
}

impl Contract {
    pub fn read() -> Contract {
        let set = FileDescriptorSet::decode(DESCRIPTORS).expect("the contract's descriptors");
        let mut contract = Contract { methods: Vec::new(), messages: HashMap::new(), enums: HashMap::new() };
        for file in &set.file {
            let scope = format!(".{}", file.package());
            file.message_type.iter().for_each(|message| contract.add(&scope, message));
            for one in &file.enum_type {
                let values = one.value.iter().map(prost_types::EnumValueDescriptorProto::number).collect();
                contract.enums.insert(format!("{scope}.{}", one.name()), values);
            }
            for service in file.service.iter().filter(|_| file.package() == "leasehold.v1") {
                let method = |method: &prost_types::MethodDescriptorProto| Method {
                    name: format!("{}/{}", service.name(), method.name()),
                    input: method.input_type().to_owned(),
                    output: method.output_type().to_owned(),
                };
                contract.methods.extend(service.method.iter().map(method));
            }
        }
        contract
    }

    fn add(&mut self, scope: &str, message: &DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        message.nested_type.iter().for_each(|inner| self.add(&name, inner));
        self.messages.insert(name, message.clone());
    }

    pub fn method(&self, name: &str) -> &Method {
        self.methods.iter().find(|method| method.name == name).unwrap_or_else(|| panic!("no method {name}"))
    }

    pub fn message(&self, name: &str) -> &DescriptorProto {
        self.messages.get(name).unwrap_or_else(|| panic!("no message {name}"))
    }

    pub fn values(&self, name: &str) -> &[i32] {
        &self.enums[name]
    }

    /// Whether these bytes are such a message, field by field; what can be used in later calls is noted. No item may carry a fault of
    /// the server's.
    pub fn check(&self, name: &str, bytes: &[u8], lore: &mut Lore) -> Result<(), String> {
        let message = self.message(name);
        let mut rest = bytes;
        while !rest.is_empty() {
            let tag = varint(&mut rest).ok_or("a tag is cut off")?;
            let (number, wire) = (tag >> 3, tag & 7);
            let field = message.field.iter().find(|field| u64::from(field.number().unsigned_abs()) == number);
            let field = field.ok_or_else(|| format!("{name} has no field {number}"))?;
            let at = || format!("{name}.{}", field.name());
            let value = Value::read(wire, &mut rest).ok_or_else(|| format!("{} is cut off", at()))?;
            if name == STATUS && field.name() == "code" && matches!(value, Value::Number(INTERNAL)) {
                return Err("an item was refused with INTERNAL".to_owned());
            }
            self.check_field(field, &value, lore).map_err(|why| format!("{}: {why}", at()))?;
        }
        Ok(())
    }

    fn check_field(&self, field: &FieldDescriptorProto, value: &Value<'_>, lore: &mut Lore) -> Result<(), String> {
        match (field.r#type(), value) {
            (Type::Message, Value::Bytes(inner)) => {
                lore.note_message(field.type_name(), inner);
                self.check(field.type_name(), inner, lore)
            }
            (Type::String, Value::Bytes(text)) => {
                let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
                lore.note_text(field.name(), text);
                Ok(())
            }
            (Type::Bytes, Value::Bytes(_)) => Ok(()),
            (kind, Value::Bytes(packed)) if field.label() == Label::Repeated && wire_of(kind) == VARINT => {
                let mut packed = *packed;
                while !packed.is_empty() {
                    varint(&mut packed).ok_or("a packed number is cut off")?;
                }
                Ok(())
            }
            (kind, Value::Number(_)) if wire_of(kind) == VARINT => Ok(()),
            (Type::Double, Value::Fixed) => Ok(()),
            (kind, _) => Err(format!("is {kind:?}, and does not look like it")),
        }
    }

    /// The paths to every text of a message, as the numbers of its fields, not deeper than `depth`.
    pub fn texts(&self, name: &str, depth: usize) -> BTreeMap<String, Vec<u32>> {
        let mut found = BTreeMap::new();
        for field in &self.message(name).field {
            let number = field.number().unsigned_abs();
            match field.r#type() {
                Type::String => drop(found.insert(field.name().to_owned(), vec![number])),
                Type::Message if depth > 0 => {
                    for (path, numbers) in self.texts(field.type_name(), depth - 1) {
                        found.insert(format!("{}.{path}", field.name()), [vec![number], numbers].concat());
                    }
                }
                _ => {}
            }
        }
        found
    }
}

pub enum Value<'a> {
    Number(u64),
    Fixed,
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn read(wire: u64, rest: &mut &'a [u8]) -> Option<Value<'a>> {
        match wire {
            VARINT => varint(rest).map(Value::Number),
            FIXED64 => take(rest, 8).map(|_| Value::Fixed),
            FIXED32 => take(rest, 4).map(|_| Value::Fixed),
            BYTES => {
                let length = usize::try_from(varint(rest)?).ok()?;
                take(rest, length).map(Value::Bytes)
            }
            _ => None,
        }
    }
}

pub fn wire_of(kind: Type) -> u64 {
    match kind {
        Type::String | Type::Bytes | Type::Message => BYTES,
        Type::Double => FIXED64,
        Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64 | Type::Bool | Type::Enum => VARINT,
        other => panic!("the contract has no {other:?} so far"),
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | BYTES, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
