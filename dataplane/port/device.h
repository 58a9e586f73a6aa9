// Which DPDK devices a Port may name, and having them probed.
#pragma once

#include <stdint.h>

#include "core/object.h"

// Probe the device, if it is one of those accepted. Its port id; or a negative errno, explained.
int device_probe(const char *device, uint16_t *id, struct fault *f);
// Files that a device reads or writes as captures lie in this folder; before it is known no device has files.
void device_use_folder(const char *folder);
