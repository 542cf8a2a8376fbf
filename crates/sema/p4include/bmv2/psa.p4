// Where bmv2's psa_switch has the Portable Switch Architecture.

#include <psa.p4>
