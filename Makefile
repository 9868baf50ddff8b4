# Everything there is to run. Each target first installs what this machine lacks for it, or says exactly what to install (.ci/need).

# Where rustup puts Rust, for shells older than its installation.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help run test chaos pooler check sql bench

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile

# The dev profile: it compiles in half the time that release takes, and a newcomer waits for that first.
run: ## start Leasehold on a private Postgres (settings: ARGS="--help")
	@.ci/need rust cc postgres
	cargo run --locked -- serve $(ARGS)

test: examples/python/gen ## run all tests (some of them: T=a_part_of_their_names)
	@.ci/need rust cc postgres
	cargo test --locked $(T)

# What each claim, report and cancel goes through. Tests that hold sessions or count them look at the database itself,
# and those of poolers (`make test` runs them) bring their own.
pooler: ## run the core of the tests with a pgbouncer before every server
	@.ci/need rust cc postgres pgbouncer
	LEASEHOLD_TEST_POOLER=$$(PATH=$$PATH:/usr/sbin:/usr/local/sbin command -v pgbouncer) cargo test --locked --test it -- \
		fencing:: order:: races:: cancel:: batch:: delivery:: unknown:: budget::

# The worker in Python that the tests run, its libraries, and its stubs of the contract.
examples/python/gen: examples/python/setup.sh examples/python/requirements.txt $(wildcard proto/leasehold/v1/*.proto)
	@.ci/need python
	examples/python/setup.sh

# SEEDS: one run each; by default one, of a seed that it tells. SECONDS: how long each one storms. CELLS=1: how fast it recovers instead.
SECONDS = 180
chaos: ## break everything at random, for minutes (how: SEEDS="1 2 3" SECONDS=60)
	@.ci/need rust cc postgres
	LEASEHOLD_TEST_SECONDS=$(SECONDS) LEASEHOLD_CHAOS_SEED="$(SEEDS)" LEASEHOLD_CHAOS_CELLS="$(CELLS)" cargo test --locked --test it chaos:: -- --nocapture

check: ## check the style: format, lints, contract, and that .sqlx is fresh
	@.ci/need rust cc postgres node
	cargo fmt --check
	.ci/buf lint proto
	.ci/buf format proto --exclude-path proto/google --diff --exit-code
	RUSTC_WORKSPACE_WRAPPER="$(CURDIR)/.ci/lint" cargo build --locked --all-targets
	.ci/sql --check

sql: ## write .sqlx anew, after a change in migrations/ or src/store/sql/
	@.ci/need rust cc postgres
	.ci/sql

bench: ## measure this machine: the numbers in README (more of them: ARGS="--help")
	@.ci/need rust cc postgres
	cargo run --locked --release -- bench $(ARGS)
