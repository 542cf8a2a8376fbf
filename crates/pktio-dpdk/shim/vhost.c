/* vhost-user ports with rings of our own.
 *
 * DPDK's library speaks the protocol with the guest's side: sockets, reconnection, features, memory maps, indices. The
 * rings are read and written here, straight between the guest's buffers and our packets, because the library's general
 * path costs several times as much per packet. Split rings (virtio 1.1, 2.6) and packed ones (2.7), chains of descriptors,
 * mergeable receive buffers (5.1.6.4), checksums and TCP segmentation left to us (5.1.6.2, offload.h), dirty pages logged for
 * migration. Not offered to the guest: indirect descriptors, event indices, fragmentation of UDP.
 *
 * A packed ring's chains lie one behind the other, so where the n-th begins is only known when those before have been looked
 * at: look() does that once, and leaves them in an array that takes the place of the split ring's index. What else
 * differs is a piece's layout, and how entries are given back and wishes are told.
 *
 * Trust: everything in shared memory is the guest's and may change at any moment. Each descriptor is copied once and
 * checked; an address outside the guest's memory, a loop or a bad index costs the guest its packet and nothing else.
 *
 * Threads: each queue belongs to a worker, and has a lock that the worker tries once per burst and never waits for. The
 * library's threads call back when anything changes; while a message is worked on all queues are at rest, since it may
 * unmap the guest's memory, and their indices are back in the library, where the protocol looks for them.
 *
 * Tests: tests/peers.rs, against dpdk-testpmd as the guest. */
#define _GNU_SOURCE
#include "offload.h"
#include "shim.h"

#include <errno.h>
#include <linux/vhost.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>
#include <rte_pause.h>
#include <rte_vhost.h>

/* Most packets of a burst; bounds the arrays on the stack. */
#define BURST_MAX 64
#define QUEUES_MAX 64
#define PATH_MAX_BYTES 108

/* Most entries of a packed ring that are looked at before any is given back. */
#define ENTRIES_MAX 256

/* An entry of a packed ring: a chain of descriptors. */
struct entry {
	uint16_t head; /* its first descriptor */
	uint16_t pieces;
	uint16_t id; /* the guest's name for it */
	uint32_t length; /* what we have written */
};

/* A place in a packed ring; the guest's and our marks change their meaning each time round. */
struct spot {
	uint16_t at;
	uint8_t wrap;
};

struct ring {
	struct rte_vhost_vring v;
	uint16_t last_avail;
	uint16_t last_used;
	struct entry *entries; /* packed: those that are known, from `first` on around ENTRIES_MAX; else not read */
	uint16_t first;
	uint16_t known;
	uint16_t open; /* descriptors of these */
	struct spot next; /* the first descriptor that was not given back */
	struct spot unseen; /* the first that was not looked at */
	uint8_t packed;
	uint16_t index; /* the library's number for it */
	uint8_t usable;
	uint8_t owes_call; /* entries were given back, and the guest not asked whether it wants to be called */
};

struct queue {
	uint8_t lock;
	uint8_t armed; /* the worker sleeps: the guest is to kick */
	struct ring from_guest;
	struct ring to_guest;
	int file; /* an epoll instance: what wakes the worker */
	int changed; /* an eventfd in it, for what is not the guest's doing */
	int kick; /* the guest's file in it; -1: none */
} __rte_cache_aligned;

struct shim_vhost {
	struct shim_port base;
	struct queue queue[QUEUES_MAX];
	struct rte_vhost_memory *memory;
	struct rte_mempool *pool;
	uint32_t buffer_at; /* from a small buffer's mbuf */
	uint16_t capacity;
	uint32_t header_bytes;
	int mergeable;
	int packed;
	uint8_t takes; /* the kinds of large frames that the guest takes: bits of VIRTIO_NET_HDR_GSO_* */
	int log; /* the guest is being migrated */
	int vid; /* the connection; -1: none */
	int live;
	uint16_t queues;
	uint8_t enabled[2 * QUEUES_MAX];
	char path[PATH_MAX_BYTES];
	struct shim_vhost *next;
};

/* A spinlock that is let go by a plain store: an exchange would wait for all that was written to the guest's memory. */
static inline int try_lock(struct queue *queue)
{
	return !__atomic_exchange_n(&queue->lock, 1, __ATOMIC_ACQUIRE);
}

static inline void lock(struct queue *queue)
{
	while (!try_lock(queue))
		rte_pause();
}

static inline void unlock(struct queue *queue)
{
	__atomic_store_n(&queue->lock, 0, __ATOMIC_RELEASE);
}

