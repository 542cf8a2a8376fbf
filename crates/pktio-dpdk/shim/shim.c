/* See shim.h for what this is and for its conventions. */
#define _GNU_SOURCE
#include "offload.h"
#include "shim.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

/* Most packets handed to or taken from a driver at once; bounds the arrays on the stack. */
#define BURST_MAX 64

/* Buffers that each thread keeps to itself, and so the most that a thread can hoard. */
#define POOL_CACHE 256

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
	return pool;
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

int shim_alloc(void *pool, const void *vtable, struct shim_packet *out)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	if (m == NULL)
		return -ENOMEM;
	describe(m, vtable, out);
	return 0;
}

int shim_alloc_large(const void *vtable, struct shim_packet *out)
{
	struct rte_mbuf *m = offload_large_buffer();
	if (m == NULL)
		return -ENOMEM;
	describe(m, vtable, out);
	return 0;
}

uint32_t shim_alloc_bulk(void *pool, const void *vtable, struct shim_packet *out, uint32_t count)
{
	struct rte_mbuf *mbufs[BURST_MAX];
	uint32_t done = 0;
	while (done < count) {
		uint32_t n = RTE_MIN(count - done, (uint32_t)BURST_MAX);
		if (rte_pktmbuf_alloc_bulk(pool, mbufs, n) != 0)
			break;
		for (uint32_t i = 0; i < n; i++)
			describe(mbufs[i], vtable, &out[done + i]);
		done += n;
	}
	/* A whole chunk is not there: take what is. */
	while (done < count && shim_alloc(pool, vtable, &out[done]) == 0)
		done++;
	return done;
}

int shim_alloc_like(void *handle, const void *vtable, struct shim_packet *out)
{
	return shim_alloc(((struct rte_mbuf *)handle)->pool, vtable, out);
}

void shim_free(void *handle)
{
	rte_pktmbuf_free(handle);
}

void shim_free_bulk(const struct shim_packet *packets, size_t count)
{
	struct rte_mbuf *mbufs[BURST_MAX];
	while (count > 0) {
		size_t n = RTE_MIN(count, (size_t)BURST_MAX);
		for (size_t i = 0; i < n; i++)
			mbufs[i] = packets[i].handle;
		rte_pktmbuf_free_bulk(mbufs, (unsigned int)n);
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

void shim_eth_stop(struct shim_eth *port)
{
	rte_eth_dev_stop(port->number);
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
	struct rte_mbuf *large = offload_large_buffer();
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
			struct rte_mbuf *m = mbufs[i];
			if (unlikely(m->nb_segs > 1) && (m = in_one_piece(m)) == NULL) {
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

/* ---- Kernel interfaces ---- */

int shim_interface_exists(const char *name)
{
	return if_nametoindex(name) != 0;
}

/* A socket to ask about the interface `name`, and the question's frame; a negative errno when that cannot be. */
static int interface_request(const char *name, struct ifreq *request)
{
	memset(request, 0, sizeof(*request));
	if (strlen(name) >= sizeof(request->ifr_name))
		return -ENAMETOOLONG;
	strcpy(request->ifr_name, name);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

int shim_interface_up(const char *name)
{
	struct ifreq request;
	int fd = interface_request(name, &request);
	if (fd < 0)
		return fd;
	int result = ioctl(fd, SIOCGIFFLAGS, &request);
	if (result == 0 && !(request.ifr_flags & IFF_UP)) {
		request.ifr_flags |= IFF_UP;
		result = ioctl(fd, SIOCSIFFLAGS, &request);
	}
	result = result == 0 ? 0 : -errno;
	close(fd);
	return result;
}

int shim_interface_link(const char *name, struct shim_link *out)
{
	struct ifreq request;
	int fd = interface_request(name, &request);
	if (fd < 0)
		return fd;
	if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) {
		int error = -errno;
		close(fd);
		return error;
	}
	out->up = (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING);
	out->speed_mbps = 0;
	struct ethtool_cmd settings = { .cmd = ETHTOOL_GSET };
	request.ifr_data = (char *)&settings;
	if (ioctl(fd, SIOCETHTOOL, &request) == 0) {
		uint32_t speed = ethtool_cmd_speed(&settings);
		out->speed_mbps = speed == (uint32_t)SPEED_UNKNOWN ? 0 : speed;
	}
	close(fd);
	return 0;
}

int shim_interface_mtu(const char *name)
{
	struct ifreq request;
	int fd = interface_request(name, &request);
	if (fd < 0)
		return fd;
	int result = ioctl(fd, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : -errno;
	close(fd);
	return result;
}

int shim_interface_set_mtu(const char *name, uint16_t mtu)
{
	struct ifreq request;
	int fd = interface_request(name, &request);
	if (fd < 0)
		return fd;
	request.ifr_mtu = mtu;
	int result = ioctl(fd, SIOCSIFMTU, &request) == 0 ? 0 : -errno;
	close(fd);
	return result;
}

int shim_interface_mac(const char *name, uint8_t out[6])
{
	struct ifreq request;
	int fd = interface_request(name, &request);
	if (fd < 0)
		return fd;
	int result = ioctl(fd, SIOCGIFHWADDR, &request) == 0 ? 0 : -errno;
	if (result == 0)
		memcpy(out, request.ifr_hwaddr.sa_data, 6);
	close(fd);
	return result;
}

int shim_can_open_packet_socket(void)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}
