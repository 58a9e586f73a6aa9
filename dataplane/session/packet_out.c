// SPDX-License-Identifier: Apache-2.0
// The API's PacketOut: packets of the control plane's, out of a port, an interface or a session, or routed by a VRF.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/drop.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "port/port.h"
#include "server/api.h"
#include "session/session.h"

INJECTED(tx_node)
INJECTED(session_out_node)
INJECTED(ip4_lookup_node)
INJECTED(ip6_lookup_node)

enum { SMALLEST_FRAME = 14 };

DROP(drop_refused, "packet-out-refused",
	"A packet of the control plane's that could not be sent: its port, interface, session or VRF is not there, or "
	"it is no packet for it.")

static int
packet_with(const ProtobufCBinaryData *bytes, struct rte_mbuf **m, struct fault *f)
{
	char *data;

	*m = packet_new();
	if (!*m)
		return fault(f, ENOBUFS, "packet: there is no free buffer");
	data = bytes->len <= UINT16_MAX ? rte_pktmbuf_append(*m, (uint16_t)bytes->len) : NULL;
	if (!data) {
		rte_pktmbuf_free(*m);
		return fault(f, EMSGSIZE, "packet: it is longer than a buffer");
	}
	memcpy(data, bytes->data, bytes->len);
	packet_of(*m)->flags = PACKET_OURS;
	return 0;
}

static int
out_of_port(const struct object *object, const ProtobufCBinaryData *frame, struct fault *f)
{
	struct rte_mbuf *m;
	int error = packet_with(frame, &m, f);

	if (error)
		return error;
	m->port = port_of(object)->id;
	inject(m, &tx_node);
	return 0;
}

// The frame's own header is replaced by the interface's with the same destination and type.
static int
out_of_interface(const struct object *object, const ProtobufCBinaryData *frame, struct fault *f)
{
	uint32_t index = interface_of(object);
	struct rte_ether_hdr ether;
	struct rte_mbuf *m;
	uint8_t room[32];
	unsigned length;
	int error;

	if (interface_at(index)->link != INTERFACE_ETHERNET)
		return fault(f, ENODEV, "interface: it has no port to send a frame by");
	error = packet_with(frame, &m, f);
	if (error)
		return error;
	memcpy(&ether, rte_pktmbuf_mtod(m, void *), sizeof(ether));
	length = interface_header(index, &ether.dst_addr, rte_be_to_cpu_16(ether.ether_type), room);
	packet_advance(m, (int)sizeof(ether) - (int)length);
	memcpy(rte_pktmbuf_mtod(m, void *), room + sizeof(room) - length, length);
	m->port = interface_at(index)->circuit.port;
	inject(m, &tx_node);
	return 0;
}

static int
to_session(const struct object *object, const ProtobufCBinaryData *packet, struct fault *f)
{
	uint8_t version = packet->len > 0 ? packet->data[0] >> 4 : 0;
	struct rte_mbuf *m;
	int error;

	if ((version != 4 || packet->len < 20) && (version != 6 || packet->len < 40))
		return fault(f, EINVAL, "packet: an IPv4 or IPv6 packet is accepted for a session");
	error = packet_with(packet, &m, f);
	if (error)
		return error;
	packet_of(m)->session = session_of(object);
	packet_of(m)->family = version;
	packet_of(m)->direction = DOWN;
	inject(m, &session_out_node);
	return 0;
}

// A packet of at least its header's length, so that look-up and rewrite need not check it.
static bool
is_whole(const ProtobufCBinaryData *packet)
{
	const uint8_t *ip = packet->data;

	if (packet->len >= sizeof(struct ip4_header) && ip[0] == 0x45)
		return packet->len == (size_t)(ip[2] << 8 | ip[3]);
	return packet->len >= sizeof(struct ip6_header) && ip[0] >> 4 == 6 &&
	       packet->len - sizeof(struct ip6_header) == (size_t)(ip[4] << 8 | ip[5]);
}

static int
by_vrf(const char *name, const ProtobufCBinaryData *packet, struct fault *f)
{
	struct object *object;
	struct rte_mbuf *m;
	uint16_t vrf;
	int error;

	if (!is_whole(packet))
		return fault(f, EINVAL,
			"packet: a whole IPv4 packet without options or a whole IPv6 packet is accepted for a VRF");
	error = vrf_need(name, "vrf", &vrf, &object, f);
	if (error)
		return error;
	object_unuse(object);
	error = packet_with(packet, &m, f);
	if (error)
		return error;
	packet_of(m)->vrf = vrf;
	packet_of(m)->family = packet->data[0] >> 4;
	inject(m, packet_of(m)->family == 4 ? &ip4_lookup_node : &ip6_lookup_node);
	return 0;
}

static int
send_out(const Sluice__V1__PacketOut *out, struct fault *f)
{
	const struct kind *kind;
	const char *name, *field;
	struct object *object;

	switch (out->way_case) {
	case SLUICE__V1__PACKET_OUT__WAY_PORT:
		kind = &port_kind;
		name = out->port;
		field = "port";
		break;
	case SLUICE__V1__PACKET_OUT__WAY_INTERFACE:
		kind = &interface_kind;
		name = out->interface;
		field = "interface";
		break;
	case SLUICE__V1__PACKET_OUT__WAY_SESSION:
		kind = &session_kind;
		name = out->session;
		field = "session";
		break;
	case SLUICE__V1__PACKET_OUT__WAY_VRF:
		return by_vrf(out->vrf, &out->packet, f);
	default:
		return fault(f, EINVAL, "way: a port, an interface, a session or a VRF is accepted");
	}
	object = object_find(kind, name);
	if (!object)
		return fault(f, ENOENT, "%s: there is no %s %.128s", field, kind->name, name);
	if (kind == &session_kind)
		return to_session(object, &out->packet, f);
	if (out->packet.len < SMALLEST_FRAME)
		return fault(f, EINVAL, "packet: a whole Ethernet frame is accepted");
	return kind == &port_kind ? out_of_port(object, &out->packet, f) : out_of_interface(object, &out->packet, f);
}

static void
serve_packet_out(struct api_call *call, const Sluice__V1__Request *request)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	struct fault f = {0};
	int error = send_out(request->packet_out, &f);

	if (error)
		api_fail(call, error, f.text);
	else
		api_reply(call, &reply, true);
}

// Many at once, without a reply.
static void
serve_packets_out(struct api_call *call, const Sluice__V1__Request *request)
{
	struct fault f;

	for (size_t i = 0; i < request->packets_out->n_packets; i++)
		if (send_out(request->packets_out->packets[i], &f))
			drop_lost(&drop_refused);
}

API_OPERATION(packet_out_operation, SLUICE__V1__REQUEST__OPERATION_PACKET_OUT, serve_packet_out)
API_OPERATION(packets_out_operation, SLUICE__V1__REQUEST__OPERATION_PACKETS_OUT, serve_packets_out)
