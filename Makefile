# Two commands matter: `make run` and `make test`. `make help` lists the rest.
CARGO  ?= cargo
PYTHON ?= python3
DENY   := .tools/bin/cargo-deny
DENY_VERSION := 0.20.2
# `make bench` measures the programs as they are deployed. The benches themselves, and what they compare with, are
# built as a user of the crates would: linking each of them as `dist` takes an hour more.
PROFILE ?= dist
# A test that cannot go on should stop where it stands, and may say what it measured.
IN_TESTS := -A clippy::unwrap_used -A clippy::expect_used -A clippy::panic -A clippy::print_stdout -A clippy::print_stderr
PROGRAMS := --package cynode-pma --package cynode-gateway --package cynode-orchestrator --package cynode-node \
	--package cynodectl --bins
# What the benches compare with is a workspace of its own, so that its dependencies are not ours.
RESTATE_PEER := --manifest-path benches/restate/Cargo.toml --target-dir target/restate

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: run
run: nats-server workflow-runner ## build everything, start it on this machine, and talk to the project manager
	@echo "Building; the first time takes a few minutes."
	@$(CARGO) build $(PROGRAMS)
	@target/debug/cynodectl up

.PHONY: run-model
run-model: nats-server workflow-runner ## the same with a real small language model, on this machine's own cores
	@$(PYTHON) scripts/get_model.py --required
	@echo "Building; the first time takes a few minutes."
	@$(CARGO) build $(PROGRAMS)
	@.tools/model/bin/python scripts/serve_model.py -- target/debug/cynodectl up

.PHONY: test
test: tools ## run every test this machine can run
	@$(PYTHON) scripts/run_tests.py

.PHONY: check
check: $(DENY) ## formatting, lints, dependencies, documentation, guardrails
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path benches/restate/Cargo.toml --check
	$(CARGO) clippy --workspace --lib --bins --locked -- -D warnings
	$(CARGO) clippy --workspace --tests --benches --locked -- -D warnings $(IN_TESTS)
	$(CARGO) clippy --locked $(RESTATE_PEER) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked --quiet
	$(PYTHON) scripts/check_dependencies.py $(DENY)
	$(PYTHON) scripts/check_guardrails.py

.PHONY: bench
bench: tools ## measure everything into one report: target/bench/report.json, .md and .svg. PROFILE=release builds in a third of the time; what it measures is up to a sixth slower
	@$(PYTHON) scripts/get_restate_server.py
	@$(PYTHON) scripts/get_litellm.py
	$(CARGO) build --profile $(PROFILE) --workspace --bin cynode-pma --bin cynode-gateway --bin cynode-orchestrator --bin cynode-node --bin mcp-conformance-upstream
	$(CARGO) build --release --locked $(RESTATE_PEER)
	@# A goal that is missed fails the target, after everything was measured.
	@status=0; export PROGRAMS=$(CURDIR)/target/$(PROFILE:dev=debug); \
		$(CARGO) bench --profile release --workspace --bench worker || status=1; \
		$(CARGO) bench --profile release --workspace --bench gateway || status=1; \
		$(CARGO) bench --profile release --workspace --bench orchestrator || status=1; \
		$(CARGO) bench --profile release --workspace --bench node || status=1; \
		$(CARGO) bench --profile release --workspace --bench edge || status=1; \
		$(CARGO) bench --profile release --workspace --bench workflow || status=1; \
		$(PYTHON) scripts/bench_report.py || status=1; exit $$status

.PHONY: bench-agent
bench-agent: nats-server ## 24 small tasks for the model at INFERENCE_URL, named MODEL; without one, for a scripted model
	$(CARGO) build --workspace --bins
	$(CARGO) bench --profile dev --bench agent

.PHONY: bench-task
bench-task: nats-server workflow-runner ## the model at INFERENCE_URL, named MODEL, does one small task ten times, with plan, sandbox and review
	$(CARGO) build $(PROGRAMS)
	@$(PYTHON) scripts/measure_workflows.py

.PHONY: bench-memory
bench-memory: ## how well texts are found, on public sets; CRANFIELD=folder names one that no package carries
	@$(PYTHON) scripts/get_memory_sets.py
	$(CARGO) bench --workspace --bench memory

.PHONY: storm
storm: tools ## kills, freezes, outages and copies under 5,000 handoffs, 10,000 messages, 1,000 chats, 500 jobs, 10,000 calls on a node and 200 workflows; STORM_SEED=… repeats one
	$(CARGO) build --workspace --bins
	STORM_SECONDS=600 STORM_HANDOFFS=5000 $(CARGO) test --workspace --locked --test worker chaos::storm -- --nocapture
	OUTBOX_CALLS=10000 $(CARGO) test --workspace --locked --test gateway outbox::storm -- --nocapture
	DOOR_REQUESTS=1000 $(CARGO) test --workspace --locked --test orchestrator storm:: -- --nocapture
	NODE_JOBS=500 $(CARGO) test --workspace --locked --test node storm:: -- --nocapture
	EDGE_CALLS=10000 $(CARGO) test --workspace --locked --test edge storm:: -- --nocapture
	WORKFLOW_TASKS=200 WORKFLOW_SECONDS=300 $(CARGO) test --workspace --locked --test workflow storm:: -- --nocapture
	WORKFLOW_KILLS=all $(CARGO) test --workspace --locked --test workflow crash_points:: -- --nocapture

.PHONY: test-workflow
test-workflow: nats-server workflow-runner ## the tests of the workflow runner alone: formatting, lints, types, pytest
	@$(PYTHON) scripts/test_workflow_runner.py

.PHONY: conformance
conformance: tools ## the official MCP conformance suite against gateway and client, both eras
	$(CARGO) build --bins --workspace
	$(CARGO) test --workspace --test gateway --test conformance conformance

.PHONY: contract
contract: ## write schemas, AsyncAPI and golden vectors anew from the types
	UPDATE_CONTRACT=1 $(CARGO) test --quiet -p subjects --test contract

.PHONY: docs
docs: ## write docs/settings.md anew from the programs
	$(CARGO) build --workspace --bins
	UPDATE_DOCS=1 $(CARGO) test --quiet --test worker documents::settings_reference

.PHONY: fmt
fmt: ## format the code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path benches/restate/Cargo.toml

.PHONY: tools
tools: nats-server workflow-runner ## get what the tests need besides Rust: nats-server, MCP peers and API clients of other makers, linters for deploy/, the workflow runner
	@$(PYTHON) scripts/get_mcp_peers.py
	@$(PYTHON) scripts/get_api_clients.py
	@$(PYTHON) scripts/get_model.py
	@$(PYTHON) scripts/get_deploy_linters.py

.PHONY: system-packages
system-packages: ## install, as root, what some tests need of the system: PostgreSQL, Chromium, promtool, bubblewrap
	@$(PYTHON) scripts/get_system_packages.py

.PHONY: nats-server
nats-server:
	@$(PYTHON) scripts/get_nats_server.py --with-old

.PHONY: workflow-runner
workflow-runner:
	@$(PYTHON) scripts/get_workflow_runner.py

$(DENY):
	@echo "building cargo-deny $(DENY_VERSION) (once, a few minutes) ..."
	$(CARGO) install cargo-deny@$(DENY_VERSION) --locked --quiet --no-default-features --root .tools
