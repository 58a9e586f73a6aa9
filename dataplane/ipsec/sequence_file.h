// SPDX-License-Identifier: Apache-2.0
// Sequence numbers of SAs in a file, so that no number is used twice or accepted twice after the data plane starts again with the
// same keys (RFC 4303 section 3.3.3). Main thread.
#pragma once

#include <stdint.h>

#include "ipsec.pb-c.h"

static const uint32_t SEQUENCE_FILE_NONE = UINT32_MAX;

// Opens or makes the file; it has a row for each of the last 262,144 SAs, and is mapped. Without it nothing is kept. 0 or a negative errno,
// explained on stderr.
int sequence_file_open(const char *path);
// Unmaps and closes it.
void sequence_file_close(void);

// The row of an SA with this SPI, these keys, algorithms and VRF; a new one if there is none. `sequence` is what it has. Give it back with
// sequence_file_give().
uint32_t sequence_file_take(const Sluice__V1__SecurityAssociation *spec, uint64_t *sequence);
// Only a higher number changes the row.
void sequence_file_set(uint32_t row, uint64_t sequence);
// The SA is gone. The row stays until it is the oldest one and another SA needs it; `forget`: not even so long.
void sequence_file_give(uint32_t row, bool forget);
