// SPDX-License-Identifier: Apache-2.0
#include "ipsec/sequence_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/sha.h>
#include <rte_common.h>

#include "core/map64.h"

enum { ROWS = 1 << 18, IDENTITY = 16 };

// `used` counts up with each SA that takes a row. 0: the row is free. RELEASED: no SA has it any more. A row of an SA that a killed process had is not
// released.
static const uint64_t RELEASED = UINT64_C(1) << 63;

struct row {
	uint8_t identity[IDENTITY];
	uint64_t sequence;
	uint64_t used;
};

struct file {
	char magic[sizeof(struct row)];
	struct row rows[ROWS];
};

static const char MAGIC[sizeof(struct row)] = "Sluice ESP sequence numbers 1\n";

static struct file *file;
static int fd = -1;
static struct map64 *by_identity; // from the first bytes of an identity to a row
static uint16_t *holders;         // by row: SAs that have it
static uint64_t last_used;
static uint32_t hand;

static int
fail(const char *path, int error, const char *what)
{
	fprintf(stderr, "%s: %s\n", path, what ? what : strerror(error));
	sequence_file_close();
	return -error;
}

static uint64_t
key_of(const uint8_t identity[IDENTITY])
{
	uint64_t key;

	memcpy(&key, identity, sizeof(key));
	return key | 1; // 0 is no key of a map
}

int
sequence_file_open(const char *path)
{
	struct stat found;
	int error;

	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || fstat(fd, &found))
		return fail(path, errno, NULL);
	if (!S_ISREG(found.st_mode) || (found.st_size != 0 && found.st_size != (off_t)sizeof(*file)))
		return fail(path, EINVAL, "this is no file of sequence numbers; give another name, or delete it");
	if (flock(fd, LOCK_EX | LOCK_NB))
		return fail(path, errno, "another data plane has this file of sequence numbers");
	// All of it: a write to a mapped page without room on the disk would kill the process.
	error = posix_fallocate(fd, 0, (off_t)sizeof(*file));
	if (error)
		return fail(path, error,
			error == ENOSPC || error == EFBIG
				? "there is no room for the 8 MiB of sequence numbers; make room, or give another name"
				: NULL);
	file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED) {
		file = NULL;
		return fail(path, errno, NULL);
	}
	if (found.st_size == 0)
		memcpy(file->magic, MAGIC, sizeof(MAGIC));
	if (memcmp(file->magic, MAGIC, sizeof(MAGIC)) != 0)
		return fail(path, EINVAL, "this is no file of sequence numbers; give another name, or delete it");
	by_identity = map64_create();
	holders = calloc(ROWS, sizeof(*holders));
	if (!by_identity || !holders)
		return fail(path, ENOMEM, NULL);
	// A power cut may have lost any of its pages.
	for (uint32_t i = 0; i < ROWS; i++) {
		if (file->rows[i].used == 0)
			continue;
		if (map64_put(by_identity, key_of(file->rows[i].identity), i))
			return fail(path, ENOMEM, NULL);
		if ((file->rows[i].used & ~RELEASED) > last_used) {
			last_used = file->rows[i].used & ~RELEASED;
			hand = (i + 1) % ROWS;
		}
	}
	return 0;
}

void
sequence_file_close(void)
{
	if (file)
		munmap(file, sizeof(*file));
	if (fd >= 0)
		close(fd);
	if (by_identity)
		map64_destroy(by_identity);
	free(holders);
	file = NULL;
	by_identity = NULL;
	holders = NULL;
	fd = -1;
	last_used = hand = 0;
}

static uint8_t *
add(uint8_t *at, const void *bytes, size_t length)
{
	if (length)
		memcpy(at, bytes, length);
	return at + length;
}

