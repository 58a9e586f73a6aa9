// SPDX-License-Identifier: Apache-2.0
// DPDK's device strings, "net_af_packet0,iface=eth1". Some of DPDK's drivers run commands (net_failsafe), take other devices
// inside of theirs (net_bonding), take a pointer (net_ring), or load and write any file. The right to configure a port is not the right to do
// all that as root: only the drivers and the arguments below are accepted.
#include "port/device.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_log.h>

enum { ARGUMENT_MAX = 16, DEVICE_MAX = 1024 };

// The values that an argument may have.
enum value {
	NUMBER,
	WORD,    // letters, digits and . _ : -
	LINK,    // the name of a Linux interface that is there
	NEW,     // the name of a Linux interface that may be made
	SOCKET,  // the path of a socket or a character device, or the name of an abstract socket
	CAPTURE, // a file *.pcap in the folder for them
};

struct driver {
	const char *name;
	struct {
		const char *key;
		enum value value;
	} arguments[ARGUMENT_MAX];
};

static const struct driver drivers[] = {
	{"net_af_packet", {{"iface", LINK}, {"qpairs", NUMBER}, {"blocksz", NUMBER}, {"framesz", NUMBER},
				  {"framecnt", NUMBER}, {"qdisc_bypass", NUMBER}}},
	// xdp_prog would load an object file into the kernel.
	{"net_af_xdp", {{"iface", LINK}, {"start_queue", NUMBER}, {"queue_count", NUMBER}, {"shared_umem", NUMBER},
			       {"busy_budget", NUMBER}, {"force_copy", NUMBER}}},
	// remote would take another interface's packets.
	{"net_tap", {{"iface", NEW}, {"mac", WORD}}},
	{"net_memif", {{"role", WORD}, {"id", NUMBER}, {"bsize", NUMBER}, {"rsize", NUMBER}, {"socket", SOCKET},
			      {"socket-abstract", WORD}, {"owner-uid", NUMBER}, {"owner-gid", NUMBER}, {"mac", WORD},
			      {"secret", WORD}, {"zero-copy", WORD}}},
	{"net_vhost", {{"iface", SOCKET}, {"queues", NUMBER}, {"client", NUMBER}, {"iommu-support", NUMBER},
			      {"postcopy-support", NUMBER}, {"tso", NUMBER}, {"linear-buffer", NUMBER},
			      {"ext-buffer", NUMBER}}},
	{"net_virtio_user",
		{{"path", SOCKET}, {"mac", WORD}, {"cq", NUMBER}, {"queue_size", NUMBER}, {"queues", NUMBER},
			{"iface", NEW}, {"server", NUMBER}, {"mrg_rxbuf", NUMBER}, {"in_order", NUMBER},
			{"packed_vq", NUMBER}, {"speed", NUMBER}, {"vectorized", NUMBER}}},
	{"net_pcap", {{"rx_pcap", CAPTURE}, {"tx_pcap", CAPTURE}, {"rx_iface", LINK}, {"rx_iface_in", LINK},
			     {"tx_iface", LINK}, {"iface", LINK}, {"phy_mac", NUMBER}, {"infinite_rx", NUMBER}}},
	{"net_null", {{"size", NUMBER}, {"copy", NUMBER}, {"no-rx", NUMBER}}},
};

static char *folder;

void
device_use_folder(const char *path)
{
	free(folder);
	folder = strdup(path);
}

static bool
only(const char *text, const char *punctuation)
{
	for (; *text; text++)
		if (!isascii(*text) || (!isalnum((unsigned char)*text) && !strchr(punctuation, *text)))
			return false;
	return true;
}

// DPDK looks for its layers (bus=, class=, driver=) behind every slash of a device string.
static bool
names_a_layer(const char *path)
{
	static const char *const layers[] = {"bus", "class", "driver"};

	for (const char *part = strchr(path, '/'); part; part = strchr(part, '/')) {
		size_t length = strcspn(++part, "/");

		for (unsigned i = 0; i < RTE_DIM(layers); i++)
			if (length == strlen(layers[i]) && strncmp(part, layers[i], length) == 0)
				return true;
	}
	return false;
}

