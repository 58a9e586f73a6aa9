// Subscribers whose Ethernet address is not known yet: packets wait on the main thread while we ask by ARP (RFC 826) or
// neighbour solicitation (RFC 4861 section 7.2.2) on the session's circuit. Any packet from the subscriber answers.
#include <errno.h>
#include <string.h>

#include "core/loop.h"
#include "core/punt.h"
#include "ip/header.h"
#include "ip/vrf.h"
#include "session/header.h"
#include "session/record.h"

enum {
	WAITING_SESSIONS = 4096,
	WAITING_PACKETS = 8, // of one session
	TRIES = 3,
	POLL_NS = 10 * 1000 * 1000,
	POLLS_A_TRY = 100, // RETRANS_TIMER, 1 second
	PACKETS_A_SECOND = 20000,
	ARP_BYTES = 28,
	ND_BYTES = 32, // solicitation with a source link-layer address
	SMALLEST = 46, // payload of an Ethernet frame
};

struct waiting {
	uint32_t session;
	uint8_t tries, count;
	uint16_t polls; // since the last try
	struct rte_mbuf *packets[WAITING_PACKETS];
};

static struct waiting waiting[WAITING_SESSIONS];
static unsigned waiting_count;
static uint16_t *place_of; // by session: its place in `waiting` plus 1, or 0

DROP(drop_session_unresolved, "session-unresolved", "The subscriber's Ethernet address could not be found out.")
DROP(drop_session_queue, "session-resolver-full", "Too many packets wait for a subscriber's Ethernet address.")
DROP(drop_session_gone, "session-gone", "The packet's session was deleted while it waited.")
DROP(drop_session_mac_unknown, "session-mac-unknown",
	"A PPPoE subscriber's Ethernet address is not known: none is configured and nothing was received.")

static void wait_for(struct rte_mbuf *m);

PUNT(punt_unresolved, "session-unresolved", PACKETS_A_SECOND, wait_for)

uint16_t
session_resolve(struct packet *p)
{
	const struct session *s = session_at(p->session);

	if (s->pppoe && !session_mac_known(s))
		return packet_drop(p, &drop_session_mac_unknown);
	return packet_punt(p, &punt_unresolved);
}

// An empty frame on the circuit, its payload to be written: `length` bytes, zeroed.
static struct rte_mbuf *
frame(uint32_t index, const struct rte_ether_addr *destination, uint16_t type, size_t length, uint8_t **payload)
{
	struct rte_mbuf *m = packet_new();
	uint8_t room[SESSION_HEADER_ROOM];
	unsigned header = session_header(index, destination, type, room);
	size_t padded = length < SMALLEST ? SMALLEST : length;
	uint8_t *at;

	if (!m)
		return NULL;
	at = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(header + padded));
	if (!at) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	memcpy(at, room + SESSION_HEADER_ROOM - header, header);
	memset(at + header, 0, padded);
	*payload = at + header;
	m->port = session_at(index)->port;
	packet_of(m)->flags = PACKET_OURS;
	return m;
}

static void
ask_arp(uint32_t index, const uint8_t *target)
{
	static const struct rte_ether_addr broadcast = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
	static const uint8_t request[8] = {0, 1, 8, 0, 6, 4, 0, 1};
	uint8_t near[16] = {0}, own[16] = {0}, *arp;
	struct rte_mbuf *m = frame(index, &broadcast, RTE_ETHER_TYPE_ARP, ARP_BYTES, &arp);

	if (!m)
		return;
	memcpy(near, target, 4);
	// Without an address of ours it is a probe (RFC 5227 section 1.1), which is answered as well.
	if (vrf_own_address(session_at(index)->vrf, 4, near, own))
		memset(own, 0, sizeof(own));
	memcpy(arp, request, sizeof(request));
	memcpy(arp + 8, &ports[m->port].mac, RTE_ETHER_ADDR_LEN);
	memcpy(arp + 14, own, 4);
	memcpy(arp + 24, target, 4);
	inject(m, &tx_node);
}

