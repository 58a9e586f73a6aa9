// SPDX-License-Identifier: Apache-2.0
// The API's interface counters.
#include "ether/interface.h"
#include "server/api.h"

static void
serve_interface_counters(struct api_call *call, const void *asked)
{
	Sluice__V1__InterfaceCountersList answer = SLUICE__V1__INTERFACE_COUNTERS_LIST__INIT;
	Sluice__V1__InterfaceCounters *all = api_rows(call, interfaces.used + 1, sizeof(*all), &answer.interfaces);

	if (!all)
		return;
	for (uint32_t i = 0; i < interfaces.used; i++) {
		Sluice__V1__InterfaceCounters *c = &all[answer.n_interfaces];
		struct interface_counters sum;

		if (!interface_detail(i)->object)
			continue;
		counters_sum(&interface_counters, i, &sum);
		sluice__v1__interface_counters__init(c);
		c->interface = interface_detail(i)->object->name;
		c->rx_packets = sum.rx_packets;
		c->rx_bytes = sum.rx_bytes;
		c->tx_packets = sum.tx_packets;
		c->tx_bytes = sum.tx_bytes;
		answer.n_interfaces++;
	}
	api_answer(call, &answer.base);
}

STATE_QUERY(interface_counters_query, sluice__v1__interface_counters_query__descriptor, serve_interface_counters)
