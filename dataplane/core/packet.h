// What the graph knows about a packet: one cache line that every mbuf carries right behind its struct rte_mbuf.
//
// From the node that takes the Ethernet header off until the one that puts one on, the mbuf's data starts at the IP
// header (or ARP, PPP ...), and the bytes before it, back to the start of the frame, are still there: `l2_length` of them.
#pragma once

#include <stdint.h>

#include <rte_mbuf.h>

enum { NO_QFI = UINT8_MAX };
enum { NO_SESSION = UINT32_MAX, NO_INTERFACE = UINT32_MAX, NO_HOP = 0 };

// There are fewer sessions and interfaces than these: what is kept by session or by interface is an array.
enum { SESSION_LIMIT = 1 << 22, INTERFACE_LIMIT = 1 << 16 };
// Where what is counted by session is counted for all together, those that are gone too.
enum { ALL_SESSIONS = SESSION_LIMIT };

enum direction { UP, DOWN };

enum {
	PACKET_ROUTED = 1 << 0,      // a look-up chose its hop: whoever sends it counts the TTL down
	PACKET_OURS = 1 << 1,        // we made it: no ICMP errors about it, no policy on it
	PACKET_REFLECT_QOS = 1 << 2, // its PDU session container had the RQI set
	PACKET_CAPTURED = 1 << 3,    // captures of its session have looked at it
	PACKET_TUNNELLED =
		1 << 4,       // a subscriber's in a header of ours: ours as to ICMP errors, not as to what may leave
	PACKET_FLOW = 1 << 5, // its session has a flow profile, and `qfi` is what the rules say, or NO_QFI
	PACKET_FLOW_FIRM = 1 << 6, // and no derived rule of reflective QoS goes before the rule that said it
	PACKET_QFI = 1 << 7,       // its traffic class says its QFI, whatever rules do
};

struct packet {
	uint64_t chain;     // the steps it still has to take, the next in the lowest byte (node.h)
	uint32_t session;   // or NO_SESSION
	uint32_t interface; // that it came in on, or NO_INTERFACE
	uint32_t hop;       // where the look-up sends it (ip/hop.h)
	uint16_t vrf;
	uint16_t drop; // why, if it goes to the drop node

	uint16_t port;       // that it came in on. Its way out is in the mbuf's own port.
	uint16_t outer_vlan; // as they came in, 0 if there was none
	uint16_t inner_vlan;
	uint16_t outer_tpid; // in network order, as they came in, 0 if there was none
	uint16_t inner_tpid;
	uint16_t counted;  // bytes counted for the session, so that a later drop can take them back
	uint8_t l2_length; // from the start of the frame to the data
	uint8_t direction;
	uint8_t flags;
	uint8_t trace; // not 0: followed (trace.h)

	uint8_t punt; // reason (punt.h)
	uint8_t qfi;
	uint8_t colour;
	uint8_t family;   // 4 or 6 once an IP header was checked
	uint32_t detail;  // for the next node alone: a punt's or an ICMP error's particulars
	uint64_t arrived; // TSC, of packets that are followed

	uint8_t class; // traffic class: 0, what nobody classified, to 7; where it is shaped, the queue that it waits in
	uint8_t priority;       // of its tags towards a subscriber (IEEE 802.1p), 0 to 7
	uint8_t outer_priority; // 802.1p, of its outer tag as it came in
	uint8_t order; // where frames leave in the order of arrival: which of a worker's it is, from 1 (dispatch/order.h)
	uint32_t queue; // where it waits for its turn to be sent (hqos/hqos.h), 0: nobody said
} __rte_cache_aligned;

static_assert(sizeof(struct packet) == RTE_CACHE_LINE_SIZE, "a packet's state fills one cache line");

static inline struct packet *
packet_of(struct rte_mbuf *m)
{
	return (struct packet *)(m + 1);
}

// A clean state for a packet that did not come in by a port.
static inline void
packet_reset(struct rte_mbuf *m)
{
	*packet_of(m) = (struct packet){.session = NO_SESSION, .interface = NO_INTERFACE};
}

// Move the start of the data towards the end (positive) or the front, within bytes known to be there.
static inline void
packet_advance(struct rte_mbuf *m, int bytes)
{
	m->data_off = (uint16_t)(m->data_off + bytes);
	m->data_len = (uint16_t)(m->data_len - bytes);
	m->pkt_len = (uint32_t)((int)m->pkt_len - bytes);
}
