// SPDX-License-Identifier: Apache-2.0
// The state of a packet in the graph: one cache line that every mbuf carries right behind its struct rte_mbuf, and a second one of slots that
// concepts own.
//
// From the node that takes the Ethernet header off until the one that puts one on, the mbuf's data starts at the IP
// header (or ARP, PPP ...), and the bytes before it, back to the start of the frame, are still there: `l2_length` of them.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_mbuf.h>

enum { NO_QFI = UINT8_MAX };
enum { NO_SESSION = UINT32_MAX, NO_INTERFACE = UINT32_MAX, NO_HOP = 0 };

// Upper bounds of sessions and interfaces: tables by session or by interface are arrays.
enum { SESSION_LIMIT = 1 << 22, INTERFACE_LIMIT = 1 << 16 };
// The index of counters by session for the sum of all sessions, deleted ones included.
enum { ALL_SESSIONS = SESSION_LIMIT };

enum direction { UP, DOWN };

// State that each packet has, from its arrival on, is in struct packet: it is cleared with it. So are the flags; the queue and the QFI are
// there, too, as nodes read them of packets that no node has classified. The flags of the QFI are fixed as concepts that do not include each
// other set and read them.
enum {
	PACKET_ROUTED = 1 << 0,      // a look-up chose its hop: the node that sends it decrements the TTL
	PACKET_OURS = 1 << 1,        // we made it: no ICMP errors about it, no policy on it
	PACKET_REFLECT_QOS = 1 << 2, // its PDU session container had the RQI set
	PACKET_CAPTURED = 1 << 3,    // captures of its session have looked at it
	PACKET_TUNNELLED =
		1 << 4,      // a subscriber's packet in a header of ours: no ICMP errors about it, but policy applies
	PACKET_QFI = 1 << 5, // its traffic class or the header of its access has its QFI: rules do not change it
	PACKET_FLAGS_OWN = 1 << 6, // this one and all above: of concepts, PACKET_FLAG_REGISTER()
};

struct packet {
	uint32_t chain; // the steps it still has to take (node.h)
	uint16_t front; // a node before these, after packet_push()
	uint16_t flags;
	uint32_t session;   // or NO_SESSION
	uint32_t interface; // that it came in on, or NO_INTERFACE
	uint32_t hop;       // where the look-up sends it (fib/hop.h)
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
	uint8_t wraps; // headers of ours around it: packet_wrap()
	uint8_t trace; // not 0: followed (trace.h)

	uint8_t punt; // reason (punt.h)
	uint8_t qfi;
	uint8_t colour;
	uint8_t family;   // 4 or 6 once an IP header was checked
	uint32_t detail;  // for the next node alone: a punt's or an ICMP error's particulars
	uint64_t arrived; // TSC, of packets that are followed

	uint8_t class; // traffic class, 0 to 7; 0: unclassified. Where packets are shaped, the queue that it waits in
	uint8_t priority;       // of its tags towards a subscriber (IEEE 802.1p), 0 to 7
	uint8_t outer_priority; // 802.1p, of its outer tag as it came in
	uint8_t order; // where frames leave in the order of arrival: which of a worker's it is, from 1 (dispatch/order.h)
	uint32_t queue; // the queue that it waits in before it is sent (hqos/hqos.h), 0: none
} __rte_cache_aligned;

static_assert(sizeof(struct packet) == RTE_CACHE_LINE_SIZE, "a packet's state fills one cache line");

// A concept's slot in the second cache line. Nothing clears it: a packet's slot has no meaning before a node of the concept has written it, and
// a copy or a fragment has one of its own.
enum { PACKET_SLOTS_SIZE = RTE_CACHE_LINE_SIZE };
struct packet_slot {
	const char *name;
	uint8_t size;   // a power of two, from 1 to 16
	uint8_t offset; // set at start
	struct packet_slot *next;
};
void packet_slot_register(struct packet_slot *slot);
#define PACKET_SLOT_REGISTER(slot) \
	RTE_INIT(register_##slot) \
	{ \
		packet_slot_register(&slot); \
	}

// A concept's flag in packet->flags. Unlike a slot it is 0 in each packet that comes in, and a copy has the same.
struct packet_flag {
	const char *name;
	uint16_t mask; // set at start: one bit
	struct packet_flag *next;
};
void packet_flag_register(struct packet_flag *flag);
#define PACKET_FLAG_REGISTER(flag) \
	RTE_INIT(register_##flag) \
	{ \
		packet_flag_register(&flag); \
	}

// Gives slots their places and flags their bits. 0 or -ENOSPC, -EINVAL, explained on stderr.
int packet_slots_start(void);

// A packet gets this many headers of tunnels at most: a tunnel whose outer packets are routed into the tunnel again would go on for ever.
enum { PACKET_WRAPS_MAX = 4 };

static inline bool
packet_may_wrap(const struct packet *p)
{
	return p->wraps < PACKET_WRAPS_MAX;
}

// A header of a tunnel goes around the packet, which is ours from now on. packet_may_wrap() was asked.
static inline void
packet_wrap(struct packet *p)
{
	p->wraps++;
	p->flags = (uint16_t)((p->flags & ~PACKET_ROUTED) | PACKET_OURS | PACKET_TUNNELLED);
	p->l2_length = 0;
}

// Behind every mbuf.
enum { PACKET_SIZE = sizeof(struct packet) + PACKET_SLOTS_SIZE };

static inline struct packet *
packet_of(struct rte_mbuf *m)
{
	return (struct packet *)(m + 1);
}

static inline void *
packet_slot(struct rte_mbuf *m, const struct packet_slot *slot)
{
	return (uint8_t *)(packet_of(m) + 1) + slot->offset;
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

// Whether there are `bytes` before the data for a header. Where the headroom does not suffice, the data moves back in
// its buffer, and the received headers before it are lost.
static inline bool
packet_make_room(struct rte_mbuf *m, unsigned bytes)
{
	uint16_t more = (uint16_t)(bytes - m->data_off);

	if (likely(m->data_off >= bytes))
		return true;
	if (bytes > UINT16_MAX || m->data_off + m->data_len + more > m->buf_len || rte_mbuf_refcnt_read(m) != 1 ||
		!RTE_MBUF_DIRECT(m))
		return false;
	memmove(rte_pktmbuf_mtod_offset(m, uint8_t *, more), rte_pktmbuf_mtod(m, uint8_t *), m->data_len);
	m->data_off = (uint16_t)(m->data_off + more);
	packet_of(m)->l2_length = 0;
	return true;
}

// The device checks checksums of the frame that came in. Its result does not hold for a packet that was inside another, or for one that was
// reassembled. A packet from a tunnel has no bytes of the frame left; after a reassembly, call packet_forget_checksums().
static inline bool
packet_checksum_found(const struct rte_mbuf *m, uint64_t mask, uint64_t good)
{
	const struct packet *p = (const struct packet *)(m + 1);

	return p->l2_length > 0 && (m->ol_flags & mask) == good;
}

static inline void
packet_forget_checksums(struct rte_mbuf *m)
{
	m->ol_flags &= ~(RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
}
