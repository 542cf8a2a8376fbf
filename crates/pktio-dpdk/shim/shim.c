/* See shim.h for what this is and for its conventions. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

/* Most packets handed to or taken from a driver at once; bounds the arrays on the stack. */
#define BURST_MAX 64

/* Buffers that each thread keeps to itself, and so the most that a thread can hoard. */
#define POOL_CACHE 256

/* Small buffers hold 2 KB of data; large ones, nearly 64 KB, what a packet's 16-bit lengths allow. */
#define LARGE_DATA_BYTES (65472 - RTE_PKTMBUF_HEADROOM)

/* ---- Log: the last LOG_SIZE bytes of what DPDK says. ---- */

#define LOG_SIZE 16384

static char log_bytes[LOG_SIZE];
static size_t log_len;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t log_write(void *cookie, const char *text, size_t size)
{
	(void)cookie;
	size_t all = size;
	if (size > LOG_SIZE / 2) {
		text += size - LOG_SIZE / 2;
		size = LOG_SIZE / 2;
	}
	pthread_mutex_lock(&log_lock);
	if (log_len + size > LOG_SIZE) {
		/* Forget the older half: what fails last matters most. */
		size_t keep = LOG_SIZE / 2 < log_len ? LOG_SIZE / 2 : log_len;
		memmove(log_bytes, log_bytes + log_len - keep, keep);
		log_len = keep;
	}
	memcpy(log_bytes + log_len, text, size);
	log_len += size;
	pthread_mutex_unlock(&log_lock);
	return (ssize_t)all;
}

size_t shim_log_take(char *out, size_t size)
{
	pthread_mutex_lock(&log_lock);
	size_t n = log_len < size ? log_len : size;
	memcpy(out, log_bytes + log_len - n, n);
	log_len = 0;
	pthread_mutex_unlock(&log_lock);
	return n;
}

static void log_open(void)
{
	static const cookie_io_functions_t functions = { .write = log_write };
	FILE *stream = fopencookie(NULL, "w", functions);
	if (stream == NULL)
		return;
	setvbuf(stream, NULL, _IOLBF, 1024);
	rte_openlog_stream(stream);
}

/* ---- EAL ---- */

int shim_eal_init(int argc, char **argv)
{
	cpu_set_t before;
	int known = pthread_getaffinity_np(pthread_self(), sizeof(before), &before) == 0;
	log_open();
	int result = rte_eal_init(argc, argv);
	int error = rte_errno;
	if (known)
		pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
	if (result < 0)
		return error != 0 ? -error : -EIO;
	/* The EAL makes its folder even when it puts nothing there. */
	rmdir(rte_eal_get_runtime_dir());
	return 0;
}

static int (*may_grow)(void);

static int ask(int socket_id, size_t limit, size_t bytes)
{
	(void)socket_id;
	(void)limit;
	(void)bytes;
	return may_grow() ? 0 : -1;
}

void shim_ask_before_growing(int (*question)(void))
{
	may_grow = question;
	/* Fails where memory never grows, which is as good. */
	for (unsigned int i = 0; i < rte_socket_count(); i++)
		rte_mem_alloc_validator_register("sluice", ask, rte_socket_id_by_idx(i), 0);
}

int shim_thread_register(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void shim_thread_unregister(void)
{
	rte_thread_unregister();
}

int shim_allowed_cpus(uint16_t *cpus, int max)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return -errno;
	int n = 0;
	for (int cpu = 0; cpu < CPU_SETSIZE && n < max; cpu++)
		if (CPU_ISSET(cpu, &set))
			cpus[n++] = (uint16_t)cpu;
	return n;
}

/* ---- Buffers ---- */

/* The one small pool; where the buffer is behind its mbuf, and its size.
 *
 * Buffers that no driver touches pass from port to port without a look at their mbufs, which are in no near cache. So each
 * mbuf that belongs to the switch, or is in its pool, is whole (rte_mbuf_raw_free's condition): one segment, one owner, its own
 * buffer. Allocation and freeing neither check nor reset anything. What a driver gives is made so on reception
 * (own_buffer), and what a driver gets has its lengths, offset and flags set then (shim_eth_tx); the driver gives back
 * whole ones. */
static struct rte_mempool *small_pool;
static uint32_t small_at;
static uint16_t small_capacity;

