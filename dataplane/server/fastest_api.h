// SPDX-License-Identifier: Apache-2.0
// Reports the selected way of each look-up, and the engine of each cipher, to clients.
#pragma once

#include "dataplane.pb-c.h"

// The strings and lists stay valid.
void fastest_report(Sluice__V1__Greeting *greeting);
