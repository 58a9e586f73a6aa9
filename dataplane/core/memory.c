// SPDX-License-Identifier: Apache-2.0
// See memory.h.
#include "core/memory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_mempool.h>

#include "core/packet.h"

// MiB that DPDK gets for its tables beside the buffers, and that a process with ordinary pages has in use beside the buffers when it
// has no objects yet.
enum { TABLES = 256, PROCESS = 64 };
enum { PAGE_OF_BUFFERS = 2 << 20, MIB = 1 << 20, BUFFERS_MIN = 2048 };

// The memory that can be used, and the limit that applies.
struct room {
	uint64_t bytes;
	char why[PATH_MAX + 64];
};

// A buffer does not cross the border of a page (rte_mempool), so an ordinary page holds one.
static uint64_t
buffers_bytes(bool huge, uint64_t buffers)
{
	uint32_t size = rte_mempool_calc_obj_size(sizeof(struct rte_mbuf) + PACKET_SIZE + BUFFER_ROOM, 0, NULL);
	uint64_t page = huge ? PAGE_OF_BUFFERS : (uint64_t)sysconf(_SC_PAGESIZE), each = page / size;

	return each > 0 ? (buffers + each - 1) / each * page : buffers * size;
}

static uint64_t
mib(uint64_t bytes)
{
	return (bytes + MIB - 1) / MIB;
}

unsigned
memory_for_dpdk(const struct options *o)
{
	return o->memory ? o->memory : TABLES + (unsigned)mib(buffers_bytes(o->huge, o->buffers));
}

// All that is in the file, or false.
static bool
read_text(char *text, size_t size, const char *root, const char *directory, const char *name)
{
	char path[PATH_MAX];
	size_t length;
	FILE *in;

	if (snprintf(path, sizeof(path), "%s%s/%s", root, directory, name) >= (int)sizeof(path))
		return false;
	in = fopen(path, "re");
	if (!in)
		return false;
	length = fread(text, 1, size - 1, in);
	text[length] = '\0';
	fclose(in);
	return length > 0;
}

static bool
read_number(uint64_t *value, const char *root, const char *directory, const char *name)
{
	char text[64];

	if (!read_text(text, sizeof(text), root, directory, name))
		return false;
	*value = strncmp(text, "max", 3) == 0 ? UINT64_MAX : strtoull(text, NULL, 10);
	return true;
}

// The number behind a name at the beginning of a line, or 0.
static uint64_t
number_of(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == ':'))
			return strtoull(line + length + 1, NULL, 10);
	return 0;
}

static void
limit(struct room *room, uint64_t most, uint64_t used, const char *directory)
{
	uint64_t left = most > used ? most - used : 0;

	if (left >= room->bytes)
		return;
	room->bytes = left;
	snprintf(room->why, sizeof(room->why), "what the limit of the control group %s leaves", directory);
}

// The limit of one control group: of memory, `page` NULL, or of huge pages of a size ("2MB").
static void
limit_by_group(struct room *room, const char *root, const char *directory, const char *page)
{
	char name[64], text[4096];
	uint64_t most, used, cached = 0;

	if (page) {
		snprintf(name, sizeof(name), "hugetlb.%s.max", page);
		if (read_number(&most, root, directory, name)) {
			snprintf(name, sizeof(name), "hugetlb.%s.current", page);
			if (read_number(&used, root, directory, name))
				limit(room, most, used, directory);
		}
		snprintf(name, sizeof(name), "hugetlb.%s.limit_in_bytes", page);
		if (read_number(&most, root, directory, name)) {
			snprintf(name, sizeof(name), "hugetlb.%s.usage_in_bytes", page);
			if (read_number(&used, root, directory, name))
				limit(room, most, used, directory);
		}
		return;
	}
	if ((!read_number(&most, root, directory, "memory.max") ||
		    !read_number(&used, root, directory, "memory.current")) &&
		(!read_number(&most, root, directory, "memory.limit_in_bytes") ||
			!read_number(&used, root, directory, "memory.usage_in_bytes")))
		return;
	// The kernel frees its cache of files when memory is needed.
	if (read_text(text, sizeof(text), root, directory, "memory.stat")) {
		cached = number_of(text, "total_inactive_file");
		if (!cached)
			cached = number_of(text, "inactive_file");
	}
	limit(room, most, used > cached ? used - cached : 0, directory);
}

// The group and all above it. In a container the path may differ from the mounted one: then its end is the same.
static void
limit_by_path(struct room *room, const char *root, const char *mount, char *path, const char *page)
{
	char directory[PATH_MAX];

	for (;;) {
		char *slash;

		if (snprintf(directory, sizeof(directory), "%s%s", mount, strcmp(path, "/") ? path : "") <
			(int)sizeof(directory))
			limit_by_group(room, root, directory, page);
		slash = strrchr(path, '/');
		if (!slash || !*path)
			return;
		*slash = '\0';
	}
}

