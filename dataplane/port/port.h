// SPDX-License-Identifier: Apache-2.0
// Ports: DPDK devices that packets come from and go to (kind Port).
#pragma once

#include <rte_ether.h>

#include "core/node.h"
#include "port/link.h"
#include "server/object.h"

enum { PORT_MAX = 256, LINK_WHY_SIZE = 352, NO_PORT = UINT16_MAX, PORT_DEFAULT_MTU = 1500 };

// The part of a port for workers and other concepts. The index is its id, and the mbuf's `port`.
struct port {
	struct object *object; // NULL: there is no such port
	struct rte_ether_addr mac;
	uint16_t id;
	uint16_t device; // DPDK's port id; NO_PORT: the Linux interface under the device is gone
	uint16_t mtu;    // the largest IP packet, in bytes
	uint16_t rx_queues;
	uint16_t tx_queues;
	bool promiscuous;
	bool up;
	bool memif, memif_client;   // memif.h
	bool sends;                 // workers may use its transmit queues
	uint16_t before;            // the node that gets frames for the port instead of its device, or 0
	uint16_t entry;             // the node that its frames come to first; 0: where all frames come in
	struct twin *twin;          // or NULL
	struct handover *handovers; // of workers without a transmit queue, the first of them first
	struct steering *steering;  // the device's rules, or NULL: there are none (steering.h)
	struct linux_link link;     // of the interface under the device, if there is one
	char lost[16];              // the name of the Linux interface that is gone, while there is no device
	char why[LINK_WHY_SIZE];    // the link is down, in a sentence
};

// The concept that spreads a port's frames over workers other than by queues. Registered by RTE_INIT.
struct port_spreader {
	// *entry is the node that the port's frames go to from now on. `spread` is SLUICE__V1__PORT_SPREAD__..., but not RSS.
	int (*open)(const struct port *port, int spread, uint16_t *entry, struct fault *f);
	// No node gives frames of the port to `entry`. Once this returns, none is on its way.
	void (*drain)(const struct port *port);
	// A worker that is `ordering` has frames to send: hold those that leave in the order of arrival, for tx_send_all() later.
	// Returns the number of the others, moved to the front.
	uint16_t (*keep)(struct rte_mbuf **frames, uint16_t count);
	// The node that calls tx_send_all() then.
	const struct node *sends;
};
void port_spreader_register(const struct port_spreader *spreader);
extern const struct port_spreader *port_spreader;

extern struct port ports[PORT_MAX];
extern struct kind port_kind;

static inline struct port *
port_of(const struct object *object)
{
	return object->state;
}

// Its name, for people; "?" if there is none. Main thread.
const char *port_name(uint16_t port);

// Sends whole Ethernet frames out of the port in mbuf->port.
extern struct node tx_node;
// From now on whole frames for the port go to this node, which gives them to the device later; NULL: to the
// device. Returns when all workers do so. Main thread.
void port_send_before(struct port *port, const struct node *before);
// From a worker: whole frames, each for the port in its mbuf->port.
void tx_send_all(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf **frames, uint16_t count);
// From a worker whose index is below port->tx_queues: give frames to the device, and frames that it does not take to the drop node.
void tx_send(
	struct rte_graph *graph, struct rte_node *node, struct port *port, struct rte_mbuf **packets, uint16_t count);

// Notification that a port's MAC, MTU or link changed, or that it goes (object NULL then). Main thread.
struct port_watcher {
	void (*changed)(struct port *port);
	struct port_watcher *next;
};
void port_watch(struct port_watcher *watcher);

// The Linux interface under the port's device is gone: the port keeps its id and has no device and no link until port_regain() attaches
// it again. 0 or a negative errno, explained. Main thread.
void port_lose(struct port *port);
int port_regain(struct port *port, struct fault *f);
// Report why the port has no link, if the reason has changed.
void port_report_why(struct port *port, const char *why);

// The path of the API's socket: captures of net_pcap are in its folder, and a file beside the socket has the earlier settings of
// interfaces under devices. Interfaces that a process before this one left are restored.
void port_use_socket(const char *path);

// Close all of them, at the end, with the workers still running.
void port_stop_all(void);
