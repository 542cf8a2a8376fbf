//! DPDK ports behind one thin C shim.
