// SPDX-License-Identifier: Apache-2.0
// The API's Trace and Capture.
#pragma once

#include <stdint.h>

// Register the function that finds a session's number by its name; NO_SESSION: there is none of this name. The concept that has the
// names calls it at start.
void watch_sessions(uint32_t (*find)(const char *name));
