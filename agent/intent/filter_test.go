package intent

import "testing"

func TestASelectorHoldsForTheLabelsItDescribes(t *testing.T) {
	labels := map[string]string{"city": "bonn", "tier": "", "a.b/c": "x=y"}
	for selector, want := range map[string]bool{
		"": true, "city": true, "!city": false, "city=bonn": true, "city == bonn": true, "city!=bonn": false, "city=koeln": false,
		"none": false, "!none": true, "none!=x": true, "none=": false, "tier=": true, "tier": true, "city=bonn,tier,!none": true,
		"city=bonn,tier=gold": false, "a.b/c=x=y": true,
	} {
		conditions, err := parseSelector(selector)
		if err != nil {
			t.Errorf("%q: %v", selector, err)
			continue
		}
		got := true
		for _, c := range conditions {
			got = got && c.holds(labels)
		}
		if got != want {
			t.Errorf("%q: %v, want %v", selector, got, want)
		}
	}
	for _, selector := range []string{",", "=", "=x", "!", "!=x", "a b=c", "a,", "!!a"} {
		if _, err := parseSelector(selector); err == nil {
			t.Errorf("%q is taken", selector)
		}
	}
}
