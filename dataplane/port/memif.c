// SPDX-License-Identifier: Apache-2.0
// Corrections of DPDK's net_memif (drivers/net/memif, 22.11 to 24.11).
//
// When a peer leaves, DPDK's interrupt thread clears the flag "connected" and at once unmaps the rings and buffers, while a
// worker may be between its look at the flag and its last access to them: the process dies of SIGSEGV. There is no callback in
// between. So munmap(2), as the driver calls it, is the one of this file: on that thread it waits until every worker has
// been through its graph once or sleeps, and with the flag cleared none comes back to the memory.
//
// When a peer joins, a worker may have looked at the ring's address before it was known and at the flag after it was set. So
// the port is polled, and sent by, only from when the main thread saw its link come up.
//
// A client connects once, when it starts. When its server was away, it is started again.
#include "port/memif.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_log.h>

#include "core/rcu.h"

int
munmap(void *address, size_t length)
{
	if (rte_thread_is_intr())
		rcu_wait();
	return (int)syscall(SYS_munmap, address, length);
}

void
memif_recognise(struct port *port, const char *driver, const char *device)
{
	port->memif = strcmp(driver, "net_memif") == 0;
	port->memif_client = port->memif && !strstr(device, "role=server") && !strstr(device, "role=master");
}

// A missing peer is not worth a log line.
void
memif_connect(const struct port *port)
{
	int type = rte_log_register("pmd.net.memif"), level = rte_log_get_level(type);

	rte_log_set_level(type, RTE_LOG_CRIT);
	rte_eth_dev_stop(port->device);
	rte_eth_dev_start(port->device);
	rte_log_set_level(type, level < 0 ? RTE_LOG_NOTICE : (uint32_t)level);
}
