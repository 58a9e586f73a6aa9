// SPDX-License-Identifier: Apache-2.0
// A network card with several receive queues and a rule of its own, on the sending side of a veth pair: a frame with
// a VLAN tag goes to the queue of its VLAN, IPv4 and ARP without a tag to the queue of the address that it is for.
// Queue n of 4 has VLANs and last bytes of addresses with the remainder n.
struct frame {
	unsigned length, type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress, ifindex;
	unsigned tc_index, cb[5], hash, class, data, data_end;
};

enum { QUEUES = 4, TYPE = 12, TAG = 14, ARP_TARGET = 14 + 24, IP4_DESTINATION = 14 + 16, LEAST = 14 + 28 };

__attribute__((section("classifier"), used)) int
steer(struct frame *frame)
{
	const unsigned char *data = (const unsigned char *)(long)frame->data;
	unsigned key;

	if (data + LEAST > (const unsigned char *)(long)frame->data_end)
		return 0;
	if (frame->vlan_present)
		key = frame->vlan_tci;
	else if (data[TYPE] == 0x81)
		key = data[TAG + 1];
	else if (data[TYPE] == 0x08 && data[TYPE + 1] == 0x06)
		key = data[ARP_TARGET + 3];
	else
		key = data[IP4_DESTINATION + 3];
	frame->queue_mapping = key % QUEUES + 1;
	return 0;
}

char licence[] __attribute__((section("license"), used)) = "GPL";