/* All ports; `ports_lock` also guards what the library's threads change in them. */
static struct shim_vhost *ports;
static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Control: what the library calls, with ports_lock held after find(). ---- */

static struct shim_vhost *find(int vid)
{
	char path[PATH_MAX_BYTES];
	if (rte_vhost_get_ifname(vid, path, sizeof(path)) != 0)
		return NULL;
	for (struct shim_vhost *port = ports; port != NULL; port = port->next)
		if (strcmp(port->path, path) == 0)
			return port;
	return NULL;
}

static inline int wants_calls(const struct ring *ring)
{
	if (ring->packed)
		return __atomic_load_n(&ring->v.driver_event->flags, __ATOMIC_RELAXED) != VRING_PACKED_EVENT_FLAG_DISABLE;
	return !(__atomic_load_n(&ring->v.avail->flags, __ATOMIC_RELAXED) & VRING_AVAIL_F_NO_INTERRUPT);
}

/* Says whether the guest is to kick. */
static inline void want_kicks(struct ring *ring, int wanted)
{
	if (ring->packed)
		__atomic_store_n(&ring->v.device_event->flags,
				 wanted ? VRING_PACKED_EVENT_FLAG_ENABLE : VRING_PACKED_EVENT_FLAG_DISABLE,
				 __ATOMIC_RELAXED);
	else
		__atomic_store_n(&ring->v.used->flags, wanted ? 0 : VRING_USED_F_NO_NOTIFY, __ATOMIC_RELAXED);
}

/* Wakes the guest if it wants to be. The guest writes its wish and then looks at the index; we have written the index and look
 * at its wish. What keeps these in order is the exchange that takes the queue's lock: it waits until our stores have reached the
 * guest's memory, most of which they have done since the burst before. A fence of its own right behind them would wait for all. */
static inline void call(struct ring *ring)
{
	if (!ring->owes_call)
		return;
	ring->owes_call = 0;
	if (wants_calls(ring) && ring->v.callfd >= 0)
		eventfd_write(ring->v.callfd, 1);
}

/* Waits on a file as well. Only for what happens from now on: so nobody has to read from the guest's file, which might block. */
static int watch(const struct queue *queue, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	return epoll_ctl(queue->file, EPOLL_CTL_ADD, fd, &event);
}

/* After this no worker is in a ring, and the library knows the indices. */
static void rest(struct shim_vhost *port)
{
	for (uint16_t i = 0; i < port->queues; i++) {
		struct queue *queue = &port->queue[i];
		struct ring *rings[] = { &queue->from_guest, &queue->to_guest };
		lock(queue);
		for (int k = 0; k < 2; k++) {
			if (rings[k]->usable)
				call(rings[k]);
			if (rings[k]->usable && rings[k]->packed)
				rings[k]->last_avail = rings[k]->last_used = rings[k]->next.at | rings[k]->next.wrap << 15;
			if (rings[k]->usable)
				rte_vhost_set_vring_base(port->vid, rings[k]->index, rings[k]->last_avail,
							 rings[k]->last_used);
			rings[k]->usable = 0;
			rings[k]->owes_call = 0;
		}
		if (queue->kick >= 0)
			epoll_ctl(queue->file, EPOLL_CTL_DEL, queue->kick, NULL);
		queue->kick = -1;
		unlock(queue);
	}
}

static void load(struct shim_vhost *port, struct ring *ring, uint16_t index)
{
	ring->index = index;
	if (!port->enabled[index] || rte_vhost_get_vhost_vring(port->vid, index, &ring->v) != 0)
		return;
	if (ring->v.desc == NULL || ring->v.avail == NULL || ring->v.used == NULL || ring->v.size == 0)
		return;
	if (rte_vhost_get_vring_base(port->vid, index, &ring->last_avail, &ring->last_used) != 0)
		return;
	ring->packed = port->packed;
	if (ring->packed) {
		if (ring->entries == NULL)
			ring->entries = calloc(ENTRIES_MAX, sizeof(*ring->entries));
		/* All that is taken is given back at once, so that both indices are one. */
		ring->next = ring->unseen = (struct spot){ ring->last_avail & 0x7fff, ring->last_avail >> 15 };
		ring->first = ring->known = ring->open = 0;
		if (ring->entries == NULL || ring->last_avail != ring->last_used || ring->next.at >= ring->v.size)
			return;
	} else if (!rte_is_power_of_2(ring->v.size)) {
		return;
	}
	/* The worker polls: the guest need not kick. */
	want_kicks(ring, 0);
	ring->usable = 1;
}

