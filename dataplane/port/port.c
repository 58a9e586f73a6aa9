// SPDX-License-Identifier: Apache-2.0
// The kind Port: devices probed, configured, started and removed while everything else goes on.
#include "port/port.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>

#include "core/loop.h"
#include "port.pb-c.h"
#include "port/attach.h"
#include "port/device.h"
#include "port/handover.h"
#include "port/memif.h"
#include "port/port_api.h"
#include "port/relink.h"
#include "port/rx.h"
#include "port/steering.h"
#include "port/twin.h"
#include "server/event.h"

struct port ports[PORT_MAX];
static struct port_watcher *watchers;
const struct port_spreader *port_spreader;

void
port_watch(struct port_watcher *watcher)
{
	watcher->next = watchers;
	watchers = watcher;
}

void
port_spreader_register(const struct port_spreader *s)
{
	port_spreader = s;
}

const char *
port_name(uint16_t port)
{
	return port < PORT_MAX && ports[port].object ? ports[port].object->name : "?";
}

static void
tell(struct port *port)
{
	for (struct port_watcher *w = watchers; w; w = w->next)
		w->changed(port);
}

static void
tell_link(struct port *port)
{
	Sluice__V1__Event event = SLUICE__V1__EVENT__INIT;
	Sluice__V1__PortLink link = SLUICE__V1__PORT_LINK__INIT;

	tell(port);
	link.port = port->object->name;
	link.up = port->up;
	link.why = port->why;
	event.event_case = SLUICE__V1__EVENT__EVENT_PORT_LINK;
	event.port_link = &link;
	event_send(&event);
	fprintf(stderr, "port %s: link %s%s%s\n", link.port, link.up ? "up" : "down", link.up ? "" : ": ", link.why);
}

// af_packet and af_xdp always report up: use the state of the Linux interface under them.
static bool
link_is_up(const struct port *port, char why[LINK_WHY_SIZE])
{
	struct rte_eth_dev_info info;
	struct rte_eth_link link;
	const char *trouble;

	if (rte_eth_link_get_nowait(port->device, &link))
		return port->up;
	if (!link.link_status) {
		snprintf(
			why, LINK_WHY_SIZE, "%s", port->memif ? "its peer is not connected" : "the device has no link");
		return false;
	}
	if (rte_eth_dev_info_get(port->device, &info) || info.if_index == 0 ||
		strncmp(info.driver_name, "net_af_", 7) != 0)
		return true;
	trouble = link_trouble(info.if_index);
	if (trouble)
		snprintf(why, LINK_WHY_SIZE, "the Linux interface %s %s", port->link.name, trouble);
	return !trouble;
}

// `always`: report the link even if it is as it was.
static void
look_at_link(struct port *port, bool always)
{
	char why[LINK_WHY_SIZE] = "";
	bool up;

	if (port->device == NO_PORT)
		return;
	up = link_is_up(port, why);
	if (!always && up == port->up && strcmp(why, port->why) == 0)
		return;
	if (port->memif && up && !port->up && rx_attach(port))
		return;
	strcpy(port->why, why);
	if (port->memif && !up && port->up) {
		__atomic_store_n(&port->up, false, __ATOMIC_RELEASE);
		rx_detach(port);
	}
	__atomic_store_n(&port->up, up, __ATOMIC_RELEASE);
	tell_link(port);
}

void
port_report_why(struct port *port, const char *why)
{
	if (strcmp(why, port->why) == 0)
		return;
	snprintf(port->why, sizeof(port->why), "%s", why);
	tell_link(port);
}

void
port_lose(struct port *port)
{
	memcpy(port->lost, port->link.name, sizeof(port->lost));
	__atomic_store_n(&port->up, false, __ATOMIC_RELEASE);
	// Once this returns no worker receives from or sends to the device.
	rx_detach(port);
	port_counters_keep(port);
	attach_end(port);
}

// Attach to a device with as many transmit queues as the previous one: rings of workers without a queue stay as they
// are.
static int
attach_again(struct port *port, struct fault *f)
{
	uint16_t tx_queues = port->tx_queues;
	Sluice__V1__Port *spec = sluice__v1__port__unpack(NULL, port->object->spec_length, port->object->spec);
	int error = spec ? attach(port, spec, f) : fault(f, ENOMEM, "there is no memory for its spec");

	if (spec)
		sluice__v1__port__free_unpacked(spec, NULL);
	if (!error && port->tx_queues != tx_queues)
		error = fault(f, EIO, "device: it has %u transmit queues and had %u", port->tx_queues, tx_queues);
	if (!error && rx_attach(port))
		error = fault(f, ENOMEM, "there is no memory for its queues");
	if (error)
		attach_end(port);
	port->tx_queues = tx_queues;
	return error;
}

int
port_regain(struct port *port, struct fault *f)
{
	struct fault of_twin;
	int error = attach_again(port, f);

	if (error)
		return error;
	if (twin_follow(port, port->mtu, &port->mac, &of_twin))
		fprintf(stderr, "port %s: %s\n", port->object->name, of_twin.text);
	look_at_link(port, true);
	return 0;
}

static int
set_spread(struct port *port, int spread, struct fault *f)
{
	uint16_t entry = 0;
	int error = 0;

	if (spread != SLUICE__V1__PORT_SPREAD__RSS)
		error = port_spreader->open(port, spread, &entry, f);
	if (!error)
		__atomic_store_n(&port->entry, entry, __ATOMIC_RELEASE);
	return error;
}

