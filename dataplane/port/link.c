// SPDX-License-Identifier: Apache-2.0
// The Linux interface under a device (netdevice(7), rtnetlink(7)).
//
// A device closed by DPDK leaves the interface with the port's address, MTU and promiscuity, and a process that is killed
// leaves its XDP program, too. So the earlier settings are stored here and in a file, a line for each interface:
// namespace, index, name, MTU before and given, address before and given, promiscuous before, XDP program.
#include "port/link.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <net/if.h>
#include <net/if_arp.h>

#include "port/mac.h"
#include "port/netlink.h"
#include "port/presence.h"

static struct linux_link *held;
static char *file;

static int
control(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return fd;
}

// Ask for the interface's name each time: it may have been renamed.
static int
ask(unsigned index, unsigned long question, struct ifreq *request)
{
	if (!if_indextoname(index, request->ifr_name))
		return -ENODEV;
	return ioctl(control(), question, request) ? -errno : 0;
}

static uint64_t
own_namespace(void)
{
	struct stat found;

	return stat("/proc/self/ns/net", &found) ? 0 : found.st_ino;
}

static bool
is_set(const uint8_t *mac)
{
	static const uint8_t none[6];

	return memcmp(mac, none, sizeof(none)) != 0;
}

static void
save(void)
{
	char new[4096];
	FILE *out;

	if (!file || snprintf(new, sizeof(new), "%s.new", file) >= (int)sizeof(new))
		return;
	if (!held) {
		unlink(file);
		return;
	}
	out = fopen(new, "we");
	for (const struct linux_link *l = held; l && out; l = l->next) {
		char before[MAC_TEXT_SIZE], mac[MAC_TEXT_SIZE];

		mac_text(before, l->mac_before);
		mac_text(mac, l->mac);
		fprintf(out, "%" PRIu64 " %u %s %d %d %s %s %d %" PRIu32 "\n", own_namespace(), l->index, l->name,
			l->mtu_before, l->mtu, before, mac, l->promiscuous_before, l->program);
	}
	if (!out || fclose(out) || rename(new, file))
		fprintf(stderr, "port: %s cannot be written: interfaces are not given back if we are killed\n", file);
}

// The id of the XDP program on it, or 0.
static uint32_t
program_on(unsigned index)
{
	struct {
		struct nlmsghdr header;
		struct ifinfomsg message;
	} request = {.header = {.nlmsg_len = sizeof(request), .nlmsg_type = RTM_GETLINK},
		.message = {.ifi_index = (int)index}};
	union {
		struct nlmsghdr header;
		uint8_t bytes[16384];
	} answer;
	int length = netlink_request(&request.header, &answer, sizeof(answer)), rest;
	const struct rtattr *a, *inner;

	if (length <= 0 || answer.header.nlmsg_type != RTM_NEWLINK)
		return 0;
	rest = (int)IFLA_PAYLOAD(&answer.header);
	for (a = IFLA_RTA(NLMSG_DATA(&answer.header)); RTA_OK(a, rest); a = RTA_NEXT(a, rest)) {
		int left = (int)RTA_PAYLOAD(a);

		if ((a->rta_type & NLA_TYPE_MASK) != IFLA_XDP)
			continue;
		for (inner = RTA_DATA(a); RTA_OK(inner, left); inner = RTA_NEXT(inner, left))
			if (inner->rta_type == IFLA_XDP_PROG_ID && RTA_PAYLOAD(inner) >= sizeof(uint32_t))
				return *(const uint32_t *)RTA_DATA(inner);
	}
	return 0;
}

static int
remove_program(unsigned index)
{
	struct {
		struct nlmsghdr header;
		struct ifinfomsg message;
		struct rtattr xdp, descriptor;
		int32_t fd;
	} request = {.header = {.nlmsg_len = sizeof(request), .nlmsg_type = RTM_SETLINK},
		.message = {.ifi_index = (int)index},
		.xdp = {.rta_type = IFLA_XDP | NLA_F_NESTED, .rta_len = RTA_LENGTH(RTA_LENGTH(sizeof(int32_t)))},
		.descriptor = {.rta_type = IFLA_XDP_FD, .rta_len = RTA_LENGTH(sizeof(int32_t))},
		.fd = -1};
	uint8_t answer[1024] __attribute__((aligned(8)));

	return netlink_request(&request.header, answer, sizeof(answer));
}

void
link_hold(struct linux_link *link, unsigned index)
{
	struct ifreq mtu = {0}, mac = {0}, flags = {0};

	*link = (struct linux_link){0};
	if (ask(index, SIOCGIFMTU, &mtu) || ask(index, SIOCGIFHWADDR, &mac) || ask(index, SIOCGIFFLAGS, &flags))
		return;
	link->index = index;
	memcpy(link->name, flags.ifr_name, sizeof(link->name));
	link->mtu_before = mtu.ifr_mtu;
	memcpy(link->mac_before, mac.ifr_hwaddr.sa_data, sizeof(link->mac_before));
	link->promiscuous_before = flags.ifr_flags & IFF_PROMISC;
	if (!presence_of_others(index))
		link->foreign = program_on(index);
	link->presence = presence_begin(index);
	link->next = held;
	held = link;
	save();
}

