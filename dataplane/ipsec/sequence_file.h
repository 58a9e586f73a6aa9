// SPDX-License-Identifier: Apache-2.0
// Sequence numbers of SAs in a file, so that no number is used twice or accepted twice after the data plane starts again with the
// same keys (RFC 4303 section 3.3.3). Main thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static const uint32_t SEQUENCE_FILE_NONE = UINT32_MAX;

// The identity of an SA in the file. Keys with their salt, and the VRF by its name: "default" for the default one.
struct sequence_owner {
	uint32_t spi;
	bool outbound;
	const uint8_t *key, *integrity_key;
	size_t key_length, integrity_key_length;
	const char *vrf;
};

// Opens or makes the file; it has a row for each of the last 262,144 SAs, takes 8 MiB of its file system at once, and is mapped. Without it nothing is
// kept. 0 or a negative errno, explained on stderr.
int sequence_file_open(const char *path);
// Unmaps and closes it.
void sequence_file_close(void);

// The row of an SA; a new one if there is none. `sequence` is what it has. Give it back with sequence_file_give().
uint32_t sequence_file_take(const struct sequence_owner *owner, uint64_t *sequence);
// Only a higher number changes the row.
void sequence_file_set(uint32_t row, uint64_t sequence);
// The SA uses no number above this one: a number that was reserved for it counts as unused. No effect if another SA has the row, too.
void sequence_file_settle(uint32_t row, uint64_t sequence);
// The SA is gone. The row stays until it is the oldest one and another SA needs it; `forget`: not even so long.
void sequence_file_give(uint32_t row, bool forget);
