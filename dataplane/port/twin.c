// SPDX-License-Identifier: Apache-2.0
// TAP interfaces in Linux namespaces (packet(7), netlink(7), rtnetlink(7)).
#include "port/twin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <net/if_arp.h>

#include "core/drop.h"
#include "core/loop.h"
#include "core/punt.h"
#include "core/trace.h"
#include "port/device.h"
#include "port/netlink.h"
#include "server/event.h"

INJECTED(tx_node)

enum { FRAMES_AT_ONCE = 64, FRAME_MAX = 9728 };

DROP(drop_too_long, "twin-frame-too-long", "A frame from or for the port's Linux twin does not fit into a buffer.")
DROP(drop_full, "twin-queue-full", "The port's Linux twin had no room for the frame.")
DROP(drop_gone, "twin-gone", "The port's Linux twin was deleted or is down.")

struct twin_address {
	uint8_t family, length;
	uint8_t bytes[16];
};

struct twin {
	int fd;        // of the TAP, or -1: it was deleted
	int namespace; // file descriptor, or -1: our own
	unsigned index;
	struct port *port;
	char name[IFNAMSIZ], namespace_name[NAME_MAX + 1];
	struct twin_address *addresses; // that it must have
	size_t address_count;
};

// Go into the twin's namespace and back. The main thread alone does so.
static int
enter(int namespace)
{
	int home;

	if (namespace < 0)
		return -1;
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (home >= 0 && setns(namespace, CLONE_NEWNET)) {
		close(home);
		home = -1;
	}
	return home;
}

static void
leave(int home)
{
	if (home < 0)
		return;
	if (setns(home, CLONE_NEWNET))
		perror("twin: cannot return to our own network namespace");
	close(home);
}

static void
tell(const struct twin *twin)
{
	Sluice__V1__Event event = SLUICE__V1__EVENT__INIT;
	Sluice__V1__PortTwin change = SLUICE__V1__PORT_TWIN__INIT;

	if (!twin->port->object)
		return;
	change.port = twin->port->object->name;
	change.there = twin->fd >= 0;
	event.event_case = SLUICE__V1__EVENT__EVENT_PORT_TWIN;
	event.port_twin = &change;
	event_send(&event);
	fprintf(stderr, "twin: the TAP %s of port %s %s\n", twin->name, change.port,
		change.there ? "is there again" : "was deleted or moved away; it will be made again");
}

// A TAP that was deleted would report itself for ever.
static void
forget_tap(struct twin *twin)
{
	loop_remove(twin->fd);
	close(twin->fd);
	twin->fd = -1;
	tell(twin);
}

static bool (*output_watcher)(uint16_t port, struct rte_mbuf *m);

void
twin_watch_output(bool (*take)(uint16_t port, struct rte_mbuf *m))
{
	output_watcher = take;
}

static void
from_twin(int fd, uint32_t events, void *argument)
{
	struct twin *twin = argument;

	for (unsigned i = 0; i < FRAMES_AT_ONCE; i++) {
		uint8_t frame[FRAME_MAX];
		ssize_t length = read(fd, frame, sizeof(frame));
		struct rte_mbuf *m;
		char *data;

		if (length < 0 && errno != EAGAIN && errno != EINTR)
			forget_tap(twin);
		if (length <= 0)
			return;
		m = packet_new();
		if (!m)
			continue;
		// A frame that fills the buffer may be cut.
		data = length < (ssize_t)sizeof(frame) ? rte_pktmbuf_append(m, (uint16_t)length) : NULL;
		if (!data) {
			drop_now(m, &drop_too_long);
			continue;
		}
		memcpy(data, frame, (size_t)length);
		m->port = twin->port->id;
		packet_of(m)->flags = PACKET_OURS;
		if (!output_watcher || !output_watcher(twin->port->id, m))
			inject(m, &tx_node);
	}
}

