// The API's Trace and Capture.
#pragma once

#include <stdint.h>

// Who can tell the number that a session's packets have from its name; NO_SESSION: there is none of this name. Called at start
// by the concept that has the names.
void watch_sessions(uint32_t (*find)(const char *name));

void watch_api_start(void);