static void
ask_nd(uint32_t index, const uint8_t *target)
{
	struct rte_ether_addr group = {{0x33, 0x33, 0xff, target[13], target[14], target[15]}};
	uint8_t *start, *icmp;
	struct rte_mbuf *m = frame(index, &group, RTE_ETHER_TYPE_IPV6, sizeof(struct ip6_header) + ND_BYTES, &start);
	const uint8_t *mac;
	struct ip6_header *ip;

	if (!m)
		return;
	mac = ports[m->port].mac.addr_bytes;
	ip = (struct ip6_header *)start;
	icmp = start + sizeof(*ip);
	ip->version_class_flow = rte_cpu_to_be_32(6u << 28);
	ip->payload_length = rte_cpu_to_be_16(ND_BYTES);
	ip->next_header = PROTOCOL_ICMP6;
	ip->hop_limit = 255;
	// Our link-local address of this port (RFC 4291 appendix A) to the solicited-node address of the target.
	memcpy(ip->source,
		(const uint8_t[16]){
			0xfe, 0x80, 0, 0, 0, 0, 0, 0, mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]},
		16);
	memcpy(ip->destination,
		(const uint8_t[16]){0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, target[13], target[14], target[15]},
		16);
	icmp[0] = 135;
	memcpy(icmp + 8, target, 16);
	icmp[24] = 1; // source link-layer address, 8 bytes
	icmp[25] = 1;
	memcpy(icmp + 26, mac, RTE_ETHER_ADDR_LEN);
	uint16_t checksum = (uint16_t)~checksum_fold(
		checksum_add(ip6_pseudo_sum(ip->source, ip->destination, ND_BYTES, PROTOCOL_ICMP6), icmp, ND_BYTES));
	memcpy(icmp + 2, &checksum, sizeof(checksum));
	inject(m, &tx_node);
}

// Ask for the packet's destination. Behind a delegated prefix nobody answers for that, so also for the first single address
// that the session has of each family: that is the subscriber's own equipment.
static void
ask(const struct waiting *w)
{
	const struct session_prefixes *prefixes = session_details[w->session].prefixes;
	const uint8_t *first = rte_pktmbuf_mtod(w->packets[0], const uint8_t *), *target = NULL;
	uint8_t family = packet_of(w->packets[0])->family;
	uint8_t asked = 0;

	if (family == 4) {
		target = first + offsetof(struct ip4_header, destination);
		ask_arp(w->session, target);
	} else {
		target = first + offsetof(struct ip6_header, destination);
		ask_nd(w->session, target);
	}
	for (unsigned i = 0; prefixes && i < prefixes->count; i++) {
		const struct session_prefix *prefix = &prefixes->list[i];
		bool four = prefix->family == 4;

		if (prefix->length != (four ? 32 : 128) || (asked & 1u << prefix->family))
			continue;
		asked |= (uint8_t)(1u << prefix->family);
		if (prefix->family == family && memcmp(prefix->address, target, four ? 4 : 16) == 0)
			continue;
		if (four)
			ask_arp(w->session, prefix->address);
		else
			ask_nd(w->session, prefix->address);
	}
}

static void
forget(unsigned place)
{
	place_of[waiting[place].session] = 0;
	waiting_count--;
	if (place != waiting_count) {
		waiting[place] = waiting[waiting_count];
		place_of[waiting[place].session] = (uint16_t)(place + 1);
	}
}

static void
end_wait(unsigned place, const struct drop *reason)
{
	struct waiting w = waiting[place];

	forget(place);
	for (unsigned i = 0; i < w.count; i++)
		if (reason)
			drop_now(w.packets[i], reason);
		else
			inject(w.packets[i], &session_out_node);
}

static void
wait_for(struct rte_mbuf *m)
{
	uint32_t session = packet_of(m)->session;
	struct waiting *w;

	if (session == NO_SESSION || !session_details[session].object) {
		drop_now(m, &drop_session_gone);
		return;
	}
	if (session_mac_known(session_at(session))) {
		inject(m, &session_out_node);
		return;
	}
	if (!packet_may_wait()) {
		drop_now(m, &drop_session_queue);
		return;
	}
	if (place_of[session] == 0) {
		if (waiting_count == WAITING_SESSIONS) {
			drop_now(m, &drop_session_queue);
			return;
		}
		w = &waiting[waiting_count++];
		place_of[session] = (uint16_t)waiting_count;
		*w = (struct waiting){.session = session, .count = 1, .packets = {m}, .tries = 1};
		ask(w);
		return;
	}
	w = &waiting[place_of[session] - 1];
	if (w->count == WAITING_PACKETS)
		drop_now(m, &drop_session_queue);
	else
		w->packets[w->count++] = m;
}

static void
poll_waiting(void *unused)
{
	for (unsigned place = waiting_count; place-- > 0;) {
		struct waiting *w = &waiting[place];

		if (session_mac_known(session_at(w->session))) {
			end_wait(place, NULL);
			continue;
		}
		if (++w->polls < POLLS_A_TRY)
			continue;
		w->polls = 0;
		if (w->tries++ == TRIES)
			end_wait(place, &drop_session_unresolved);
		else
			ask(w);
	}
}

void
session_resolved(uint32_t index)
{
	if (place_of[index] != 0)
		end_wait(place_of[index] - 1u, NULL);
}

void
session_unresolvable(uint32_t index)
{
	if (place_of[index] != 0)
		end_wait(place_of[index] - 1u, &drop_session_gone);
}

int
session_resolve_start(void)
{
	place_of = slab_reserve(sizeof(place_of[0]) * SESSION_LIMIT);
	if (!place_of)
		return -ENOMEM;
	loop_every(POLL_NS, poll_waiting, NULL);
	return 0;
}
