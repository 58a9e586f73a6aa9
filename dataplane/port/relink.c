// SPDX-License-Identifier: Apache-2.0
// See relink.h.
#include "port/relink.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/loop.h"
#include "port.pb-c.h"
#include "port/port.h"

enum { PAUSE_MAX = 64, MESSAGES = 32768 };

// Of a port that could not be attached to its interface: the interface, and the seconds until the next attempt and
// the one after that. An attempt costs net_af_xdp packet buffers (xdp.c), so the pauses double.
static struct failure {
	unsigned index, pause, next;
	bool up;
} failures[PORT_MAX];

enum way { OF_CARD, OF_LINUX, OF_ITSELF };

// The maker of the interface: a card's driver, which reports changes of the card by itself, another program, or the device itself.
static enum way
way_of(const struct port *port)
{
	Sluice__V1__Port *spec = sluice__v1__port__unpack(NULL, port->object->spec_length, port->object->spec);
	enum way way = OF_CARD;

	if (spec && strncmp(spec->device, "net_", 4) == 0)
		way = strncmp(spec->device, "net_tap", 7) == 0 ? OF_ITSELF : OF_LINUX;
	if (spec)
		sluice__v1__port__free_unpacked(spec, NULL);
	return way;
}

static void
tell_gone(struct port *port)
{
	char why[LINK_WHY_SIZE];

	snprintf(why, sizeof(why), "the Linux interface %s is gone; the port attaches to the next one of that name",
		port->lost);
	port_report_why(port, why);
}

// `now`: without waiting for the pause to end, unless the interface is as it was when the last attempt failed.
static void
regain(struct port *port, bool now)
{
	struct failure *last = &failures[port->id];
	bool own = way_of(port) == OF_ITSELF;
	unsigned index = own ? 0 : if_nametoindex(port->lost);
	bool up = index > 0 && link_is_set_up(index);
	char why[LINK_WHY_SIZE];
	struct fault f = {0};

	if (!own && index == 0) {
		*last = (struct failure){0};
		tell_gone(port);
		return;
	}
	if (last->pause > 0 && (!now || (index == last->index && up == last->up)))
		return;
	if (port_regain(port, &f) == 0) {
		*last = (struct failure){0};
		return;
	}
	last->index = index;
	last->up = up;
	last->pause = last->next ? last->next : 1;
	last->next = last->pause < PAUSE_MAX ? last->pause * 2 : PAUSE_MAX;
	snprintf(why, sizeof(why), "the Linux interface %s %s: %s", port->lost,
		own ? "is gone and cannot be made again" : "is back and cannot be used", f.text);
	port_report_why(port, why);
}

static void
regain_all(void)
{
	for (unsigned i = 0; i < PORT_MAX; i++)
		if (ports[i].object && ports[i].device == NO_PORT)
			regain(&ports[i], true);
}

// `index` 0: look which interfaces are gone.
static void
lose(unsigned index)
{
	char name[IF_NAMESIZE];

	for (unsigned i = 0; i < PORT_MAX; i++) {
		struct port *port = &ports[i];

		if (!port->object || port->device == NO_PORT || port->link.index == 0 ||
			(index ? port->link.index != index : if_indextoname(port->link.index, name) != NULL) ||
			way_of(port) == OF_CARD)
			continue;
		port_lose(port);
		tell_gone(port);
		failures[i] = (struct failure){0};
	}
}

static void
heard(int fd, uint32_t events, void *unused)
{
	static union {
		struct nlmsghdr header;
		uint8_t bytes[MESSAGES];
	} messages;
	bool appeared = false;
	ssize_t length;

	while ((length = recv(fd, &messages, sizeof(messages), MSG_DONTWAIT)) != 0) {
		const struct nlmsghdr *m = &messages.header;

		if (length < 0 && errno == ENOBUFS) {
			// The kernel had more to report than there was room for.
			lose(0);
			appeared = true;
			continue;
		}
		if (length < 0)
			break;
		for (size_t left = (size_t)length; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
			const struct ifinfomsg *link = NLMSG_DATA(m);

			// A bridge reports its members, too: AF_BRIDGE.
			if (m->nlmsg_len < NLMSG_LENGTH(sizeof(*link)) || link->ifi_family != AF_UNSPEC)
				continue;
			if (m->nlmsg_type == RTM_DELLINK)
				lose((unsigned)link->ifi_index);
			// net_tap makes its interface itself.
			appeared = appeared || m->nlmsg_type == RTM_NEWLINK || m->nlmsg_type == RTM_DELLINK;
		}
	}
	if (appeared)
		regain_all();
}

void
relink_look(void)
{
	for (unsigned i = 0; i < PORT_MAX; i++)
		if (ports[i].object && ports[i].device == NO_PORT && failures[i].pause > 0) {
			failures[i].pause--;
			regain(&ports[i], false);
		}
}

int
relink_start(void)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	int error = fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;

	if (!error)
		error = loop_add(fd, EPOLLIN, heard, NULL);
	if (error && fd >= 0)
		close(fd);
	return error;
}
