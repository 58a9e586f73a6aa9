// SPDX-License-Identifier: Apache-2.0

package object

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

type thing struct{ key Key }

func (t *thing) Key() Key { return t.key }

func TestATableEqualsAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var table Table[*thing]
	same := map[Key]*thing{}
	for i := range 200_000 {
		k := Key{[]string{"Acl", "Port", "Session"}[random.IntN(3)], fmt.Sprint("n-", random.IntN(500+i/100))}
		switch random.IntN(5) {
		case 0, 1:
			if table.Get(k) != same[k] {
				t.Fatalf("%s is another", k)
			}
		case 2, 3:
			one := &thing{k}
			if before, _ := table.Put(one); before != same[k] {
				t.Fatalf("%s was another", k)
			}
			same[k] = one
		case 4:
			table.Delete(k)
			delete(same, k)
		}
		if i == 1000 {
			table.Reserve(100_000)
		}
		if table.Len() != len(same) {
			t.Fatalf("there are %d, not %d", table.Len(), len(same))
		}
	}
	for k, one := range same {
		if table.At(table.Number(k)) != one {
			t.Errorf("%s has another's number", k)
		}
	}
	all := map[Key]*thing{}
	for one := range table.All() {
		all[one.key] = one
	}
	if !maps.Equal(all, same) {
		t.Error("not all of them are ranged over")
	}
}

func TestHoldingsAreWhoseTheyWereTakenBy(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	h := NewHoldings(func(a, b *thing) int { return a.key.Compare(b.key) })
	things := []*thing{{Key{"A", "a"}}, {Key{"A", "b"}}, {Key{"A", "c"}}}
	same := map[Mark]*thing{}
	for range 200_000 {
		// Few homes, so that many stand where another's place would be.
		m := Mark{what: uint64(random.IntN(300)) * 7 << uint(random.IntN(2)*20)}
		claimant := things[random.IntN(len(things))]
		holder, taken := h.Holder(claimant, m)
		if before := same[m]; taken != (before != nil && before != claimant) || taken && holder != before {
			t.Fatalf("%v is another's", m)
		}
		switch {
		case random.IntN(2) == 0:
			h.Release(claimant, m)
			if same[m] == claimant {
				delete(same, m)
			}
		case !taken:
			h.Take(claimant, m)
			same[m] = claimant
		}
	}
	taken := 0
	for i := range h.shards {
		taken += h.shards[i].count
	}
	if len(same) != taken {
		t.Errorf("%d are taken, not %d", taken, len(same))
	}
}

func TestNamesOfOneKindSpreadOverATable(t *testing.T) {
	var table Table[*thing]
	for i := range 100_000 {
		table.Put(&thing{Key{"Session", fmt.Sprint("subscriber-", i)}})
	}
	var far []int
	for _, s := range table.shards {
		for i, p := range s.places {
			if p.number != 0 {
				far = append(far, (i-int(p.hash))&(len(s.places)-1))
			}
		}
	}
	slices.Sort(far)
	if middle := far[len(far)/2]; middle > 8 {
		t.Errorf("half of them are more than %d places from home", middle)
	}
}

func TestAnItemKeepsItsNumberWhileOthersComeAndGo(t *testing.T) {
	var table Table[*thing]
	k := Key{"Acl", "stays"}
	_, number := table.Put(&thing{k})
	for i := range 10_000 {
		table.Put(&thing{Key{"Acl", fmt.Sprint(i)}})
		table.Delete(Key{"Acl", fmt.Sprint(i - 100)})
	}
	if before, same := table.Put(&thing{k}); before == nil || same != number || table.Number(k) != number || table.At(number).key != k {
		t.Errorf("it has number %d, not %d", table.Number(k), number)
	}
	if table.given > 200 {
		t.Errorf("%d numbers were given out for 101 things", table.given)
	}
}

// A list is the model of Holdings.
func TestPartsOfAClaimBelongToTheirClaimants(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	h := NewHoldings(cmp.Compare[int])
	type one struct {
		holder int
		m      Mark
	}
	var model []one
	for range 200_000 {
		m := Mark{what: uint64(random.IntN(40)) << uint(random.IntN(2)*57), part: uint64(random.IntN(4))}
		claimant := 1 + random.IntN(5)
		var excluded []int
		for _, o := range model {
			if o.m.what == m.what && o.holder != claimant && (o.m.part == m.part || o.m.part == 0 || m.part == 0) {
				excluded = append(excluded, o.holder)
			}
		}
		holder, taken := h.Holder(claimant, m)
		if taken != (len(excluded) > 0) || taken && !slices.Contains(excluded, holder) {
			t.Fatalf("%v: %d has it, not one of %v", m, holder, excluded)
		}
		var sharers []int
		for _, o := range model {
			if o.m.what == m.what && o.m.part != 0 {
				sharers = append(sharers, o.holder)
			}
		}
		slices.Sort(sharers)
		if got := h.Sharers(m); !slices.Equal(got, sharers) {
			t.Fatalf("%v: %v share it, not %v", m, got, sharers)
		}
		mine := slices.Index(model, one{claimant, m})
		switch {
		case random.IntN(2) == 0:
			if had := h.Release(claimant, m); had != (mine >= 0) {
				t.Fatalf("%d had %v: %v", claimant, m, had)
			} else if had {
				model = slices.Delete(model, mine, mine+1)
			}
		case !taken && mine < 0:
			h.Take(claimant, m)
			model = append(model, one{claimant, m})
		}
	}
	if len(h.beside) == 0 {
		t.Error("nothing has several parts")
	}
}
