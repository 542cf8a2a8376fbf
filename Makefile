# The two set-up commands of the README are `make demo` and `make test`. Everything else is for developers.
# Both install what is missing first (Debian packages, Python packages in .venv) and say what to do if they cannot.

.PHONY: demo test build setup clean bench bench-memory bench-ports bench-swaps fuzz

CARGO ?= cargo

# Installs the missing packages; quick when nothing is missing.
setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --bin sluice

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

# A thousand changes of the program under full load on DPDK ports. As root.
bench-swaps: setup
	$(CARGO) build --release --package sluice --package portgen
	.venv/bin/python bench/ports/swaps.py $(BENCH_SWAPS)

# Each fuzz target for a minute.
fuzz:
	$(CARGO) xtask fuzz

clean:
	$(CARGO) clean
	rm -rf .venv .venv-finsy
