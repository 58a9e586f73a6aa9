// SPDX-License-Identifier: Apache-2.0
// How many buffers fit into the memory that a machine has: the files of the kernel's are written here.
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory.h"

enum { MIB_OF_BUFFERS = 256 }; // buffers of ordinary memory in a MiB

static char root[64], text[4096 + 512];

static int
remove_one(const char *path, const struct stat *found, int kind, struct FTW *where)
{
	return remove(path);
}

static int
make_root(void **state)
{
	strcpy(root, "/tmp/sluice-memory-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int
remove_root(void **state)
{
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void
file(const char *path, const char *content)
{
	char whole[512];
	FILE *out;

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(whole, 0755);
		*slash = '/';
	}
	out = fopen(whole, "w");
	assert_non_null(out);
	fputs(content, out);
	fclose(out);
}

static void
machine_with_mib(unsigned available)
{
	char content[128];

	snprintf(content, sizeof(content), "MemTotal:       99999999 kB\nMemAvailable:   %u kB\n", available * 1024);
	file("/proc/meminfo", content);
}

// The largest number of buffers that fits, according to the text.
static unsigned
reported_max_buffers(void)
{
	const char *at = strstr(text, "at most --buffers ");
	unsigned most = 0;

	assert_non_null(at);
	assert_int_equal(sscanf(at, "at most --buffers %u fits", &most), 1);
	return most;
}

// They are refused with a number that is accepted, and not much more is.
static void
refuses(struct options o, const char *why)
{
	unsigned most;

	assert_int_equal(memory_check(&o, root, text, sizeof(text)), -ENOMEM);
	if (!strstr(text, why))
		fail_msg("%s", text);
	most = reported_max_buffers();
	assert_true(most < o.buffers);
	o.buffers = most;
	assert_int_equal(memory_check(&o, root, text, sizeof(text)), 0);
	o.buffers = most + most / 16;
	assert_int_equal(memory_check(&o, root, text, sizeof(text)), -ENOMEM);
}

static void
buffers_that_the_machine_has_no_memory_for_are_refused(void **state)
{
	machine_with_mib(1000);
	refuses((struct options){.buffers = 9999999},
		"--buffers 9999999 needs 39127 MiB of memory, and 900 MiB can be used "
		"(nine tenths of what the machine has available)");
	assert_in_range(reported_max_buffers(), (900 - 64) * MIB_OF_BUFFERS / 16 * 15, (900 - 64) * MIB_OF_BUFFERS);
	machine_with_mib(70);
	assert_int_equal(memory_check(&(struct options){.buffers = 32768}, root, text, sizeof(text)), -ENOMEM);
	assert_non_null(strstr(text, "not even --buffers 2048 fits"));
}

static void
the_limit_of_a_control_group_of_version_2_or_of_its_parents_counts(void **state)
{
	machine_with_mib(100000);
	file("/proc/self/cgroup", "0::/pod/sluice\n");
	file("/sys/fs/cgroup/pod/sluice/memory.max", "max\n");
	file("/sys/fs/cgroup/pod/sluice/memory.current", "1000\n");
	assert_int_equal(memory_check(&(struct options){.buffers = 1 << 20}, root, text, sizeof(text)), 0);
	file("/sys/fs/cgroup/pod/memory.max", "1073741824\n");
	file("/sys/fs/cgroup/pod/memory.current", "629145600\n");
	file("/sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 104857600\nfile 9\n");
	// 1024 MiB but 600, of which 100 can be had back.
	refuses((struct options){.buffers = 1 << 20},
		"471 MiB can be used (nine tenths of what the limit of the control group "
		"/sys/fs/cgroup/pod leaves)");
}

static void
the_limit_of_a_control_group_of_version_1_counts_also_in_a_container(void **state)
{
	machine_with_mib(100000);
	file("/proc/self/cgroup", "4:memory:/docker/0123\n2:cpu:/\n0::/\n");
	file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
	file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
	refuses((struct options){.buffers = 1 << 20},
		"460 MiB can be used (nine tenths of what the limit of the control group "
		"/sys/fs/cgroup/memory leaves)");
	file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(memory_check(&(struct options){.buffers = 1 << 20}, root, text, sizeof(text)), 0);
}

static void
huge_pages(const char *size, const char *free, const char *reserved)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%s/free_hugepages", size);
	file(path, free);
	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%s/resv_hugepages", size);
	file(path, reserved);
}

static void
buffers_that_there_are_no_huge_pages_for_are_refused(void **state)
{
	struct options o = {.huge = true, .buffers = 1 << 20};

	machine_with_mib(100000);
	assert_int_equal(memory_check(&o, root, text, sizeof(text)), -ENOMEM);
	assert_non_null(strstr(text, "0 MiB can be used (huge pages that are free"));
	assert_non_null(strstr(text, "or start with --no-huge"));
	huge_pages("2048kB", "520\n", "20\n");
	refuses(o, "1000 MiB can be used (huge pages that are free");
	huge_pages("1048576kB", "1\n", "0\n");
	refuses(o, "2024 MiB can be used");
	huge_pages("1048576kB", "4\n", "0\n");
	assert_int_equal(memory_check(&o, root, text, sizeof(text)), 0);
	// Of which the control group lets the process have one.
	file("/proc/self/cgroup", "0::/pod\n");
	file("/sys/fs/cgroup/pod/hugetlb.1GB.max", "1073741824\n");
	file("/sys/fs/cgroup/pod/hugetlb.1GB.current", "0\n");
	refuses(o, "2024 MiB can be used (what the limit of the control group /sys/fs/cgroup/pod leaves)");
}

static void
memory_that_was_given_has_room_for_the_buffers_and_is_there(void **state)
{
	machine_with_mib(1000);
	refuses((struct options){.buffers = 65536, .memory = 128},
		"--buffers 65536 needs 256 MiB, and --memory gives 128 MiB");
	assert_int_equal(
		memory_check(&(struct options){.buffers = 2048, .memory = 1 << 20}, root, text, sizeof(text)), -ENOMEM);
	assert_non_null(strstr(text, "--memory 1048576 needs"));
	huge_pages("2048kB", "100\n", "0\n");
	assert_int_equal(
		memory_check(&(struct options){.huge = true, .buffers = 2048, .memory = 300}, root, text, sizeof(text)),
		-ENOMEM);
	assert_non_null(strstr(text, "--memory 300 needs 300 MiB of huge pages, and 200 MiB can be used"));
}

static void
dpdk_is_asked_for_room_for_all_buffers(void **state)
{
	assert_int_equal(memory_for_dpdk(&(struct options){.buffers = 1 << 20}), 256 + 4096);
	assert_in_range(memory_for_dpdk(&(struct options){.buffers = 1 << 20, .huge = true}), 256 + 2688, 256 + 2800);
	assert_int_equal(memory_for_dpdk(&(struct options){.buffers = 1 << 20, .memory = 99}), 99);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			buffers_that_the_machine_has_no_memory_for_are_refused, make_root, remove_root),
		cmocka_unit_test_setup_teardown(
			the_limit_of_a_control_group_of_version_2_or_of_its_parents_counts, make_root, remove_root),
		cmocka_unit_test_setup_teardown(
			the_limit_of_a_control_group_of_version_1_counts_also_in_a_container, make_root, remove_root),
		cmocka_unit_test_setup_teardown(
			buffers_that_there_are_no_huge_pages_for_are_refused, make_root, remove_root),
		cmocka_unit_test_setup_teardown(
			memory_that_was_given_has_room_for_the_buffers_and_is_there, make_root, remove_root),
		cmocka_unit_test(dpdk_is_asked_for_room_for_all_buffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