void *shim_pool_create(const char *name, uint32_t count, uint16_t headroom, uint16_t data_bytes, int *error)
{
	if (headroom != RTE_PKTMBUF_HEADROOM) {
		/* Drivers place packets behind this constant. */
		*error = -EINVAL;
		return NULL;
	}
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create(name, count, POOL_CACHE, 0, headroom + data_bytes, SOCKET_ID_ANY);
	*error = pool == NULL ? -rte_errno : 0;
	if (pool != NULL) {
		small_pool = pool;
		small_at = sizeof(struct rte_mbuf) + rte_pktmbuf_priv_size(pool);
		small_capacity = rte_pktmbuf_data_room_size(pool);
	}
	return pool;
}

static struct rte_mempool *large_pool;

int shim_large_pool_create(const char *name, uint32_t count)
{
	large_pool = rte_pktmbuf_pool_create(name, count, 32, 0, RTE_PKTMBUF_HEADROOM + LARGE_DATA_BYTES, SOCKET_ID_ANY);
	return large_pool == NULL ? -ENOMEM : 0;
}

static struct rte_mbuf *large_buffer(void)
{
	return rte_pktmbuf_alloc(large_pool);
}

uint32_t shim_pool_available(const void *pool)
{
	return rte_mempool_avail_count(pool);
}

static inline void describe(struct rte_mbuf *m, const void *vtable, struct shim_packet *out)
{
	out->base = m->buf_addr;
	out->handle = m;
	out->vtable = vtable;
	out->capacity = m->buf_len;
	out->offset = m->data_off;
	out->len = m->data_len;
	out->segment = 0;
}

/* A buffer straight from the small pool: what is always so needs not be read. */
static inline void describe_small(struct rte_mbuf *m, const void *vtable, struct shim_packet *out)
{
	*out = (struct shim_packet){
		(uint8_t *)m + small_at, m, vtable, small_capacity, RTE_PKTMBUF_HEADROOM, 0, 0,
	};
}

int shim_alloc(void *pool, const void *vtable, struct shim_packet *out)
{
	void *m;
	if (rte_mempool_get(pool, &m) != 0)
		return -ENOMEM;
	describe_small(m, vtable, out);
	return 0;
}

int shim_alloc_large(const void *vtable, struct shim_packet *out)
{
	struct rte_mbuf *m = large_buffer();
	if (m == NULL)
		return -ENOMEM;
	describe(m, vtable, out);
	return 0;
}

uint32_t shim_alloc_bulk(void *pool, const void *vtable, struct shim_packet *out, uint32_t count)
{
	void *mbufs[BURST_MAX];
	uint32_t done = 0;
	while (done < count) {
		uint32_t n = RTE_MIN(count - done, (uint32_t)BURST_MAX);
		if (rte_mempool_get_bulk(pool, mbufs, n) != 0)
			break;
		for (uint32_t i = 0; i < n; i++)
			describe_small(mbufs[i], vtable, &out[done + i]);
		done += n;
	}
	/* A whole chunk is not there: take what is. */
	while (done < count && shim_alloc(pool, vtable, &out[done]) == 0)
		done++;
	return done;
}

int shim_alloc_like(void *handle, const void *vtable, struct shim_packet *out)
{
	struct rte_mempool *pool = ((struct rte_mbuf *)handle)->pool;
	return pool == small_pool ? shim_alloc(pool, vtable, out) : shim_alloc_large(vtable, out);
}

uint32_t shim_alloc_like_bulk(void *handle, const void *vtable, struct shim_packet *out, uint32_t count)
{
	struct rte_mempool *pool = ((struct rte_mbuf *)handle)->pool;
	if (pool == small_pool)
		return shim_alloc_bulk(pool, vtable, out, count);
	uint32_t done = 0;
	while (done < count && shim_alloc_large(vtable, &out[done]) == 0)
		done++;
	return done;
}

void shim_free(void *handle)
{
	rte_mempool_put(((struct rte_mbuf *)handle)->pool, handle);
}

void shim_free_bulk(const struct shim_packet *packets, size_t count)
{
	void *small[BURST_MAX];
	while (count > 0) {
		size_t n = RTE_MIN(count, (size_t)BURST_MAX);
		unsigned int ready = 0;
		for (size_t i = 0; i < n; i++) {
			if (likely(packets[i].capacity == small_capacity))
				small[ready++] = packets[i].handle;
			else
				shim_free(packets[i].handle);
		}
		rte_mempool_put_bulk(small_pool, small, ready);
		packets += n;
		count -= n;
	}
}

