// SPDX-License-Identifier: Apache-2.0
// See attach.h.
#include "port/attach.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

#include "core/start.h"
#include "core/worker.h"
#include "port/device.h"
#include "port/memif.h"
#include "port/presence.h"
#include "port/steering.h"
#include "port/xdp.h"

enum { RX_DESCRIPTORS = 1024, TX_DESCRIPTORS = 1024, TAGS = 8, ROOM = 1900 };

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
choose_queues(struct port *port, const struct rte_eth_dev_info *info, uint32_t requested, struct fault *f)
{
	uint32_t rx = RTE_MAX(info->max_rx_queues, 1u), tx = RTE_MIN(worker_count, RTE_MAX(info->max_tx_queues, 1u));
	bool all = feeds_all_queues(info->driver_name);

	if (requested > info->max_rx_queues)
		return fault(f, EINVAL, "rxQueues: the device has %u at most", info->max_rx_queues);
	if (all && requested > 0 && requested < rx)
		return fault(
			f, EINVAL, "rxQueues: packets come by all %u queues that the device's arguments ask for", rx);
	if (!all)
		rx = requested ? requested : RTE_MIN(worker_count, rx);
	// These have queues in pairs.
	if (strcmp(info->driver_name, "net_tap") == 0 || strcmp(info->driver_name, "net_af_xdp") == 0)
		tx = rx;
	port->rx_queues = (uint16_t)rx;
	port->tx_queues = (uint16_t)tx;
	return xdp_check_buffers(info, rx, f);
}

void
attach_end(struct port *port)
{
	uint16_t device = port->device;
	struct rte_eth_dev_info info;

	steering_close(port);
	port->device = NO_PORT;
	if (device == NO_PORT || rte_eth_dev_info_get(device, &info))
		return;
	rte_eth_dev_stop(device);
	rte_eth_dev_close(device);
	rte_dev_remove(info.device);
	xdp_close_sockets(device);
	link_give_back(&port->link);
}

int
attach_set_mtu(struct port *port, uint16_t mtu)
{
	uint16_t id = port->device;
	struct rte_eth_dev_info info;
	uint32_t frame = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + TAGS + mtu;
	int error;

	if (id == NO_PORT)
		return 0;
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

int
attach_set_mac(struct port *port, const char *mac, struct rte_ether_addr *address, struct fault *f)
{
	struct rte_ether_addr own = port->mac;
	int error;

	if (port->device != NO_PORT && rte_eth_macaddr_get(port->device, &own))
		return fault(f, ENODEV, "mac: the device does not tell its own address");
	if (!mac[0]) {
		*address = own;
		return 0;
	}
	if (rte_ether_unformat_addr(mac, address) || rte_is_multicast_ether_addr(address))
		return fault(
			f, EINVAL, "mac: a unicast Ethernet address like 02:00:00:00:00:01 is accepted, not %s", mac);
	if (port->device == NO_PORT || rte_is_same_ether_addr(address, &own))
		return 0;
	link_expect_mac(&port->link, address->addr_bytes);
	error = rte_eth_dev_default_mac_addr_set(port->device, address);
	return error && error != -ENOTSUP
		       ? fault(f, device_errno(error), "mac: the device does not take it (%s)", strerror(-error))
		       : 0;
}

void
attach_set_promiscuous(struct port *port, bool promiscuous)
{
	struct rte_ether_addr own;

	port->promiscuous = promiscuous;
	if (port->device == NO_PORT)
		return;
	if (promiscuous || rte_eth_macaddr_get(port->device, &own) || !rte_is_same_ether_addr(&port->mac, &own))
		rte_eth_promiscuous_enable(port->device);
	else
		rte_eth_promiscuous_disable(port->device);
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
	rte_eth_dev_adjust_nb_rx_tx_desc(port->device, &rx_descriptors, &tx_descriptors);
	for (uint16_t q = 0; q < port->rx_queues && !error; q++)
		error = rte_eth_rx_queue_setup(port->device, q, rx_descriptors, SOCKET_ID_ANY, NULL, packet_pool);
	for (uint16_t q = 0; q < port->tx_queues && !error; q++)
		error = rte_eth_tx_queue_setup(port->device, q, tx_descriptors, SOCKET_ID_ANY, NULL);
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
	int error = rte_eth_dev_info_get(port->device, &info);

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
	error = rte_eth_dev_configure(port->device, port->rx_queues, port->tx_queues, &conf);
	if (error)
		return fault(f, device_errno(error),
			"device: it cannot be configured with %u receive and %u transmit queues (%s)", port->rx_queues,
			port->tx_queues, strerror(-error));
	error = set_up_queues(port, &info, f);
	if (error)
		return error;
	error = attach_set_mtu(port, port->mtu);
	if (error)
		return fault(f, EINVAL, "mtu: the device does not take %u", port->mtu);
	error = attach_set_mac(port, spec->mac, &port->mac, f);
	if (error)
		return error;
	if (port->memif_client)
		memif_connect(port);
	else
		error = rte_eth_dev_start(port->device);
	if (error)
		return fault(f, device_errno(error), "device: it does not start (%s)", strerror(-error));
	attach_set_promiscuous(port, spec->promiscuous);
	return steering_put(port, spec, f);
}

int
attach(struct port *port, const Sluice__V1__Port *spec, struct fault *f)
{
	int error = device_probe(spec->device, &port->device, f);

	if (error) {
		port->device = NO_PORT;
		return error;
	}
	error = configure(port, spec, f);
	if (error) {
		attach_end(port);
		return error;
	}
	xdp_keep_sockets(port->device);
	return 0;
}