/* Lets workers at the rings that are ready. They are at rest. */
static void resume(struct shim_vhost *port)
{
	uint64_t features;
	free(port->memory);
	port->memory = NULL;
	if (!port->live || rte_vhost_get_negotiated_features(port->vid, &features) != 0 ||
	    rte_vhost_get_mem_table(port->vid, &port->memory) != 0)
		return;
	port->mergeable = (features >> VIRTIO_NET_F_MRG_RXBUF) & 1;
	port->packed = (features >> VIRTIO_F_RING_PACKED) & 1;
	port->takes = 0;
	if ((features >> VIRTIO_NET_F_GUEST_CSUM) & 1) {
		if ((features >> VIRTIO_NET_F_GUEST_TSO4) & 1)
			port->takes |= 1 << VIRTIO_NET_HDR_GSO_TCPV4;
		if ((features >> VIRTIO_NET_F_GUEST_TSO6) & 1)
			port->takes |= 1 << VIRTIO_NET_HDR_GSO_TCPV6;
	}
	port->log = (features >> VHOST_F_LOG_ALL) & 1;
	port->header_bytes = port->mergeable || ((features >> VIRTIO_F_VERSION_1) & 1) ?
				     sizeof(struct virtio_net_hdr_mrg_rxbuf) :
				     sizeof(struct virtio_net_hdr);
	for (uint16_t i = 0; i < port->queues; i++) {
		struct queue *queue = &port->queue[i];
		lock(queue);
		load(port, &queue->to_guest, 2 * i);
		load(port, &queue->from_guest, 2 * i + 1);
		if (queue->from_guest.usable && queue->from_guest.v.kickfd >= 0 &&
		    watch(queue, queue->from_guest.v.kickfd) == 0)
			queue->kick = queue->from_guest.v.kickfd;
		/* Who sleeps must ask this ring's guest to kick. */
		if (queue->armed)
			eventfd_write(queue->changed, 1);
		unlock(queue);
	}
}

static enum rte_vhost_msg_result before_message(int vid, void *message)
{
	(void)message;
	pthread_mutex_lock(&ports_lock);
	struct shim_vhost *port = find(vid);
	if (port != NULL && port->vid == vid)
		rest(port);
	pthread_mutex_unlock(&ports_lock);
	return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
}

static enum rte_vhost_msg_result after_message(int vid, void *message)
{
	(void)message;
	pthread_mutex_lock(&ports_lock);
	struct shim_vhost *port = find(vid);
	if (port != NULL && port->vid == vid) {
		rest(port);
		resume(port);
	}
	pthread_mutex_unlock(&ports_lock);
	return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
}

static int new_connection(int vid)
{
	static const struct rte_vhost_user_extern_ops around = { before_message, after_message };
	int result = -1;
	pthread_mutex_lock(&ports_lock);
	struct shim_vhost *port = find(vid);
	/* One guest at a time. */
	if (port != NULL && port->vid < 0 && rte_vhost_extern_callback_register(vid, &around, NULL) == 0) {
		port->vid = vid;
		memset(port->enabled, 0, sizeof(port->enabled));
		result = 0;
	}
	pthread_mutex_unlock(&ports_lock);
	return result;
}

static void set_live(int vid, int live, int connected)
{
	pthread_mutex_lock(&ports_lock);
	struct shim_vhost *port = find(vid);
	if (port != NULL && port->vid == vid) {
		rest(port);
		port->live = live;
		resume(port);
		if (!connected)
			port->vid = -1;
	}
	pthread_mutex_unlock(&ports_lock);
}

static int new_device(int vid)
{
	set_live(vid, 1, 1);
	return 0;
}

static void destroy_device(int vid)
{
	set_live(vid, 0, 1);
}

static void destroy_connection(int vid)
{
	set_live(vid, 0, 0);
}

static int vring_state_changed(int vid, uint16_t index, int enable)
{
	pthread_mutex_lock(&ports_lock);
	struct shim_vhost *port = find(vid);
	if (port != NULL && port->vid == vid && index < 2 * port->queues) {
		rest(port);
		port->enabled[index] = enable != 0;
		resume(port);
	}
	pthread_mutex_unlock(&ports_lock);
	return 0;
}

static int features_changed(int vid, uint64_t features)
{
	(void)features;
	set_live(vid, 1, 1);
	return 0;
}

