//! `leasehold doctor`: asks a database whether everything holds, with or without a server running on it.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Failure;
use crate::store::{Examination, Findings, RULES, Rule, StoreError, check_schema};

/// Something differs, or it could not look.
const DIFFERS: u8 = 1;
const BLIND: u8 = 2;

#[derive(Args)]
pub(super) struct Arguments {
    /// The Postgres database to look at. Nothing is changed in it.
    #[arg(long, env = "LEASEHOLD_DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// A JSON object a line, one for each rule.
    #[arg(long)]
    json: bool,
    /// How long the statement of one rule may take, in seconds: it may read the whole database.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout_seconds: u32,
}

/// How many rules had which end.
#[derive(Default)]
struct Sum {
    broken: usize,
    unasked: usize,
}

pub(super) fn run(arguments: Arguments) -> ExitCode {
    match super::block_on(examine(&arguments)) {
        Ok(Sum { broken: 0, unasked: 0 }) => ExitCode::SUCCESS,
        Ok(Sum { broken: 0, .. }) => ExitCode::from(BLIND),
        Ok(_) => ExitCode::from(DIFFERS),
        Err(error) => {
            super::fail(&error);
            ExitCode::from(BLIND)
        }
    }
}

async fn examine(arguments: &Arguments) -> Result<Sum, Failure> {
    check_schema(&arguments.database_url).await?;
    let patience = Duration::from_secs(arguments.timeout_seconds.into());
    let mut examination = Examination::begin(&arguments.database_url, patience).await?;
    let mut sum = Sum::default();
    for rule in &RULES {
        let answer = examination.ask(rule).await;
        match &answer {
            Ok(findings) if findings.count == 0 => {}
            Ok(_) => sum.broken += 1,
            Err(_) => sum.unasked += 1,
        }
        let line = if arguments.json { object(rule, &answer) } else { lines(rule, &answer) };
        writeln!(io::stdout(), "{line}")?;
    }
    let Sum { broken, unasked } = sum;
    if !arguments.json {
        let held = RULES.len() - broken - unasked;
        writeln!(io::stdout(), "{held} of {} rules hold, {broken} are broken, {unasked} could not be asked", RULES.len())?;
    }
    Ok(sum)
}

fn lines(rule: &Rule, answer: &Result<Findings, StoreError>) -> String {
    let promise = rule.promise();
    match answer {
        Err(error) => format!("could not look: {promise}: {}", error.describe()),
        Ok(findings) if findings.count == 0 => format!("ok: {promise}"),
        Ok(Findings { count, told }) => {
            let mut lines = format!("{count} {}: {promise}", if *count == 1 { "finding" } else { "findings" });
            told.iter().for_each(|finding| lines.extend(["\n    ", finding]));
            if usize::try_from(*count).is_ok_and(|count| count > told.len()) {
                lines.push_str("\n    …");
            }
            lines
        }
    }
}

fn object(rule: &Rule, answer: &Result<Findings, StoreError>) -> String {
    let (rule, promise) = (rule.name(), rule.promise());
    let object = match answer {
        Ok(Findings { count, told }) => json!({ "rule": rule, "promise": promise, "count": count, "findings": told }),
        Err(error) => json!({ "rule": rule, "promise": promise, "error": error.describe() }),
    };
    object.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_told_and_that_there_is_more() {
        let rule = &RULES[0];
        let answer = |count| Ok(Findings { count, told: (0..count.min(20)).map(|n| format!("q/t-{n}")).collect() });
        assert_eq!(lines(rule, &answer(0)), format!("ok: {}", rule.promise()));
        assert_eq!(lines(rule, &answer(1)), format!("1 finding: {}\n    q/t-0", rule.promise()));
        let many = lines(rule, &answer(21));
        assert!(many.starts_with("21 findings: ") && many.ends_with("q/t-19\n    …"), "{many}");
        assert!(lines(rule, &Err(StoreError::silent())).starts_with("could not look: "));
        let object: serde_json::Value = serde_json::from_str(&object(rule, &answer(21))).unwrap();
        assert_eq!((object["count"].as_i64(), object["findings"].as_array().map(Vec::len)), (Some(21), Some(20)));
    }
}
