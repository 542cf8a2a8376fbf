#!/bin/sh
# Runs Sluice with the libraries and DPDK drivers that lie beside it, from wherever the archive was unpacked.
# Called by the name of a program of bmv2's (the folder bmv2), it is that one.
case $(basename "$0") in
p4c | p4c-bm2-ss | p4c-bm2-psa | p4c-bm2-pna | simple_switch | simple_switch_grpc | psa_switch | pna_nic) set -- "$(basename "$0")" "$@" ;;
esac
here=$(dirname "$(readlink -f "$0")")/..
LD_LIBRARY_PATH="$here/lib:$here/lib/dpdk${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" SLUICE_DPDK_DRIVERS="$here/lib/dpdk" exec "$here/lib/sluice" "$@"