static const struct rte_vhost_device_ops operations = {
	.new_device = new_device,
	.destroy_device = destroy_device,
	.vring_state_changed = vring_state_changed,
	.features_changed = features_changed,
	.new_connection = new_connection,
	.destroy_connection = destroy_connection,
};

static const uint64_t not_offered =
	1ULL << VIRTIO_RING_F_INDIRECT_DESC | 1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_NET_F_HOST_UFO |
	1ULL << VIRTIO_NET_F_HOST_ECN | 1ULL << VIRTIO_NET_F_GUEST_UFO | 1ULL << VIRTIO_NET_F_GUEST_ECN |
	1ULL << VIRTIO_NET_F_GUEST_ANNOUNCE;

/* What queues have besides their memory. */
static void close_queues(struct shim_vhost *port)
{
	for (uint16_t i = 0; i < port->queues; i++) {
		if (port->queue[i].file >= 0)
			close(port->queue[i].file);
		if (port->queue[i].changed >= 0)
			close(port->queue[i].changed);
		free(port->queue[i].from_guest.entries);
		free(port->queue[i].to_guest.entries);
	}
}

static int open_files(struct shim_vhost *port)
{
	int result = 0;
	for (uint16_t i = 0; i < port->queues; i++) {
		struct queue *queue = &port->queue[i];
		queue->kick = -1;
		queue->file = epoll_create1(EPOLL_CLOEXEC);
		queue->changed = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (queue->file < 0 || queue->changed < 0 || watch(queue, queue->changed) != 0)
			result = -errno;
	}
	return result;
}

struct shim_vhost *shim_vhost_open(const char *path, int client, uint16_t queues, void *pool, int *error)
{
	struct shim_vhost *port;
	*error = -EINVAL;
	if (strlen(path) >= PATH_MAX_BYTES || queues == 0 || queues > QUEUES_MAX)
		return NULL;
	if (posix_memalign((void **)&port, RTE_CACHE_LINE_SIZE, sizeof(*port)) != 0) {
		*error = -ENOMEM;
		return NULL;
	}
	memset(port, 0, sizeof(*port));
	strcpy(port->path, path);
	port->pool = pool;
	port->buffer_at = sizeof(struct rte_mbuf) + rte_pktmbuf_priv_size(pool);
	port->capacity = rte_pktmbuf_data_room_size(pool);
	port->queues = queues;
	port->vid = -1;
	*error = open_files(port);
	if (*error != 0) {
		close_queues(port);
		free(port);
		return NULL;
	}
	if (rte_vhost_driver_register(path, client ? RTE_VHOST_USER_CLIENT : 0) != 0) {
		*error = -EADDRINUSE;
		close_queues(port);
		free(port);
		return NULL;
	}
	pthread_mutex_lock(&ports_lock);
	port->next = ports;
	ports = port;
	pthread_mutex_unlock(&ports_lock);
	if (rte_vhost_driver_disable_features(path, not_offered) != 0 ||
	    rte_vhost_driver_callback_register(path, &operations) != 0 || rte_vhost_driver_start(path) != 0) {
		*error = -EIO;
		shim_vhost_close(port);
		return NULL;
	}
	*error = 0;
	return port;
}

void shim_vhost_close(struct shim_vhost *port)
{
	/* Ends the connection, with the callbacks that belong to that. */
	rte_vhost_driver_unregister(port->path);
	pthread_mutex_lock(&ports_lock);
	for (struct shim_vhost **at = &ports; *at != NULL; at = &(*at)->next) {
		if (*at == port) {
			*at = port->next;
			break;
		}
	}
	pthread_mutex_unlock(&ports_lock);
	close_queues(port);
	free(port->memory);
	free(port);
}

int shim_vhost_up(const struct shim_vhost *port)
{
	return __atomic_load_n(&port->live, __ATOMIC_ACQUIRE);
}

/* ---- Sleeping ---- */

static inline uint16_t given(struct ring *ring);

int shim_vhost_file(const struct shim_vhost *port, uint16_t index)
{
	return port->queue[index].file;
}

