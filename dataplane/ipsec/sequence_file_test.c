// SPDX-License-Identifier: Apache-2.0
// The file of sequence numbers, as a process leaves it to the next one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipsec/sequence_file.h"

enum { ROWS = 1 << 18 };

static char path[] = "/tmp/sequences-XXXXXX";

static Sluice__V1__SecurityAssociation
spec_of(uint32_t spi, const char *key)
{
	Sluice__V1__SecurityAssociation spec = SLUICE__V1__SECURITY_ASSOCIATION__INIT;

	spec.spi = spi;
	spec.encryption_key = (char *)key;
	return spec;
}

static uint32_t
take(uint32_t spi, const char *key, uint64_t expected)
{
	Sluice__V1__SecurityAssociation spec = spec_of(spi, key);
	uint64_t sequence;
	uint32_t row = sequence_file_take(&spec, &sequence);

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
	Sluice__V1__SecurityAssociation spec = spec_of(1, "aa");
	uint64_t sequence;

	sequence_file_close();
	assert_int_equal(sequence_file_take(&spec, &sequence), SEQUENCE_FILE_NONE);
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
		cmocka_unit_test_setup_teardown(the_oldest_rows_make_room, fresh, gone),
		cmocka_unit_test_setup_teardown(the_file_of_another_process_or_of_another_kind_is_refused, fresh, gone),
		cmocka_unit_test_setup_teardown(without_a_file_nothing_is_kept, fresh, gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