static int
check_capture(const char *key, const char *path, struct fault *f)
{
	size_t before = folder ? strlen(folder) : 0, length = strlen(path);
	struct stat found;

	if (!folder || length <= before + sizeof("/.pcap") - 1 || strncmp(path, folder, before) != 0 ||
		path[before] != '/' || strchr(path + before + 1, '/') || strcmp(path + length - 5, ".pcap") != 0)
		return fault(f, EPERM,
			"device: %s takes a file %s/*.pcap, in the folder of the data plane's own socket, not %s", key,
			folder ? folder : "", path);
	if (lstat(path, &found) == 0 && !S_ISREG(found.st_mode))
		return fault(f, EPERM, "device: %s: %s is no regular file", key, path);
	return 0;
}

// A driver that cannot make its socket removes any file of this name.
static int
check_socket(const char *key, const char *path, struct fault *f)
{
	struct stat found;

	if (lstat(path, &found) || S_ISSOCK(found.st_mode) || S_ISCHR(found.st_mode))
		return 0;
	return fault(f, EPERM, "device: %s: %s is there and no socket", key, path);
}

static int
check_value(enum value kind, const char *key, const char *value, struct fault *f)
{
	const char *accepted = NULL;
	bool good = *value != '\0';

	switch (kind) {
	case NUMBER:
		good = good && strspn(value, "0123456789") == strlen(value) && strlen(value) < 10;
		accepted = "a number";
		break;
	case WORD:
		good = good && only(value, "._:-");
		accepted = "letters, digits and . _ : -";
		break;
	case LINK:
	case NEW:
		good = good && only(value, "._-@+") && strlen(value) < IF_NAMESIZE;
		accepted = "the name of a Linux interface";
		break;
	case SOCKET:
	case CAPTURE:
		good = good && only(value, "._:-@+/") && strlen(value) < PATH_MAX && !names_a_layer(value);
		accepted = "a path of letters, digits and . _ : - @ + /, with no part called bus, class or driver";
		break;
	}
	if (!good)
		return fault(f, EINVAL, "device: %s takes %s, not \"%s\"", key, accepted, value);
	if (kind == LINK && if_nametoindex(value) == 0)
		return fault(
			f, ENODEV, "device: there is no interface %s in the data plane's network namespace", value);
	if (kind == SOCKET)
		return check_socket(key, value, f);
	return kind == CAPTURE ? check_capture(key, value, f) : 0;
}

static int
check_argument(const struct driver *driver, const char *key, const char *value, struct fault *f)
{
	char accepted[256] = "";
	size_t used = 0;

	for (unsigned i = 0; i < ARGUMENT_MAX && driver->arguments[i].key; i++) {
		if (strcmp(driver->arguments[i].key, key) == 0)
			return check_value(driver->arguments[i].value, key, value, f);
		used += (size_t)snprintf(
			accepted + used, sizeof(accepted) - used, "%s%s", used ? ", " : "", driver->arguments[i].key);
	}
	return fault(
		f, EINVAL, "device: for %s the arguments %s are accepted, not \"%s\"", driver->name, accepted, key);
}

// A card's arguments are its driver's own, of which there are many; none of them needs a path, a list or a command.
static int
check_card_argument(const char *key, const char *value, struct fault *f)
{
	if (isalpha((unsigned char)key[0]) && only(key, "_-") && *value && only(value, "._:-@|[]"))
		return 0;
	return fault(f, EINVAL,
		"device: the arguments of a PCI device have values of letters, digits and . _ : - @ | [ ], unlike "
		"%s=%s",
		key, value);
}

// `driver` NULL: of a card. The text is taken apart.
static int
check_arguments(const struct driver *driver, char *text, struct fault *f)
{
	for (char *argument; (argument = strsep(&text, ",")) != NULL;) {
		char *value = strchr(argument, '=');
		int error;

		if (!value || value == argument)
			return fault(f, EINVAL, "device: arguments are KEY=VALUE with commas between, unlike \"%s\"",
				argument);
		*value++ = '\0';
		error = driver ? check_argument(driver, argument, value, f) : check_card_argument(argument, value, f);
		if (error)
			return error;
	}
	return 0;
}

