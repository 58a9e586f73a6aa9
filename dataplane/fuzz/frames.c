// SPDX-License-Identifier: Apache-2.0
// libFuzzer over the real nodes. An input is a row of frames, each behind three bytes: its side and split, and its length.
#include "dispatch/flow.h"
#include "machine.h"

enum { FRAMES_MAX = 8 };

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int
LLVMFuzzerInitialize(int *count, char ***arguments)
{
	machine_start();
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	for (unsigned i = 0; i < FRAMES_MAX && length > 3; i++) {
		enum side side = bytes[0] & 1 ? CORE : ACCESS;
		size_t split = bytes[0] >> 1, size = (size_t)(bytes[1] << 8 | bytes[2]);

		bytes += 3;
		length -= 3;
		size = size < length ? size : length;
		flow_of_frame(bytes, size);
		machine_frame(side, bytes, size, split);
		bytes += size;
		length -= size;
	}
	machine_check();
	return 0;
}
