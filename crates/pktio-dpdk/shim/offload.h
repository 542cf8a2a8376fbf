/* What a sender left to the device: checksums and segmentation (virtio 1.1, 5.1.6: `struct virtio_net_hdr`).
 *
 * The rule that keeps transport checksums right whatever the program does to addresses and ports:
 *
 * - On reception a checksum that was left to us is completed before anybody sees the packet (offload_received). The program
 *   works on the frame as it would be on a wire: it may verify, update or ignore the checksum, and what it makes is sent
 *   as it is. No mark travels with the packet, so nothing can go stale.
 * - A large frame, several segments of one TCP or UDP stream as one packet, has that number `segment`, the payload of
 *   each, with it through the switch. Its checksum is completed too. On the way out every segment gets a checksum computed
 *   from its final headers, by us (offload_segment) or by a peer that takes large frames (offload_for_peer), which gets
 *   the sum of the final addresses.
 *
 * Layers are found in the frame as it leaves: the program may have put headers before the IP header, or a tunnel (VXLAN, IP
 * in IP) around it. What cannot be understood cannot be segmented, and is dropped with a count.
 *
 * Everything here works on packets in one piece. Any thread. Tests: tests/offload.rs. */
#ifndef SLUICE_OFFLOAD_H
#define SLUICE_OFFLOAD_H

#include "shim.h"

#include <linux/virtio_net.h>
#include <rte_mbuf.h>

/* Small buffers hold 2 KB of data; these, nearly 64 KB, what a packet's 16-bit lengths allow. */
#define LARGE_DATA_BYTES (65472 - RTE_PKTMBUF_HEADROOM)

/* Set in `segment` for UDP; a segment is shorter than this. */
#define SEGMENT_UDP 0x8000u

/* Most segments of a large frame. */
#define SEGMENTS_MAX 256

/* A packet that fits no small buffer; NULL when all of them are out. */
struct rte_mbuf *offload_large_buffer(void);

/* Completes the checksum of a received packet. Returns 0 if the header lies. `*segment` is set for large frames. */
int offload_received(uint8_t *data, uint32_t length, const struct virtio_net_hdr *header, uint16_t *segment);

/* Makes the header with which a peer takes a large frame, and puts into the frame what the peer completes. Returns 0 if the
 * frame is not one that virtio's header can describe. */
int offload_for_peer(uint8_t *data, uint32_t length, uint16_t segment, struct virtio_net_hdr *header);

#endif
