// SPDX-License-Identifier: Apache-2.0
// The event devices, each opened by the first port that uses it, and open until the end.
#include "dispatch/event.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mempool.h>
#include <rte_service.h>

#include "core/rcu.h"
#include "core/start.h"
#include "core/worker.h"
#include "dispatch/dispatch.h"
#include "dispatch/order.h"
#include "port.pb-c.h"

// DPDK ends the process where an event device of software finds no memory. None needs more than this.
enum { MEMORY_NEEDED = 40 << 20 };

enum { QUEUE_ATOMIC, QUEUE_UNORDERED, EVENTS_MIN = 512, EVENTS_MAX = 4096 };
// Frames of ordered queues that workers may be at together; as many as the hardware has.
enum { ORDER_SEQUENCES = 1024 };

// In the order in which they are tried.
static const char *device_strings[DISPATCH_DEVICES] = {"event_dsw0", "event_sw0"};
static struct dispatch_device devices[DISPATCH_DEVICES];
static bool cannot_order[DISPATCH_DEVICES]; // known since one was opened for nothing
const struct dispatch_device *_Atomic dispatch_devices[DISPATCH_DEVICES];

void
dispatch_use_device(const char *device)
{
	device_strings[0] = device;
}

static int
use_device(const char *device)
{
	dispatch_use_device(device);
	return 0;
}

static struct part_option device_option = {.name = "event-device",
	.argument = "DEV",
	.help = "what spreads packets over workers: event_dsw0 (default), event_sw0 or a PCI address",
	.take = use_device};
OPTION_REGISTER(device_option)

static bool
has_memory(void)
{
	void *memory = rte_malloc(NULL, MEMORY_NEEDED, 0);

	rte_free(memory);
	return memory != NULL;
}

static int
probe(const char *device_string, uint8_t *id, struct fault *f)
{
	char name[64];
	size_t length = strcspn(device_string, ",");
	int found, error;

	if (length == 0 || length >= sizeof(name))
		return fault(f, EINVAL, "spread: --event-device \"%.64s\" is no device", device_string);
	memcpy(name, device_string, length);
	name[length] = '\0';
	if (!has_memory())
		return fault(
			f, ENOMEM, "spread: there is no memory for an event device; give the data plane more --memory");
	error = rte_dev_probe(device_string);
	if (error && error != -EEXIST)
		return fault(f, ENODEV, "spread: DPDK cannot use the event device %s (%s); see --event-device",
			device_string, strerror(-error));
	found = rte_event_dev_get_dev_id(name);
	if (found < 0)
		return fault(f, ENODEV, "spread: %s is no event device; see --event-device", name);
	*id = (uint8_t)found;
	return 0;
}

// The device holds a small part of the packet buffers.
static int32_t
max_events(const struct rte_event_dev_info *info)
{
	uint32_t part = rte_align32prevpow2(packet_pool->size / 8);

	part = RTE_MAX(RTE_MIN(part, (uint32_t)EVENTS_MAX), (uint32_t)EVENTS_MIN);
	return info->max_num_events > 0 ? (int32_t)RTE_MIN(part, (uint32_t)info->max_num_events) : (int32_t)part;
}

// Queues that the device needs; the ordered ones are behind the others.
static unsigned
queue_count(const struct dispatch_device *d)
{
	return QUEUE_DIRECTED + worker_count + (d->orders ? 2 : 0);
}

static int
set_up_queue(const struct dispatch_device *d, unsigned number)
{
	struct rte_event_queue_conf conf;
	int error = rte_event_queue_default_conf_get(d->id, (uint8_t)number, &conf);

	if (error)
		return error;
	conf.event_queue_cfg = 0;
	conf.schedule_type = RTE_SCHED_TYPE_ATOMIC;
	if (d->orders && number == d->ordered) {
		// A device that cannot order has no sequence numbers to do it with.
		if (conf.nb_atomic_order_sequences == 0)
			return -ENOTSUP;
		conf.nb_atomic_order_sequences = ORDER_SEQUENCES;
		conf.schedule_type = RTE_SCHED_TYPE_ORDERED;
	} else if (number == QUEUE_UNORDERED) {
		conf.schedule_type = RTE_SCHED_TYPE_PARALLEL;
	} else if (d->directed && number >= QUEUE_DIRECTED && number < QUEUE_DIRECTED + worker_count) {
		conf.event_queue_cfg = RTE_EVENT_QUEUE_CFG_SINGLE_LINK;
	}
	return rte_event_queue_setup(d->id, (uint8_t)number, &conf);
}

