//! Compiles `proto/` without protoc: protox is a compiler in Rust, so a fresh machine needs nothing installed.

use std::path::{Path, PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=migrations");
    let mut files = protos(Path::new("proto/leasehold/v1"))?;
    files.sort();

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(&files)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // Reflection serves this set; source comments would only make it larger.
    compiler.include_source_info(false);
    std::fs::write(out.join("leasehold.v1.bin"), compiler.encode_file_descriptor_set())?;

    compiler.include_source_info(true);
    let set = prost_types_set(&compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .bytes(".")
        .extern_path(".google.rpc", "::tonic_types::pb")
        .btree_map(".leasehold.v1")
        .compile_fds(set)?;
    Ok(())
}

fn prost_types_set(bytes: &[u8]) -> Result<prost_types::FileDescriptorSet, prost::DecodeError> {
    prost_types::FileDescriptorSet::decode(bytes)
}

fn protos(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "proto") {
            files.push(path);
        }
    }
    Ok(files)
}
