/* The sender of `compare.py`.
 *
 *     traffic INTERFACE SECONDS RATE <FRAME
 *
 * Sends the frame RATE times a second, or for 0 as fast as it can; prints how many the kernel took, and in how many nanoseconds.
 * It has a packet socket, which costs less than a UDP socket. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { BURST_MAX = 64, FRAME_BYTES_MAX = 2048, BEHIND_MAX = 256, PAUSE_NS = 20000 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void send_frames(const char *interface, double seconds, double rate)
{
    static char frame[FRAME_BYTES_MAX];
    size_t length = fread(frame, 1, sizeof frame, stdin);
    int output = socket(AF_PACKET, SOCK_RAW, 0);
    if (output < 0)
        fail("socket");
    int one = 1, room = 16 << 20;
    if (setsockopt(output, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) < 0)
        fail("PACKET_QDISC_BYPASS");
    setsockopt(output, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(interface)};
    if (bind(output, (struct sockaddr *)&address, sizeof address) < 0)
        fail(interface);
    prctl(PR_SET_TIMERSLACK, 1);

    struct iovec part = {.iov_base = frame, .iov_len = length};
    struct mmsghdr messages[BURST_MAX];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < BURST_MAX; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};

    long long begin = now_ns(), end = begin + (long long)(seconds * 1e9), now;
    /* `skipped` is what would have been sent while somebody else had the processor: no burst makes up for it. */
    long long sent = 0, skipped = 0;
    while ((now = now_ns()) < end) {
        int burst = BURST_MAX;
        if (rate > 0) {
            long long due = (long long)((double)(now - begin) * rate / 1e9) - sent - skipped;
            if (due > BEHIND_MAX) {
                skipped += due - BEHIND_MAX;
                due = BEHIND_MAX;
            }
            if (due <= 0) {
                struct timespec pause = {.tv_nsec = PAUSE_NS};
                nanosleep(&pause, NULL);
                continue;
            }
            burst = due < BURST_MAX ? (int)due : BURST_MAX;
        }
        int taken = sendmmsg(output, messages, (unsigned)burst, 0);
        if (taken > 0)
            sent += taken;
        else if (errno != ENOBUFS && errno != EAGAIN)
            fail("sendmmsg");
    }
    printf("%lld %lld\n", sent, now - begin);
}

int main(int count, char **arguments)
{
    if (count != 4) {
        fprintf(stderr, "usage: traffic INTERFACE SECONDS RATE <FRAME\n");
        return 2;
    }
    send_frames(arguments[1], atof(arguments[2]), atof(arguments[3]));
    return 0;
}
