// SPDX-License-Identifier: Apache-2.0
// One step each: VLANs, PPPoE, GTP-U, an access list, a meter.
#include "acl.pb-c.h"
#include "bench/scenarios/all.h"
#include "bench/scenarios/frames.h"
#include "bench/scenarios/ground.h"
#include "bench/scenarios/subscribers.h"
#include "interface.pb-c.h"
#include "meter.pb-c.h"

static int
qinq_up(const struct scenario *s)
{
	if (make_ground() || make_route(0, "0.0.0.0/0"))
		return -1;
	return make_sessions(s->flows, 0);
}

static int
qinq_down(const struct scenario *s)
{
	if (make_ground())
		return -1;
	return make_sessions(s->flows, DOWN_STREAM);
}

static int
pppoe_up(const struct scenario *s)
{
	if (make_ground() || make_route(0, "0.0.0.0/0"))
		return -1;
	return make_sessions(s->flows, PPPOE);
}

static int
pppoe_down(const struct scenario *s)
{
	if (make_ground())
		return -1;
	return make_sessions(s->flows, PPPOE | DOWN_STREAM);
}

static int
gtpu_up(const struct scenario *s)
{
	if (make_ground())
		return -1;
	return make_sessions(s->flows, GTPU);
}

static int
gtpu_down(const struct scenario *s)
{
	if (make_ground())
		return -1;
	return make_sessions(s->flows, GTPU | DOWN_STREAM);
}

static int
on_interface(int (*make_list)(void))
{
	Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;

	if (make_ground() || make_route(0, "0.0.0.0/0") || make_list())
		return -1;
	interface.port = "in";
	interface.addresses = (char *[]){"192.0.2.1/25", "2001:db8:ffff:0::1/64"};
	interface.n_addresses = 2;
	interface.acl_in = "acl";
	return bench_put("Interface", "in", &interface);
}

static int
acl_150(const struct scenario *s)
{
	return on_interface(make_block_list);
}

static int
acl_150_hits(const struct scenario *s)
{
	return on_interface(make_counted_block_list);
}

static int
meter_interface(const struct scenario *s)
{
	Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;
	Sluice__V1__Meter meter = SLUICE__V1__METER__INIT;

	meter.scope = SLUICE__V1__METER_SCOPE__GLOBAL;
	meter.committed_rate = 1000000000000;
	meter.committed_burst = meter.excess_burst = 1u << 30;
	interface.port = "in";
	interface.addresses = (char *[]){"192.0.2.1/25", "2001:db8:ffff:0::1/64"};
	interface.n_addresses = 2;
	interface.meter_in = "meter";
	if (make_ground() || make_route(0, "0.0.0.0/0") || bench_put("Meter", "meter", &meter))
		return -1;
	return bench_put("Interface", "in", &interface);
}

static int
meter_up(const struct scenario *s)
{
	if (make_ground() || make_route(0, "0.0.0.0/0") || make_meter())
		return -1;
	return make_sessions(s->flows, METER);
}

static int
qinq_down_hqos(const struct scenario *s)
{
	if (make_ground() || make_schedulers(s->flows, 1))
		return -1;
	return make_sessions(s->flows, SHAPED | DOWN_STREAM);
}

const struct scenario session_scenarios[] = {
	{"qinq-up-4k", 4096, SIZES, qinq_up, up_frame, "in"},
	{"qinq-down-4k", 4096, SIZES, qinq_down, down_frame, "in"},
	{"pppoe-up-64k", 65536, SIZES, pppoe_up, up_frame, "in"},
	{"pppoe-down-64k", 65536, SIZES, pppoe_down, down_frame, "in"},
	{"gtpu-encap-4k", 4096, SIZES, gtpu_up, up_frame, "in"},
	{"gtpu-decap-4k", 4096, SIZES_TUNNEL, gtpu_down, gtpu_down_frame, "in"},
	{"acl-150", 1024, SIZES, acl_150, ip4_frame, "in"},
	{"acl-150-hits", 1024, SIZES, acl_150_hits, ip4_frame, "in"},
	{"ways-acl-150", 1024, {64}, acl_150, ip4_frame, "in", .look_up = "acl"},
	{"meter-4k", 4096, SIZES, meter_up, up_frame, "in"},
	{"meter-interface", 1024, SIZES, meter_interface, ip4_frame, "in"},
	{"qinq-down-4k-hqos", 4096, SIZES, qinq_down_hqos, down_frame, "in"},
	{0},
};
