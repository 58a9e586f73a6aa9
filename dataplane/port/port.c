// The kind Port: devices probed, configured, started and removed while everything else goes on.
#include "port/port.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <net/if.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

#include "core/event.h"
#include "core/loop.h"
#include "core/start.h"
#include "core/worker.h"
#include "port.pb-c.h"
#include "port/device.h"
#include "port/handover.h"
#include "port/memif.h"
#include "port/presence.h"
#include "port/rx.h"
#include "port/steering.h"
#include "port/twin.h"
#include "port/xdp.h"

enum { RX_DESCRIPTORS = 1024, TX_DESCRIPTORS = 1024, TAGS = 8, ROOM = 1900 };

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

// Devices whose receive queues their arguments count (qpairs, queue_count, queues, rx_pcap): packets come by each of them,
// whether it is polled or not.
static bool
feeds_all_queues(const char *driver)
{
	static const char *const drivers[] = {"net_af_packet", "net_af_xdp", "net_pcap", "net_vhost"};

	for (unsigned i = 0; i < RTE_DIM(drivers); i++)
		if (strcmp(driver, drivers[i]) == 0)
			return true;
	return false;
}

static int
choose_queues(struct port *port, const struct rte_eth_dev_info *info, uint32_t wanted, struct fault *f)
{
	uint32_t rx = RTE_MAX(info->max_rx_queues, 1u), tx = RTE_MIN(worker_count, RTE_MAX(info->max_tx_queues, 1u));
	bool all = feeds_all_queues(info->driver_name);

	if (wanted > info->max_rx_queues)
		return fault(f, EINVAL, "rxQueues: the device has %u at most", info->max_rx_queues);
	if (all && wanted > 0 && wanted < rx)
		return fault(
			f, EINVAL, "rxQueues: packets come by all %u queues that the device's arguments ask for", rx);
	if (!all)
		rx = wanted ? wanted : RTE_MIN(worker_count, rx);
	// These have queues in pairs.
	if (strcmp(info->driver_name, "net_tap") == 0 || strcmp(info->driver_name, "net_af_xdp") == 0)
		tx = rx;
	port->rx_queues = (uint16_t)rx;
	port->tx_queues = (uint16_t)tx;
	return xdp_check_buffers(info, rx, f);
}

static void
unprobe(struct port *port)
{
	struct rte_eth_dev_info info;

	steering_close(port);
	if (rte_eth_dev_info_get(port->id, &info))
		return;
	rte_eth_dev_stop(port->id);
	rte_eth_dev_close(port->id);
	rte_dev_remove(info.device);
	xdp_close_sockets(port->id);
	link_give_back(&port->link);
}

// Let the device send and receive IP packets of this size with two tags around them.
static int
set_mtu(struct port *port, uint16_t mtu)
{
	uint16_t id = port->id;
	struct rte_eth_dev_info info;
	uint32_t frame = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + TAGS + mtu;
	int error;

	if (rte_eth_dev_info_get(id, &info))
		return -ENODEV;
	if (info.if_index > 0)
		return frame > ROOM ? -EINVAL : link_raise_mtu(&port->link, mtu + TAGS);
	if (frame > info.max_rx_pktlen || mtu + TAGS > info.max_mtu)
		error = rte_eth_dev_set_mtu(id, mtu);
	else
		error = rte_eth_dev_set_mtu(id, (uint16_t)(mtu + TAGS));
	return error == -ENOTSUP ? 0 : error;
}

// The port's own address. A device that keeps its own (memif, af_xdp) is to receive everything instead: ether-input looks
// at the destination anyway. `address` is what the port shall have, once nothing can fail any more.
static int
set_mac(struct port *port, const char *mac, struct rte_ether_addr *address, struct fault *f)
{
	struct rte_ether_addr own;
	int error;

	if (rte_eth_macaddr_get(port->id, &own))
		return fault(f, ENODEV, "mac: the device does not tell its own address");
	if (!mac[0]) {
		*address = own;
		return 0;
	}
	if (rte_ether_unformat_addr(mac, address) || rte_is_multicast_ether_addr(address))
		return fault(
			f, EINVAL, "mac: a unicast Ethernet address like 02:00:00:00:00:01 is accepted, not %s", mac);
	if (rte_is_same_ether_addr(address, &own))
		return 0;
	link_expect_mac(&port->link, address->addr_bytes);
	error = rte_eth_dev_default_mac_addr_set(port->id, address);
	return error && error != -ENOTSUP
		       ? fault(f, device_errno(error), "mac: the device does not take it (%s)", strerror(-error))
		       : 0;
}

