// SPDX-License-Identifier: Apache-2.0
// Which DPDK devices a Port may name, and having them probed.
#pragma once

#include <errno.h>
#include <stdint.h>

#include "server/object.h"

// The errno of a refusal by a driver or the kernel. Their EINVAL does not mean that a configured value is invalid: the next try may
// succeed.
static inline int
device_errno(int error)
{
	return error == -EINVAL || error == -E2BIG ? EIO : -error;
}

// Probe the device, if it is one of those accepted. Its port id; or a negative errno, explained.
int device_probe(const char *device, uint16_t *id, struct fault *f);
// Files that a device reads or writes as captures lie in this folder; before it is known no device has files.
void device_use_folder(const char *folder);
