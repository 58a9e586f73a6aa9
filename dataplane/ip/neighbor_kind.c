// Kind Neighbor: a neighbour whose Ethernet address is configured; and the list of all neighbours.
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/api.h"
#include "ether/interface.h"
#include "ip.pb-c.h"
#include "ip/neighbor_table.h"
#include "ip/vrf.h"
#include "port/mac.h"

static int
parse(const Sluice__V1__Neighbor *spec, struct object **interface, uint8_t address[16], uint8_t *family,
	struct rte_ether_addr *mac, struct fault *f)
{
	int error;

	if (spec->interface[0] == '\0')
		return fault(f, EINVAL, "interface: a neighbour needs one");
	error = object_need(&interface_kind, spec->interface, "interface", interface, f);
	if (error)
		return error;
	if (address_parse(spec->address, address, family))
		return fault(f, EINVAL, "address: \"%.64s\" is not an IPv4 or IPv6 address", spec->address);
	if (strlen(spec->mac) != 17 || rte_ether_unformat_addr(spec->mac, mac))
		return fault(f, EINVAL, "mac: \"%.64s\" is not an Ethernet address like 02:00:00:00:00:01", spec->mac);
	if (!rte_is_valid_assigned_ether_addr(mac))
		return fault(f, EINVAL, "mac: %s is a group's address or all zero; a neighbour has its own", spec->mac);
	if (interface_at(interface_of(*interface))->circuit.port == NO_PORT)
		return fault(f, EINVAL, "interface: %s is a loopback, which has no neighbours", spec->interface);
	return 0;
}

static int
put(struct object *object, const void *wanted, const void *previous, struct fault *f)
{
	const Sluice__V1__Neighbor *spec = wanted, *old = previous;
	struct object *interface;
	struct neighbor *n;
	struct rte_ether_addr mac;
	uint8_t address[16], family;
	int error = parse(spec, &interface, address, &family, &mac, f);

	if (error)
		return error;
	if (old && (strcmp(old->interface, spec->interface) != 0 || strcmp(old->address, spec->address) != 0))
		return fault(f, EINVAL,
			"interface and address of a neighbour cannot be changed: delete it and make another");
	n = neighbor_get(interface_of(interface), family, address);
	if (!n)
		return fault(f, ENOSPC, "address: there is no room for another neighbour; at most %d are held",
			NEIGHBOR_MOST);
	if (n->object && n->object != object)
		return fault(f, EEXIST, "address: %s on %s is neighbor \"%s\" already", spec->address, spec->interface,
			n->object->name);
	if (!old) {
		object->state = interface;
		object_use(interface);
	}
	neighbor_configure(n, object, &mac);
	return 0;
}

static int delete (struct object *object, const void *wanted, struct fault *f)
{
	const Sluice__V1__Neighbor *spec = wanted;
	struct object *interface = object->state;
	uint8_t address[16], family;
	struct neighbor *n;

	if (address_parse(spec->address, address, &family) == 0) {
		n = neighbor_find(interface_of(interface), family, address);
		if (n && n->object == object)
			neighbor_configure(n, NULL, NULL);
	}
	object_unuse(interface);
	return 0;
}

static int
start(void)
{
	int error = neighbor_table_start();

	if (error == 0)
		error = arp_start();
	if (error == 0)
		error = icmp_start();
	if (error == 0)
		error = reassembly_start();
	return error;
}

static struct kind neighbor_kind = {
	.name = "Neighbor",
	.spec = &sluice__v1__neighbor__descriptor,
	.put = put,
	.delete = delete,
	.start = start,
};
KIND_REGISTER(neighbor_kind)

int
neighbor_page(const char *page, uint32_t limit,
	void (*each)(const char *interface, const char *address, const char *mac, const char *state, void *argument),
	void *argument, char *next_page, size_t next_page_size)
{
	// A delayed first probe (RFC 4861) is a matter of seconds, and of nobody else.
	static const char *const states[NEIGHBOR_STATES] = {
		[NEIGHBOR_INCOMPLETE] = "incomplete",
		[NEIGHBOR_REACHABLE] = "reachable",
		[NEIGHBOR_STALE] = "stale",
		[NEIGHBOR_DELAY] = "stale",
		[NEIGHBOR_PROBE] = "probe",
		[NEIGHBOR_FAILED] = "failed",
		[NEIGHBOR_STATIC] = "static",
	};
	uint64_t cursor;
	uint32_t given = 0;

	next_page[0] = '\0';
	if (api_page(page, &cursor))
		return -EINVAL;
	for (; cursor < neighbors.used; cursor++) {
		const struct neighbor *n = slab_at(&neighbors, (uint32_t)cursor);
		char address[INET6_ADDRSTRLEN], mac[MAC_TEXT_SIZE] = "";

		// An entry of no state was never wanted, one without a hop is not in use.
		if (n->hop == 0 || n->orphan || !states[n->resolving.entry.state])
			continue;
		if (given == limit) {
			snprintf(next_page, next_page_size, "%lu", cursor);
			break;
		}
		inet_ntop(n->family == 4 ? AF_INET : AF_INET6, n->address, address, sizeof(address));
		if (neighbor_usable(n->resolving.entry.state))
			mac_text(mac, &n->resolving.entry.mac);
		each(interface_detail(n->interface)->object->name, address, mac, states[n->resolving.entry.state],
			argument);
		given++;
	}
	return (int)given;
}
