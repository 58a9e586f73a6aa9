// SPDX-License-Identifier: Apache-2.0
// The API's port counters.
#include <rte_ethdev.h>

#include "port.pb-c.h"
#include "port/mac.h"
#include "port/port.h"
#include "port/port_api.h"
#include "server/api.h"

// Of devices that a port had before.
static struct rte_eth_stats earlier[PORT_MAX];

static void
add(struct rte_eth_stats *to, const struct rte_eth_stats *more)
{
	to->ipackets += more->ipackets;
	to->ibytes += more->ibytes;
	to->opackets += more->opackets;
	to->obytes += more->obytes;
	to->imissed += more->imissed;
	to->ierrors += more->ierrors;
	to->rx_nombuf += more->rx_nombuf;
	to->oerrors += more->oerrors;
}

void
port_counters_keep(const struct port *port)
{
	struct rte_eth_stats stats;

	if (rte_eth_stats_get(port->device, &stats) == 0)
		add(&earlier[port->id], &stats);
}

void
port_counters_forget(const struct port *port)
{
	earlier[port->id] = (struct rte_eth_stats){0};
}

static void
serve_port_counters(struct api_call *call, const void *query)
{
	Sluice__V1__PortCountersList answer = SLUICE__V1__PORT_COUNTERS_LIST__INIT;
	Sluice__V1__PortCounters all[PORT_MAX], *list[PORT_MAX];
	char macs[PORT_MAX][MAC_TEXT_SIZE];

	for (unsigned i = 0; i < PORT_MAX; i++) {
		Sluice__V1__PortCounters *c = &all[answer.n_ports];
		struct rte_eth_stats stats = {0};

		if (!ports[i].object || (ports[i].device != NO_PORT && rte_eth_stats_get(ports[i].device, &stats)))
			continue;
		add(&stats, &earlier[i]);
		sluice__v1__port_counters__init(c);
		mac_text(macs[i], &ports[i].mac);
		c->port = ports[i].object->name;
		c->mac = macs[i];
		c->link_up = ports[i].up;
		c->link_why = ports[i].why;
		c->rx_packets = stats.ipackets;
		c->rx_bytes = stats.ibytes;
		c->tx_packets = stats.opackets;
		c->tx_bytes = stats.obytes;
		c->rx_missed = stats.imissed;
		c->rx_errors = stats.ierrors;
		c->rx_no_buffer = stats.rx_nombuf;
		c->tx_errors = stats.oerrors;
		list[answer.n_ports++] = c;
	}
	answer.ports = list;
	api_answer(call, &answer.base);
}

STATE_QUERY(port_counters_query, sluice__v1__port_counters_query__descriptor, serve_port_counters)
