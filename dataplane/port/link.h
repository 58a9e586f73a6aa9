// The Linux interface under a device (af_packet, af_xdp, pcap): what a port changes of it, and giving it back as it was.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct linux_link {
	struct linux_link *next; // of those that are held
	unsigned index;          // 0: no interface is held
	char name[16];
	// As it was found, and what it was given: 0, or no address, where it was left alone.
	int mtu_before, mtu;
	uint8_t mac_before[6], mac[6];
	bool promiscuous_before;
	uint32_t program; // the id of an XDP program that came with the device
	uint32_t foreign; // of one that was there before any data plane came
	int presence;     // as presence_begin() gives it
};

// Begin to hold an interface: what it is like is written down, in memory and in the file.
void link_hold(struct linux_link *link, unsigned index);
// Raise its MTU where it is less. 0 or a negative errno.
int link_raise_mtu(struct linux_link *link, int mtu);
// The device is about to give it this address.
void link_expect_mac(struct linux_link *link, const uint8_t *mac);
// The device's queues have been set up, or could not be: perhaps there is an XDP program for them now.
void link_note_program(struct linux_link *link);
// Put back what nobody else has changed meanwhile, and hold it no more. While other processes have the interface, too, it stays as
// it is.
void link_give_back(struct linux_link *link);

bool link_has_carrier(unsigned index);

// Keep in this file what is held, so that a process that was killed leaves word to the next one. What is written there now is
// given back first.
void link_use_file(const char *path);
