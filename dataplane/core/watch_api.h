// What the answers to Trace need from the concept of ports.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The port's name into `text`; kept by port/.
void watch_port_name(uint16_t port, char *text, size_t size);
void watch_api_start(void);
