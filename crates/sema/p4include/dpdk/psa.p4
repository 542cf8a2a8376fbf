// The Portable Switch Architecture for DPDK's pipelines: counters and meters may be told how long the packet is.

#define __PSA_DPDK__

#include <psa.p4>
