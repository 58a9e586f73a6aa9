// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
)

// namedAMFs of an access node are in a text.
const namedAMFs = 4

// Serves implements Pool.
func (s *Service) Serves(node string, slice *api.Slice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[node]
	if n == nil || !s.synced {
		return nil
	}
	d := demand{plmn: nas.PLMN(n.Plmn)}
	if slice != nil {
		item := snssai(slice)
		one := sliceOf(&item)
		d.needed = &one
	}
	pool := s.pool(node, "")
	if slices.ContainsFunc(pool, func(a *amf) bool { return a.phase == ready && a.serves(d.plmn, d.needed) }) {
		return nil
	}
	return fmt.Errorf("%w at AccessNode/%s%s", ErrNoAMF, node, whyNone(pool, d))
}

// whyNone says what each AMF of a pool lacks: ": Amf/core-1 is not ready; Amf/core-2 serves PLMN 00101 with the slices 1, 2-0000aa, and not 3".
func whyNone(pool []*amf, d demand) string {
	if len(pool) == 0 {
		return ": no Amf names it"
	}
	pool = slices.SortedFunc(slices.Values(pool), func(a, b *amf) int { return strings.Compare(a.name, b.name) })
	var each []string
	for _, a := range pool[:min(len(pool), namedAMFs)] {
		each = append(each, "Amf/"+a.name+" "+a.lacks(d))
	}
	if len(pool) > namedAMFs {
		each = append(each, "and others")
	}
	return ": " + strings.Join(each, "; ")
}

// lacks is why an AMF does not serve a subscriber.
func (a *amf) lacks(d demand) string {
	slicesOf, known := a.plmns[d.plmn]
	switch {
	case a.phase != ready:
		return "is not ready"
	case !known:
		return "does not serve PLMN " + string(d.plmn)
	case d.needed != nil && !slices.Contains(slicesOf, *d.needed):
		var names []string
		for _, one := range slicesOf[:min(len(slicesOf), namedAMFs)] {
			names = append(names, one.String())
		}
		if len(slicesOf) > namedAMFs {
			names = append(names, "others")
		}
		return "serves PLMN " + string(d.plmn) + " with the slices " + strings.Join(names, ", ") + ", and not " + d.needed.String()
	}
	return "takes no new subscribers"
}

// String is "1-0000aa": SST in decimal digits, and SD.
func (s slice) String() string {
	text := fmt.Sprint(s.sst)
	if s.sd != "" {
		text += "-" + hex.EncodeToString([]byte(s.sd))
	}
	return text
}