static int
create(struct object *object, const Sluice__V1__Port *spec, struct fault *f)
{
	struct port *port;
	uint16_t id = 0;
	int error;

	while (id < PORT_MAX && ports[id].object)
		id++;
	if (id == PORT_MAX)
		return fault(f, ENOSPC, "there can be %d ports at most", PORT_MAX);
	port = &ports[id];
	*port = (struct port){.id = id, .device = NO_PORT, .mtu = (uint16_t)(spec->mtu ? spec->mtu : PORT_DEFAULT_MTU)};
	error = attach(port, spec, f);
	if (error)
		return error;
	error = set_spread(port, (int)spec->spread, f);
	if (!error && spec->twin)
		error = twin_open(port, spec->twin->name, spec->twin->namespace_, f);
	if (!error && (handover_open(port) || (!port->memif && rx_attach(port))))
		error = fault(f, ENOMEM, "there is no memory for its queues");
	if (error) {
		handover_close(port);
		twin_close(port);
		attach_end(port);
		return error;
	}
	port->object = object;
	object->state = port;
	__atomic_store_n(&port->sends, true, __ATOMIC_RELEASE);
	tell(port);
	look_at_link(port, true);
	return 0;
}

static int
change(struct port *port, const Sluice__V1__Port *spec, const Sluice__V1__Port *old, struct fault *f)
{
	uint16_t mtu = (uint16_t)(spec->mtu ? spec->mtu : PORT_DEFAULT_MTU);
	struct rte_ether_addr mac = port->mac;
	int error = 0;

	if (strcmp(spec->device, old->device) || spec->rx_queues != old->rx_queues || !spec->twin != !old->twin ||
		(spec->twin && (strcmp(spec->twin->name, old->twin->name) ||
				       strcmp(spec->twin->namespace_, old->twin->namespace_))))
		return fault(
			f, EINVAL, "device, rxQueues, twin: they cannot change while the port exists; delete it first");
	if (mtu != port->mtu && attach_set_mtu(port, mtu))
		return fault(f, EINVAL, "mtu: the device does not take %u", mtu);
	if (spec->spread != old->spread)
		error = set_spread(port, (int)spec->spread, f);
	if (!error)
		error = steering_put(port, spec, f);
	if (!error && strcmp(spec->mac, old->mac))
		error = attach_set_mac(port, spec->mac, &mac, f);
	if (!error && (mtu != port->mtu || !rte_is_same_ether_addr(&mac, &port->mac))) {
		error = twin_follow(port, mtu, &mac, f);
		if (error) {
			link_expect_mac(&port->link, port->mac.addr_bytes);
			rte_eth_dev_default_mac_addr_set(port->device, &port->mac);
		}
	}
	if (error) {
		struct fault first = *f;

		if (spec->spread != old->spread)
			set_spread(port, (int)old->spread, f);
		steering_put(port, old, f);
		attach_set_mtu(port, port->mtu);
		*f = first;
		return error;
	}
	port->mtu = mtu;
	port->mac = mac;
	attach_set_promiscuous(port, spec->promiscuous);
	tell(port);
	return 0;
}

static int
port_put(struct object *object, const void *spec_, const void *old, struct fault *f)
{
	const Sluice__V1__Port *spec = spec_;

	return old ? change(port_of(object), spec, old, f) : create(object, spec, f);
}

static void
close_port(struct port *port)
{
	rx_detach(port);
	port_spreader->drain(port);
	__atomic_store_n(&port->sends, false, __ATOMIC_RELEASE);
	handover_close(port);
	twin_close(port);
	attach_end(port);
	port_counters_forget(port);
	port->object = NULL;
	tell(port);
	*port = (struct port){0};
}

static int
port_delete(struct object *object, const void *spec, struct fault *f)
{
	close_port(port_of(object));
	return 0;
}

void
port_stop_all(void)
{
	for (unsigned i = 0; i < PORT_MAX; i++)
		if (ports[i].object)
			close_port(&ports[i]);
}

static void
look_at_links(void *unused)
{
	for (unsigned i = 0; i < PORT_MAX; i++)
		if (ports[i].object)
			look_at_link(&ports[i], false);
}

// An interface that was deleted may come back.
static void
look_at_others(void *unused)
{
	for (unsigned i = 0; i < PORT_MAX; i++) {
		if (ports[i].object && ports[i].memif_client && !ports[i].up)
			memif_connect(&ports[i]);
		if (ports[i].object)
			twin_look(&ports[i]);
	}
	relink_look();
}

static void
name_port(const struct packet *p, Sluice__V1__PacketIn *in)
{
	if (p->port < PORT_MAX && ports[p->port].object)
		in->port = ports[p->port].object->name;
}

static struct event_names names = {.name = name_port};

void
port_use_socket(const char *path)
{
	char text[PATH_MAX];

	if (snprintf(text, sizeof(text), "%s.interfaces", path) < (int)sizeof(text))
		link_use_file(text);
	snprintf(text, sizeof(text), "%s", path);
	device_use_folder(dirname(text));
}

static int
port_start(void)
{
	event_names_register(&names);
	loop_every(10 * 1000000, look_at_links, NULL);
	loop_every(1000 * 1000000, look_at_others, NULL);
	return relink_start();
}

struct kind port_kind = {
	.name = "Port",
	.spec = &sluice__v1__port__descriptor,
	.put = port_put,
	.delete = port_delete,
	.start = port_start,
};
KIND_REGISTER(port_kind)
