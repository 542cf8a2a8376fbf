/* For OVS on memif ports, before it starts (LD_PRELOAD): DPDK's memif driver has one transmit queue.
 *
 * OVS asks a driver how many it can have (memif: 255), takes as many as it has threads (two), and its forwarding thread
 * sends on the second. The peer, which has one receive queue, has connected the first; what goes to the other is lost
 * without a word. With one queue OVS shares it among its threads, with a lock, as it does on AF_PACKET ports. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <rte_ethdev.h>
#include <string.h>

int rte_eth_dev_info_get(uint16_t port, struct rte_eth_dev_info *info)
{
    int (*next)(uint16_t, struct rte_eth_dev_info *) =
        (int (*)(uint16_t, struct rte_eth_dev_info *))dlsym(RTLD_NEXT, "rte_eth_dev_info_get");
    int result = next(port, info);
    if (result == 0 && strcmp(info->driver_name, "net_memif") == 0)
        info->max_tx_queues = 1;
    return result;
}
