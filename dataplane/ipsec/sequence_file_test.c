// SPDX-License-Identifier: Apache-2.0
// The file of sequence numbers, as a process leaves it to the next one.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipsec/sequence_file.h"

enum { ROWS = 1 << 18 };

static char path[] = "/tmp/sequences-XXXXXX";

static struct sequence_owner
owner_of(uint32_t spi, const char *key)
{
	return (struct sequence_owner){
		.spi = spi, .key = (const uint8_t *)key, .key_length = strlen(key), .vrf = "default"};
}

static uint32_t
take(uint32_t spi, const char *key, uint64_t expected)
{
	struct sequence_owner owner = owner_of(spi, key);
	uint64_t sequence;
	uint32_t row = sequence_file_take(&owner, &sequence);

	assert_int_not_equal(row, SEQUENCE_FILE_NONE);
	assert_int_equal(sequence, expected);
	return row;
}

static int
fresh(void **state)
{
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	return fd < 0 || close(fd) || sequence_file_open(path);
}

static int
gone(void **state)
{
	sequence_file_close();
	return unlink(path);
}

static void
reopen(void)
{
	sequence_file_close();
	assert_int_equal(sequence_file_open(path), 0);
}

static void
a_number_is_there_for_the_next_process(void **state)
{
	struct stat found;
	uint32_t row = take(1, "aa", 0);

	sequence_file_set(row, 1000);
	sequence_file_set(row, 900);
	sequence_file_set(take(2, "aa", 0), 5);
	reopen();
	row = take(1, "aa", 1000);
	take(2, "aa", 5);
	// Another key is another SA.
	take(1, "bb", 0);
	// Twice the same SA, to two peers.
	assert_int_equal(take(1, "aa", 1000), row);
	assert_int_equal(stat(path, &found), 0);
	assert_int_equal(found.st_mode & 0777, 0600);
}

static void
an_sa_that_is_gone_may_be_forgotten(void **state)
{
	uint32_t row = take(1, "aa", 0), other = take(2, "aa", 0);

	sequence_file_set(row, 10);
	sequence_file_set(other, 20);
	sequence_file_give(row, true);
	sequence_file_give(other, false);
	reopen();
	take(1, "aa", 0);
	take(2, "aa", 20);
}

static void
a_reserved_number_that_was_not_used_is_given_back(void **state)
{
	uint32_t row = take(1, "aa", 0);

	sequence_file_set(row, 1000);
	sequence_file_settle(row, 10);
	assert_int_equal(take(1, "aa", 10), row);
	// Two SAs have it now.
	sequence_file_set(row, 1000);
	sequence_file_settle(row, 20);
	take(1, "aa", 1000);
}

static void
keys_vrfs_and_directions_make_other_owners(void **state)
{
	struct sequence_owner owner = owner_of(1, "aa");
	uint32_t row = take(1, "aa", 0);
	uint64_t sequence;

	owner.vrf = "blue";
	assert_int_not_equal(sequence_file_take(&owner, &sequence), row);
	owner = owner_of(1, "aa");
	owner.outbound = true;
	assert_int_not_equal(sequence_file_take(&owner, &sequence), row);
	// The bytes of the two keys are not mixed up.
	owner = owner_of(1, "a");
	owner.integrity_key = (const uint8_t *)"a";
	owner.integrity_key_length = 1;
	assert_int_not_equal(sequence_file_take(&owner, &sequence), row);
}

static void
rows_behind_a_lost_page_are_there(void **state)
{
	char command[256];

	for (uint32_t spi = 1; spi <= 300; spi++)
		sequence_file_set(take(spi, "aa", 0), spi);
	sequence_file_close();
	// The second page.
	snprintf(command, sizeof(command), "dd if=/dev/zero of=%s bs=4096 seek=1 count=1 conv=notrunc status=none",
		path);
	assert_int_equal(system(command), 0);
	assert_int_equal(sequence_file_open(path), 0);
	take(300, "aa", 300);
	take(200, "aa", 0);
	take(1, "aa", 1);
}

