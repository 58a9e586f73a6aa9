// The event device, opened when a port is first spread by it, and kept until the end.
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

#include "core/rcu.h"
#include "core/start.h"
#include "core/worker.h"
#include "dispatch/dispatch.h"
#include "port.pb-c.h"

// DPDK ends the process where an event device of software finds no memory. None needs more than this.
enum { MEMORY_NEEDED = 24 << 20 };

enum { QUEUE_ATOMIC, QUEUE_UNORDERED, EVENTS_LEAST = 512, EVENTS_MOST = 4096 };

static const char *device_string = "event_dsw0";
static struct dispatch_device opened;
const struct dispatch_device *_Atomic dispatch_device;

void
dispatch_use_device(const char *device)
{
	device_string = device;
}

static bool
has_memory(void)
{
	void *memory = rte_malloc(NULL, MEMORY_NEEDED, 0);

	rte_free(memory);
	return memory != NULL;
}

static int
probe(uint8_t *id, struct fault *f)
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

// What waits in the device is a small part of the packet buffers.
static int32_t
events_most(const struct rte_event_dev_info *info)
{
	uint32_t part = rte_align32prevpow2(packet_pool->size / 8);

	part = RTE_MAX(RTE_MIN(part, (uint32_t)EVENTS_MOST), (uint32_t)EVENTS_LEAST);
	return info->max_num_events > 0 ? (int32_t)RTE_MIN(part, (uint32_t)info->max_num_events) : (int32_t)part;
}

static int
check(const struct rte_event_dev_info *info, unsigned ports, struct fault *f)
{
	if (!(info->event_dev_cap & RTE_EVENT_DEV_CAP_DISTRIBUTED_SCHED))
		return fault(f, ENOTSUP,
			"spread: %s needs a core of its own that schedules, which no worker is; event_dsw0 does not",
			device_string);
	if (ports > info->max_event_ports || QUEUE_DIRECTED + worker_count > info->max_event_queues)
		return fault(f, ENOSPC, "spread: %s has %u ports and %u queues, too few for %u workers", device_string,
			info->max_event_ports, info->max_event_queues, worker_count);
	return 0;
}

static int
set_up_queues(uint8_t id)
{
	int error = 0;

	for (unsigned q = 0; q < QUEUE_DIRECTED + worker_count && !error; q++) {
		struct rte_event_queue_conf conf;

		error = rte_event_queue_default_conf_get(id, (uint8_t)q, &conf);
		conf.event_queue_cfg = q >= QUEUE_DIRECTED ? RTE_EVENT_QUEUE_CFG_SINGLE_LINK : 0;
		conf.schedule_type = q == QUEUE_UNORDERED ? RTE_SCHED_TYPE_PARALLEL : RTE_SCHED_TYPE_ATOMIC;
		if (!error)
			error = rte_event_queue_setup(id, (uint8_t)q, &conf);
	}
	return error;
}

// A worker's port takes from the queues that all share, and from its own directed one unless that has a port for itself.
static int
set_up_port(struct dispatch_device *d, unsigned port, int32_t events)
{
	const uint8_t all[] = {QUEUE_ATOMIC, QUEUE_UNORDERED};
	const uint8_t own = (uint8_t)(QUEUE_DIRECTED + port % worker_count);
	bool single = port >= worker_count;
	struct rte_event_port_conf conf;
	int error = rte_event_port_default_conf_get(d->id, (uint8_t)port, &conf);

	if (error)
		return error;
	conf.new_event_threshold = events;
	conf.enqueue_depth = d->enqueue_most;
	conf.dequeue_depth = d->dequeue_most;
	conf.event_port_cfg = single ? RTE_EVENT_PORT_CFG_SINGLE_LINK : 0;
	error = rte_event_port_setup(d->id, (uint8_t)port, &conf);
	if (!error && !single && rte_event_port_link(d->id, (uint8_t)port, all, NULL, 2) != 2)
		error = -rte_errno;
	if (!error && (single || !d->directed) && rte_event_port_link(d->id, (uint8_t)port, &own, NULL, 1) != 1)
		error = -rte_errno;
	return error;
}

static int
set_up(struct dispatch_device *d, const struct rte_event_dev_info *info)
{
	unsigned ports = worker_count + d->directed;
	struct rte_event_dev_config conf = {
		.dequeue_timeout_ns = info->min_dequeue_timeout_ns,
		.nb_events_limit = events_most(info),
		.nb_event_queues = (uint8_t)(QUEUE_DIRECTED + worker_count),
		.nb_event_ports = (uint8_t)ports,
		.nb_event_queue_flows = info->max_event_queue_flows,
		.nb_event_port_dequeue_depth = RTE_MIN(info->max_event_port_dequeue_depth, (uint32_t)BURST),
		.nb_event_port_enqueue_depth = RTE_MIN(info->max_event_port_enqueue_depth, (uint32_t)BURST),
		.nb_single_link_event_port_queues = d->directed,
	};
	int error = rte_event_dev_configure(d->id, &conf);

	d->enqueue_most = (uint16_t)conf.nb_event_port_enqueue_depth;
	d->dequeue_most = (uint16_t)conf.nb_event_port_dequeue_depth;
	if (!error)
		error = set_up_queues(d->id);
	for (unsigned port = 0; port < ports && !error; port++)
		error = set_up_port(d, port, conf.nb_events_limit);
	return error ? error : rte_event_dev_start(d->id);
}

static int
use(const struct rte_event_dev_info *info, struct fault *f)
{
	int error;

	opened.directed = info->max_single_link_event_port_queue_pairs >= worker_count ? (uint8_t)worker_count : 0;
	error = check(info, worker_count + opened.directed, f);
	if (error)
		return error;
	error = set_up(&opened, info);
	return error ? fault(f, -error, "spread: the event device %s cannot be set up for %u workers (%s)",
			       device_string, worker_count, strerror(-error))
		     : 0;
}

static int
open_device(struct fault *f)
{
	struct rte_event_dev_info info;
	int error = probe(&opened.id, f);

	if (error)
		return error;
	error = rte_event_dev_info_get(opened.id, &info);
	if (error)
		return fault(f, -error, "spread: %s does not say what it can", device_string);
	error = use(&info, f);
	if (error) {
		rte_event_dev_close(opened.id);
		rte_dev_remove(info.dev);
		return error;
	}
	atomic_store(&dispatch_device, &opened);
	return 0;
}

void
dispatch_close(void)
{
	if (!atomic_exchange(&dispatch_device, NULL))
		return;
	rcu_wait();
	rte_event_dev_stop(opened.id);
	rte_event_dev_close(opened.id);
}

int
dispatch_open(int spread, struct dispatch_queue *queue, struct fault *f)
{
	int error = atomic_load(&dispatch_device) ? 0 : open_device(f);

	if (error)
		return error;
	switch (spread) {
	case SLUICE__V1__PORT_SPREAD__ATOMIC:
		*queue = (struct dispatch_queue){QUEUE_ATOMIC, RTE_SCHED_TYPE_ATOMIC};
		return 0;
	case SLUICE__V1__PORT_SPREAD__UNORDERED:
		*queue = (struct dispatch_queue){QUEUE_UNORDERED, RTE_SCHED_TYPE_PARALLEL};
		return 0;
	case SLUICE__V1__PORT_SPREAD__DIRECTED:
		*queue = (struct dispatch_queue){QUEUE_DIRECTED, RTE_SCHED_TYPE_ATOMIC};
		return 0;
	default:
		return fault(f, EINVAL, "spread: %d is not rss, atomic, unordered or directed", spread);
	}
}
