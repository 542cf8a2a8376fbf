// The Portable NIC Architecture as p4c has it for bmv2: version 0.7.

#ifndef PNA_VERSION
#define PNA_VERSION 7
#endif

#include <pna.p4>
