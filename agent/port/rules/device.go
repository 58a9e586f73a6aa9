// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The devices that the data plane accepts (dataplane/port/device.c): some other drivers of DPDK run commands, and
// some arguments load or write files.
var drivers = map[string][]string{
	"net_af_packet":   {"iface", "qpairs", "blocksz", "framesz", "framecnt", "qdisc_bypass"},
	"net_af_xdp":      {"iface", "start_queue", "queue_count", "shared_umem", "busy_budget", "force_copy"},
	"net_tap":         {"iface", "mac"},
	"net_memif":       {"role", "id", "bsize", "rsize", "socket", "socket-abstract", "owner-uid", "owner-gid", "mac", "secret", "zero-copy"},
	"net_vhost":       {"iface", "queues", "client", "iommu-support", "postcopy-support", "tso", "linear-buffer", "ext-buffer"},
	"net_virtio_user": {"path", "mac", "cq", "queue_size", "queues", "iface", "server", "mrg_rxbuf", "in_order", "packed_vq", "speed", "vectorized"},
	"net_pcap":        {"rx_pcap", "tx_pcap", "rx_iface", "rx_iface_in", "tx_iface", "iface", "phy_mac", "infinite_rx"},
	"net_null":        {"size", "copy", "no-rx"},
}

var (
	pciShape      = regexp.MustCompile(`^([0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}\.[0-9a-fA-F]$`)
	vdevShape     = regexp.MustCompile(`^(net_af_packet|net_af_xdp|net_tap|net_memif|net_vhost|net_virtio_user|net_pcap|net_null)[A-Za-z0-9._-]*$`)
	argumentShape = regexp.MustCompile(`^[A-Za-z0-9._:@+/-]+$`)
	pciArgument   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9._:@|\[\]-]+$`)
	// DPDK reads these behind a slash as the beginning of another device.
	layerShape = regexp.MustCompile(`/(bus|class|driver)(/|$)`)
)

const (
	deviceLimit = 1023
	// RTE_ETH_NAME_MAX_LEN less its final zero byte.
	deviceNameLimit = 63
)

// deviceError returns the error of a device string, as far as the agent can check it.
func deviceError(s string) error {
	name, rest, has := strings.Cut(s, ",")
	var accepted []string
	if match := vdevShape.FindStringSubmatch(name); match != nil {
		accepted = drivers[match[1]]
	} else if !pciShape.MatchString(name) {
		return fmt.Errorf("not a device that is accepted")
	}
	if len(s) > deviceLimit || len(name) > deviceNameLimit {
		return fmt.Errorf("too long")
	}
	if !has {
		return nil
	}
	for argument := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(argument, "=")
		switch {
		case accepted == nil && !pciArgument.MatchString(argument):
			return fmt.Errorf("a PCI device does not take %q", argument)
		case accepted == nil:
		case !slices.Contains(accepted, key):
			return fmt.Errorf("the argument %q is not among the accepted %s", key, strings.Join(accepted, ", "))
		case !argumentShape.MatchString(value) || layerShape.MatchString(value):
			return fmt.Errorf("the argument %s does not take %q", key, value)
		}
	}
	return nil
}
