// SPDX-License-Identifier: Apache-2.0
// The API's interface counters.
#include <errno.h>
#include <stdlib.h>

#include "ether/interface.h"
#include "server/api.h"

static void
serve_interface_counters(struct api_call *call, const Sluice__V1__Request *request)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__InterfaceCountersList answer = SLUICE__V1__INTERFACE_COUNTERS_LIST__INIT;
	Sluice__V1__InterfaceCounters *all = calloc(interfaces.used + 1, sizeof(*all));
	Sluice__V1__InterfaceCounters **list = calloc(interfaces.used + 1, sizeof(*list));

	if (!all || !list) {
		free(all);
		free(list);
		api_fail(call, ENOMEM, "there is no memory for the answer");
		return;
	}
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
		list[answer.n_interfaces++] = c;
	}
	answer.interfaces = list;
	reply.interface_counters = &answer;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_INTERFACE_COUNTERS;
	api_reply(call, &reply, true);
	free(all);
	free(list);
}

API_OPERATION(interface_counters_operation, SLUICE__V1__REQUEST__OPERATION_INTERFACE_COUNTERS, serve_interface_counters)
