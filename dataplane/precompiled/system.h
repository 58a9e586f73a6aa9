// SPDX-License-Identifier: Apache-2.0
// Headers of the system and of DPDK that most sources include, parsed once (c_pch in meson.build): it is most of the
// time of a compile. It has no header of ours. A source still includes what it uses: -Db_pch=false builds without
// this file.
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_graph.h>
#include <rte_graph_worker.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>
#include <rte_ring.h>
#include <rte_vect.h>
#include <x86intrin.h>