// In the twin's namespace. The request names the TAP.
static int
set_link(int control, struct ifreq *request, uint16_t mtu, const struct rte_ether_addr *mac)
{
	request->ifr_mtu = mtu;
	if (ioctl(control, SIOCSIFMTU, request))
		return -errno;
	request->ifr_hwaddr = (struct sockaddr){.sa_family = ARPHRD_ETHER};
	memcpy(request->ifr_hwaddr.sa_data, mac, RTE_ETHER_ADDR_LEN);
	return ioctl(control, SIOCSIFHWADDR, request) ? -errno : 0;
}

// Else Linux removes, with the first address of a network, the others that are in it.
static void
promote_secondaries(const char *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/promote_secondaries", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1", 1) != 1)
		perror("twin: cannot set promote_secondaries");
	if (fd >= 0)
		close(fd);
}

static int
bring_up(struct twin *twin, const char *name)
{
	struct ifreq request = {0};
	int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), error;

	if (control < 0)
		return -errno;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	error = set_link(control, &request, twin->port->mtu, &twin->port->mac);
	promote_secondaries(name);
	if (!error && ioctl(control, SIOCGIFFLAGS, &request))
		error = -errno;
	request.ifr_flags |= IFF_UP;
	if (!error && ioctl(control, SIOCSIFFLAGS, &request))
		error = -errno;
	close(control);
	twin->index = if_nametoindex(name);
	return error;
}

// The namespace by its name, as of now. 0 or a negative errno.
static int
open_namespace(struct twin *twin)
{
	char path[NAME_MAX + 32];

	if (!twin->namespace_name[0])
		return 0;
	snprintf(path, sizeof(path), "/run/netns/%s", twin->namespace_name);
	twin->namespace = open(path, O_RDONLY | O_CLOEXEC);
	return twin->namespace < 0 ? -errno : 0;
}

static int
make_tap(struct twin *twin)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_TUN_EXCL};
	int home = enter(twin->namespace), error = 0;

	if (twin->namespace >= 0 && home < 0)
		return -EPERM;
	twin->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	memcpy(request.ifr_name, twin->name, sizeof(twin->name));
	if (twin->fd < 0 || ioctl(twin->fd, TUNSETIFF, &request))
		error = -errno;
	if (!error)
		error = bring_up(twin, twin->name);
	leave(home);
	if (!error)
		error = loop_add(twin->fd, EPOLLIN, from_twin, twin);
	if (error && twin->fd >= 0) {
		close(twin->fd);
		twin->fd = -1;
	}
	return error;
}

int
twin_open(struct port *port, const char *name, const char *namespace, struct fault *f)
{
	struct twin *twin = calloc(1, sizeof(*twin));
	int error;

	if (!twin)
		return fault(f, ENOMEM, "twin: there is no memory for it");
	*twin = (struct twin){.fd = -1, .namespace = -1, .port = port};
	port->twin = twin;
	if (strchr(namespace, '/') || strlen(namespace) > NAME_MAX || strlen(name) == 0 ||
		strlen(name) >= sizeof(twin->name)) {
		twin_close(port);
		return fault(f, EINVAL, "twin: name takes up to 15 characters, namespace a name as of `ip netns add`");
	}
	strcpy(twin->name, name);
	strcpy(twin->namespace_name, namespace);
	if (open_namespace(twin)) {
		twin_close(port);
		return fault(f, ENOENT, "twin.namespace: there is no namespace %s", namespace);
	}
	error = make_tap(twin);
	if (error) {
		twin_close(port);
		return fault(
			f, device_errno(error), "twin.name: the TAP %s cannot be made (%s)", name, strerror(-error));
	}
	return 0;
}

