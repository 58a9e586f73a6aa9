package cli

import (
	"fmt"
	"strings"

	"sluice.dev/sluice/agent/api"
)

// lookUpJSON is the way in which a data plane looks something up.
type lookUpJSON struct {
	Name  string `json:"name"`
	Way   string `json:"way"`
	Asked bool   `json:"asked,omitempty"`
	// Of each way that its CPU has, when the data plane tried them.
	Cycles map[string]float64 `json:"cycles,omitempty"`
}

func lookUps(g *api.Greeting) []lookUpJSON {
	var all []lookUpJSON
	for _, l := range g.GetLookUps() {
		told := lookUpJSON{Name: l.GetName(), Way: l.GetWay(), Asked: l.GetAsked(), Cycles: map[string]float64{}}
		for _, w := range l.GetWays() {
			told.Cycles[w.GetName()] = w.GetCycles()
		}
		all = append(all, told)
	}
	return all
}

// lookUpsText is for people: "acl by sse, ip4 by avx2 (as asked)".
func lookUpsText(all []lookUpJSON) string {
	var texts []string
	for _, l := range all {
		text := fmt.Sprintf("%s by %s", l.Name, l.Way)
		if l.Asked {
			text += " (as asked)"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
