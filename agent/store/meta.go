// SPDX-License-Identifier: Apache-2.0

// The two pages in which Bolt keeps, in turns, where everything is.
package store

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
)

const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	// Of a meta page: the page's head, then magic, version and page size, each of 32 bits in the machine's order.
	pageHead  = 16
	metaFixed = 12
	// All that the checksum behind it is of: also flags, the root, the free list, the size and the transaction.
	metaSummed = 56
)

// checkMetaPages refuses a file with an invalid meta page. Bolt would use the other page, which is older or even
// empty. Torn: the checksum of one page is wrong. After a crash during a write, the journal still has the entries of
// that write; replay refuses a file without them.
func checkMetaPages(path string) (torn bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size := int64(0)
	for page := range int64(2) {
		fixed := make([]byte, metaSummed+8)
		if _, err := f.ReadAt(fixed, page*size+pageHead); err != nil {
			return false, err
		}
		if binary.NativeEndian.Uint32(fixed) != metaMagic || binary.NativeEndian.Uint32(fixed[4:]) != metaVersion {
			return false, damagedMeta(fmt.Sprintf("meta page %d is overwritten", page))
		}
		sum := fnv.New64a()
		sum.Write(fixed[:metaSummed])
		torn = torn || sum.Sum64() != binary.NativeEndian.Uint64(fixed[metaSummed:])
		size = int64(binary.NativeEndian.Uint32(fixed[8:]))
	}
	return torn, nil
}

func damagedMeta(what string) error {
	return fmt.Errorf("%w: %s, and the other may be older; put a whole copy of the file, its .journal and its .key back, "+
		"or move all three away to begin anew", ErrDamaged, what)
}