static void
change_address(const struct twin *twin, bool add, const struct twin_address *a)
{
	struct {
		struct nlmsghdr header;
		struct ifaddrmsg message;
		struct rtattr attribute;
		uint8_t address[16];
		struct rtattr attribute2;
		uint8_t address2[16];
	} request = {0};
	size_t size = a->family == 4 ? 4 : 16;
	uint8_t answer[1024] __attribute__((aligned(8)));
	char text[INET6_ADDRSTRLEN] = "?";
	int home, error;

	request.header.nlmsg_type = add ? RTM_NEWADDR : RTM_DELADDR;
	request.header.nlmsg_flags = (uint16_t)(add ? NLM_F_CREATE | NLM_F_REPLACE : 0);
	request.message.ifa_family = a->family == 4 ? AF_INET : AF_INET6;
	request.message.ifa_prefixlen = a->length;
	request.message.ifa_index = twin->index;
	// The data plane answers for the address already: no duplicate is looked for.
	request.message.ifa_flags = IFA_F_NODAD;
	request.attribute = (struct rtattr){.rta_len = (uint16_t)RTA_LENGTH(size), .rta_type = IFA_LOCAL};
	memcpy(request.address, a->bytes, size);
	if (a->family == 4) {
		// IFA_LOCAL and IFA_ADDRESS follow each other without padding for four bytes.
		memcpy((uint8_t *)&request.attribute + RTA_LENGTH(4),
			&(struct rtattr){.rta_len = RTA_LENGTH(4), .rta_type = IFA_ADDRESS}, sizeof(struct rtattr));
		memcpy((uint8_t *)&request.attribute + RTA_LENGTH(4) + sizeof(struct rtattr), a->bytes, 4);
		request.header.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(request.message)) + 2 * RTA_LENGTH(4));
	} else {
		request.header.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(request.message)) + RTA_LENGTH(16));
	}
	home = enter(twin->namespace);
	error = twin->namespace >= 0 && home < 0 ? -EPERM : netlink_request(&request.header, answer, sizeof(answer));
	leave(home);
	// An address to remove may be gone already.
	if (error >= 0 || (!add && (error == -EADDRNOTAVAIL || error == -ENODEV)))
		return;
	inet_ntop(request.message.ifa_family, a->bytes, text, sizeof(text));
	fprintf(stderr, "twin: the TAP %s does not %s the address %s/%u: %s\n", twin->name, add ? "take" : "give up",
		text, a->length, strerror(-error));
}

// Whether the namespace of the twin's name is another one now.
static bool
namespace_changed(const struct twin *twin)
{
	char path[NAME_MAX + 32];
	struct stat named, ours;

	if (twin->namespace < 0)
		return false;
	snprintf(path, sizeof(path), "/run/netns/%s", twin->namespace_name);
	return stat(path, &named) == 0 && fstat(twin->namespace, &ours) == 0 && named.st_ino != ours.st_ino;
}

// Whether the TAP was moved into another namespace.
static bool
moved(const struct twin *twin)
{
	struct stat expected, found;
	int namespace = ioctl(twin->fd, TUNGETDEVNETNS);
	bool known;

	if (namespace < 0)
		return false;
	known = fstat(namespace, &found) == 0 &&
		(twin->namespace < 0 ? stat("/proc/self/ns/net", &expected) : fstat(twin->namespace, &expected)) == 0;
	close(namespace);
	return known && expected.st_ino != found.st_ino;
}

void
twin_look(struct port *port)
{
	struct twin *twin = port->twin;

	if (!twin)
		return;
	if (namespace_changed(twin)) {
		if (twin->fd >= 0)
			forget_tap(twin);
		close(twin->namespace);
		twin->namespace = -1;
	}
	if (twin->fd >= 0 && moved(twin))
		forget_tap(twin);
	if (twin->fd >= 0 || (twin->namespace < 0 && open_namespace(twin)) || make_tap(twin))
		return;
	for (size_t i = 0; i < twin->address_count; i++)
		change_address(twin, true, &twin->addresses[i]);
	tell(twin);
}