static void
limit_by_groups(struct room *room, const char *root, const char *page)
{
	char text[8192], *rest = text, *line;

	if (!read_text(text, sizeof(text), root, "/proc/self", "cgroup"))
		return;
	while ((line = strsep(&rest, "\n")) != NULL) {
		static const char *const unified[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
		const char *controllers, *mount = page ? "/sys/fs/cgroup/hugetlb" : "/sys/fs/cgroup/memory";
		char path[PATH_MAX];

		strsep(&line, ":");
		controllers = strsep(&line, ":");
		if (!controllers || !line)
			continue;
		for (unsigned i = 0; i < RTE_DIM(unified) && !*controllers; i++) {
			snprintf(path, sizeof(path), "%s", line);
			limit_by_path(room, root, unified[i], path, page);
		}
		if (strcmp(controllers, page ? "hugetlb" : "memory") == 0) {
			snprintf(path, sizeof(path), "%s", line);
			limit_by_path(room, root, mount, path, page);
		}
	}
}

// A part stays free: for tables, sessions and other programs.
static struct room
ordinary_room(const char *root)
{
	struct room room = {.bytes = UINT64_MAX, .why = "all"};
	char text[4096];

	if (read_text(text, sizeof(text), root, "/proc", "meminfo")) {
		room.bytes = number_of(text, "MemAvailable") * 1024;
		snprintf(room.why, sizeof(room.why), "what the machine has available");
	}
	limit_by_groups(&room, root, NULL);
	if (room.bytes != UINT64_MAX)
		room.bytes -= room.bytes / 10;
	return room;
}

// As DPDK counts them: pages that are free and not reserved, and those that the kernel may add.
static struct room
huge_room(const char *root)
{
	static const char where[] = "/sys/kernel/mm/hugepages";
	struct room room = {.why = "huge pages that are free, see /proc/sys/vm/nr_hugepages"};
	char path[PATH_MAX];
	DIR *sizes;

	snprintf(path, sizeof(path), "%s%s", root, where);
	sizes = opendir(path);
	for (const struct dirent *e; sizes && (e = readdir(sizes)) != NULL;) {
		struct room of_size = {0};
		uint64_t pages = 0, reserved = 0, more = 0, surplus = 0, kib;
		char name[32];

		if (sscanf(e->d_name, "hugepages-%" SCNu64 "kB", &kib) != 1)
			continue;
		snprintf(path, sizeof(path), "%s/%.64s", where, e->d_name);
		read_number(&pages, root, path, "free_hugepages");
		read_number(&reserved, root, path, "resv_hugepages");
		read_number(&more, root, path, "nr_overcommit_hugepages");
		read_number(&surplus, root, path, "surplus_hugepages");
		pages = (pages > reserved ? pages - reserved : 0) + (more > surplus ? more - surplus : 0);
		of_size.bytes = pages * kib * 1024;
		snprintf(name, sizeof(name), kib >= MIB ? "%" PRIu64 "GB" : "%" PRIu64 "MB",
			kib >= MIB ? kib >> 20 : kib >> 10);
		limit_by_groups(&of_size, root, name);
		if (of_size.why[0])
			memcpy(room.why, of_size.why, sizeof(room.why));
		room.bytes += of_size.bytes;
	}
	if (sizes)
		closedir(sizes);
	return room;
}

// About the maximum number of buffers that fit, with a margin, so that they fit again when a little less is free; 0: fewer than the minimum.
static uint64_t
max_buffers(bool huge, uint64_t bytes)
{
	uint64_t low = 0, high = UINT64_C(1) << 26;

	while (low < high) {
		uint64_t middle = low + (high - low + 1) / 2;

		if (buffers_bytes(huge, middle) <= bytes)
			low = middle;
		else
			high = middle - 1;
	}
	low = RTE_ALIGN_FLOOR(low - low / 32, 1024);
	return low < BUFFERS_MIN ? 0 : low;
}

static void
describe_max_buffers(char *text, size_t size, bool huge, uint64_t bytes)
{
	uint64_t most = max_buffers(huge, bytes);

	if (most > 0)
		snprintf(text, size, "at most --buffers %" PRIu64 " fits", most);
	else
		snprintf(text, size, "not even --buffers %d fits", BUFFERS_MIN);
}

int
memory_check(const struct options *o, const char *root, char *text, size_t size)
{
	uint64_t buffers = buffers_bytes(o->huge, o->buffers), given = (uint64_t)o->memory * MIB;
	uint64_t beside = (uint64_t)(o->huge ? TABLES : PROCESS) * MIB, needed = buffers + beside;
	struct room room;
	char most[64];

	if (given > 0 && given < buffers) {
		describe_max_buffers(most, sizeof(most), o->huge, given);
		snprintf(text, size, "--buffers %u needs %" PRIu64 " MiB, and --memory gives %u MiB: %s", o->buffers,
			mib(buffers), o->memory, most);
		return -ENOMEM;
	}
	// --memory limits DPDK's memory in huge pages; the process needs ordinary pages besides.
	if (given > 0)
		needed = given + (o->huge ? 0 : beside);
	room = o->huge ? huge_room(root) : ordinary_room(root);
	if (needed <= room.bytes)
		return 0;
	describe_max_buffers(most, sizeof(most), o->huge, room.bytes > beside ? room.bytes - beside : 0);
	snprintf(text, size, "%s %u needs %" PRIu64 " MiB of %s, and %" PRIu64 " MiB can be used (%s%s): %s%s",
		given > 0 ? "--memory" : "--buffers", given > 0 ? o->memory : o->buffers, mib(needed),
		o->huge ? "huge pages" : "memory", room.bytes / MIB, o->huge ? "" : "nine tenths of ", room.why, most,
		o->huge ? "; reserve more huge pages, or start with --no-huge" : "");
	return -ENOMEM;
}