// A worker's port takes from the queues that all share, and from its own directed one unless that has a port for itself.
static int
set_up_port(struct dispatch_device *d, unsigned port, int32_t events)
{
	const uint8_t all[] = {QUEUE_ATOMIC, QUEUE_UNORDERED, d->ordered, d->leaving};
	const uint16_t shared = d->orders ? 4 : 2;
	const uint8_t own = (uint8_t)(QUEUE_DIRECTED + port % worker_count);
	bool single = port >= worker_count;
	struct rte_event_port_conf conf;
	int error = rte_event_port_default_conf_get(d->id, (uint8_t)port, &conf);

	if (error)
		return error;
	conf.new_event_threshold = events;
	conf.enqueue_depth = d->max_enqueue;
	conf.dequeue_depth = d->max_dequeue;
	conf.event_port_cfg = single ? RTE_EVENT_PORT_CFG_SINGLE_LINK : 0;
	error = rte_event_port_setup(d->id, (uint8_t)port, &conf);
	if (!error && !single && rte_event_port_link(d->id, (uint8_t)port, all, NULL, shared) != shared)
		error = -rte_errno;
	if (!error && (single || !d->directed) && rte_event_port_link(d->id, (uint8_t)port, &own, NULL, 1) != 1)
		error = -rte_errno;
	return error;
}

// Its queues. -ENOTSUP: it has none that are ordered.
static int
configure(struct dispatch_device *d, const struct rte_event_dev_info *info)
{
	struct rte_event_dev_config conf = {
		.dequeue_timeout_ns = info->min_dequeue_timeout_ns,
		.nb_events_limit = max_events(info),
		.nb_event_queues = (uint8_t)queue_count(d),
		.nb_event_ports = (uint8_t)(worker_count + d->directed),
		.nb_event_queue_flows = info->max_event_queue_flows,
		.nb_event_port_dequeue_depth = RTE_MIN(info->max_event_port_dequeue_depth, (uint32_t)ORDER_MAX),
		.nb_event_port_enqueue_depth = RTE_MIN(info->max_event_port_enqueue_depth, (uint32_t)BURST),
		.nb_single_link_event_port_queues = d->directed,
	};
	int error = rte_event_dev_configure(d->id, &conf);

	d->max_enqueue = (uint16_t)conf.nb_event_port_enqueue_depth;
	d->max_dequeue = (uint16_t)conf.nb_event_port_dequeue_depth;
	if (!error && d->orders && set_up_queue(d, d->ordered))
		return -ENOTSUP;
	for (unsigned q = 0; q < queue_count(d) && !error; q++)
		if (!d->orders || q != d->ordered)
			error = set_up_queue(d, q);
	return error;
}

// The device's scheduler service, if it has one: the workers run it, so that it needs no core of its own.
static int
find_service(
	struct dispatch_device *d, const struct rte_event_dev_info *info, const char *device_string, struct fault *f)
{
	uint32_t service;

	d->service = -1;
	if (info->event_dev_cap & RTE_EVENT_DEV_CAP_DISTRIBUTED_SCHED || rte_event_dev_service_id_get(d->id, &service))
		return 0;
	if (rte_service_set_runstate_mapped_check(service, 0) || rte_service_runstate_set(service, 1))
		return fault(f, ENOTSUP, "spread: %s schedules by a service that workers cannot run", device_string);
	d->service = service;
	return 0;
}

// Which way of spreading needs ordered queues shows in a device only when one is set up.
static int
set_up(struct dispatch_device *d, const struct rte_event_dev_info *info, const char *device_string, struct fault *f)
{
	unsigned ports;
	int error;

	d->directed = info->max_single_link_event_port_queue_pairs >= worker_count ? (uint8_t)worker_count : 0;
	d->ordered = (uint8_t)(QUEUE_DIRECTED + worker_count);
	d->leaving = (uint8_t)(d->ordered + 1);
	d->keeps_flow = info->event_dev_cap & RTE_EVENT_DEV_CAP_CARRY_FLOW_ID;
	d->orders = d->leaving < info->max_event_queues;
	ports = worker_count + d->directed;
	if (ports > info->max_event_ports || QUEUE_DIRECTED + worker_count > info->max_event_queues)
		return fault(f, ENOSPC, "spread: %s has %u ports and %u queues, too few for %u workers", device_string,
			info->max_event_ports, info->max_event_queues, worker_count);
	error = configure(d, info);
	if (error == -ENOTSUP && d->orders) {
		d->orders = false;
		error = configure(d, info);
	}
	for (unsigned port = 0; port < ports && !error; port++)
		error = set_up_port(d, port, max_events(info));
	if (!error && find_service(d, info, device_string, f))
		return -ENOTSUP;
	if (!error)
		error = rte_event_dev_start(d->id);
	return error ? fault(f, -error, "spread: the event device %s cannot be set up for %u workers (%s)",
			       device_string, worker_count, strerror(-error))
		     : 0;
}

