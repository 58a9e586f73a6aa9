// SPDX-License-Identifier: Apache-2.0
// QoS flows: packet filters up, and 5-tuples down, of up to as many as an instance can have; and rules that downlink packets make.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/scenarios/all.h"
#include "bench/scenarios/frames.h"
#include "bench/scenarios/ground.h"
#include "bench/scenarios/subscribers.h"
#include "core/worker.h"
#include "flow.pb-c.h"
#include "gtpu/reflect.h"
#include "gtpu/tunnel.h"
#include "server/object.h"

enum { MOST_SUBSCRIBERS = 64000, REFLECTED_QFI = 7 };

// A rule of 15 filters that do not match, and one that does behind them.
static int
uplink_profile(const char *name)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule none = SLUICE__V1__QOS_RULE__INIT, all = SLUICE__V1__QOS_RULE__INIT,
			    *rules[] = {&none, &all};
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *flows[] = {&flow};
	Sluice__V1__PacketFilter filters[15], *list[15];
	char remotes[15][24], ports[15][16];

	for (unsigned i = 0; i < RTE_DIM(filters); i++) {
		sluice__v1__packet_filter__init(&filters[i]);
		snprintf(remotes[i], sizeof(remotes[i]), "198.51.%u.0/24", i);
		snprintf(ports[i], sizeof(ports[i]), "%u-%u", 1000 * i, 1000 * i + 500);
		filters[i].direction = SLUICE__V1__FILTER_DIRECTION__UPLINK;
		filters[i].protocol = i % 2 ? "udp" : "tcp";
		filters[i].remote = remotes[i];
		filters[i].remote_ports = ports[i];
		list[i] = &filters[i];
	}
	none.precedence = 1;
	none.qfi = 5;
	none.filters = list;
	none.n_filters = RTE_DIM(filters);
	all.precedence = 255;
	all.qfi = flow.qfi = 7;
	flow.dscp = "ef";
	profile.rules = rules;
	profile.n_rules = 2;
	profile.flows = flows;
	profile.n_flows = 1;
	return bench_put("FlowProfile", name, &profile);
}

// The 5-tuples of every other flow from the nth on: `count` of them, and as many as that `times` over that no flow
// has.
static int
downlink_profile(const char *name, unsigned n, unsigned count, unsigned times)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rule = SLUICE__V1__QOS_RULE__INIT, *rules[] = {&rule};
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *flows[] = {&flow};
	Sluice__V1__PacketFilter *filters = calloc((size_t)count * times, sizeof(*filters)),
				 **list = calloc((size_t)count * times, sizeof(*list));
	char(*text)[3][24] = calloc((size_t)count * times, sizeof(*text));
	int error = -1;

	for (unsigned i = 0; filters && list && text && i < count * times; i++) {
		uint32_t number = n + 2 * (i % count), from = htonl(server_address(number)),
			 to = htonl(subscriber_address(number));

		sluice__v1__packet_filter__init(&filters[i]);
		inet_ntop(AF_INET, &from, text[i][0], 20);
		strcat(text[i][0], "/32");
		inet_ntop(AF_INET, &to, text[i][1], 20);
		strcat(text[i][1], "/32");
		snprintf(text[i][2], sizeof(text[i][2]), "%u", 5000 + i / count);
		filters[i].direction = SLUICE__V1__FILTER_DIRECTION__DOWNLINK;
		filters[i].protocol = "17";
		filters[i].remote = text[i][0];
		filters[i].local = text[i][1];
		filters[i].remote_ports = "443";
		filters[i].local_ports = text[i][2];
		list[i] = &filters[i];
	}
	rule.qfi = flow.qfi = 7;
	rule.filters = list;
	rule.n_filters = (size_t)count * times;
	flow.class_ = 3;
	flow.priority = 5;
	profile.rules = rules;
	profile.n_rules = 1;
	profile.flows = flows;
	profile.n_flows = 1;
	if (filters && list && text)
		error = bench_put("FlowProfile", name, &profile);
	free(filters);
	free(list);
	free(text);
	return error;
}

static int
flows_up(const struct scenario *s)
{
	if (make_ground() || uplink_profile("flows-0") || uplink_profile("flows-1"))
		return -1;
	return make_sessions(s->flows, GTPU | FLOWS);
}

// Flows of a subscriber: a 5-tuple for each.
static unsigned
flows_each(const struct scenario *s)
{
	return s->flows > MOST_SUBSCRIBERS ? s->flows / MOST_SUBSCRIBERS : 1;
}

static int
flows_down(const struct scenario *s)
{
	uint32_t subscribers = s->flows / flows_each(s);
	// As many filters as an instance can have where there are many subscribers.
	unsigned each = subscribers > ALLOWED ? 4 : 1;

	if (make_ground() || downlink_profile("flows-0", 0, subscribers / 2, each) ||
		downlink_profile("flows-1", 1, subscribers / 2, each))
		return -1;
	return make_sessions(subscribers, GTPU | FLOWS | DOWN_STREAM);
}

// A subscriber's flows have UDP ports of their own.
static unsigned
flows_down_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	uint32_t subscribers = s->flows / flows_each(s);
	unsigned n = gtpu_down_frame(s, flow % subscribers, length, h);
	uint16_t port = htons((uint16_t)(5000 + flow / subscribers));

	memcpy(h + n - 6, &port, sizeof(port));
	return n;
}

static int
reflect_down(const struct scenario *s)
{
	return make_ground() ? -1 : make_sessions(s->flows, GTPU | REFLECTIVE | DOWN_STREAM);
}

// With the RQI.
static unsigned
reflect_down_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	unsigned n = gtpu_down_frame(s, flow, length, h);

	h[n - 28 - 2] = 1 << 6 | REFLECTED_QFI;
	return n;
}

// Each flow has a rule, as a downlink packet of it would have made just now.
static int
reflect_up(const struct scenario *s)
{
	uint32_t now = worker_second();
	uint8_t frame[256];
	char name[32];

	if (make_ground() || make_sessions(s->flows, GTPU | REFLECTIVE))
		return -1;
	for (uint32_t flow = 0; flow < s->flows; flow++) {
		unsigned n = up_frame(s, flow, sizeof(frame), frame);
		const uint8_t *ip = frame + n - 28;
		struct gtpu_tunnel *t;
		uint64_t rule;

		snprintf(name, sizeof(name), "session-%u", flow);
		t = tunnel_at(session_at(session_of(object_find(&session_kind, name)))->core);
		rule = reflect_flow(t->rules, ip, 28, false);
		reflect_learn(rule, REFLECTED_QFI, now);
		t->reflecting = now;
		if (reflect_find(rule, now) != REFLECTED_QFI) {
			fprintf(stderr, "bench: %s has no rule for its flow\n", name);
			return -1;
		}
	}
	return 0;
}

const struct scenario flow_scenarios[] = {
	{"flows-up-4k", 4096, SIZES_AGF, flows_up, up_frame, "in"},
	{"flows-down-4k", ALLOWED, SIZES_AGF, flows_down, flows_down_frame, "in"},
	{"flows-down-64k", 64000, SIZES_AGF, flows_down, flows_down_frame, "in"},
	{"flows-down-256k", 256000, SIZES_AGF, flows_down, flows_down_frame, "in"},
	{"reflect-up-4k", 4096, SIZES_AGF, reflect_up, up_frame, "in"},
	{"reflect-down-4k", 4096, SIZES_AGF, reflect_down, reflect_down_frame, "in"},
	{0},
};
