//! What a server says of itself.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Status;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{Server, eventually};

impl Server {
    /// What gRPC health says of a service; the empty name is the server as a whole.
    pub async fn health(&self, service: &str) -> Result<ServingStatus, Status> {
        let request = HealthCheckRequest { service: service.into() };
        Ok(HealthClient::new(self.channel()).check(request).await?.into_inner().status())
    }

    /// The status of an HTTP answer, e.g. 200 or 503; absent: nobody answers.
    pub async fn http_status(&self, path: &str) -> Option<u16> {
        self.http_answer(path).await?.split(' ').nth(1)?.parse().ok()
    }

    /// What stands at a path of the HTTP port.
    pub async fn http_get(&self, path: &str) -> String {
        let answer = self.http_answer(path).await.expect("the HTTP port answers");
        answer.split_once("\r\n\r\n").expect("an answer has a body").1.to_owned()
    }

    async fn http_answer(&self, path: &str) -> Option<String> {
        let mut stream = tokio::net::TcpStream::connect(self.http()).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: leasehold\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    /// Waits until both ports say so.
    pub async fn until_it_serves(&self) {
        let serves = async || {
            (self.health("").await.ok()? == ServingStatus::Serving && self.http_status("/readyz").await? == 200).then_some(())
        };
        eventually("the server says that it serves", serves).await;
    }

    pub async fn until_it_does_not_serve(&self) {
        let refuses = async || {
            (self.health("").await.ok()? == ServingStatus::NotServing && self.http_status("/readyz").await? == 503).then_some(())
        };
        eventually("the server says that it does not serve", refuses).await;
    }
}
