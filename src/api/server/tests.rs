//! What can be told of the server without an engine; the rest is in `tests/it`.

use prost::Message as _;
use prost_types::FileDescriptorSet;

use super::*;

#[test]
fn reflection_knows_the_contract_in_both_versions() {
    assert!(reflection().build_v1().is_ok());
    assert!(reflection().build_v1alpha().is_ok());
}

#[test]
fn health_is_told_of_every_service_of_the_contract() {
    let set = FileDescriptorSet::decode(pb::DESCRIPTORS).expect("the contract's descriptors");
    let files = set.file.iter().filter(|file| file.package() == "leasehold.v1");
    let mut contract: Vec<_> =
        files.flat_map(|file| &file.service).map(|service| format!("leasehold.v1.{}", service.name())).collect();
    let mut told: Vec<_> = SERVICES.iter().filter(|name| !name.is_empty()).map(|&name| name.to_owned()).collect();
    contract.sort();
    told.sort();
    assert_eq!(told, contract);
}

#[tokio::test]
async fn an_accepted_connection_does_not_wait_for_more_to_send() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let client = TcpStream::connect(listener.local_addr().expect("it is bound"));
    let mut accepted = std::pin::pin!(connections(listener));
    let (connection, client) = tokio::join!(futures_util::StreamExt::next(&mut accepted), client);
    let Some(Ok(connection)) = connection else { panic!("it goes on for ever") };
    assert!(client.is_ok() && connection.nodelay().is_ok_and(|set| set));
}