int shim_vhost_arm(struct shim_vhost *port, uint16_t index)
{
	struct queue *queue = &port->queue[index];
	struct ring *ring = &queue->from_guest;
	int result = 1;
	if (!try_lock(queue))
		return -EBUSY;
	queue->armed = 1;
	if (queue->to_guest.usable)
		call(&queue->to_guest);
	if (ring->usable) {
		call(ring);
		/* Without a file to kick it has to be looked at. */
		if (queue->kick < 0)
			result = -EBUSY;
		want_kicks(ring, 1);
		/* The guest gives entries and then looks at our wish; we have written the wish and look for entries. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (given(ring) != 0)
			result = 0;
	}
	unlock(queue);
	return result;
}

void shim_vhost_disarm(struct shim_vhost *port, uint16_t index)
{
	struct queue *queue = &port->queue[index];
	struct epoll_event events[2];
	lock(queue);
	queue->armed = 0;
	if (queue->from_guest.usable)
		want_kicks(&queue->from_guest, 0);
	unlock(queue);
	/* Until something else happens the file is not readable any more. */
	epoll_wait(queue->file, events, 2, 0);
}

/* ---- Packets ---- */

/* Our address of the guest's `length` bytes at `address`; NULL when they are not all in one piece of its memory. */
static inline void *reach(const struct rte_vhost_memory *memory, uint64_t address, uint32_t length)
{
	for (uint32_t i = 0; i < memory->nregions; i++) {
		const struct rte_vhost_mem_region *region = &memory->regions[i];
		uint64_t offset = address - region->guest_phys_addr;
		if (likely(offset < region->size && length <= region->size - offset))
			return (void *)(uintptr_t)(region->host_user_addr + offset);
	}
	return NULL;
}

static inline void advance(const struct ring *ring, struct spot *spot)
{
	if (++spot->at == ring->v.size) {
		spot->at = 0;
		spot->wrap ^= 1;
	}
}

/* Looks at what the guest has added to a packed ring. Returns how many entries are known. */
static uint16_t look(struct ring *ring)
{
	volatile struct vring_packed_desc *descs = ring->v.desc_packed;
	while (ring->known < ENTRIES_MAX && ring->open < ring->v.size) {
		uint16_t flags = __atomic_load_n(&descs[ring->unseen.at].flags, __ATOMIC_ACQUIRE);
		int available = flags >> VRING_PACKED_DESC_F_AVAIL & 1, used = flags >> VRING_PACKED_DESC_F_USED & 1;
		if (available == used || available != ring->unseen.wrap)
			break;
		struct entry *entry = &ring->entries[(ring->first + ring->known) % ENTRIES_MAX];
		*entry = (struct entry){ .head = ring->unseen.at };
		int more;
		do {
			more = descs[ring->unseen.at].flags & VRING_DESC_F_NEXT;
			entry->id = descs[ring->unseen.at].id;
			entry->pieces++;
			ring->open++;
			advance(ring, &ring->unseen);
		} while (more && ring->open < ring->v.size);
		ring->known++;
	}
	return ring->known;
}

/* A copy of a descriptor, with the number of the one behind it. Addresses and lengths are at the same places in both kinds. */
static inline struct vring_desc piece(const struct ring *ring, uint16_t at)
{
	if (unlikely(ring->packed)) {
		struct vring_packed_desc desc = *(volatile struct vring_packed_desc *)&ring->v.desc_packed[at];
		uint16_t next = at + 1 == ring->v.size ? 0 : at + 1;
		return (struct vring_desc){ desc.addr, desc.len, desc.flags, next };
	}
	return *(volatile struct vring_desc *)&ring->v.desc[at];
}

/* How many entries the guest has given; none if it counts wrongly. */
static inline uint16_t given(struct ring *ring)
{
	if (unlikely(ring->packed))
		return look(ring);
	uint16_t count = __atomic_load_n(&ring->v.avail->idx, __ATOMIC_ACQUIRE) - ring->last_avail;
	return likely(count <= ring->v.size) ? count : 0;
}

static inline uint16_t head_at(const struct ring *ring, uint16_t i)
{
	if (unlikely(ring->packed))
		return ring->entries[(ring->first + i) % ENTRIES_MAX].head;
	return __atomic_load_n(&ring->v.avail->ring[(uint16_t)(ring->last_avail + i) & (ring->v.size - 1)],
			       __ATOMIC_RELAXED);
}

static inline void give_back(struct ring *ring, uint16_t i, uint32_t head, uint32_t length)
{
	if (unlikely(ring->packed)) {
		ring->entries[(ring->first + i) % ENTRIES_MAX].length = length;
		return;
	}
	struct vring_used_elem *used = &ring->v.used->ring[(uint16_t)(ring->last_used + i) & (ring->v.size - 1)];
	used->id = head;
	used->len = length;
}

/* The same for a packed ring, where each entry is shown by its own marks. Those of the first are set last: the guest looks at entries
 * in their order, and must see all buffers of a packet at once (virtio 1.1, 5.1.6.4.2). */
static void publish_packed(const struct shim_vhost *port, struct ring *ring, uint16_t count)
{
	struct vring_packed_desc *first = &ring->v.desc_packed[ring->next.at];
	uint16_t marks_of_first = 0;
	for (uint16_t i = 0; i < count; i++) {
		const struct entry *entry = &ring->entries[(ring->first + i) % ENTRIES_MAX];
		struct vring_packed_desc *used = &ring->v.desc_packed[ring->next.at];
		uint16_t marks = ring->next.wrap ? 1 << VRING_PACKED_DESC_F_AVAIL | 1 << VRING_PACKED_DESC_F_USED : 0;
		if (entry->length != 0)
			marks |= VRING_DESC_F_WRITE;
		used->id = entry->id;
		used->len = entry->length;
		if (i == 0)
			marks_of_first = marks;
		else
			__atomic_store_n(&used->flags, marks, __ATOMIC_RELAXED);
		for (uint16_t k = 0; k < entry->pieces; k++)
			advance(ring, &ring->next);
		ring->open -= entry->pieces;
	}
	__atomic_store_n(&first->flags, marks_of_first, __ATOMIC_RELEASE);
	ring->first = (ring->first + count) % ENTRIES_MAX;
	ring->known -= count;
	if (unlikely(port->log))
		rte_vhost_log_used_vring(port->vid, ring->index, 0, ring->v.size * sizeof(struct vring_packed_desc));
	ring->owes_call = 1;
}

/* Shows the guest `count` entries given back. Whether it wants to be woken is asked at the next poll. */
static inline void publish(const struct shim_vhost *port, struct ring *ring, uint16_t count)
{
	if (unlikely(ring->packed)) {
		publish_packed(port, ring, count);
		return;
	}
	ring->last_avail += count;
	ring->last_used += count;
	__atomic_store_n(&ring->v.used->idx, ring->last_used, __ATOMIC_RELEASE);
	if (unlikely(port->log))
		rte_vhost_log_used_vring(port->vid, ring->index, 0,
					 sizeof(struct vring_used) + ring->v.size * sizeof(struct vring_used_elem));
	ring->owes_call = 1;
}

/* What came of a chain of descriptors. */
enum chain { CHAIN_BAD, CHAIN_READ, CHAIN_LONG };

/* Copies a packet from a chain to where `room` bytes are; CHAIN_LONG when it does not fit. */
static enum chain read_chain(const struct shim_vhost *port, const struct ring *ring, uint16_t head, uint8_t *to,
			     uint32_t room, struct shim_packet *packet)
{
	struct virtio_net_hdr_mrg_rxbuf header;
	uint32_t missing = port->header_bytes, length = 0;

	for (uint32_t left = ring->v.size; left > 0; left--) {
		if (unlikely(head >= ring->v.size))
			return CHAIN_BAD;
		struct vring_desc desc = piece(ring, head);
		if (unlikely(desc.flags & (VRING_DESC_F_WRITE | VRING_DESC_F_INDIRECT)))
			return CHAIN_BAD;
		const uint8_t *from = reach(port->memory, desc.addr, desc.len);
		if (unlikely(from == NULL))
			return CHAIN_BAD;
		uint32_t of_header = RTE_MIN(missing, desc.len);
		if (likely(of_header == port->header_bytes)) {
			/* What is behind these means nothing in this direction. */
			memcpy(&header.hdr, from, sizeof(header.hdr));
			missing = 0;
		} else if (of_header != 0) {
			memcpy((uint8_t *)&header + (port->header_bytes - missing), from, of_header);
			missing -= of_header;
		}
		uint32_t of_data = desc.len - of_header;
		if (unlikely(of_data > room - length))
			return CHAIN_LONG;
		rte_memcpy(to + length, from + of_header, of_data);
		length += of_data;
		if (desc.flags & VRING_DESC_F_NEXT) {
			head = desc.next;
			continue;
		}
		if (unlikely(missing != 0 || length == 0))
			return CHAIN_BAD;
		packet->len = length;
		packet->segment = 0;
		if (likely((header.hdr.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) == 0 &&
			   header.hdr.gso_type == VIRTIO_NET_HDR_GSO_NONE))
			return CHAIN_READ;
		return offload_received(to, length, &header.hdr, &packet->segment) ? CHAIN_READ : CHAIN_BAD;
	}
	return CHAIN_BAD;
}

uint16_t shim_vhost_rx(struct shim_vhost *port, uint16_t index, const void *vtable, struct shim_packet *out, uint16_t max,
		       struct shim_burst *burst)
{
	struct queue *queue = &port->queue[index];
	struct ring *ring = &queue->from_guest;
	struct rte_mbuf *mbufs[BURST_MAX];
	uint16_t heads[BURST_MAX];
	uint16_t done = 0;

	if (!try_lock(queue))
		return 0;
	call(ring);
	call(&queue->to_guest);
	uint16_t count = ring->usable ? RTE_MIN(RTE_MIN(given(ring), max), (uint16_t)BURST_MAX) : 0;
	/* Straight from the pool: what a buffer's own header says is true for all that are there, and needs not be read. */
	if (count == 0 || rte_mempool_get_bulk(port->pool, (void **)mbufs, count) != 0) {
		unlock(queue);
		return 0;
	}
	/* The guest's processor has written descriptors and data: ask for all of them before the first is needed. */
	for (uint16_t i = 0; i < count; i++) {
		heads[i] = head_at(ring, i);
		give_back(ring, i, heads[i], 0);
		if (likely(heads[i] < ring->v.size))
			rte_prefetch0(&ring->v.desc[heads[i]]);
	}
	for (uint16_t i = 0; i < count; i++) {
		if (unlikely(heads[i] >= ring->v.size))
			continue;
		const void *data = reach(port->memory, ring->v.desc[heads[i]].addr, 1);
		if (likely(data != NULL)) {
			/* The header often ends a cache line. */
			rte_prefetch0(data);
			rte_prefetch0((const uint8_t *)data + port->header_bytes);
		}
	}
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = mbufs[i];
		uint8_t *base = (uint8_t *)m + port->buffer_at, *to = base + RTE_PKTMBUF_HEADROOM;
		struct shim_packet *packet = &out[done];
		enum chain chain =
			read_chain(port, ring, heads[i], to, port->capacity - RTE_PKTMBUF_HEADROOM, packet);
		packet->base = base;
		packet->handle = m;
		packet->vtable = vtable;
		packet->capacity = port->capacity;
		packet->offset = RTE_PKTMBUF_HEADROOM;
		if (likely(chain == CHAIN_READ)) {
			burst->bytes += packet->len;
			done++;
			continue;
		}
		rte_mbuf_raw_free(m);
		m = chain == CHAIN_LONG ? offload_large_buffer() : NULL;
		if (m != NULL && read_chain(port, ring, heads[i], rte_pktmbuf_mtod(m, uint8_t *), LARGE_DATA_BYTES,
					    packet) == CHAIN_READ) {
			packet->base = m->buf_addr;
			packet->handle = m;
			packet->capacity = m->buf_len;
			burst->bytes += packet->len;
			done++;
			continue;
		}
		rte_pktmbuf_free(m);
		burst->dropped++;
	}
	publish(port, ring, count);
	unlock(queue);
	return done;
}

