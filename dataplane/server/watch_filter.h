// SPDX-License-Identifier: Apache-2.0
// pcap-filter(7) to a program that rte_bpf runs over an mbuf. libpcap may ask name servers and may take long to optimize,
// so this happens in a thread of its own, and the main thread does not wait for it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/match.h"

enum { FILTER_MAX = 2048 };

struct watch_filter;

// NULL with an errno and the error in `text`.
struct watch_filter *watch_filter_begin(const char *filter, char *text, size_t size);
// Whether it is done, after at most so many milliseconds.
bool watch_filter_ready(struct watch_filter *f, unsigned milliseconds);
// The program, which is the caller's, after watch_filter_ready() returned true; -EINVAL with the filter's fault in `text`.
int watch_filter_take(struct watch_filter *f, struct match *match, char *text, size_t size);
// Must be called once, at any time: a thread that still runs frees its result.
void watch_filter_end(struct watch_filter *f);