static void
a_file_without_room_is_refused(void **state)
{
	struct rlimit before, small = {.rlim_cur = 16384};

	sequence_file_close();
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small.rlim_max = before.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_not_equal(sequence_file_open(path), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(sequence_file_open(path), 0);
}

static void
the_oldest_rows_make_room(void **state)
{
	uint32_t held = take(0xffffffff, "aa", 0), row;

	sequence_file_set(held, 7);
	for (uint32_t spi = 1; spi <= ROWS + ROWS / 2; spi++) {
		row = take(spi, "aa", 0);
		sequence_file_set(row, spi);
		sequence_file_give(row, false);
	}
	// The last ones are there, the first ones are not; a row that an SA has stays.
	take(ROWS + ROWS / 2, "aa", ROWS + ROWS / 2);
	take(ROWS, "aa", ROWS);
	take(1, "aa", 0);
	reopen();
	take(0xffffffff, "aa", 7);
	take(ROWS + 1, "aa", ROWS + 1);
	take(2, "aa", 0);
}

static void
the_rows_of_a_killed_process_outlive_released_ones(void **state)
{
	// Full, and every second row was of an SA when the process was killed.
	for (uint32_t spi = 1; spi <= ROWS; spi++) {
		uint32_t row = take(spi, "aa", 0);

		sequence_file_set(row, spi);
		if (spi % 2 == 0)
			sequence_file_give(row, false);
	}
	reopen();
	for (uint32_t spi = ROWS + 1; spi <= ROWS + ROWS / 4; spi++)
		take(spi, "aa", 0);
	for (uint32_t spi = 1; spi <= ROWS; spi += 2)
		take(spi, "aa", spi);
}

static void
the_file_of_another_process_or_of_another_kind_is_refused(void **state)
{
	char copy[sizeof(path) + 8], command[256];
	FILE *f;

	snprintf(copy, sizeof(copy), "%s-other", path);
	f = fopen(copy, "w");
	assert_non_null(f);
	fputs("text", f);
	fclose(f);
	sequence_file_close();
	assert_int_not_equal(sequence_file_open(copy), 0);
	assert_int_not_equal(sequence_file_open("/tmp"), 0);
	// Of the right size, with other contents.
	assert_int_equal(truncate(copy, 0), 0);
	assert_int_equal(sequence_file_open(path), 0);
	sequence_file_close();
	snprintf(
		command, sizeof(command), "cp %s %s && printf x | dd of=%s conv=notrunc status=none", path, copy, copy);
	assert_int_equal(system(command), 0);
	assert_int_not_equal(sequence_file_open(copy), 0);
	unlink(copy);
	// A lock of this file belongs to an open file: as if another process had it.
	snprintf(command, sizeof(command), "flock -n %s true", path);
	assert_int_equal(system(command), 0);
	assert_int_equal(sequence_file_open(path), 0);
	assert_int_not_equal(system(command), 0);
}

static void
without_a_file_nothing_is_kept(void **state)
{
	struct sequence_owner owner = owner_of(1, "aa");
	uint64_t sequence;

	sequence_file_close();
	assert_int_equal(sequence_file_take(&owner, &sequence), SEQUENCE_FILE_NONE);
	sequence_file_set(SEQUENCE_FILE_NONE, 9);
	sequence_file_give(SEQUENCE_FILE_NONE, true);
	assert_int_equal(sequence, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_number_is_there_for_the_next_process, fresh, gone),
		cmocka_unit_test_setup_teardown(an_sa_that_is_gone_may_be_forgotten, fresh, gone),
		cmocka_unit_test_setup_teardown(a_reserved_number_that_was_not_used_is_given_back, fresh, gone),
		cmocka_unit_test_setup_teardown(keys_vrfs_and_directions_make_other_owners, fresh, gone),
		cmocka_unit_test_setup_teardown(rows_behind_a_lost_page_are_there, fresh, gone),
		cmocka_unit_test_setup_teardown(a_file_without_room_is_refused, fresh, gone),
		cmocka_unit_test_setup_teardown(the_oldest_rows_make_room, fresh, gone),
		cmocka_unit_test_setup_teardown(the_rows_of_a_killed_process_outlive_released_ones, fresh, gone),
		cmocka_unit_test_setup_teardown(the_file_of_another_process_or_of_another_kind_is_refused, fresh, gone),
		cmocka_unit_test_setup_teardown(without_a_file_nothing_is_kept, fresh, gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