/* Copies a packet into chains of descriptors from entry `at` on. Returns how many entries it took: 0 if there are too few
 * left. `*lost` is set when the guest's buffers cannot hold the packet. */
static uint16_t write_chains(const struct shim_vhost *port, struct ring *ring, uint16_t at, uint16_t ready,
			     const uint8_t *data, uint32_t length, const struct virtio_net_hdr *offload, int *lost)
{
	uint8_t *header_at = NULL;
	uint32_t missing = port->header_bytes, done = 0;
	uint16_t taken = 0;

	while (missing != 0 || done < length) {
		if (at + taken >= ready)
			return 0;
		uint16_t first = head_at(ring, at + taken), head = first;
		uint32_t written = 0;
		for (uint32_t left = ring->v.size; left > 0 && (missing != 0 || done < length); left--) {
			if (unlikely(head >= ring->v.size))
				break;
			struct vring_desc desc = piece(ring, head);
			uint8_t *to = reach(port->memory, desc.addr, desc.len);
			if (unlikely(to == NULL || !(desc.flags & VRING_DESC_F_WRITE) || (desc.flags & VRING_DESC_F_INDIRECT)))
				break;
			uint32_t of_header = 0;
			if (missing != 0) {
				/* The header is in one piece: everybody's is. */
				if (unlikely(desc.len < missing))
					break;
				header_at = to;
				of_header = missing;
				missing = 0;
			}
			uint32_t n = RTE_MIN(desc.len - of_header, length - done);
			rte_memcpy(to + of_header, data + done, n);
			if (unlikely(port->log))
				rte_vhost_log_write(port->vid, desc.addr, of_header + n);
			done += n;
			written += of_header + n;
			if (!(desc.flags & VRING_DESC_F_NEXT))
				break;
			head = desc.next;
		}
		give_back(ring, at + taken, first, written);
		taken++;
		if ((missing != 0 || done < length) && (written == 0 || !port->mergeable)) {
			/* A chain that is none, or a buffer that is too small: the guest gets it back empty. */
			for (uint16_t i = 0; i < taken; i++)
				give_back(ring, at + i, head_at(ring, at + i), 0);
			*lost = 1;
			return taken;
		}
	}
	/* Stores of constants: a copy from a structure on the stack would wait until all earlier stores, those to the guest's
	 * memory among them, have left the processor. */
	static const struct virtio_net_hdr none;
	if (likely(offload == NULL))
		memcpy(header_at, &none, sizeof(none));
	else
		memcpy(header_at, offload, sizeof(*offload));
	if (port->header_bytes > sizeof(none))
		memcpy(header_at + sizeof(none), &taken, sizeof(taken));
	return taken;
}