/* ---- Ports ---- */

int shim_vdev_add(const char *name, const char *arguments)
{
	return rte_eal_hotplug_add("vdev", name, arguments);
}

int shim_port_by_name(const char *name)
{
	uint16_t port;
	int result = rte_eth_dev_get_port_by_name(name, &port);
	return result == 0 ? port : result;
}

struct shim_eth {
	struct shim_port base;
	uint16_t number;
	struct rte_mempool *pool;
	char *vdev_name;
};

static int set_up_queues(uint16_t port, struct rte_mempool *pool, struct shim_port_config *config,
			 const struct rte_eth_dev_info *info)
{
	/* Without offloads packets arrive and leave as the bytes that are there. Both ways of a flow go to one queue: see
	 * `symmetric_key`. */
	const uint64_t spread = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP;
	struct rte_eth_conf conf;
	memset(&conf, 0, sizeof(conf));
	uint16_t mtu = config->mtu;
	if (mtu != 0) {
		/* Drivers of shared memory name limits that they do not have; what they are told changes nothing for them. */
		if (info->max_mtu != 0)
			mtu = RTE_MIN(mtu, info->max_mtu);
		if (info->max_rx_pktlen > RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN)
			mtu = RTE_MIN((uint32_t)mtu, info->max_rx_pktlen - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN);
		conf.rxmode.mtu = mtu;
		/* Longer than a buffer: a chain of them, which rx puts together. */
		conf.rxmode.offloads = info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	}
	/* Long frames leave as chains. */
	conf.txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	/* A key that repeats every 16 bits gives the same hash when addresses and ports change places (Woo and Park, 2012). */
	static uint8_t symmetric_key[64];
	for (size_t i = 0; i < sizeof(symmetric_key); i++)
		symmetric_key[i] = i % 2 == 0 ? 0x6d : 0x5a;
	if (config->queues > 1 && (info->flow_type_rss_offloads & spread)) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads & spread;
		if (info->hash_key_size != 0 && info->hash_key_size <= sizeof(symmetric_key)) {
			conf.rx_adv_conf.rss_conf.rss_key = symmetric_key;
			conf.rx_adv_conf.rss_conf.rss_key_len = info->hash_key_size;
		}
	}
	int result = rte_eth_dev_configure(port, config->queues, config->queues, &conf);
	if (result != 0)
		return result;
	uint16_t rx = config->descriptors, tx = config->descriptors;
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
	if (result != 0)
		return result;
	for (uint16_t queue = 0; queue < config->queues; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, rx, SOCKET_ID_ANY, NULL, pool);
		if (result == 0)
			result = rte_eth_tx_queue_setup(port, queue, tx, SOCKET_ID_ANY, NULL);
		if (result != 0)
			return result;
	}
	config->descriptors = rx;
	if (mtu != 0) {
		result = rte_eth_dev_set_mtu(port, mtu);
		/* A driver that knows no MTU carries what there is room for. */
		if (result == -ENOTSUP)
			result = 0;
	}
	return result;
}

struct shim_eth *shim_eth_open(uint16_t number, const char *vdev_name, void *pool, struct shim_port_config *config,
			       int *error)
{
	struct rte_eth_dev_info info;
	struct shim_eth *port = calloc(1, sizeof(*port));
	*error = -ENOMEM;
	if (port == NULL)
		return NULL;
	port->number = number;
	port->pool = pool;
	*error = rte_eth_dev_info_get(number, &info);
	if (*error == 0) {
		config->queues = RTE_MIN(config->queues, RTE_MIN(info.max_rx_queues, info.max_tx_queues));
		*error = config->queues == 0 ? -ENODEV : set_up_queues(number, pool, config, &info);
	}
	if (*error == 0 && vdev_name != NULL && (port->vdev_name = strdup(vdev_name)) == NULL)
		*error = -ENOMEM;
	if (*error == 0)
		return port;
	free(port);
	return NULL;
}

void shim_port_detach(uint16_t number, const char *vdev_name)
{
	if (rte_eth_dev_is_valid_port(number)) {
		rte_eth_dev_stop(number);
		rte_eth_dev_close(number);
	}
	if (vdev_name != NULL)
		rte_eal_hotplug_remove("vdev", vdev_name);
}