int
twin_follow(const struct port *port, uint16_t mtu, const struct rte_ether_addr *mac, struct fault *f)
{
	const struct twin *twin = port->twin;
	struct ifreq request = {0};
	int home, control, error = 0;

	if (!twin)
		return 0;
	// A TAP that was deleted or moved away gets both when it is made again.
	if (twin->fd < 0 || moved(twin))
		return 0;
	home = enter(twin->namespace);
	if (twin->namespace >= 0 && home < 0)
		return fault(f, EPERM, "twin.namespace: it cannot be entered");
	control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	// It may have been renamed.
	if (control < 0 || !if_indextoname(twin->index, request.ifr_name))
		error = -errno;
	else
		error = set_link(control, &request, mtu, mac);
	if (error && request.ifr_name[0])
		set_link(control, &request, port->mtu, &port->mac);
	if (control >= 0)
		close(control);
	leave(home);
	return error ? fault(f, device_errno(error), "twin: its TAP does not take the port's mtu and mac (%s)",
			       strerror(-error))
		     : 0;
}

void
twin_close(struct port *port)
{
	struct twin *twin = port->twin;

	if (!twin)
		return;
	port->twin = NULL;
	if (twin->fd >= 0) {
		loop_remove(twin->fd);
		close(twin->fd);
	}
	if (twin->namespace >= 0)
		close(twin->namespace);
	free(twin->addresses);
	free(twin);
}

// The address among those it has to have, or NULL.
static struct twin_address *
find_address(const struct twin *twin, const struct twin_address *changed)
{
	for (size_t i = 0; i < twin->address_count; i++)
		if (memcmp(&twin->addresses[i], changed, sizeof(*changed)) == 0)
			return &twin->addresses[i];
	return NULL;
}

void
twin_address(struct port *port, bool add, uint8_t family, const uint8_t *address, uint8_t length)
{
	struct twin *twin = port->twin;
	struct twin_address changed = {.family = family, .length = length}, *known, *more;

	if (!twin)
		return;
	memcpy(changed.bytes, address, family == 4 ? 4 : 16);
	known = find_address(twin, &changed);
	if (add && !known) {
		more = realloc(twin->addresses, (twin->address_count + 1) * sizeof(*more));
		if (more) {
			twin->addresses = more;
			more[twin->address_count++] = changed;
		}
	} else if (!add && known) {
		*known = twin->addresses[--twin->address_count];
	}
	if (twin->fd >= 0)
		change_address(twin, add, &changed);
}

// NULL, or why the twin did not get the frame.
static const struct drop *
write_frame(const struct twin *twin, struct rte_mbuf *m)
{
	static uint8_t frame[FRAME_MAX];
	uint32_t before = packet_of(m)->l2_length, length = before + m->pkt_len;
	const void *data;
	ssize_t written;

	if (twin->fd < 0)
		return &drop_gone;
	if (before > m->data_off || length > sizeof(frame))
		return &drop_too_long;
	packet_advance(m, -(int)before);
	data = rte_pktmbuf_read(m, 0, length, frame);
	written = write(twin->fd, data, length);
	packet_advance(m, (int)before);
	if (written >= 0) {
		trace_end(m, false);
		return NULL;
	}
	return errno == EAGAIN || errno == ENOBUFS ? &drop_full : &drop_gone;
}

bool
twin_copy(const struct port *port, struct rte_mbuf *m)
{
	const struct drop *reason;

	if (!port->twin)
		return false;
	reason = write_frame(port->twin, m);
	if (reason)
		drop_lost(reason);
	return true;
}

static void
to_twin(struct rte_mbuf *m)
{
	const struct port *port = &ports[packet_of(m)->port % PORT_MAX];
	const struct drop *reason;

	if (!port->twin) {
		punt_to_watcher(m);
		return;
	}
	reason = write_frame(port->twin, m);
	if (reason)
		drop_now(m, reason);
	else
		rte_pktmbuf_free(m);
}

struct punt twin_punt = {.name = "twin", .limits = {.rate = 100000}, .handle = to_twin};
RTE_INIT(register_twin_punt)
{
	punt_register(&twin_punt);
}