/* Gives the buffers of sent packets back. They are whole and nobody else's, so small ones go to the pool as they are, without
 * a look at their headers, which are in no near cache. */
static void free_packets(struct rte_mempool *pool, const struct shim_packet *packets, uint16_t count)
{
	void *small[BURST_MAX];
	unsigned int n = 0;
	uint16_t capacity = rte_pktmbuf_data_room_size(pool);
	for (uint16_t i = 0; i < count; i++) {
		if (likely(packets[i].capacity == capacity))
			small[n++] = packets[i].handle;
		else
			rte_pktmbuf_free(packets[i].handle);
	}
	rte_mempool_put_bulk(pool, small, n);
}

uint16_t shim_vhost_tx(struct shim_vhost *port, uint16_t index, const void *vtable, const struct shim_packet *packets,
		       uint16_t count, struct shim_burst *burst)
{
	struct queue *queue = &port->queue[index];
	struct ring *ring = &queue->to_guest;
	uint16_t done = 0, taken = 0;
	uint32_t frame_max = __atomic_load_n(&port->base.frame_max, __ATOMIC_RELAXED);

	/* A guest with fewer queues than there are workers: all of the others send through its first. */
	int is_theirs = index != 0 && !__atomic_load_n(&ring->usable, __ATOMIC_RELAXED);
	if (unlikely(is_theirs)) {
		queue = &port->queue[0];
		ring = &queue->to_guest;
		lock(queue);
	} else if (!try_lock(queue)) {
		return 0;
	}
	uint16_t ready = ring->usable ? given(ring) : 0;
	count = RTE_MIN(RTE_MIN(count, ready), (uint16_t)BURST_MAX);
	for (uint16_t i = 0; i < count; i++) {
		uint16_t head = head_at(ring, i);
		if (likely(head < ring->v.size))
			rte_prefetch0(&ring->v.desc[head]);
	}
	for (uint16_t i = 0; i < count; i++) {
		uint16_t head = head_at(ring, i);
		void *to = head < ring->v.size ? reach(port->memory, ring->v.desc[head].addr, 1) : NULL;
		if (likely(to != NULL)) {
			rte_prefetch0_write(to);
			rte_prefetch0_write((uint8_t *)to + port->header_bytes);
		}
	}
	for (; done < count; done++) {
		const struct shim_packet *packet = &packets[done];
		uint8_t *data = packet->base + packet->offset;
		struct virtio_net_hdr large, *offload = NULL;
		if (unlikely(packet->segment != 0)) {
			offload = &large;
			if (packet->vtable != vtable || packet->len == 0 || port->takes == 0 ||
			    !offload_for_peer(data, packet->len, packet->segment, &large) ||
			    !(port->takes >> large.gso_type & 1) ||
			    large.hdr_len + (uint32_t)large.gso_size > frame_max) {
				burst->stopped = 1;
				break;
			}
		} else if (unlikely(packet->vtable != vtable || packet->len - 1u >= frame_max)) {
			burst->stopped = 1;
			break;
		}
		int lost = 0;
		uint16_t n = write_chains(port, ring, taken, ready, data, packet->len, offload, &lost);
		if (n == 0)
			break;
		taken += n;
		if (unlikely(lost))
			burst->dropped++;
		else
			burst->bytes += packet->len;
	}
	if (taken != 0)
		publish(port, ring, taken);
	/* The worker that polls this queue may be asleep. */
	if (unlikely(is_theirs)) {
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		call(ring);
	}
	unlock(queue);
	if (done != 0)
		free_packets(port->pool, packets, done);
	return done;
}
