// The sending node: frames by port, in the order in which they came.
#include <rte_ethdev.h>
#include <rte_spinlock.h>

#include "core/drop.h"
#include "core/worker.h"
#include "port/mac.h"
#include "port/port.h"

DROP(drop_tx_full, "tx-queue-full", "The port's device had no room to send.")
DROP(drop_tx_gone, "tx-port-gone", "The port to send by was removed.")
DROP(drop_tx_down, "tx-link-down", "The port to send by has no link.")

// Only where a device has fewer transmit queues than there are workers do two of them meet at one.
static rte_spinlock_t shared[PORT_MAX];

static uint16_t
transmit(struct port *port, struct rte_mbuf **packets, uint16_t count)
{
	uint16_t queue = (uint16_t)(worker_self()->index % port->tx_queues), sent;

	if (likely(port->tx_queues >= worker_count))
		return rte_eth_tx_burst(port->id, queue, packets, count);
	rte_spinlock_lock(&shared[port->id]);
	sent = rte_eth_tx_burst(port->id, queue, packets, count);
	rte_spinlock_unlock(&shared[port->id]);
	return sent;
}

static uint16_t
tx_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct rte_mbuf **m = (struct rte_mbuf **)packets;

	for (uint16_t start = 0, end; start < count; start = end) {
		struct port *port = &ports[m[start]->port % PORT_MAX];
		const struct drop *reason = &drop_tx_full;
		uint16_t sent = 0;

		for (end = (uint16_t)(start + 1); end < count && m[end]->port == m[start]->port; end++)
			;
		if (unlikely(!__atomic_load_n(&port->sends, __ATOMIC_ACQUIRE)))
			reason = &drop_tx_gone;
		else if (unlikely(!port->up))
			reason = &drop_tx_down;
		else
			sent = transmit(port, m + start, (uint16_t)(end - start));
		// A device that takes a part of a burst may take the rest the next moment.
		for (unsigned again = 0; again < 3 && unlikely(sent < end - start) && reason == &drop_tx_full; again++)
			sent = (uint16_t)(sent + transmit(port, m + start + sent, (uint16_t)(end - start - sent)));
		for (uint16_t i = (uint16_t)(start + sent); unlikely(i < end); i++)
			rte_node_enqueue_x1(graph, node, packet_drop(packet_of(m[i]), reason), m[i]);
	}
	return count;
}

static void
tx_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	char to[MAC_TEXT_SIZE], from[MAC_TEXT_SIZE];

	if (length < 14) {
		snprintf(text, size, "a frame of %zu bytes", length);
		return;
	}
	mac_text(to, data);
	mac_text(from, data + 6);
	snprintf(text, size, "%s > %s type 0x%02x%02x", from, to, data[12], data[13]);
}

struct node tx_node = {.name = "tx", .process = tx_process, .describe = tx_describe};
NODE_REGISTER(tx_node)