int
link_raise_mtu(struct linux_link *link, int mtu)
{
	struct ifreq request = {0};
	int error = ask(link->index, SIOCGIFMTU, &request);

	if (error)
		return error == -ENODEV ? 0 : error;
	if (request.ifr_mtu >= mtu)
		return 0;
	if (request.ifr_mtu != link->mtu)
		link->mtu_before = request.ifr_mtu;
	link->mtu = mtu;
	save();
	request.ifr_mtu = mtu;
	if (ioctl(control(), SIOCSIFMTU, &request) == 0)
		return 0;
	error = -errno;
	if (ioctl(control(), SIOCGIFMTU, &request) == 0)
		link->mtu = request.ifr_mtu;
	return error;
}

void
link_expect_mac(struct linux_link *link, const uint8_t *mac)
{
	struct ifreq request = {0};

	if (link->index == 0 || ask(link->index, SIOCGIFHWADDR, &request))
		return;
	if (!is_set(link->mac) || memcmp(link->mac, request.ifr_hwaddr.sa_data, sizeof(link->mac)) != 0)
		memcpy(link->mac_before, request.ifr_hwaddr.sa_data, sizeof(link->mac_before));
	memcpy(link->mac, mac, sizeof(link->mac));
	save();
}

void
link_note_program(struct linux_link *link)
{
	if (link->index == 0)
		return;
	link->program = program_on(link->index);
	if (link->program == link->foreign)
		link->program = 0;
	save();
}

static void
complain(const char *what)
{
	fprintf(stderr, "port: cannot put back the %s of the interface under a device: %s\n", what, strerror(errno));
}

static void
restore_alone(const struct linux_link *link)
{
	struct ifreq request = {0};

	if (link->mtu && ask(link->index, SIOCGIFMTU, &request) == 0 && request.ifr_mtu == link->mtu) {
		request.ifr_mtu = link->mtu_before;
		if (ioctl(control(), SIOCSIFMTU, &request))
			complain("MTU");
	}
	if (is_set(link->mac) && ask(link->index, SIOCGIFHWADDR, &request) == 0 &&
		memcmp(request.ifr_hwaddr.sa_data, link->mac, sizeof(link->mac)) == 0) {
		request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
		memcpy(request.ifr_hwaddr.sa_data, link->mac_before, sizeof(link->mac_before));
		if (ioctl(control(), SIOCSIFHWADDR, &request))
			complain("address");
	}
	if (ask(link->index, SIOCGIFFLAGS, &request) == 0 &&
		!(request.ifr_flags & IFF_PROMISC) == link->promiscuous_before) {
		request.ifr_flags ^= IFF_PROMISC;
		if (ioctl(control(), SIOCSIFFLAGS, &request))
			complain("promiscuity");
	}
	if (link->program && program_on(link->index) == link->program && remove_program(link->index) < 0)
		fprintf(stderr, "port: cannot remove the XDP program of %s\n", link->name);
}

// No process starts to use its XDP program meanwhile.
static void
restore(const struct linux_link *link)
{
	int lock = presence_lock(link->index);

	if (lock < 0) {
		fprintf(stderr, "port: %s is not given back as it was: another process holds it\n", link->name);
		return;
	}
	if (!presence_of_others(link->index))
		restore_alone(link);
	close(lock);
}

void
link_give_back(struct linux_link *link)
{
	if (link->index == 0)
		return;
	presence_end(link->presence);
	restore(link);
	for (struct linux_link **l = &held; *l; l = &(*l)->next)
		if (*l == link) {
			*l = link->next;
			break;
		}
	*link = (struct linux_link){0};
	save();
}

// IFF_RUNNING follows the carrier up to a second late; packets do not wait for it.
bool
link_is_set_up(unsigned index)
{
	struct ifreq request = {0};

	return ask(index, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP);
}

const char *
link_trouble(unsigned index)
{
	struct ethtool_value link = {.cmd = ETHTOOL_GLINK};
	struct ifreq request = {0};

	if (ask(index, SIOCGIFFLAGS, &request))
		return "is gone";
	if (!(request.ifr_flags & IFF_UP))
		return "is down";
	if (request.ifr_flags & IFF_RUNNING)
		return NULL;
	request.ifr_data = (char *)&link;
	return ioctl(control(), SIOCETHTOOL, &request) == 0 && link.data ? NULL : "has no carrier";
}

static bool
read_mac(const char *text, uint8_t *mac)
{
	return sscanf(text, "%2" SCNx8 ":%2" SCNx8 ":%2" SCNx8 ":%2" SCNx8 ":%2" SCNx8 ":%2" SCNx8, &mac[0], &mac[1],
		       &mac[2], &mac[3], &mac[4], &mac[5]) == 6;
}

static void
restore_line(const char *line)
{
	struct linux_link link = {0};
	char before[MAC_TEXT_SIZE], mac[MAC_TEXT_SIZE];
	uint64_t namespace;
	int promiscuous;

	if (sscanf(line, "%" SCNu64 " %u %15s %d %d %17s %17s %d %" SCNu32, &namespace, &link.index, link.name,
		    &link.mtu_before, &link.mtu, before, mac, &promiscuous, &link.program) != 9 ||
		!read_mac(before, link.mac_before) || !read_mac(mac, link.mac) || namespace != own_namespace() ||
		if_nametoindex(link.name) != link.index)
		return;
	link.promiscuous_before = promiscuous;
	restore(&link);
}

void
link_use_file(const char *path)
{
	char line[256];
	FILE *in = fopen(path, "re");

	while (in && fgets(line, sizeof(line), in))
		restore_line(line);
	if (in)
		fclose(in);
	free(file);
	file = strdup(path);
	save();
}
