// SPDX-License-Identifier: Apache-2.0
// The main thread's loop: file descriptors, timers, and things to look at each round (every millisecond at least).
#pragma once

#include <stdint.h>

typedef void (*loop_fd_fn)(int fd, uint32_t events, void *argument);
typedef void (*loop_fn)(void *argument);

// Call when `events` (EPOLLIN ...) are there. 0 or a negative errno.
int loop_add(int fd, uint32_t events, loop_fd_fn call, void *argument);
int loop_change(int fd, uint32_t events);
void loop_remove(int fd);
// Call every `interval` nanoseconds, from now on until the process ends.
void loop_every(uint64_t interval, loop_fn call, void *argument);
// Call in each round. Returns nothing; must not block.
void loop_poll(loop_fn call, void *argument);
// Run until loop_stop(). A test can turn it by hand with loop_once().
void loop_run(void);
void loop_once(int timeout_ms);
void loop_stop(void);
