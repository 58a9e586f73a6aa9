// SPDX-License-Identifier: Apache-2.0
// Local addresses, those of our interfaces, by VRF and family. The main thread writes, workers read.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// 0 or -ENOMEM. `length` is that of the network directly reached there: 32 or 128 on a loopback.
int local_address_add(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, uint32_t interface);
void local_address_remove(uint16_t vrf, uint8_t family, const uint8_t *address, uint32_t interface);
