//! At a test's end: what must always hold, recounted from the tables alone by the doctor's rules.

use leasehold::store::{Examination, RULES};

use super::{PATIENCE, Town};

impl Town {
    /// Every promise about the database holds, and no server has logged a fault of its own.
    pub async fn audit(&self) {
        self.audit_database().await;
        for server in &self.servers {
            let log = server.log();
            let faults: Vec<&str> = log.lines().filter(|line| line.contains("ERROR") || line.contains("panicked")).collect();
            assert!(faults.is_empty(), "a server logged faults:\n{}", faults.join("\n"));
        }
    }

    /// Only the database: for tests that make servers complain.
    pub async fn audit_database(&self) {
        let broken = self.examine().await;
        assert!(broken.is_empty(), "the audit found:\n{}", broken.join("\n"));
    }

    /// What the doctor's rules find.
    pub async fn examine(&self) -> Vec<String> {
        let mut examination = Examination::begin(&self.database_url, PATIENCE).await.expect("a snapshot");
        let mut broken = Vec::new();
        for rule in &RULES {
            let findings = examination.ask(rule).await.unwrap_or_else(|error| panic!("{}: {error}", rule.promise()));
            broken.extend(findings.told.iter().take(5).map(|finding| format!("{}: {finding}", rule.promise())));
        }
        examination.end().await.expect("it lets go");
        broken
    }
}