void shim_eth_close(struct shim_eth *port)
{
	shim_port_detach(port->number, port->vdev_name);
	free(port->vdev_name);
	free(port);
}

int shim_eth_start(struct shim_eth *port)
{
	int result = rte_eth_dev_start(port->number);
	if (result != 0)
		return result;
	/* A switch wants every packet. Devices without addresses do not know the notion. */
	result = rte_eth_promiscuous_enable(port->number);
	if (result != 0 && result != -ENOTSUP) {
		rte_eth_dev_stop(port->number);
		return result;
	}
	return 0;
}

int shim_eth_link(struct shim_eth *port, struct shim_link *out)
{
	struct rte_eth_link link;
	memset(&link, 0, sizeof(link));
	int result = rte_eth_link_get_nowait(port->number, &link);
	if (result != 0)
		return result;
	out->up = link.link_status == RTE_ETH_LINK_UP;
	out->speed_mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
	return 0;
}

int shim_eth_stats(struct shim_eth *port, struct shim_stats *out)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port->number, &stats);
	if (result != 0)
		return result;
	out->rx_missed = stats.imissed;
	out->rx_no_buffer = stats.rx_nombuf;
	out->rx_errors = stats.ierrors;
	out->tx_errors = stats.oerrors;
	return 0;
}

int shim_eth_mac(struct shim_eth *port, uint8_t out[6])
{
	struct rte_ether_addr address;
	int result = rte_eth_macaddr_get(port->number, &address);
	if (result == 0)
		memcpy(out, address.addr_bytes, sizeof(address.addr_bytes));
	return result;
}

int shim_eth_mtu(struct shim_eth *port)
{
	uint16_t mtu;
	int result = rte_eth_dev_get_mtu(port->number, &mtu);
	return result == 0 ? mtu : result;
}

/* ---- Packets ---- */

/* The chain `m` as a packet in one piece; NULL, and freed, when no buffer can hold it. */
static struct rte_mbuf *in_one_piece(struct rte_mbuf *m)
{
	if (m->pkt_len <= (uint32_t)m->data_len + rte_pktmbuf_tailroom(m) && rte_pktmbuf_linearize(m) == 0)
		return m;
	struct rte_mbuf *large = large_buffer();
	if (large != NULL && m->pkt_len <= rte_pktmbuf_tailroom(large)) {
		uint8_t *to = rte_pktmbuf_mtod(large, uint8_t *);
		for (const struct rte_mbuf *part = m; part != NULL; part = part->next) {
			rte_memcpy(to, rte_pktmbuf_mtod(part, const uint8_t *), part->data_len);
			to += part->data_len;
		}
		large->data_len = large->pkt_len = m->pkt_len;
		rte_pktmbuf_free(m);
		return large;
	}
	rte_pktmbuf_free(large);
	rte_pktmbuf_free(m);
	return NULL;
}

static struct rte_mbuf *copied(struct rte_mbuf *m);

/* A received packet as the pool wants it back: whole, and in a buffer of ours. NULL, and freed, if that cannot be. */
static inline struct rte_mbuf *own_buffer(struct rte_mbuf *m)
{
	if (unlikely(m->nb_segs > 1) && (m = in_one_piece(m)) == NULL)
		return NULL;
	if (likely(RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1 && m->next == NULL &&
		   (m->pool == small_pool || m->buf_len == LARGE_DATA_BYTES + RTE_PKTMBUF_HEADROOM)))
		return m;
	return copied(m);
}

/* A packet whose buffer is the driver's, or shared with it, in one of ours. */
static struct rte_mbuf *copied(struct rte_mbuf *m)
{
	struct rte_mbuf *copy = rte_pktmbuf_alloc(small_pool);
	if (copy != NULL && m->pkt_len > rte_pktmbuf_tailroom(copy)) {
		rte_pktmbuf_free(copy);
		copy = large_buffer();
	}
	if (copy != NULL && m->pkt_len <= rte_pktmbuf_tailroom(copy)) {
		rte_memcpy(rte_pktmbuf_mtod(copy, uint8_t *), rte_pktmbuf_mtod(m, const uint8_t *), m->data_len);
		copy->data_len = copy->pkt_len = m->data_len;
	} else {
		rte_pktmbuf_free(copy);
		copy = NULL;
	}
	rte_pktmbuf_free(m);
	return copy;
}

