//! Packet buffers and the Device trait; devices that need no DPDK.
