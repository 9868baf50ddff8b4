//! The push provider's double. Simulated, and the demo says so: it accepts every push and can be asked for its receipt.

#[derive(Default)]
pub(super) struct Provider {
    pushes: Vec<Push>,
}

struct Push {
    request_id: String,
    receipt: String,
}

impl Provider {
    /// Takes the request. The receipt proves that, and not that anything was delivered or shown.
    pub(super) fn push(&mut self, request_id: &str) -> String {
        let receipt = format!("rcpt-{request_id}");
        self.pushes.push(Push { request_id: request_id.to_owned(), receipt: receipt.clone() });
        receipt
    }

    /// The receipt of an earlier request, if it arrived.
    pub(super) fn find_receipt(&self, request_id: &str) -> Option<String> {
        self.pushes.iter().find(|push| push.request_id == request_id).map(|push| push.receipt.clone())
    }

    pub(super) fn pushes(&self) -> usize {
        self.pushes.len()
    }
}