// The file does not tell keys: they are random, and this is a part of a hash.
static void
identify(const struct sequence_owner *o, uint8_t identity[IDENTITY])
{
	uint8_t bytes[sizeof(MAGIC) + 4 * sizeof(uint32_t) + 2 * 64 + 256], *at = bytes;
	uint32_t head[] = {o->spi, o->outbound, (uint32_t)o->key_length, (uint32_t)o->integrity_key_length};
	uint8_t digest[SHA256_DIGEST_LENGTH];

	at = add(at, MAGIC, sizeof(MAGIC));
	at = add(at, head, sizeof(head));
	at = add(at, o->key, RTE_MIN(o->key_length, (size_t)64));
	at = add(at, o->integrity_key, RTE_MIN(o->integrity_key_length, (size_t)64));
	at = add(at, o->vrf, strnlen(o->vrf, 255));
	SHA256(bytes, (size_t)(at - bytes), digest);
	memcpy(identity, digest, IDENTITY);
	explicit_bzero(bytes, sizeof(bytes));
}

// Rows that are not released come last: their SAs may return.
static uint64_t
age(uint32_t row)
{
	return file->rows[row].used ^ RELEASED;
}

// A free row, else the oldest that no SA has, of some: the rows behind the hand. There are twice as many rows as SAs.
static uint32_t
choose(void)
{
	enum { SOME = 64 };
	uint32_t oldest = SEQUENCE_FILE_NONE;

	for (uint32_t i = 0, found = 0; i < ROWS && found < SOME; i++) {
		uint32_t row = hand;

		if (file->rows[row].used == 0)
			return row;
		hand = (hand + 1) % ROWS;
		if (holders[row])
			continue;
		found++;
		if (oldest == SEQUENCE_FILE_NONE || age(row) < age(oldest))
			oldest = row;
	}
	return oldest;
}

uint32_t
sequence_file_take(const struct sequence_owner *owner, uint64_t *sequence)
{
	uint8_t identity[IDENTITY];
	uint64_t key;
	uint32_t row;

	*sequence = 0;
	if (!file)
		return SEQUENCE_FILE_NONE;
	identify(owner, identity);
	key = key_of(identity);
	row = map64_get(by_identity, key);
	if (row == MAP64_NONE || memcmp(file->rows[row].identity, identity, IDENTITY) != 0) {
		row = choose();
		if (row == SEQUENCE_FILE_NONE)
			return row;
		if (file->rows[row].used)
			map64_delete(by_identity, key_of(file->rows[row].identity));
		if (map64_put(by_identity, key, row))
			return SEQUENCE_FILE_NONE;
		// A process that is killed in between leaves no row with the numbers of another SA.
		__atomic_store_n(&file->rows[row].used, 1, __ATOMIC_RELEASE);
		memset(file->rows[row].identity, 0, IDENTITY);
		__atomic_store_n(&file->rows[row].sequence, 0, __ATOMIC_RELEASE);
		memcpy(file->rows[row].identity, identity, IDENTITY);
	}
	__atomic_store_n(&file->rows[row].used, ++last_used, __ATOMIC_RELEASE);
	holders[row]++;
	*sequence = file->rows[row].sequence;
	return row;
}

void
sequence_file_set(uint32_t row, uint64_t sequence)
{
	if (row != SEQUENCE_FILE_NONE && file->rows[row].sequence < sequence)
		__atomic_store_n(&file->rows[row].sequence, sequence, __ATOMIC_RELAXED);
}

void
sequence_file_settle(uint32_t row, uint64_t sequence)
{
	if (row != SEQUENCE_FILE_NONE && holders[row] == 1)
		__atomic_store_n(&file->rows[row].sequence, sequence, __ATOMIC_RELAXED);
}

void
sequence_file_give(uint32_t row, bool forget)
{
	if (row == SEQUENCE_FILE_NONE)
		return;
	if (--holders[row] > 0)
		return;
	__atomic_or_fetch(&file->rows[row].used, RELEASED, __ATOMIC_RELEASE);
	if (forget)
		file->rows[row].sequence = 0;
}
