// pcap-filter(7) to a program that rte_bpf runs over an mbuf. libpcap may ask name servers and may take long to optimize,
// so this happens in a thread of its own, and nobody has to wait for it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <rte_bpf.h>

enum { FILTER_MOST = 2048 };

struct watch_filter;

// NULL with an errno and what is wrong in `text`.
struct watch_filter *watch_filter_begin(const char *filter, char *text, size_t size);
// Whether it is done, after at most so many milliseconds.
bool watch_filter_ready(struct watch_filter *f, unsigned milliseconds);
// The program, for watch_filter_ready() said true; -EINVAL with the filter's fault in `text`.
int watch_filter_take(struct watch_filter *f, struct rte_bpf **program, char *text, size_t size);
// Must be called once, at any time: a thread that still runs frees what it makes.
void watch_filter_end(struct watch_filter *f);
