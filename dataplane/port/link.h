// SPDX-License-Identifier: Apache-2.0
// The Linux interface under a device (af_packet, af_xdp, pcap): the settings that a port changes, and their restoration.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct linux_link {
	struct linux_link *next; // of the held interfaces
	unsigned index;          // 0: no interface is held
	char name[16];
	// The settings before, and the settings given: 0, or no address, if unchanged.
	int mtu_before, mtu;
	uint8_t mac_before[6], mac[6];
	bool promiscuous_before;
	uint32_t program; // the id of an XDP program that came with the device
	uint32_t foreign; // of one from before any data plane
	int presence;     // as presence_begin() gives it
};

// Begin to hold an interface: store its settings, in memory and in the file.
void link_hold(struct linux_link *link, unsigned index);
// Raise its MTU where it is less. 0 or a negative errno.
int link_raise_mtu(struct linux_link *link, int mtu);
// The device is about to give it this address.
void link_expect_mac(struct linux_link *link, const uint8_t *mac);
// The device's queues have been set up, or could not be: perhaps there is an XDP program for them now.
void link_note_program(struct linux_link *link);
// Restore settings that no other process has changed meanwhile, and release the interface. While other processes have it, too, it stays as
// it is.
void link_give_back(struct linux_link *link);

// Whether its administrator set it up (IFF_UP).
bool link_is_set_up(unsigned index);
// The reason why it has no link, as the end of a sentence that begins with "the Linux interface eth1"; NULL: it has
// one.
const char *link_trouble(unsigned index);

// Store held interfaces in this file, so that the next process can restore them if this one is killed. Interfaces that the file has now
// are restored first.
void link_use_file(const char *path);
