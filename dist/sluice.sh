#!/bin/sh
# Runs Sluice with the libraries and DPDK drivers that lie beside it, from wherever the archive was unpacked.
here=$(dirname "$(readlink -f "$0")")/..
LD_LIBRARY_PATH="$here/lib:$here/lib/dpdk${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" SLUICE_DPDK_DRIVERS="$here/lib/dpdk" exec "$here/lib/sluice" "$@"
