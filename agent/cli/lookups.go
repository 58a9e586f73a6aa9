// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"sluice.dev/sluice/agent/api"
)

// lookUpJSON is the way in which a data plane looks something up, or the engine that serves a cipher.
type lookUpJSON struct {
	Name  string `json:"name"`
	Way   string `json:"way"`
	Asked bool   `json:"asked,omitempty"`
	// Of each way that its CPU has, when the data plane tried them.
	Cycles map[string]float64 `json:"cycles,omitempty"`
}

func lookUps(all []*api.LookUp) []lookUpJSON {
	var output []lookUpJSON
	for _, l := range all {
		one := lookUpJSON{Name: l.GetName(), Way: l.GetWay(), Asked: l.GetAsked(), Cycles: map[string]float64{}}
		for _, w := range l.GetWays() {
			one.Cycles[w.GetName()] = w.GetCycles()
		}
		output = append(output, one)
	}
	return output
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

// ciphersText is for people, by engine: "ipsec-mb for aes-gcm, aes-cbc-sha256; sm-vaes for sm4-gcm".
func ciphersText(all []lookUpJSON) string {
	var engines []string
	names := map[string][]string{}
	for _, l := range all {
		if names[l.Way] == nil {
			engines = append(engines, l.Way)
		}
		name := l.Name
		if l.Asked {
			name += " (as asked)"
		}
		names[l.Way] = append(names[l.Way], name)
	}
	var texts []string
	for _, e := range engines {
		texts = append(texts, e+" for "+strings.Join(names[e], ", "))
	}
	return strings.Join(texts, "; ")
}
