// SPDX-License-Identifier: Apache-2.0

// The pcap file format (draft-ietf-opsawg-pcap), with nanoseconds.
package cli

import (
	"encoding/binary"
	"io"
	"math"
)

const (
	pcapMagic    = 0xa1b23c4d // nanoseconds
	pcapEthernet = 1          // LINKTYPE_ETHERNET
)

// pcapHeader begins the file. Snap length 0: whole packets.
func pcapHeader(w io.Writer, snapLength uint32) error {
	if snapLength == 0 {
		snapLength = 262144
	}
	var h [24]byte
	binary.LittleEndian.PutUint32(h[0:], pcapMagic)
	binary.LittleEndian.PutUint16(h[4:], 2)
	binary.LittleEndian.PutUint16(h[6:], 4)
	binary.LittleEndian.PutUint32(h[16:], snapLength)
	binary.LittleEndian.PutUint32(h[20:], pcapEthernet)
	_, err := w.Write(h[:])
	return err
}

// pcapPacket appends a packet that was length bytes long, of which some were captured, at nanoseconds since the Unix epoch.
func pcapPacket(w io.Writer, at uint64, length uint32, captured []byte) error {
	if uint64(len(captured)) > math.MaxUint32 {
		captured = captured[:math.MaxUint32]
	}
	var h [16]byte
	binary.LittleEndian.PutUint32(h[0:], uint32(at/1e9))
	binary.LittleEndian.PutUint32(h[4:], uint32(at%1e9))
	binary.LittleEndian.PutUint32(h[8:], uint32(len(captured)))
	binary.LittleEndian.PutUint32(h[12:], max(length, uint32(len(captured))))
	if _, err := w.Write(h[:]); err != nil {
		return err
	}
	_, err := w.Write(captured)
	return err
}
