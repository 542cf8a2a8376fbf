# The two set-up commands of the README are `make demo` and `make test`. Everything else is for developers.
# Both install what is missing first (Debian packages, Python packages in .venv) and say what to do if they cannot.

.PHONY: demo test build setup clean bench bench-memory bench-ports bench-cycles bench-swaps bench-bmv2 bench-openflow trust fuzz packages deb tarball

CARGO ?= cargo

# Installs the missing packages; quick when nothing is missing.
setup:
	@scripts/setup

# The binary without its debug information, which lies beside it.
build: setup
	@CARGO="$(CARGO)" scripts/package binary

# Two hosts, a router written in P4 between them, routes over P4Runtime, ping and iperf3.
demo: build
	@scripts/demo

# All tests: Rust, Python clients, end to end. Ends with the runners' counts.
test: setup
	@scripts/test

# Tables with ratios; `docs/performance.md` says how to read them.
bench: bench-memory bench-ports

# Compiled programs beside hand-written C, from memory.
bench-memory: setup
	$(CARGO) run --release --package bench -- $(BENCH)

# Sluice beside testpmd and OVS-DPDK through vhost-user, memif, AF_PACKET and AF_XDP ports. As root; says which Debian packages are missing.
bench-ports: setup
	$(CARGO) build --release --package sluice --package portgen --package bench
	python3 bench/ports/run.py $(BENCH_PORTS)

# Where a worker's cycles go through vhost-user or memif ports: receive, program, send. As root.
bench-cycles: setup
	$(CARGO) build --release --package sluice --package portgen
	python3 bench/ports/cycles.py $(BENCH_CYCLES)

# A thousand changes of the program under full load on DPDK ports. As root.
bench-swaps: setup
	$(CARGO) build --release --package sluice --package portgen
	.venv/bin/python bench/ports/swaps.py $(BENCH_SWAPS)

# Sluice beside bmv2's simple_switch_grpc on veth pairs: BENCH_BMV2='--bmv2 PATH --exercise TUTORIALS/exercises/basic'. As root.
bench-bmv2: setup
	$(CARGO) build --release --package sluice
	.venv/bin/python bench/bmv2/compare.py $(BENCH_BMV2)

# A Debian package and an archive for other distributions, under target/packages. `scripts/test-packages` tries them in a clean Debian.
packages: deb tarball

deb:
	@scripts/setup packages
	@scripts/package deb

tarball: setup
	@scripts/package tarball

# Flow mods by the million through a bridge's socket while packets run: BENCH_OPENFLOW='--flows 100000'.
bench-openflow: setup
	$(CARGO) build --release --bin sluice
	.venv/bin/python bench/openflow/flow_mods.py $(BENCH_OPENFLOW)

# What the switch must bear, with bounds: restarts, kills, guests, updates, floods. TRUST='--quick restart,kills' takes some; hours without.
# The results go into docs/trust.md. As root.
trust: setup
	$(CARGO) build --release --bin sluice
	.venv/bin/python bench/trust/run.py --publish $(TRUST)

# Each fuzz target for a minute.
fuzz:
	$(CARGO) xtask fuzz

clean:
	$(CARGO) clean
	rm -rf .venv .venv-finsy .venv-bmv2 .venv-osken .venv-faucet
