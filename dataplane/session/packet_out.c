// The API's PacketOut: packets of the control plane's, out of a port, an interface or a session.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/api.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "port/port.h"
#include "session/session.h"

enum { SMALLEST_FRAME = 14 };

static struct rte_mbuf *
packet_with(const ProtobufCBinaryData *bytes, struct api_call *call)
{
	struct rte_mbuf *m = packet_new();
	char *data = m && bytes->len <= UINT16_MAX ? rte_pktmbuf_append(m, (uint16_t)bytes->len) : NULL;

	if (!data) {
		rte_pktmbuf_free(m);
		api_fail(call, m ? EMSGSIZE : ENOBUFS,
			m ? "packet: it is longer than a buffer" : "packet: there is no free buffer");
		return NULL;
	}
	memcpy(data, bytes->data, bytes->len);
	packet_of(m)->flags = PACKET_OURS;
	return m;
}

static void
out_of_port(struct api_call *call, const struct object *object, const ProtobufCBinaryData *frame)
{
	struct rte_mbuf *m = packet_with(frame, call);
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;

	if (!m)
		return;
	m->port = port_of(object)->id;
	inject(m, &tx_node);
	api_reply(call, &reply, true);
}

// The frame's own header is replaced by the interface's with the same destination and type.
static void
out_of_interface(struct api_call *call, const struct object *object, const ProtobufCBinaryData *frame)
{
	struct rte_mbuf *m = packet_with(frame, call);
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	uint32_t index = interface_of(object);
	struct rte_ether_hdr ether;
	uint8_t room[32];
	unsigned length;

	if (!m)
		return;
	if (interface_at(index)->circuit.port == NO_PORT) {
		rte_pktmbuf_free(m);
		api_fail(call, ENODEV, "interface: a loopback has no way out");
		return;
	}
	memcpy(&ether, rte_pktmbuf_mtod(m, void *), sizeof(ether));
	length = interface_header(index, &ether.dst_addr, rte_be_to_cpu_16(ether.ether_type), room);
	packet_advance(m, (int)sizeof(ether) - (int)length);
	memcpy(rte_pktmbuf_mtod(m, void *), room + sizeof(room) - length, length);
	m->port = interface_at(index)->circuit.port;
	inject(m, &tx_node);
	api_reply(call, &reply, true);
}

static void
to_session(struct api_call *call, const struct object *object, const ProtobufCBinaryData *packet)
{
	struct rte_mbuf *m;
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	uint8_t version = packet->len > 0 ? packet->data[0] >> 4 : 0;

	if ((version != 4 || packet->len < 20) && (version != 6 || packet->len < 40)) {
		api_fail(call, EINVAL, "packet: an IPv4 or IPv6 packet is accepted for a session");
		return;
	}
	m = packet_with(packet, call);
	if (!m)
		return;
	packet_of(m)->session = session_of(object);
	packet_of(m)->family = version;
	packet_of(m)->direction = DOWN;
	inject(m, &session_out_node);
	api_reply(call, &reply, true);
}

static void
serve_packet_out(struct api_call *call, const Sluice__V1__Request *request)
{
	const Sluice__V1__PacketOut *out = request->packet_out;
	const struct kind *kind;
	const char *name, *field;
	char message[128];
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
	default:
		api_fail(call, EINVAL, "way: a port, an interface or a session is accepted");
		return;
	}
	object = object_find(kind, name);
	if (!object) {
		snprintf(message, sizeof(message), "%s: there is no %s %s", field, kind->name, name);
		api_fail(call, ENOENT, message);
	} else if (kind != &session_kind && out->packet.len < SMALLEST_FRAME)
		api_fail(call, EINVAL, "packet: a whole Ethernet frame is accepted");
	else if (kind == &port_kind)
		out_of_port(call, object, &out->packet);
	else if (kind == &interface_kind)
		out_of_interface(call, object, &out->packet);
	else
		to_session(call, object, &out->packet);
}

API_OPERATION(packet_out_operation, SLUICE__V1__REQUEST__OPERATION_PACKET_OUT, serve_packet_out)
