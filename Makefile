# The two set-up commands of the README are `make demo` and `make test`. Everything else is for developers.
# Both install what is missing first (Debian packages, Python packages in .venv) and say what to do if they cannot.

.PHONY: demo test build setup clean bench fuzz

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

# Compiled programs beside hand-written C, from memory: tables with ratios. `docs/performance.md` says how to read them.
bench: setup
	$(CARGO) run --release --package bench -- $(BENCH)

# Each fuzz target for a minute.
fuzz:
	$(CARGO) xtask fuzz

clean:
	$(CARGO) clean
	rm -rf .venv
