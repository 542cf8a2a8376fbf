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
};

/* What one burst did. */
struct shim_burst {
	uint64_t bytes;
	uint64_t dropped;
	uint64_t stopped; /* tx: 1 if it came to a packet that it must not take */
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
int shim_thread_register(void);
void shim_thread_unregister(void);
int shim_allowed_cpus(uint16_t *cpus, int max);
size_t shim_log_take(char *out, size_t size);

/* Buffers */
void *shim_pool_create(const char *name, uint32_t count, uint16_t headroom, uint16_t data_bytes, int *error);
uint32_t shim_pool_available(const void *pool);
int shim_alloc(void *pool, const void *vtable, struct shim_packet *out);
uint32_t shim_alloc_bulk(void *pool, const void *vtable, struct shim_packet *out, uint32_t count);
int shim_alloc_like(void *handle, const void *vtable, struct shim_packet *out);
void shim_free(void *handle);
void shim_free_bulk(const struct shim_packet *packets, size_t count);

/* Ports */
int shim_vdev_add(const char *name, const char *arguments);
int shim_port_by_name(const char *name); /* a port number */
int shim_port_configure(uint16_t port, void *pool, struct shim_port_config *config); /* config is adjusted */
int shim_port_start(uint16_t port);
void shim_port_stop(uint16_t port);
void shim_port_close(uint16_t port, const char *vdev_name); /* vdev_name: null for hardware */
int shim_port_link(uint16_t port, struct shim_link *out);
int shim_port_stats(uint16_t port, struct shim_stats *out);
int shim_port_mac(uint16_t port, uint8_t out[6]);
int shim_port_mtu(uint16_t port);

/* Packets. rx drops frames of len_limit bytes and more (0: no limit), which a device cannot deliver whole. tx takes packets
 * of this vtable with 1 to len_max bytes, and stops before any other. */
uint16_t shim_rx(uint16_t port, uint16_t queue, const void *vtable, uint16_t len_limit, struct shim_packet *out,
		 uint16_t max, struct shim_burst *burst);
uint16_t shim_tx(uint16_t port, uint16_t queue, const void *vtable, uint16_t len_max,
		 const struct shim_packet *packets, uint16_t count, struct shim_burst *burst);

/* vhost-user ports with rings of their own (vhost.c). Control calls as above; rx and tx as for other ports, but that tx
 * takes what the guest cannot hold and counts it in burst->dropped. */
struct shim_vhost;
struct shim_vhost *shim_vhost_open(const char *path, int client, uint16_t queues, void *pool, int *error);
void shim_vhost_close(struct shim_vhost *port);
int shim_vhost_up(const struct shim_vhost *port);
uint16_t shim_vhost_rx(struct shim_vhost *port, uint16_t queue, const void *vtable, struct shim_packet *out, uint16_t max,
		       struct shim_burst *burst);
uint16_t shim_vhost_tx(struct shim_vhost *port, uint16_t queue, const void *vtable, const struct shim_packet *packets,
		       uint16_t count, struct shim_burst *burst);

/* Kernel interfaces */
int shim_interface_exists(const char *name);
int shim_interface_up(const char *name);
int shim_interface_link(const char *name, struct shim_link *out);
int shim_can_open_packet_socket(void);

#endif