static void
set_promiscuous(struct port *port, bool wanted)
{
	struct rte_ether_addr own;

	port->promiscuous = wanted;
	if (wanted || rte_eth_macaddr_get(port->id, &own) || !rte_is_same_ether_addr(&port->mac, &own))
		rte_eth_promiscuous_enable(port->id);
	else
		rte_eth_promiscuous_disable(port->id);
}

// Two sockets on one Linux interface would each get every frame, or each half of them.
static int
check_interface(struct port *port, unsigned index, struct fault *f)
{
	char name[IF_NAMESIZE] = "?";

	for (unsigned i = 0; i < PORT_MAX && index > 0; i++)
		if (ports[i].object && ports[i].link.index == index)
			return fault(f, EBUSY, "device: port %s has the Linux interface %s already",
				ports[i].object->name, if_indextoname(index, name) ? name : "?");
	if (index > 0)
		link_hold(&port->link, index);
	return 0;
}

// Processes that put queues of the same interface to use at the same time would each load an XDP program, and the last would stay.
static int
set_up_queues(struct port *port, const struct rte_eth_dev_info *info, struct fault *f)
{
	uint16_t rx_descriptors = RX_DESCRIPTORS, tx_descriptors = TX_DESCRIPTORS;
	bool xdp = strcmp(info->driver_name, "net_af_xdp") == 0;
	int lock = xdp ? presence_lock(info->if_index) : 0, error = 0;

	if (lock < 0)
		return fault(f, EBUSY, "device: another process has been taking queues of the interface for too long");
	rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx_descriptors, &tx_descriptors);
	for (uint16_t q = 0; q < port->rx_queues && !error; q++)
		error = rte_eth_rx_queue_setup(port->id, q, rx_descriptors, SOCKET_ID_ANY, NULL, packet_pool);
	for (uint16_t q = 0; q < port->tx_queues && !error; q++)
		error = rte_eth_tx_queue_setup(port->id, q, tx_descriptors, SOCKET_ID_ANY, NULL);
	if (xdp) {
		link_note_program(&port->link);
		close(lock);
	}
	if (error && xdp)
		return fault(f, EBUSY,
			"device: its queues cannot be set up; another socket has them, perhaps that of a port that has "
			"just gone");
	return error ? fault(f, device_errno(error), "device: its queues cannot be set up (%s)", strerror(-error)) : 0;
}

static int
configure(struct port *port, const Sluice__V1__Port *spec, struct fault *f)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port->id, &info);

	if (error)
		return fault(f, device_errno(error), "device: it does not say what it can");
	error = check_interface(port, info.if_index, f);
	if (error)
		return error;
	memif_recognise(port, info.driver_name, spec->device);
	error = choose_queues(port, &info, spec->rx_queues, f);
	if (error)
		return error;
	if (port->rx_queues > 1 && info.flow_type_rss_offloads) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);
	}
	conf.rxmode.offloads = info.rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_SCATTER);
	conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	error = steering_open(port, spec, f);
	if (error)
		return error;
	error = rte_eth_dev_configure(port->id, port->rx_queues, port->tx_queues, &conf);
	if (error)
		return fault(f, device_errno(error),
			"device: it cannot be configured with %u receive and %u transmit queues (%s)", port->rx_queues,
			port->tx_queues, strerror(-error));
	error = set_up_queues(port, &info, f);
	if (error)
		return error;
	error = set_mtu(port, port->mtu);
	if (error)
		return fault(f, EINVAL, "mtu: the device does not take %u", port->mtu);
	error = set_mac(port, spec->mac, &port->mac, f);
	if (error)
		return error;
	if (port->memif_client)
		memif_connect(port);
	else
		error = rte_eth_dev_start(port->id);
	if (error)
		return fault(f, device_errno(error), "device: it does not start (%s)", strerror(-error));
	set_promiscuous(port, spec->promiscuous);
	return steering_put(port, spec, f);
}