static const struct driver *
find_driver(const char *name)
{
	for (unsigned i = 0; i < RTE_DIM(drivers); i++) {
		size_t length = strlen(drivers[i].name);

		if (strncmp(name, drivers[i].name, length) == 0 && only(name + length, "._-"))
			return &drivers[i];
	}
	return NULL;
}

// "03:00.0" and "0000:03:00.0" are the same.
static bool
pci_name(char *name, size_t size)
{
	unsigned domain = 0, bus, device, function;
	int read = 0;

	if (strspn(name, "0123456789abcdefABCDEF:.") != strlen(name))
		return false;
	if ((sscanf(name, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &read) != 4 || name[read]) &&
		(domain = 0, sscanf(name, "%2x:%2x.%1x%n", &bus, &device, &function, &read) != 3 || name[read]))
		return false;
	snprintf(name, size, "%.4x:%.2x:%.2x.%x", domain, bus, device, function);
	return true;
}

// Take the string apart: the device's name, and whether and of which driver it is accepted.
static int
check(const char *device, char *name, size_t size, const struct driver **driver, struct fault *f)
{
	size_t length = strcspn(device, ",");
	char arguments[DEVICE_MAX];

	if (length == 0 || length >= size || strlen(device) >= sizeof(arguments))
		return fault(
			f, EINVAL, "device: a PCI address or a DPDK device like net_af_packet0,iface=eth1 is accepted");
	memcpy(name, device, length);
	name[length] = '\0';
	*driver = find_driver(name);
	if (!*driver && !pci_name(name, size))
		return fault(f, EINVAL,
			"device: a PCI address, net_af_packet, net_af_xdp, net_tap, net_memif, net_vhost, "
			"net_virtio_user, net_pcap or net_null is accepted, not %s",
			name);
	if (!device[length])
		return 0;
	strcpy(arguments, device + length + 1);
	return check_arguments(*driver, arguments, f);
}

// A driver whose log is noise here, unless the log level asks for everything.
static void
quieten(const char *log)
{
	int type = rte_log_register(log);

	if (type >= 0 && rte_log_get_level(type) < (int)RTE_LOG_DEBUG && rte_log_get_level(type) > (int)RTE_LOG_CRIT)
		rte_log_set_level((uint32_t)type, RTE_LOG_CRIT);
}

// The probed device must be a network device of that driver.
static int
check_found(const char *name, const struct driver *driver, uint16_t *id, struct fault *f)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_get_port_by_name(name, id) || rte_eth_dev_info_get(*id, &info))
		return fault(f, ENODEV, "device: %s is no network device", name);
	if (driver && strcmp(info.driver_name, driver->name) != 0)
		return fault(f, ENODEV, "device: %s is of the driver %s", name, info.driver_name);
	return 0;
}

// DPDK has an allow list of one PCI device that does not exist, so that it takes none by itself. The device of a Port is
// probed here.
int
device_probe(const char *device, uint16_t *id, struct fault *f)
{
	char name[RTE_ETH_NAME_MAX_LEN], whole[DEVICE_MAX + RTE_ETH_NAME_MAX_LEN];
	const struct driver *driver;
	int error = check(device, name, sizeof(name), &driver, f);

	if (error)
		return error;
	if (rte_eth_dev_get_port_by_name(name, id) == 0)
		return fault(f, EEXIST, "device: another port has %s already", name);
	if (driver && strcmp(driver->name, "net_tap") == 0)
		quieten("pmd.net.tap");
	snprintf(whole, sizeof(whole), "%s%s", name, device + strcspn(device, ","));
	error = rte_dev_probe(whole);
	if (error)
		return fault(f, error == -EEXIST ? EEXIST : ENODEV,
			"device: DPDK cannot use %s (%s); does what it names exist?", device, strerror(-error));
	error = check_found(name, driver, id, f);
	if (error)
		rte_eal_hotplug_remove(driver ? "vdev" : "pci", name);
	return error;
}