static void
close_device(unsigned number)
{
	struct rte_event_dev_info info;
	bool known = rte_event_dev_info_get(devices[number].id, &info) == 0;

	rte_event_dev_stop(devices[number].id);
	rte_event_dev_close(devices[number].id);
	if (known)
		rte_dev_remove(info.dev);
}

static int
open_device(unsigned number, struct fault *f)
{
	struct dispatch_device *d = &devices[number];
	struct rte_event_dev_info info;
	int error = probe(device_strings[number], &d->id, f);

	if (error)
		return error;
	error = rte_event_dev_info_get(d->id, &info);
	if (error)
		return fault(f, -error, "spread: %s does not say what it can", device_strings[number]);
	error = set_up(d, &info, device_strings[number], f);
	if (error) {
		rte_event_dev_close(d->id);
		rte_dev_remove(info.dev);
		return error;
	}
	return 0;
}

void
dispatch_schedule(const struct dispatch_device *d)
{
	if (d->service >= 0)
		rte_service_run_iter_on_app_lcore((uint32_t)d->service, 1);
}

void
dispatch_close(void)
{
	for (unsigned i = 0; i < DISPATCH_DEVICES; i++) {
		if (!atomic_exchange(&dispatch_devices[i], NULL))
			continue;
		rcu_wait();
		close_device(i);
	}
}

static struct part event_devices = {.name = "event devices", .close = dispatch_close};
PART_REGISTER(event_devices)

static int
queue_of(int spread, struct dispatch_queue *queue, struct fault *f)
{
	switch (spread) {
	case SLUICE__V1__PORT_SPREAD__ATOMIC:
		*queue = (struct dispatch_queue){.queue = QUEUE_ATOMIC, .schedule = RTE_SCHED_TYPE_ATOMIC};
		return 0;
	case SLUICE__V1__PORT_SPREAD__UNORDERED:
		*queue = (struct dispatch_queue){.queue = QUEUE_UNORDERED, .schedule = RTE_SCHED_TYPE_PARALLEL};
		return 0;
	case SLUICE__V1__PORT_SPREAD__DIRECTED:
		*queue = (struct dispatch_queue){.queue = QUEUE_DIRECTED, .schedule = RTE_SCHED_TYPE_ATOMIC};
		return 0;
	case SLUICE__V1__PORT_SPREAD__ORDERED:
		*queue = (struct dispatch_queue){.schedule = RTE_SCHED_TYPE_ORDERED};
		return 0;
	default:
		return fault(f, EINVAL, "spread: %d is not rss, atomic, unordered, directed or ordered", spread);
	}
}

int
dispatch_open(int spread, struct dispatch_queue *queue, struct fault *f)
{
	bool ordered = spread == SLUICE__V1__PORT_SPREAD__ORDERED;
	struct dispatch_queue requested;
	int error = queue_of(spread, &requested, f);

	if (error)
		return error;
	for (unsigned i = 0; i < DISPATCH_DEVICES; i++) {
		bool open = atomic_load(&dispatch_devices[i]);

		if (ordered && cannot_order[i])
			continue;
		error = open ? 0 : open_device(i, f);
		if (error)
			return error;
		cannot_order[i] = !devices[i].orders;
		if (ordered && cannot_order[i]) {
			if (!open)
				close_device(i);
			continue;
		}
		atomic_store(&dispatch_devices[i], &devices[i]);
		requested.device = (uint8_t)i;
		requested.queue = ordered ? devices[i].ordered : requested.queue;
		*queue = requested;
		return 0;
	}
	return fault(f, ENOTSUP, "spread: no event device here has ordered queues; see --event-device");
}
