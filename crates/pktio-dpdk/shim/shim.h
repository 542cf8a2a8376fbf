/* The whole of DPDK that the switch uses, as plain functions.
 *
 * Why C: DPDK's packet path is inline functions and bit fields in headers; a few lines of C turn them into symbols with
 * a stable layout, so that Rust needs to know nothing of rte_mbuf.
 *
 * Conventions: functions that can fail return a negative errno (0 or a count otherwise). What DPDK logs goes into a
 * buffer that shim_log_take() empties; it holds the reason for a failure in words. Nothing here allocates on the packet
 * path. Functions of the packet path (shim_rx, shim_tx, shim_free*, shim_alloc*) may run on any thread, one thread per
 * queue; all others are called under one lock (the Rust side's).
 */
#ifndef SLUICE_SHIM_H
#define SLUICE_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* The same layout as pktio::RawPacket. */
struct shim_packet {
	uint8_t *base;
	void *handle; /* struct rte_mbuf */
	const void *vtable;
	uint16_t capacity;
	uint16_t offset;
	uint16_t len;
	uint16_t segment; /* not 0: a large frame, see pktio::offload */
};

/* What one burst did. */
struct shim_burst {
	uint64_t bytes;
	uint64_t dropped;
	uint64_t stopped; /* tx: 1 if it came to a packet that it must not take as it is */
};

/* The first member of every kind of port. */
struct shim_port {
	uint32_t frame_max; /* longer frames are not sent; of large frames, longer segments */
};

struct shim_stats {
	uint64_t rx_missed;  /* no room in the device's ring */
	uint64_t rx_no_buffer;
	uint64_t rx_errors;
	uint64_t tx_errors;
};

struct shim_link {
	uint32_t up;
	uint32_t speed_mbps; /* 0: unknown */
};

struct shim_port_config {
	uint16_t queues;
	uint16_t descriptors; /* per queue and direction; rounded to what the device can do */
	uint16_t mtu;         /* 0: leave as it is */
};

/* EAL */
int shim_eal_init(int argc, char **argv); /* keeps the calling thread's CPU affinity */
/* From now on DPDK asks before it takes more memory from the kernel; no if the answer is 0. */
void shim_ask_before_growing(int (*may_grow)(void));
int shim_thread_register(void);
void shim_thread_unregister(void);
int shim_allowed_cpus(uint16_t *cpus, int max);
size_t shim_log_take(char *out, size_t size);

/* Buffers: small ones, and a few large ones for what fits into none of those. */
void *shim_pool_create(const char *name, uint32_t count, uint16_t headroom, uint16_t data_bytes, int *error);
int shim_large_pool_create(const char *name, uint32_t count);
uint32_t shim_pool_available(const void *pool);
int shim_alloc(void *pool, const void *vtable, struct shim_packet *out);
int shim_alloc_large(const void *vtable, struct shim_packet *out);
uint32_t shim_alloc_bulk(void *pool, const void *vtable, struct shim_packet *out, uint32_t count);
int shim_alloc_like(void *handle, const void *vtable, struct shim_packet *out);
uint32_t shim_alloc_like_bulk(void *handle, const void *vtable, struct shim_packet *out, uint32_t count);
void shim_free(void *handle);
void shim_free_bulk(const struct shim_packet *packets, size_t count);

/* Ports, of each kind: rx gives at most `max` packets of this vtable. tx takes packets from the front, and stops before one
 * that is not of this vtable, empty, longer than frame_max, or a large frame that the port does not take. What it takes
 * and cannot send it counts in burst->dropped. */

/* A port of a DPDK driver. */
struct shim_eth;
int shim_vdev_add(const char *name, const char *arguments);
int shim_port_by_name(const char *name); /* a port number */
void shim_port_detach(uint16_t number, const char *vdev_name); /* undoes shim_vdev_add */
struct shim_eth *shim_eth_open(uint16_t number, const char *vdev_name, void *pool, struct shim_port_config *config,
			       int *error); /* config is adjusted; vdev_name: null for hardware; not started */
int shim_eth_start(struct shim_eth *port);
void shim_eth_close(struct shim_eth *port);
int shim_eth_link(struct shim_eth *port, struct shim_link *out);
int shim_eth_stats(struct shim_eth *port, struct shim_stats *out);
int shim_eth_mac(struct shim_eth *port, uint8_t out[6]);
int shim_eth_mtu(struct shim_eth *port);
uint16_t shim_eth_rx(struct shim_eth *port, uint16_t queue, const void *vtable, struct shim_packet *out, uint16_t max,
		     struct shim_burst *burst);
uint16_t shim_eth_tx(struct shim_eth *port, uint16_t queue, const void *vtable, const struct shim_packet *packets,
		     uint16_t count, struct shim_burst *burst);


#endif