uint16_t shim_eth_rx(struct shim_eth *port, uint16_t queue, const void *vtable, struct shim_packet *out, uint16_t max,
		     struct shim_burst *burst)
{
	struct rte_mbuf *mbufs[BURST_MAX];
	uint16_t done = 0;
	uint64_t bytes = 0;

	while (done < max) {
		uint16_t ask = RTE_MIN((uint16_t)(max - done), (uint16_t)BURST_MAX);
		uint16_t got = rte_eth_rx_burst(port->number, queue, mbufs, ask);
		for (uint16_t i = 0; i < got; i++) {
			struct rte_mbuf *m = own_buffer(mbufs[i]);
			if (unlikely(m == NULL)) {
				burst->dropped++;
				continue;
			}
			/* Nobody has looked at the packet yet when the driver is a network card's. */
			rte_prefetch0(rte_pktmbuf_mtod(m, void *));
			describe(m, vtable, &out[done++]);
			bytes += m->data_len;
		}
		if (got < ask)
			break;
	}
	burst->bytes = bytes;
	return done;
}

/* A copy of a packet in a large buffer as a chain of small ones. Drivers keep what they send for as long as they like, often
 * until the next packet comes: a ring of theirs could keep all large buffers, and no long frame would come any more. */
static struct rte_mbuf *in_small_pieces(struct rte_mempool *pool, const uint8_t *from, uint32_t length)
{
	struct rte_mbuf *first = NULL, *last = NULL;
	for (uint32_t done = 0; done < length;) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
		if (m == NULL) {
			rte_pktmbuf_free(first);
			return NULL;
		}
		m->data_len = RTE_MIN(length - done, (uint32_t)rte_pktmbuf_tailroom(m));
		rte_memcpy(rte_pktmbuf_mtod(m, uint8_t *), from + done, m->data_len);
		done += m->data_len;
		if (first == NULL) {
			first = m;
			first->pkt_len = length;
			first->nb_segs = 0;
		} else {
			last->next = m;
		}
		first->nb_segs++;
		last = m;
	}
	return first;
}

/* Sends a packet that is in a large buffer; 0 if it has to wait. */
static int send_large(struct shim_eth *port, uint16_t queue, const struct shim_packet *packet)
{
	struct rte_mbuf *chain = in_small_pieces(port->pool, packet->base + packet->offset, packet->len);
	if (chain == NULL || rte_eth_tx_burst(port->number, queue, &chain, 1) != 1) {
		rte_pktmbuf_free(chain);
		return 0;
	}
	rte_pktmbuf_free(packet->handle);
	return 1;
}

uint16_t shim_eth_tx(struct shim_eth *port, uint16_t queue, const void *vtable, const struct shim_packet *packets,
		     uint16_t count, struct shim_burst *burst)
{
	struct rte_mbuf *mbufs[BURST_MAX];
	uint16_t done = 0;
	uint64_t bytes = 0;
	uint32_t frame_max = __atomic_load_n(&port->base.frame_max, __ATOMIC_RELAXED);

	while (done < count) {
		uint16_t n = RTE_MIN((uint16_t)(count - done), (uint16_t)BURST_MAX);
		uint16_t ready = 0;
		for (; ready < n; ready++) {
			const struct shim_packet *packet = &packets[done + ready];
			struct rte_mbuf *m = packet->handle;
			/* An empty packet's length wraps around. */
			if (unlikely(packet->vtable != vtable || packet->len - 1u >= frame_max || packet->segment != 0)) {
				burst->stopped = 1;
				break;
			}
			if (unlikely(m->buf_len == LARGE_DATA_BYTES + RTE_PKTMBUF_HEADROOM))
				break;
			/* What came through rings of ours has never had these set. */
			m->ol_flags = 0;
			m->data_off = packet->offset;
			m->data_len = packet->len;
			m->pkt_len = packet->len;
			mbufs[ready] = m;
			bytes += packet->len;
		}
		uint16_t sent = rte_eth_tx_burst(port->number, queue, mbufs, ready);
		for (uint16_t i = sent; i < ready; i++)
			bytes -= packets[done + i].len;
		done += sent;
		if (sent < ready || burst->stopped)
			break;
		if (ready < n) {
			uint16_t length = packets[done].len;
			if (!send_large(port, queue, &packets[done]))
				break;
			bytes += length;
			done++;
		}
	}
	burst->bytes += bytes;
	return done;
}
