// Sends UDP frames of several classes, each a Poisson process, into one interface and measures what comes out of another one.
//
//     qos OUT IN SKIP SECONDS CLASS:BYTES:PACKETS_PER_SECOND ...
//
// One thread in turn sends what is due and takes what has come, so that the two do not wait for one another. A class is a UDP
// destination port, 5000 + CLASS. Frames hold the time of sending; the time of arrival is the kernel's, both of CLOCK_REALTIME.
// The first SKIP seconds are not measured. Prints an object for each class: what was sent, what came, from when to when it
// came in nanoseconds, and percentiles of the
// nanoseconds that packets were under way.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <math.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

enum { CLASSES_MAX = 16, BATCH = 64, FRAME_MAX = 2048, PORT = 5000, TIME_AT = 42, SAMPLES_MAX = 1 << 22 };

// A class and what became of it.
struct flow {
    unsigned class, bytes;
    double gap_ns, next;
    unsigned char frame[FRAME_MAX];
    uint64_t sent, refused, came, came_bytes, first, last;
    uint32_t *waited_ns;
};

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

// A packet socket of an interface.
static int opened(const char *name) {
    int on = 1, room = 64 << 20, fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name)};
    if (fd < 0 || !at.sll_ifindex || bind(fd, (struct sockaddr *)&at, sizeof at)) die(name);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
    return fd;
}

static uint16_t checksum(const unsigned char *at, int bytes) {
    uint32_t sum = 0;
    for (int i = 0; i < bytes; i += 2) sum += at[i] << 8 | at[i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

// 02:00:00:00:00:02 to 02:00:00:00:00:01, 10.1.0.2 to 10.2.0.2.
static void build(struct flow *f) {
    static const unsigned char head[] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0,
                                         64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2, 0x10, 0, 0, 0, 0, 0, 0, 0};
    unsigned ip = f->bytes - 14, udp = ip - 20, port = PORT + f->class;
    unsigned char *p = f->frame;
    memcpy(p, head, sizeof head);
    p[16] = ip >> 8, p[17] = ip, p[36] = port >> 8, p[37] = port, p[38] = udp >> 8, p[39] = udp;
    uint16_t sum = checksum(p + 14, 20);
    p[24] = sum >> 8, p[25] = sum;
}

// The time until the next frame: exponentially distributed, so that classes of one rate do not go in step.
static double gap(double mean) {
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return -mean * log(((state >> 11) + 1) * 0x1p-53);
}

static void send_due(struct flow *f, int fd, uint64_t time, int is_measured) {
    // Who was not scheduled for long does not make up for it in one burst.
    if (time > f->next + 5e6) f->next = time - 5e6;
    for (int i = 0; i < BATCH && f->next <= time; i++, f->next += gap(f->gap_ns)) {
        uint64_t stamp = now();
        memcpy(f->frame + TIME_AT, &stamp, sizeof stamp);
        int done = send(fd, f->frame, f->bytes, MSG_DONTWAIT) == (ssize_t)f->bytes;
        if (is_measured && done) f->sent++;
        if (is_measured && !done) f->refused++;
    }
}

static void take(struct flow *flows, int count, const unsigned char *frame, unsigned bytes, uint64_t at, uint64_t begin, uint64_t end) {
    if (bytes < TIME_AT + 8 || frame[12] != 8 || frame[13] != 0 || frame[23] != 17 || at < begin || at >= end) return;
    unsigned class = (frame[36] << 8 | frame[37]) - PORT;
    for (struct flow *f = flows; f < flows + count; f++) {
        if (f->class != class) continue;
        uint64_t stamp;
        memcpy(&stamp, frame + TIME_AT, sizeof stamp);
        uint64_t waited = at > stamp ? at - stamp : 0;
        if (f->came < SAMPLES_MAX) f->waited_ns[f->came] = waited < UINT32_MAX ? waited : UINT32_MAX;
        if (!f->came) f->first = at;
        f->last = at, f->came++, f->came_bytes += bytes;
    }
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 6 || argc - 5 > CLASSES_MAX) return fprintf(stderr, "qos OUT IN SKIP SECONDS CLASS:BYTES:PACKETS_PER_SECOND ...\n"), 1;
    int out = opened(argv[1]), in = opened(argv[2]), count = argc - 5;
    static struct flow flows[CLASSES_MAX];
    uint64_t start = now(), begin = start + (uint64_t)(atof(argv[3]) * 1e9), end = begin + (uint64_t)(atof(argv[4]) * 1e9);
    for (int i = 0; i < count; i++) {
        double rate;
        struct flow *f = &flows[i];
        if (sscanf(argv[5 + i], "%u:%u:%lf", &f->class, &f->bytes, &rate) != 3 || rate <= 0 || f->bytes < 60 || f->bytes > FRAME_MAX)
            return fprintf(stderr, "%s?\n", argv[5 + i]), 1;
        f->gap_ns = 1e9 / rate, f->next = start + i * 1000, f->waited_ns = malloc(SAMPLES_MAX * sizeof *f->waited_ns);
        build(f);
    }
    static unsigned char frames[BATCH][FRAME_MAX], control[BATCH][128];
    struct iovec pieces[BATCH];
    struct mmsghdr messages[BATCH];
    // What was sent before the end may come later.
    for (uint64_t time; (time = now()) < end + 100000000;) {
        for (int i = 0; i < count && time < end; i++) send_due(&flows[i], out, time, time >= begin);
        for (int i = 0; i < BATCH; i++) {
            pieces[i] = (struct iovec){frames[i], FRAME_MAX};
            messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = 128};
        }
        int got = recvmmsg(in, messages, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < got; i++) {
            struct timespec at = {0, 0};
            for (struct cmsghdr *c = CMSG_FIRSTHDR(&messages[i].msg_hdr); c; c = CMSG_NXTHDR(&messages[i].msg_hdr, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) memcpy(&at, CMSG_DATA(c), sizeof at);
            take(flows, count, frames[i], messages[i].msg_len, (uint64_t)at.tv_sec * 1000000000 + at.tv_nsec, begin, end);
        }
    }
    struct tpacket_stats lost = {0, 0};
    socklen_t size = sizeof lost;
    getsockopt(in, SOL_PACKET, PACKET_STATISTICS, &lost, &size);
    printf("{\"unread\": %u, \"classes\": [", lost.tp_drops);
    for (struct flow *f = flows; f < flows + count; f++) {
        uint64_t samples = f->came < SAMPLES_MAX ? f->came : SAMPLES_MAX;
        qsort(f->waited_ns, samples, sizeof *f->waited_ns, by_size);
        uint64_t last = samples ? samples - 1 : 0;
        uint32_t *w = f->waited_ns;
        printf("%s{\"class\": %u, \"sent\": %lu, \"refused\": %lu, \"came\": %lu, \"bytes\": %lu, \"ns\": %lu, ", f == flows ? "" : ", ",
               f->class, f->sent, f->refused, f->came, f->came_bytes, f->last - f->first);
        printf("\"p50\": %u, \"p99\": %u, \"p999\": %u, \"most\": %u}", samples ? w[last / 2] : 0, samples ? w[last * 99 / 100] : 0,
               samples ? w[last * 999 / 1000] : 0, samples ? w[last] : 0);
    }
    printf("]}\n");
    return 0;
}
