// An L2 switch that learns by itself: no controller. Packets write the table of stations.
//
// `stations` maps an address to the port where it was seen last. A frame looks its source up first: an address that is not
// there is added, one that has moved to another port is changed, and a station that sends stays. One that has been silent for
// five minutes ends by itself. Then the frame looks its destination up in the same table: known ones go to their port, others,
// broadcast and multicast to multicast group 1, which has all ports. A frame is never sent back to the port it came from. What is
// for the neighbour alone, as BPDUs and LLDP are (01:80:c2:00:00:00 to :0f; IEEE 802.1Q, clause 8.6.3), goes nowhere.

#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>
#include <p4lib/headers.p4>

struct metadata_t {
    bit<48> address;
    // Whether the lookup is that of the source.
    bool    learns;
}

struct headers_t {
    ethernet_t ethernet;
}

#include <p4lib/v1model.p4>

// The parameters of `at_port`.
struct station_t {
    bit<9> port;
}

const ExpireTimeProfileId_t SILENT = 0;

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action at_port(bit<9> port) {
        if (meta.learns) {
            if (port == std.ingress_port) {
                restart_expire_timer();
            } else {
                replace_entry("at_port", (station_t){ std.ingress_port }, SILENT);
            }
        } else {
            std.egress_spec = port;
        }
    }

    action unknown() {
        if (meta.learns) {
            add_entry("at_port", (station_t){ std.ingress_port }, SILENT);
        } else {
            std.mcast_grp = 1;
        }
    }

    @expire_time_ms(300000)
    @notify_expired
    table stations {
        key = { meta.address: exact; }
        actions = { at_port; @defaultonly unknown; }
        const default_action = unknown();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 65536;
    }

    apply {
        if (std.parser_error != error.NoError) {
            mark_to_drop(std);
            exit;
        }
        // Group addresses send nothing.
        if (hdr.ethernet.srcAddr[40:40] == 0) {
            meta.address = hdr.ethernet.srcAddr;
            meta.learns = true;
            stations.apply();
        }
        if (hdr.ethernet.dstAddr[47:4] == 0x0180c200000) {
            mark_to_drop(std);
            exit;
        }
        meta.address = hdr.ethernet.dstAddr;
        meta.learns = false;
        stations.apply();
        if (std.egress_spec == std.ingress_port && std.mcast_grp == 0) {
            mark_to_drop(std);
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), NotBackEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