static void
tell_link(struct port *port)
{
	Sluice__V1__Event event = SLUICE__V1__EVENT__INIT;
	Sluice__V1__PortLink link = SLUICE__V1__PORT_LINK__INIT;

	tell(port);
	link.port = port->object->name;
	link.up = port->up;
	event.event_case = SLUICE__V1__EVENT__EVENT_PORT_LINK;
	event.port_link = &link;
	event_send(&event);
}

// af_packet and af_xdp say that they are up whatever happens: the Linux interface under them knows better.
static bool
link_is_up(const struct port *port)
{
	struct rte_eth_dev_info info;
	struct rte_eth_link link;

	if (rte_eth_link_get_nowait(port->id, &link))
		return port->up;
	if (!link.link_status || rte_eth_dev_info_get(port->id, &info) || info.if_index == 0 ||
		strncmp(info.driver_name, "net_af_", 7) != 0)
		return link.link_status != 0;
	return link_has_carrier(info.if_index);
}

static void
look_at_link(struct port *port)
{
	if (link_is_up(port) == port->up)
		return;
	if (port->memif && !port->up && rx_attach(port))
		return;
	port->up = !port->up;
	if (port->memif && !port->up)
		rx_detach(port);
	tell_link(port);
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
	uint16_t id;
	int error = device_probe(spec->device, &id, f);

	if (error)
		return error;
	port = &ports[id];
	*port = (struct port){.id = id, .mtu = (uint16_t)(spec->mtu ? spec->mtu : PORT_DEFAULT_MTU)};
	error = configure(port, spec, f);
	if (!error)
		error = set_spread(port, (int)spec->spread, f);
	if (!error && spec->twin)
		error = twin_open(port, spec->twin->name, spec->twin->namespace_, f);
	if (!error && (handover_open(port) || (!port->memif && rx_attach(port))))
		error = fault(f, ENOMEM, "there is no memory for its queues");
	if (error) {
		handover_close(port);
		twin_close(port);
		unprobe(port);
		return error;
	}
	xdp_keep_sockets(id);
	port->object = object;
	object->state = port;
	__atomic_store_n(&port->sends, true, __ATOMIC_RELEASE);
	tell(port);
	look_at_link(port);
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
	if (mtu != port->mtu && set_mtu(port, mtu))
		return fault(f, EINVAL, "mtu: the device does not take %u", mtu);
	if (spec->spread != old->spread)
		error = set_spread(port, (int)spec->spread, f);
	if (!error)
		error = steering_put(port, spec, f);
	if (!error && strcmp(spec->mac, old->mac))
		error = set_mac(port, spec->mac, &mac, f);
	if (!error && (mtu != port->mtu || !rte_is_same_ether_addr(&mac, &port->mac))) {
		error = twin_follow(port, mtu, &mac, f);
		if (error) {
			link_expect_mac(&port->link, port->mac.addr_bytes);
			rte_eth_dev_default_mac_addr_set(port->id, &port->mac);
		}
	}
	if (error) {
		struct fault first = *f;

		if (spec->spread != old->spread)
			set_spread(port, (int)old->spread, f);
		steering_put(port, old, f);
		set_mtu(port, port->mtu);
		*f = first;
		return error;
	}
	port->mtu = mtu;
	port->mac = mac;
	set_promiscuous(port, spec->promiscuous);
	tell(port);
	return 0;
}

static int
port_put(struct object *object, const void *spec_, const void *old, struct fault *f)
{
	const Sluice__V1__Port *spec = spec_;

	if (spec->mtu && (spec->mtu < 1280 || spec->mtu > 9600))
		return fault(f, EINVAL, "mtu: 1280 to 9600 bytes are accepted, not %u", spec->mtu);
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
	unprobe(port);
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
			look_at_link(&ports[i]);
}

// What others took away may come back.
static void
look_at_others(void *unused)
{
	for (unsigned i = 0; i < PORT_MAX; i++) {
		if (ports[i].object && ports[i].memif_client && !ports[i].up)
			memif_connect(&ports[i]);
		if (ports[i].object)
			twin_look(&ports[i]);
	}
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
	return 0;
}

struct kind port_kind = {
	.name = "Port",
	.spec = &sluice__v1__port__descriptor,
	.put = port_put,
	.delete = port_delete,
	.start = port_start,
};
KIND_REGISTER(port_kind)
