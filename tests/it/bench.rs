//! `leasehold bench` at a size that says nothing about speed: every scenario runs through, what it fills in is what a server would have
//! written (it asks the doctor itself, and fails if something is found), and its numbers reach table, JSON and picture.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

/// What a run left behind.
struct Run {
    said: String,
    outcomes: Vec<Value>,
    picture: String,
}

/// A folder of this run alone, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// `name`: of the run, told by no other one.
async fn bench(name: &str, arguments: &[&str]) -> Run {
    let folder = Folder(std::env::temp_dir().join(format!("leasehold-bench-test-{name}-{}", std::process::id())));
    std::fs::create_dir(&folder.0).expect("a new folder");
    let (json, plot) = (folder.0.join("report.json"), folder.0.join("plot.svg"));
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["bench", "--rounds", "1", "--seconds", "0.3", "--clients", "4", "--dir"]).arg(&folder.0);
    command.arg("--json").arg(&json).arg("--plot").arg(&plot).args(arguments);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("the bench runs");
    let [out, err] = [output.stdout, output.stderr].map(|part| String::from_utf8(part).expect("text"));
    assert!(output.status.success(), "{out}\n{err}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("a report")).expect("JSON");
    let outcomes = report["scenarios"].as_array().expect("outcomes").clone();
    Run { said: out, outcomes, picture: std::fs::read_to_string(plot).expect("a picture") }
}

impl Run {
    /// The medians of a metric of an outcome: of the subject and of its peer, if both were measured.
    fn medians(&self, scenario: &str, metric: &str) -> [Option<f64>; 2] {
        let outcome = self.outcomes.iter().find(|outcome| outcome["scenario"] == scenario);
        let metrics = outcome.unwrap_or_else(|| panic!("no {scenario} in {}", self.said))["metrics"].as_array().expect("metrics");
        let metric = metrics.iter().find(|one| one["name"] == metric).unwrap_or_else(|| panic!("no {metric} in {}", self.said));
        ["subject", "peer"].map(|side| metric[side]["median"].as_f64())
    }
}

#[tokio::test]
async fn the_bench_tells_what_a_task_costs_however_its_tasks_are_held_back() {
    let run = bench("costs", &["--scenario", "submit,batch", "--keys", "50", "--shares", "4", "--caps", "--servers", "2"]).await;
    for scenario in ["submit", "batch"] {
        for metric in ["tasks/s", "WAL bytes/task", "commits/task", "transactions/task"] {
            let [ours, theirs] = run.medians(scenario, metric);
            assert!(ours > Some(0.0) && theirs > Some(0.0), "{scenario} {metric}: {ours:?} {theirs:?}");
        }
        assert!(run.medians(scenario, "Postgres CPU, µs/task")[0].is_some());
        assert_eq!(run.medians(scenario, "server CPU, µs/task")[1], None, "the peer has no server");
    }
    let [submit, batch] = ["submit", "batch"].map(|scenario| run.medians(scenario, "dead rows/task")[1]);
    assert!(submit < Some(0.5) && batch > Some(1.5), "a Submit leaves nothing dead, a lifecycle does: {submit:?} {batch:?}");
    assert!(run.said.contains("2 server(s), keys 50, shares 4, caps on"), "{}", run.said);
    assert!(run.picture.matches("<polyline").count() >= 8, "two lines for each subject of two scenarios");
}

#[tokio::test]
async fn the_bench_compares_several_servers_with_one_and_soaks_with_an_examination_at_the_end() {
    let run =
        bench("servers", &["--scenario", "servers,soak", "--servers", "2", "--soak-seconds", "1", "--soak-percent", "20"]).await;
    for scenario in ["servers, fair", "servers, fair and capped"] {
        assert_eq!(run.medians(scenario, "servers"), [Some(2.0), Some(1.0)]);
        assert!(run.medians(scenario, "WAL bytes/task").into_iter().all(|median| median > Some(0.0)), "{}", run.said);
    }
    assert_eq!(run.medians("soak", "findings of the doctor")[0], Some(0.0));
    for metric in ["live tasks, MiB", "server, MiB"] {
        assert!(run.medians("soak", metric).into_iter().all(|median| median > Some(0.0)), "{}", run.said);
    }
    assert!(run.picture.contains("soak: memory and table"));
}

#[tokio::test]
async fn the_bench_fills_its_cliffs_with_what_a_server_would_have_written() {
    let sizes = "blocked=12,ready=12,shares=11,capped=4,finished=12,frozen=12,retention=30,pinned=1";
    let run = bench("cliffs", &["--scenario", "cliffs", "--pace", "50", "--cliff", sizes]).await;
    for case in ["blocked, 12 ×", "ready, 12 ×", "shares, 11 ×", "capped, 4 ×", "finished, 12 ×", "frozen, 12 ×"] {
        for metric in ["claim p50, ms", "claim p99, ms"] {
            let [large, small] = run.medians(&format!("cliff {case}"), metric);
            assert!(large > Some(0.0) && small > Some(0.0), "{case} {metric}: {large:?} {small:?}");
        }
    }
    for case in ["pinned", "pinned, over", "retention", "retention, over"] {
        assert!(run.medians(&format!("cliff {case}"), "claim p99, ms").into_iter().all(|median| median > Some(0.0)), "{case}");
    }
    assert_eq!(run.medians("cliff retention", "tasks remembered")[1], Some(30.0));
    assert!(run.picture.contains("cliff ready") && run.picture.contains("cliff pinned"));
}

#[tokio::test]
async fn the_bench_offers_too_much_and_kills_postgres_and_calls_in_every_answer() {
    let run = bench("faults", &["--scenario", "overload,crash", "--overload-seconds", "2"]).await;
    for metric in ["completed/s", "server, MiB"] {
        assert!(run.medians("overload", metric).into_iter().all(|median| median > Some(0.0)), "{metric}: {}", run.said);
    }
    assert!(run.medians("overload", "lost leases found")[0] > Some(0.0), "{}", run.said);
    assert!(run.picture.contains("overload: completions"));
    for scenario in ["crash", "crash, fair and capped"] {
        let of = |metric| run.medians(scenario, metric)[0];
        let before = of("of these before the kill");
        assert!(before > Some(0.0) && of("acknowledged tasks") > before && of("acknowledged ends") > Some(0.0), "{}", run.said);
        assert_eq!([of("tasks lost"), of("leases lost"), of("ends lost")], [Some(0.0); 3]);
        assert!(of("leases told") >= of("acknowledged ends"));
    }
}
