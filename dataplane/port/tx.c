// SPDX-License-Identifier: Apache-2.0
// The sending node: frames by port, in the order in which they came.
#include <rte_ethdev.h>

#include "core/drop.h"
#include "core/rcu.h"
#include "core/worker.h"
#include "port/handover.h"
#include "port/mac.h"
#include "port/port.h"

DROP(drop_tx_full, "tx-queue-full", "The port's device had no room to send.")
DROP(drop_tx_gone, "tx-port-gone", "The port to send by was removed.")
DROP(drop_tx_down, "tx-link-down", "The port to send by has no link.")

// NULL, or why nothing can be sent by the port now.
static inline const struct drop *
refusal(const struct port *port)
{
	if (unlikely(!__atomic_load_n(&port->sends, __ATOMIC_ACQUIRE)))
		return &drop_tx_gone;
	return unlikely(!port->up) ? &drop_tx_down : NULL;
}

static void
drop_rest(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf **packets, uint16_t count,
	const struct drop *reason)
{
	for (uint16_t i = 0; i < count; i++)
		rte_node_enqueue_x1(graph, node, packet_drop(packet_of(packets[i]), reason), packets[i]);
}

void
tx_send(struct rte_graph *graph, struct rte_node *node, struct port *port, struct rte_mbuf **packets, uint16_t count)
{
	const struct drop *reason = refusal(port);
	uint16_t queue = (uint16_t)worker_self()->index, sent = 0;

	// A device that takes a part of a burst may take the rest the next moment.
	for (unsigned attempt = 0; attempt < 4 && sent < count && likely(!reason); attempt++)
		sent = (uint16_t)(sent +
				  rte_eth_tx_burst(port->device, queue, packets + sent, (uint16_t)(count - sent)));
	if (unlikely(sent < count))
		drop_rest(graph, node, packets + sent, (uint16_t)(count - sent), reason ? reason : &drop_tx_full);
}

void
tx_port_gone(struct rte_mbuf *m)
{
	drop_now(m, &drop_tx_gone);
}

void
port_send_before(struct port *port, const struct node *before)
{
	__atomic_store_n(&port->before, before ? before->id : 0, __ATOMIC_RELEASE);
	if (before)
		node_edge(&tx_node, before);
	if (before && port_spreader && port_spreader->sends)
		node_edge(port_spreader->sends, before);
	rcu_wait();
}

static void
hand_over(struct rte_graph *graph, struct rte_node *node, struct port *port, struct rte_mbuf **packets, uint16_t count)
{
	const struct drop *reason = refusal(port);
	uint16_t given = reason ? 0 : handover_give(port, packets, count);

	drop_rest(graph, node, packets + given, (uint16_t)(count - given), reason ? reason : &drop_tx_full);
}

void
tx_send_all(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf **m, uint16_t count)
{
	unsigned self = worker_self()->index;

	for (uint16_t start = 0, end; start < count; start = end) {
		struct port *port = &ports[m[start]->port % PORT_MAX];

		for (end = (uint16_t)(start + 1); end < count && m[end]->port == m[start]->port; end++)
			;
		if (unlikely(__atomic_load_n(&port->before, __ATOMIC_ACQUIRE) != 0))
			rte_node_enqueue(graph, node, port->before, (void **)&m[start], (uint16_t)(end - start));
		else if (likely(self < port->tx_queues))
			tx_send(graph, node, port, m + start, (uint16_t)(end - start));
		else
			hand_over(graph, node, port, m + start, (uint16_t)(end - start));
	}
}

static uint16_t
tx_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct rte_mbuf **frames = (struct rte_mbuf **)packets;

	tx_send_all(graph, node, frames, likely(!worker_self()->ordering) ? count : port_spreader->keep(frames, count));
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

static void
tx_departed(char *text, size_t size, uint16_t port, unsigned worker)
{
	unsigned queues = port < PORT_MAX ? ports[port].tx_queues : 0;

	if (queues > 0 && worker >= queues)
		snprintf(text, size, "port %s, handed to worker %u to send", port_name(port),
			handover_owner(&ports[port], worker));
	else
		snprintf(text, size, "port %s", port_name(port));
}

struct node tx_node = {.name = "tx", .process = tx_process, .describe = tx_describe, .departed = tx_departed};
NODE_REGISTER(tx_node)
