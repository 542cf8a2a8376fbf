// The Portable NIC Architecture for DPDK's pipelines: counters and meters may be told how long the packet is, and there
// is an accelerator for IPsec.

#define __PNA_DPDK__

#include <pna.p4>
